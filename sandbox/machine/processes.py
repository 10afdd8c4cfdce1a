"""Finding and ending the sandbox's processes.

Every process started here carries the sandbox's directory in its environment, and so do its
children. That mark, not a pid file, is what finds them again: it survives a crash of ours and
cannot name a stranger after a pid is reused. slurmstepd writes its title over its environment and
is known by the log that it holds open instead; the jobs' processes descend from it, and the
TaskProlog marks them as well. Slurm's commands that our service starts have a clean environment, and our
own commands that somebody typed have no mark: both are known by the configuration that they were given.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from probing_cluster.core import digits, errors

MARK = "PROBING_SANDBOX"
"""Environment variable: the sandbox's directory."""
ROLE = "PROBING_SANDBOX_ROLE"
"""Environment variable: what the process was started as (slurmctld, slurmd-n1, agent-n1 …)."""

STARTED_BY = "PROBING_SANDBOX_BY"
"""Environment variable: the Python installation (sys.prefix) that started the sandbox."""


CLIENTS = frozenset(
    {"salloc", "sbatch", "srun", "scancel", "scontrol", "squeue", "sinfo", "sacct", "sacctmgr"}
)
"""Slurm's commands: one that waits for a controller that has gone waits for ever."""
OURS = frozenset({"probing-ctl", "probing-report", "probing-agent", "probing-check", "probing-diagnos"})
"""Our own, such as a `web serve` from the sandbox's shell, by the 15 letters that the kernel keeps."""


_PF_KTHREAD = 0x0020_0000


class StillRunning(errors.ProbingError):
    """A process of the sandbox cannot be ended."""


@dataclass(frozen=True, kw_only=True)
class MachineProcess:
    """One live process of a sandbox."""

    pid: int
    parent: int
    role: str
    """What its nearest marked ancestor was started as; empty when unknown."""
    name: str


def is_alive(pid: int) -> bool:
    """Whether `pid` is there and no zombie."""
    return _stat(pid) is not None


def pids_of(directory: Path, role: str) -> list[int]:
    """Pids of the process started as `role` and of all that descend from it, parents first."""
    return [p.pid for p in listing(directory) if p.role == role]


def running(started_by: str) -> list[Path]:
    """Directories of the sandboxes that the installation `started_by` started and of which something still runs."""
    mark, wanted = os.fsencode(f"{MARK}="), os.fsencode(f"{STARTED_BY}={started_by}")
    environments = [environ for pid in _all_pids() if wanted in (environ := _environ(pid))]
    marks = {word.removeprefix(mark) for environ in environments for word in environ if word.startswith(mark)}
    return sorted(Path(os.fsdecode(directory)) for directory in marks)


def listing(directory: Path) -> list[MachineProcess]:
    """Every live process of the sandbox in `directory`: marked, or descending from a marked one."""
    table = {pid: row for pid in _all_pids() if (row := _stat(pid)) is not None}
    roles = {pid: role for pid, row in table.items() if (role := _role(pid, row[1], directory)) is not None}
    for pid in table:
        chain, at = [], pid
        while at not in roles and at in table and at > 1:
            chain.append(at)
            at = table[at][0]
        if at in roles:
            roles |= dict.fromkeys(chain, roles[at])
    ours = _ancestors(os.getpid(), table)
    return [
        MachineProcess(pid=pid, parent=table[pid][0], role=roles[pid], name=table[pid][1])
        for pid in sorted(roles)
        if pid not in ours
    ]


def _role(pid: int, name: str, directory: Path) -> str | None:
    """What a process was started as; None when it carries no mark of this sandbox."""
    if name == "slurmstepd":
        return _role_by_log(pid, directory)
    environ = _environ(pid)
    if os.fsencode(f"{MARK}={directory}") not in environ:
        variable = "SLURM_CONF" if name in CLIENTS else "PROBING_CONFIG" if name in OURS else None
        conf = os.fsencode(f"{variable}={directory}/")
        return "" if variable and any(word.startswith(conf) for word in environ) else None
    prefix = os.fsencode(f"{ROLE}=")
    return next((os.fsdecode(v[len(prefix) :]) for v in environ if v.startswith(prefix)), "")


def _role_by_log(pid: int, directory: Path) -> str | None:
    """The role of a slurmstepd: that of the slurmd whose log it holds open, even a deleted one."""
    with contextlib.suppress(FileNotFoundError, ProcessLookupError, PermissionError):
        for entry in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(FileNotFoundError):
                target = Path(str(entry.readlink()).removesuffix(" (deleted)"))
                if target.parent == directory / "log" and target.stem.startswith("slurmd-"):
                    return target.stem
    return None


def send(pids: Iterable[int], number: signal.Signals) -> None:
    """Signals those of `pids` that are still there."""
    for pid in pids:
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            continue


def end(directory: Path, roles: Iterable[str], *, timeout_s: float = 10) -> None:
    """Asks the processes of these roles to end, then kills what remains; returns when none is left."""
    wanted = set(roles)
    _end(lambda: [p.pid for p in listing(directory) if p.role in wanted], timeout_s)


def end_all(directory: Path, *, but: Iterable[str] = (), timeout_s: float = 5) -> None:
    """Ends every process of the sandbox, jobs included, but those roles; returns when none is left."""
    spared = set(but)
    _end(lambda: [p.pid for p in listing(directory) if p.role not in spared], timeout_s)


def _end(find: Callable[[], list[int]], timeout_s: float) -> None:
    deadline = time.monotonic() + timeout_s
    left = find()
    send(left, signal.SIGTERM)
    # A look at every process of the machine takes long on a busy one: the next comes when those of the last have gone.
    while left and time.monotonic() < deadline:
        left = [pid for pid in left if is_alive(pid)]
        if left:
            time.sleep(0.05)
        else:
            left = find()
    kill(find)


def kill(find: Callable[[], list[int]], *, timeout_s: float = 10) -> None:
    """Kills what `find` finds, until two looks in a row find nothing; raises StillRunning when it does not die.

    Killing races with forking, and a process that is just executing a program shows no mark for an instant.
    """
    deadline, looks = time.monotonic() + timeout_s, 0
    while looks < 2:
        left = find()
        send(left, signal.SIGKILL)
        looks = 0 if left else looks + 1
        if left and time.monotonic() > deadline:
            raise StillRunning(f"processes {left} survived SIGKILL for {timeout_s:g} s")
        time.sleep(0.02)


def _ancestors(pid: int, table: Mapping[int, tuple[int, str]]) -> set[int]:
    """`pid` and everything above it: a command never ends the shell it was typed into."""
    found: set[int] = set()
    while pid in table and pid not in found:
        found.add(pid)
        pid = table[pid][0]
    return found


def _all_pids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if digits.is_number(name)]  # noqa: PTH208  # ten times as fast here


def _stat(pid: int) -> tuple[int, str] | None:
    """(parent pid, name) of a live process; None for one that is gone, a zombie or a thread of the kernel's."""
    try:
        text = _read(f"/proc/{pid}/stat")
    except (FileNotFoundError, ProcessLookupError):
        return None
    name, _, rest = text.partition(b"(")[2].rpartition(b") ")
    fields = rest.split()
    if fields[0] in {b"Z", b"X"} or int(fields[6]) & _PF_KTHREAD:
        return None
    return int(fields[1]), os.fsdecode(name)


def _read(path: str) -> bytes:
    """A file of /proc, without what Path and a stream take: a look reads hundreds."""
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        parts = []
        while part := os.read(handle, 1 << 16):
            parts.append(part)
        return b"".join(parts)
    finally:
        os.close(handle)


def _environ(pid: int) -> list[bytes]:
    try:
        return _read(f"/proc/{pid}/environ").split(b"\0")
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return []
