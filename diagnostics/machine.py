"""What a test touches of the node: arithmetic, memory, links, tools. The one seam to the hardware, with a twin in the sandbox."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from operator import mul
from pathlib import Path

from probing_cluster.core import processes
from probing_cluster.diagnostics import cpus
from probing_cluster.healthchecks import findings

Matrix = list[list[float]]
_STUCK = processes.StuckChildren()
"""Tools that would not die, by name: the tests that follow do not start another."""


@dataclass(frozen=True, kw_only=True)
class Group:
    """The nodes that run one test together, in ring order, and how each is reached."""

    members: tuple[str, ...]
    addresses: Mapping[str, tuple[str, int]]
    """Node to host and TCP port."""
    token: bytes
    """What every member of this round knows, and nobody else."""


@dataclass(frozen=True, kw_only=True)
class Options:
    """What the site lets tests use."""

    size: int = 128
    """Order of the matrices multiplied on a CPU."""
    gpu_size: int = 8192
    torch_cpu_size: int = 1024
    """Order of the matrices that torch multiplies where there is no GPU."""
    repeats: int = 5
    bytes_moved: int = 1 << 22
    torch_python: str = ""
    disk_directory: str = ""
    mounts: tuple[str, ...] = ()
    connect_s: float = 10.0
    seed: int = 1
    command_directories: tuple[str, ...] = (
        "/usr/local/bin",
        "/usr/bin",
        "/bin",
        "/usr/sbin",
        "/sbin",
        "/opt/nccl-tests/build",
    )


@dataclass(frozen=True, kw_only=True)
class Machine:
    """One node under test."""

    node: str
    options: Options = field(default_factory=Options)
    group: Group | None = None
    """None in tests of one node."""
    root: Path = Path("/")

    def product(self, a: Matrix, b: Matrix) -> Matrix:
        """a times b on the CPU."""
        columns = list(zip(*b, strict=True))
        return [[sum(map(mul, row, column)) for column in columns] for row in a]

    def copy(self, data: bytes) -> bytes:
        """A copy of `data` through main memory."""
        return bytes(bytearray(data))

    def send(self, peer: str, link: socket.socket, data: bytes | memoryview) -> None:
        """Bytes to a peer."""
        del peer
        link.sendall(data)

    def answers(self) -> bool:
        """Whether this node takes part at all; a machine that is dead on its links does not."""
        return True

    def cpu_s(self) -> float:
        """The clock that products are timed by: this thread's processor time, which a busy neighbour does not lengthen."""
        return time.thread_time()

    def held_back_s(self) -> float:
        """How long a CPU quota has kept this process from its processors, which their own time does not show."""
        return cpus.throttled_s(self.root)

    def quota_times(self) -> float:
        """How many times as long one thread takes by that quota."""
        return cpus.quota_times(self.root)

    def wall_s(self) -> float:
        """The clock that transfers are timed by."""
        return time.perf_counter()

    def tool(self, name: str) -> Path:
        """The installed program called `name`; raises Absent."""
        for directory in self.options.command_directories:
            path = Path(directory) / name
            if path.is_file() and os.access(path, os.X_OK):
                return path
        raise findings.Absent(f"{name} is not installed here")

    def run_tool(self, command: Sequence[str], deadline_s: float) -> tuple[int, str]:
        """Exit code and output of a tool; raises Undetermined when it does not start or end."""
        return run_tool(command, deadline_s)


def run_tool(command: Sequence[str], deadline_s: float) -> tuple[int, str]:
    """Exit code and output of a program, its whole group killed at the deadline."""
    name = Path(command[0]).name
    try:
        done = _STUCK.run(name, command, deadline_s=deadline_s, env=os.environ)
    except processes.ChildStuck as exc:
        raise findings.Undetermined(str(exc)) from exc
    except OSError as exc:
        raise findings.Undetermined(f"{name} cannot be started: {exc.strerror}") from exc
    if done.code is None:
        raise findings.Undetermined(f"{name} did not end within {deadline_s:g} s")
    return done.code, done.out + done.err
