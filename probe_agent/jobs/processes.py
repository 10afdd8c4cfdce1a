"""What /proc shows of a process, and which job it belongs to. Its environment is not used: users can write anything there.

The job comes from the cgroup that Slurm made (core.catalogue.slurm_cgroup). Where the cgroup has an SLUID, the job's Prolog
was told which job that is (SLURM_JOB_SLUID, 25.11 and later). Without such a cgroup the job comes from the root-owned
`slurmstepd: [4242.0]` that the process descends from. Checked in slurmd/slurmstepd of Slurm 22.05 to 26.05.
"""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from probing_cluster.core import digits
from probing_cluster.core.catalogue import slurm_cgroup
from probing_cluster.probe_agent.jobs import guarded_reads

PROC = Path("/proc")
NO_SLUIDS: Mapping[str, int] = {}
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_STEPD = re.compile(rb"^slurmstepd: \[(\d+)\.(extern\b)?")
_ROOTS = re.compile(rb"^Uid:\t0\t0\t", re.MULTILINE)
"""Both the real and the effective user are root. Who starts a set-uid program chooses its title, but stays its real user."""
_STATE = re.compile(rb"^State:\t([A-Za-z])", re.MULTILINE)
_USER = re.compile(rb"^Uid:\t(\d+)\t", re.MULTILINE)
_TRACER = re.compile(rb"^TracerPid:\t(\d+)$", re.MULTILINE)
_PARENT = re.compile(rb"^PPid:\t(\d+)$", re.MULTILINE)
_NUMBERS = re.compile(rb"^NSpid:\t\d+\t(?:.*\t)?(\d+)$", re.MULTILINE)
"""Of a process in another PID namespace than ours; the last number is its number there."""
_MAX_DEPTH = 64
_MAX_INSIDE = 4096
"""Processes of one user that one search looks at."""
_MAX_THREADS = 4096


@dataclass(frozen=True, kw_only=True)
class ProcessFacts:
    """One process at one moment."""

    pid: int
    parent: int
    state: str
    start_ticks: int
    cpu_s: float
    """User and system time of the process and its waited-for children."""
    uid: int
    wchan: str
    moved_bytes: int | None
    """Characters read and written; None when the kernel does not count them."""


def facts(pid: int, proc: Path = PROC, owner: int | None = None) -> ProcessFacts | None:
    """What is known of `pid`; None when there is no such process, of `owner` where that is given. Raises ProcessHangs."""
    try:
        uid = (proc / str(int(pid))).stat().st_uid
    except OSError:
        return None
    if owner not in (None, uid):
        return None
    return guarded_reads.READS.read(pid, uid, lambda: _facts(pid, uid, proc))


def started_s(found: ProcessFacts) -> float:
    """When a process started, by the monotonic clock. The kernel counts ticks since the boot, and times asleep with them."""
    asleep_s = time.clock_gettime(time.CLOCK_BOOTTIME) - time.clock_gettime(time.CLOCK_MONOTONIC)
    return found.start_ticks / _TICKS_PER_S - asleep_s


def _facts(pid: int, uid: int, proc: Path) -> ProcessFacts | None:
    home = proc / str(int(pid))
    try:
        raw = (home / "stat").read_bytes()
    except OSError:
        return None
    fields = raw.rpartition(b")")[2].split()
    if len(fields) < 20:
        return None
    return ProcessFacts(
        pid=pid,
        parent=int(fields[1]),
        state=fields[0].decode("ascii", "replace"),
        start_ticks=int(fields[19]),
        cpu_s=sum(int(f) for f in fields[11:15]) / _TICKS_PER_S,
        uid=uid,
        wchan=_read(home / "wchan", 64).decode("ascii", "replace").strip("0\n "),
        moved_bytes=_moved(_read(home / "io", 1024)),
    )


def parent_of(pid: int, proc: Path = PROC) -> int | None:
    """The parent of a process; None when it is gone. From its status, which can always be read."""
    found = _PARENT.search(_read(proc / str(int(pid)) / "status", 4096))
    return int(found[1]) if found is not None else None


def state_of(pid: int, proc: Path = PROC) -> str | None:
    """R, S, D, T, Z and so on; None when it is gone. From its status, too."""
    found = _STATE.search(_read(proc / str(int(pid)) / "status", 4096))
    return found[1].decode("ascii") if found is not None else None


def tracer_of(pid: int, proc: Path = PROC) -> int | None:
    """The user who started the process that traces `pid` (a debugger, strace); None when nothing does, or one of them is gone."""
    traced = _TRACER.search(_read(proc / str(int(pid)) / "status", 4096))
    if traced is None or traced[1] == b"0":
        return None
    found = _USER.search(_read(proc / str(int(traced[1])) / "status", 4096))
    return int(found[1]) if found is not None else None


def _read(path: Path, most: int) -> bytes:
    try:
        with path.open("rb") as handle:
            return handle.read(most)
    except OSError:
        return b""


def _moved(io: bytes) -> int | None:
    counted = dict(line.split(b": ") for line in io.splitlines() if b": " in line)
    if b"rchar" not in counted or b"wchar" not in counted:
        return None
    return int(counted[b"rchar"]) + int(counted[b"wchar"])


def job_of(pid: int, proc: Path = PROC, sluids: Mapping[str, int] = NO_SLUIDS) -> int | None:
    """The Slurm job a process belongs to; None when it belongs to none that can be proved.

    `sluids`: the job of each SLUID on this node.
    """
    named = _of_cgroup(_read(proc / str(int(pid)) / "cgroup", 4096))
    if named is not None and named.job_id is not None:
        return named.job_id
    if named is not None and named.sluid is not None and (listed := sluids.get(named.sluid)) is not None:
        return listed
    here = pid
    for _ in range(_MAX_DEPTH):
        parent = parent_of(here, proc)
        if parent is None or (parent <= 1 and here != pid):
            return None
        if (title := _stepd(here, proc)) is not None:
            return int(title[1])
        here = parent
    return None


def _of_cgroup(table: bytes) -> slurm_cgroup.CgroupJob | None:
    """The job that a process's cgroup file names: one line on cgroup v2, a line per controller on v1."""
    paths = (
        line.partition(":")[2].partition(":")[2] for line in table.decode("utf-8", "replace").split("\n")
    )
    return next((job for path in paths if (job := slurm_cgroup.of_path(path)) is not None), None)


def is_extern(pid: int, proc: Path = PROC) -> bool:
    """Whether the process is the `sleep` by which slurmstepd keeps the step `extern` open, and no program of the job's."""
    if _read(proc / str(int(pid)) / "comm", 64) != b"sleep\n" or (parent := parent_of(pid, proc)) is None:
        return False
    title = _stepd(parent, proc)
    return title is not None and title[2] is not None


def _stepd(pid: int, proc: Path) -> re.Match[bytes] | None:
    """The title of a slurmstepd of root's; None for any other process.

    A user's command line is not read: reading it takes a lock that a stuck process may hold for as long as its user likes.
    """
    home = proc / str(int(pid))
    if _ROOTS.search(_read(home / "status", 4096)) is None:
        return None
    return _STEPD.match(_read(home / "cmdline", 256))


def ancestors(pid: int, proc: Path = PROC) -> frozenset[int]:
    """The running processes that `pid` descends from."""
    found: set[int] = set()
    for _ in range(_MAX_DEPTH):
        parent = parent_of(pid, proc)
        if parent is None or parent <= 1 or parent in found:
            break
        found.add(pid := parent)
    return frozenset(found)


def namespace_of(pid: int | str, proc: Path = PROC) -> int | None:
    """The inode of a process's PID namespace; None when it cannot be read. Raises ProcessHangs, but not of `self`."""
    home = proc / str(pid)
    link = home / "ns" / "pid"
    try:
        own = pid == "self"
        found = (
            link.readlink() if own else guarded_reads.READS.read(int(pid), home.stat().st_uid, link.readlink)
        )
        return int(str(found)[5:-1])  # pid:[4026531836]
    except (OSError, ValueError):
        return None


@dataclass(frozen=True, kw_only=True)
class NamespaceSearch:
    """What one search for processes in other PID namespaces found."""

    found: Mapping[tuple[int, int], int]
    """(namespace, number in it) to our number."""
    unanswered: frozenset[int]
    """Processes that were not asked or did not answer: what was not found may be one of them."""


def inside(
    uid: int, numbers: Collection[int] | None = None, first: Collection[int] = (), proc: Path = PROC
) -> NamespaceSearch:
    """Search a user's processes in other PID namespaces than ours whose number there is one of `numbers` (None: any); those of `first` first."""
    found: dict[tuple[int, int], int] = {}
    unanswered: set[int] = set()
    pids = sorted(_of_user(uid, proc), key=lambda pid: pid not in first)
    for pid in pids[:_MAX_INSIDE]:
        # Its status never waits. Only those that may be sought are asked what may have to be waited for.
        own = _NUMBERS.search(_read(proc / str(pid) / "status", 4096))
        if own is None or (numbers is not None and int(own[1]) not in numbers):
            continue
        try:
            namespace = namespace_of(pid, proc)
        except guarded_reads.ProcessHangs:
            unanswered.add(pid)
            continue
        if namespace is not None:
            found[namespace, int(own[1])] = pid
    return NamespaceSearch(found=found, unanswered=frozenset(unanswered.union(pids[_MAX_INSIDE:])))


def _of_user(uid: int, proc: Path) -> Iterator[int]:
    for entry in os.scandir(proc):
        with contextlib.suppress(OSError):  # it has just ended
            if digits.is_number(entry.name) and entry.stat().st_uid == uid:
                yield int(entry.name)


def children_of(pid: int, proc: Path = PROC) -> list[int]:
    """The direct children of a process, whichever thread started them; empty when it is gone or the kernel does not list them."""
    tasks = proc / str(int(pid)) / "task"
    try:
        threads = sorted(tasks.iterdir(), key=lambda one: (one.name != str(pid), one.name))[:_MAX_THREADS]
    except OSError:
        return []
    lists = (_read(thread / "children", 65536).split() for thread in threads)
    return [int(word) for words in lists for word in words if digits.is_number(word)]
