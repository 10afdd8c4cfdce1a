"""The edge to other processes: start, feed, kill a whole group, and know when one will not die.

The one place that starts a child with a deadline and ends it, and the one list of those that would not end
(`StuckChildren`). The sweep's lanes, Slurm's commands and tests of nodes wait for their children themselves, the agent in
an event loop (probe_agent/children.py); all of them start, kill and remember children by what stands here.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any, Self

from probing_cluster.core import errors

MAX_OUTPUT_BYTES = 4 << 20
"""More than any tool here has to say; a tool that says more is cut, and the cut is reported."""

LONGEST_WAIT_S = 3600.0
"""Longest wait in one system call; the kernel takes no more than 24 days."""
KILL_GRACE_S = 0.5
"""How long a killed process may take to go before it counts as stuck in the kernel."""


@dataclass(frozen=True, kw_only=True)
class ProcessIdentity:
    """A process that cannot be mistaken for a later one with the same id."""

    pid: int
    started: str
    """Field 22 of /proc/<pid>/stat: start time in clock ticks since boot."""


Child = subprocess.Popen[bytes]


@dataclass(frozen=True, kw_only=True)
class Account:
    """An account to run as."""

    uid: int
    gid: int
    groups: tuple[int, ...]


def start(
    argv: Sequence[str],
    *,
    env: Mapping[str, str] | None = None,
    stdin: bool = True,
    stderr: int | None = None,
    directory: str | None = "/",
    account: Account | None = None,
) -> Child:
    """A child in a session of its own, so that its whole group can be killed, and at / so that it holds no mount.

    `env` None = ours; `stdin` False = nothing to read; `stderr` as Popen takes it; `directory` None = ours; `account` None = ours.
    Raises OSError; never a shell.
    """
    become: dict[str, Any] = {}
    if account is not None:
        become = {"user": account.uid, "group": account.gid, "extra_groups": list(account.groups)}
    return subprocess.Popen(
        list(argv),
        stdin=subprocess.PIPE if stdin else subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=stderr,
        env=None if env is None else dict(env),
        start_new_session=True,
        close_fds=True,
        cwd=directory,
        **become,
    )


@dataclass(frozen=True, kw_only=True)
class Output:
    """What a command printed. `code` is None when its deadline ended it."""

    argv: tuple[str, ...]
    code: int | None
    stdout: bytes
    stderr: bytes
    duration_s: float
    truncated: bool = False
    stuck: ProcessIdentity | None = None
    """The process that survived SIGKILL, when one did."""

    @property
    def timed_out(self) -> bool:
        return self.code is None

    @property
    def out(self) -> str:
        """Standard output as text; bytes that are no UTF-8 are replaced."""
        return self.stdout.decode("utf-8", "replace")

    @property
    def err(self) -> str:
        """Standard error, likewise."""
        return self.stderr.decode("utf-8", "replace")


def identify(pid: int) -> ProcessIdentity | None:
    """The identity of the process `pid`; None when it is gone or only a zombie is left."""
    stat = stat_fields(f"/proc/{pid}/stat")
    if stat is None or stat[0] in "ZX":
        return None
    return ProcessIdentity(pid=pid, started=stat[19])


def stat_fields(path: str) -> list[str] | None:
    """Fields of a /proc/<pid>/stat after the command name, state first; None when it is gone."""
    try:
        text = Path(path).read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The name may hold spaces and parentheses: everything up to the last one is name.
    return text.rpartition(")")[2].split() or None


class Edge:
    """How children are ended and looked for; tests put an unkillable fake here."""

    grace_s = KILL_GRACE_S

    def kill_group(self, pid: int) -> None:
        """SIGKILL to the process group that `pid` leads, and to `pid` itself."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(pid, signal.SIGKILL)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)

    def alive(self, identity: ProcessIdentity) -> bool:
        """Whether that very process still exists (a zombie does not)."""
        return identify(identity.pid) == identity

    def reap(self, pid: int) -> bool:
        """Collect `pid` if it is our child and has ended; true when it is gone."""
        with contextlib.suppress(ChildProcessError):
            return os.waitpid(pid, os.WNOHANG)[0] == pid
        return identify(pid) is None

    def waits_in(self, identity: ProcessIdentity) -> str:
        """The kernel function the process sleeps in; an empty string where the kernel does not show it."""
        with contextlib.suppress(OSError):
            name = Path(f"/proc/{identity.pid}/wchan").read_text(encoding="ascii", errors="replace").strip()
            return "" if name == "0" else name
        return ""

    def end(self, pid: int) -> ProcessIdentity | None:
        """Kill the group of our child `pid` and collect it; its identity when it would not go."""
        identity = identify(pid)
        self.kill_group(pid)
        until = time.monotonic() + self.grace_s
        while not self.reap(pid):
            if time.monotonic() > until:
                return identity if identity is not None and self.alive(identity) else None
            time.sleep(0.005)
        return None


EDGE = Edge()


@dataclass(kw_only=True)
class StuckChild:
    """A process that outlived SIGKILL."""

    identity: ProcessIdentity
    what: str
    since_s: float
    """Monotonic time at which it was killed in vain."""
    waits_in: str = ""

    def to_state(self) -> dict[str, Any]:
        """The row of the state file, which another version may read: its key for the process is `who`."""
        row = asdict(self)
        return {"who": row.pop("identity"), **row}

    @classmethod
    def from_state(cls, row: Mapping[str, Any]) -> Self:
        """The process of a row; raises KeyError or TypeError when the row is not one of `to_state`."""
        rest = {key: value for key, value in row.items() if key != "who"}
        return cls(identity=ProcessIdentity(**row["who"]), **rest)

    @property
    def description(self) -> str:
        """What it is and for how long it has been so."""
        age_s = time.monotonic() - self.since_s
        return f"{self.what} (pid {self.identity.pid}) is {self.where} since {age_s:.0f} s"

    @property
    def where(self) -> str:
        """Where it waits, in words, as far as the kernel shows it."""
        return "stuck in the kernel" + (f" (in {self.waits_in})" if self.waits_in else "")


class ChildFailed(errors.ProbingError):
    """A child process did not answer."""


class ChildStuck(ChildFailed):
    """An earlier child for the same work is stuck in the kernel."""


class StuckChildren:
    """The children that would not die, by what they worked for: at most one per key, and none is started beside it.

    Who does not start by `run` asks `of` first and gives `hold` what `Edge.end` returns. A key is free again when its process is gone.
    """

    def __init__(self, edge: Edge = EDGE) -> None:
        self.edge = edge
        self._held: dict[str, StuckChild] = {}

    def hold(self, key: str, identity: ProcessIdentity, what: str = "its process") -> StuckChild:
        """Remember the process as the stuck child of this key."""
        entry = StuckChild(
            identity=identity, what=what, since_s=time.monotonic(), waits_in=self.edge.waits_in(identity)
        )
        self._held[key] = entry
        return entry

    def of(self, key: str) -> StuckChild | None:
        """The stuck child of this key that is still there."""
        self._forget_gone(key)
        return self._held.get(key)

    def run(self, key: str, argv: Sequence[str], **how: Any) -> Output:
        """`run` for this key, held where it would not die; raises ChildStuck where the last one still lives."""
        if (held := self.of(key)) is not None:
            raise ChildStuck(f"{key}: {held.description}; no other is started")
        done = run(argv, edge=self.edge, **how)
        if done.stuck is not None:
            self.hold(key, done.stuck, "the last one")
        return done

    def items(self) -> Iterator[tuple[str, StuckChild]]:
        """Key and process of every one that is still there, by key."""
        for key in sorted(self._held):
            entry = self.of(key)
            if entry is not None:
                yield key, entry

    def __len__(self) -> int:
        return len(tuple(self.items()))

    def to_state(self) -> dict[str, Any]:
        """The rows of the state file, by key."""
        return {key: entry.to_state() for key, entry in self._held.items()}

    def restore(self, rows: Mapping[str, Any]) -> None:
        """Take over what `to_state` of another process wrote; raises KeyError, TypeError or AttributeError where it is none of that."""
        self._held = {key: StuckChild.from_state(row) for key, row in rows.items()}

    def _forget_gone(self, key: str) -> None:
        entry = self._held.get(key)
        if entry is not None and (self.edge.reap(entry.identity.pid) or not self.edge.alive(entry.identity)):
            self._held.pop(key, None)


def run(
    argv: Sequence[str],
    *,
    deadline_s: float,
    env: Mapping[str, str],
    edge: Edge = EDGE,
    stdin: bytes = b"",
    max_bytes: int | None = MAX_OUTPUT_BYTES,
    directory: str | None = "/",
    end_group: bool = True,
    keep: Callable[[bytes], bytes] | None = None,
    own_stderr: bool = True,
) -> Output:
    """Run a command with its own process group and a deadline; never a shell.

    `max_bytes` of each output are kept (None = all), the rest is read and dropped. `end_group` False: what it started may outlive
    it where it ends in time. `keep` is given standard output piece by piece as it comes, and only what it returns is held.
    `own_stderr` False: it writes to ours, and `Output.stderr` is empty.
    Raises OSError where it cannot start.
    """
    began = time.monotonic()
    stderr = subprocess.PIPE if own_stderr else None
    child = start(argv, env=env, stdin=bool(stdin), stderr=stderr, directory=directory)
    assert child.stdout is not None
    pipes = {pipe.fileno(): bytearray() for pipe in (child.stdout, child.stderr) if pipe is not None}
    code = None
    try:
        truncated = _exchange(
            pipes,
            child.stdin,
            stdin,
            began + deadline_s,
            max_bytes,
            {child.stdout.fileno(): keep} if keep else {},
        )
        code = exit_code(child.pid, began + deadline_s)
    finally:
        for pipe in (child.stdin, child.stdout, child.stderr):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()
        stuck = None if code is not None and not end_group and edge.reap(child.pid) else edge.end(child.pid)
        child.returncode = -signal.SIGKILL
    out, err = [*map(bytes, pipes.values()), b""][:2]
    return Output(
        argv=tuple(argv), code=code, stdout=out, stderr=err, duration_s=time.monotonic() - began, truncated=truncated, stuck=stuck
    )  # fmt: skip


def exit_code(pid: int, until: float) -> int | None:
    """Its exit status (negative: the signal), left uncollected so that its group id stays ours; None at the deadline."""
    pause_s = 0.0005
    while (ended := os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT | os.WNOHANG)) is None:
        if time.monotonic() > until:
            return None
        time.sleep(pause_s)
        pause_s = min(pause_s * 2, 0.02)
    return ended.si_status if ended.si_code == os.CLD_EXITED else -ended.si_status


def _exchange(
    pipes: dict[int, bytearray],
    source: IO[bytes] | None,
    data: bytes,
    until: float,
    max_bytes: int | None,
    keep: Mapping[int, Callable[[bytes], bytes]],
) -> bool:
    """Feed the child and take in what it prints until its pipes close or the deadline; whether anything was dropped."""
    truncated = False
    with selectors.DefaultSelector() as selector:
        for fd in pipes:
            selector.register(fd, selectors.EVENT_READ)
        if source is not None:
            os.set_blocking(source.fileno(), False)
            selector.register(source.fileno(), selectors.EVENT_WRITE)
        left = memoryview(data)
        while selector.get_map():
            left_s = until - time.monotonic()
            if left_s <= 0:
                return truncated
            for key, _ in selector.select(min(left_s, LONGEST_WAIT_S)):
                if key.fd not in pipes:
                    assert source is not None
                    left = _feed(source, left)
                    if not left:
                        selector.unregister(key.fd)
                        source.close()
                    continue
                chunk = os.read(key.fd, 65536)
                if not chunk:
                    selector.unregister(key.fd)
                elif key.fd in keep:
                    pipes[key.fd] += keep[key.fd](chunk)
                elif max_bytes is None or len(pipes[key.fd]) < max_bytes:
                    pipes[key.fd] += chunk
                else:
                    truncated = True
    return truncated


def _feed(pipe: IO[bytes], data: memoryview) -> memoryview:
    """What is left after the pipe took what it had room for; nothing where nobody reads any more."""
    try:
        return data[os.write(pipe.fileno(), data[:65536]) :]
    except BlockingIOError:
        return data
    except BrokenPipeError:
        return data[:0]
