"""The node as a check sees it: a filesystem root, a clock, a few tools, and what Slurm expects.

A directory can be a node: every path is below `root`, every command comes from `command_dirs`,
NVML from `nvml_library`. Readings shared by several checks are taken once per sweep.
"""

from __future__ import annotations

import errno
import functools
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar, cast

from probing_cluster.core import certificates, processes
from probing_cluster.core import clock as clocks
from probing_cluster.healthchecks import findings

SYSTEM_COMMAND_DIRS = ("/usr/sbin", "/usr/bin", "/sbin", "/bin", "/usr/local/sbin", "/usr/local/bin")

UNREADABLE = {errno.EINVAL, errno.EOPNOTSUPP, errno.ENODATA, errno.ENXIO, errno.ENODEV, errno.ENOSYS}
"""Errors with which sysfs says "this value does not exist here": unknown, never zero."""


T = TypeVar("T")

_NUMBERS = re.compile(r"([0-9]+)")


@dataclass(frozen=True, kw_only=True)
class Expectations:
    """What Slurm says this node should have and who is on it; None = not known."""

    gpu_count: int | None = None
    """GPUs configured for the node in Slurm, of whatever maker."""
    cpu_count: int | None = None
    memory_bytes: int | None = None
    """RealMemory configured in Slurm."""
    allocated: Mapping[int, tuple[str, ...]] | None = None
    """Job id to the UUIDs of its GPUs here, of the jobs whose GPUs are known."""
    running: frozenset[int] | None = None
    """Every job on the node now."""
    ended: frozenset[int] | None = None
    """Jobs that ended here lately and are not on the node any more. A job in neither set is unknown."""
    sluids: Mapping[str, int] | None = None
    """The jobs of now and lately by what Slurm calls them in cgroups (26.05)."""
    uids: frozenset[int] | None = None
    """Owners of the jobs on the node now."""


@dataclass(frozen=True, kw_only=True)
class NodeSpec:
    """Where and what the node is; the same for every check."""

    node: str
    cluster: str = "cluster"
    root: Path = Path("/")
    command_dirs: tuple[str, ...] = ()
    """Where tools are looked up, in order; empty = the node's own, below `root`."""
    nvml_library: str | None = None
    clock: clocks.Clock = clocks.SYSTEM
    expected: Expectations = field(default_factory=Expectations)
    edge: processes.Edge = processes.EDGE
    certificates: tuple[certificates.CertificateFile, ...] = ()
    """The files by which the agent gets into the database."""
    self_state: Mapping[str, Any] = field(default_factory=dict)
    """What the runner (and the agent around it) knows about itself, for `agent_self`."""


class NodeView:
    """One check's window on the node. `memory` survives to the check's next run in this boot."""

    def __init__(
        self,
        spec: NodeSpec,
        *,
        limits: Mapping[str, Any] | None = None,
        memory: dict[str, Any] | None = None,
        facts: dict[str, Any] | None = None,
        deadline_s: float = 5.0,
    ) -> None:
        self.spec = spec
        self.limits: Mapping[str, Any] = limits or {}
        self.memory: dict[str, Any] = memory if memory is not None else {}
        self.facts: dict[str, Any] = facts if facts is not None else {}
        self.deadline_s = deadline_s
        self.stuck: list[processes.ProcessIdentity] = []

    @property
    def expected(self) -> Expectations:
        return self.spec.expected

    def shared(self, key: str, read: Callable[[], T]) -> T:
        """`read()`, once per child: several checks look at the same devices."""
        if key not in self.facts:
            self.facts[key] = read()
        return cast("T", self.facts[key])

    @functools.cached_property
    def now(self) -> datetime:
        return self.spec.clock.now()

    @functools.cached_property
    def uptime_s(self) -> float | None:
        """Seconds since boot."""
        text = self.text("/proc/uptime")
        return float(text.split()[0]) if text else None

    def path(self, absolute: str) -> str:
        """The path on this machine of the node's `absolute` path."""
        root = str(self.spec.root)
        return absolute if root == "/" else root + absolute

    def exists(self, absolute: str) -> bool:
        return os.path.exists(self.path(absolute))  # noqa: PTH110  (a Path per sysfs file would double the sweep)

    def text(self, absolute: str) -> str | None:
        """A small file's text without the trailing newline; None when the node does not have the value.

        Any other error (EIO, EACCES) is raised: it is the check's `error`.
        """
        return read_text(self.path(absolute))

    def number(self, absolute: str) -> int | None:
        """A file holding one decimal or 0x number; None when missing or not a number (`N/A (no PMA)`)."""
        return to_int(self.text(absolute))

    def names(self, absolute: str) -> list[str]:
        """Names in a directory, numbers in number order; empty when there is no such directory."""
        try:
            return sorted(os.listdir(self.path(absolute)), key=natural)  # noqa: PTH208
        except (FileNotFoundError, NotADirectoryError):
            return []

    def run(self, name: str, *args: str, deadline_s: float | None = None) -> processes.Output:
        """What the tool says. Raises Absent when it is not installed, Undetermined at its deadline."""
        program = self.which(name)
        if program is None:
            raise findings.Absent(f"{name} is not installed")
        limit_s = deadline_s if deadline_s is not None else max(0.5, self.deadline_s - processes.KILL_GRACE_S)
        path = ":".join(self._command_dirs) + ":" + ":".join(SYSTEM_COMMAND_DIRS)
        env = {"PATH": path, "LC_ALL": "C", "HOME": "/", "TZ": "UTC"}
        try:
            answer = processes.run([program, *args], deadline_s=limit_s, env=env, edge=self.spec.edge)
        except OSError as exc:
            raise findings.Undetermined(f"{name} cannot be started: {exc.strerror}") from exc
        if answer.stuck is not None:
            self.stuck.append(answer.stuck)
        if answer.timed_out:
            raise TimedOut(f"{name} gave no answer in {limit_s:g} s")
        return answer

    def which(self, name: str) -> str | None:
        """The tool's full path; None when it is not installed."""
        for directory in self._command_dirs:
            candidate = f"{directory}/{name}"
            if os.access(candidate, os.X_OK):
                return candidate
        return None

    @functools.cached_property
    def _command_dirs(self) -> tuple[str, ...]:
        return self.spec.command_dirs or tuple(self.path(d) for d in SYSTEM_COMMAND_DIRS)


class TimedOut(findings.Undetermined):
    """The node did not answer in time."""


def read_text(path: str) -> str | None:
    """`NodeView.text` of a path of this machine."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
        try:
            raw = _read_all(fd)
        finally:
            os.close(fd)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as exc:
        if exc.errno in UNREADABLE:
            return None
        raise
    return raw.decode("utf-8", "replace").rstrip("\n")


def _read_all(fd: int) -> bytes:
    # Always to the empty read: /proc hands out its text in pieces shorter than what was asked for.
    raw = os.read(fd, 65536)
    if not raw:
        return raw
    parts = [raw]
    while chunk := os.read(fd, 1 << 20):
        parts.append(chunk)
    return b"".join(parts)


def to_int(text: str | None) -> int | None:
    """`text` as an integer, or None when it is not one."""
    if text is None:
        return None
    try:
        return int(text, 0) if text[:2].lower() == "0x" else int(text)
    except ValueError:
        return None


def natural(name: str) -> list[Any]:
    """A sort key that puts cpu2 before cpu10."""
    return [int(part) if i % 2 else part for i, part in enumerate(_NUMBERS.split(name))]
