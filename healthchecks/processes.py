"""The edge to other processes: start, feed, kill a whole group, and know when one will not die.

The one place that starts a child with a deadline and ends it: the sweep waits for its children itself (`run`, `JsonChild`),
the agent waits for its own in an event loop (probe_agent/children.py), and both start and kill them here.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import selectors
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, NoReturn

from probing_cluster.core import errors

MAX_OUTPUT_BYTES = 4 << 20
"""More than any tool here has to say; a tool that says more is cut, and the cut is reported."""

KILL_GRACE_S = 0.5
"""How long a killed process may take to go before it counts as stuck in the kernel."""


@dataclass(frozen=True, kw_only=True)
class Identity:
    """A process that cannot be mistaken for a later one with the same id."""

    pid: int
    started: str
    """Field 22 of /proc/<pid>/stat: start time in clock ticks since boot."""


Child = subprocess.Popen[bytes]


def start(
    argv: Sequence[str],
    *,
    env: Mapping[str, str] | None = None,
    stdin: bool = True,
    stderr: int | None = None,
) -> Child:
    """A child in a session of its own, so that its whole group can be killed, and at / so that it holds no mount.

    `env` None = ours; `stdin` False = nothing to read; `stderr` as Popen takes it. Raises OSError; never a shell.
    """
    return subprocess.Popen(
        list(argv),
        stdin=subprocess.PIPE if stdin else subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=stderr,
        env=None if env is None else dict(env),
        start_new_session=True,
        close_fds=True,
        cwd="/",
    )


@dataclass(frozen=True, kw_only=True)
class Output:
    """What a command said. `code` is None when its deadline ended it."""

    argv: tuple[str, ...]
    code: int | None
    out: str
    err: str
    duration_s: float
    truncated: bool = False
    stuck: Identity | None = None
    """The process that survived SIGKILL, when one did."""

    @property
    def timed_out(self) -> bool:
        return self.code is None


def identify(pid: int) -> Identity | None:
    """Who `pid` is now; None when it is gone or only a zombie is left."""
    stat = stat_fields(f"/proc/{pid}/stat")
    if stat is None or stat[0] in "ZX":
        return None
    return Identity(pid=pid, started=stat[19])


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

    def alive(self, identity: Identity) -> bool:
        """Whether that very process still exists (a zombie does not)."""
        return identify(identity.pid) == identity

    def reap(self, pid: int) -> bool:
        """Collect `pid` if it is our child and has ended; true when it is gone."""
        with contextlib.suppress(ChildProcessError):
            return os.waitpid(pid, os.WNOHANG)[0] == pid
        return identify(pid) is None

    def waits_in(self, identity: Identity) -> str:
        """The kernel function the process sleeps in; an empty string where the kernel does not show it."""
        with contextlib.suppress(OSError):
            name = Path(f"/proc/{identity.pid}/wchan").read_text(encoding="ascii", errors="replace").strip()
            return "" if name == "0" else name
        return ""

    def end(self, pid: int) -> Identity | None:
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


def run(argv: Sequence[str], *, deadline_s: float, env: Mapping[str, str], edge: Edge = EDGE) -> Output:
    """Run a command with its own process group, an empty stdin and a deadline; never a shell."""
    began = time.monotonic()
    child = start(argv, env=env, stdin=False, stderr=subprocess.PIPE)
    assert child.stdout is not None
    assert child.stderr is not None
    pipes = {child.stdout.fileno(): bytearray(), child.stderr.fileno(): bytearray()}
    truncated = _drain(pipes, began + deadline_s)
    out, err = (bytes(b).decode("utf-8", "replace") for b in pipes.values())
    code = exit_code(child.pid, began + deadline_s)
    child.stdout.close()
    child.stderr.close()
    stuck = edge.end(child.pid)
    child.returncode = code if code is not None else -signal.SIGKILL
    duration_s = time.monotonic() - began
    return Output(
        argv=tuple(argv), code=code, out=out, err=err, duration_s=duration_s, truncated=truncated, stuck=stuck
    )


def exit_code(pid: int, until: float) -> int | None:
    """Its exit status (negative: the signal), left uncollected so that its group id stays ours; None at the deadline."""
    pause_s = 0.0005
    while (ended := os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT | os.WNOHANG)) is None:
        if time.monotonic() > until:
            return None
        time.sleep(pause_s)
        pause_s = min(pause_s * 2, 0.02)
    return ended.si_status if ended.si_code == os.CLD_EXITED else -ended.si_status


def _drain(pipes: dict[int, bytearray], until: float) -> bool:
    truncated = False
    with selectors.DefaultSelector() as selector:
        for fd in pipes:
            selector.register(fd, selectors.EVENT_READ)
        while selector.get_map():
            left = until - time.monotonic()
            if left <= 0:
                return truncated
            for key, _ in selector.select(left):
                chunk = os.read(key.fd, 65536)
                if not chunk:
                    selector.unregister(key.fd)
                elif len(pipes[key.fd]) < MAX_OUTPUT_BYTES:
                    pipes[key.fd] += chunk
                else:
                    truncated = True
    return truncated


class ChildFailed(errors.ProbingError):
    """A child process did not answer."""


@dataclass(kw_only=True)
class _Forked:
    """A child made by `JsonChild.fork`, with the part of Popen's face that is used here."""

    pid: int
    stdin: IO[bytes]
    stdout: IO[bytes]
    returncode: int | None = None


class JsonChild:
    """A child that answers JSON lines: started when first asked, replaced when it died or fell silent.

    One that survives SIGKILL is remembered, and no other is started while it lives.
    """

    def __init__(self, argv: Sequence[str], *, edge: Edge = EDGE) -> None:
        self.argv = list(argv)
        self.stuck: Identity | None = None
        self._edge = edge
        self._child: Child | _Forked | None = None
        self._lock = threading.Lock()

    @property
    def pid(self) -> int | None:
        """The child's process id while it runs."""
        return self._child.pid if self._child is not None else None

    @property
    def forked(self) -> bool:
        """Whether it is a copy of this process, which costs little to keep."""
        return isinstance(self._child, _Forked)

    def ask(self, request: Mapping[str, Any], *, deadline_s: float) -> Any:
        """Its reply; raises ChildFailed when there is none in time, and ends the child then."""
        with self._lock:
            child = self._running()
            try:
                return json.loads(self._exchange(child, json.dumps(request).encode() + b"\n", deadline_s))
            except (OSError, ValueError, TimeoutError, EOFError) as exc:
                self._end()
                raise ChildFailed(f"{type(exc).__name__}: {exc}") from exc

    def fork(self, serve: Callable[[], int]) -> None:
        """Start it now as a copy of this process that runs `serve`, which answers on its standard input and output.

        It shares the memory of what is imported already. To be called while there are no threads; a
        replacement, should it die, is started by `argv` as ever.
        """
        ours_in, theirs_out = os.pipe()
        theirs_in, ours_out = os.pipe()
        # Set apart, so that the copy's collector never writes to them: what it writes to is no longer shared.
        gc.collect()
        gc.freeze()
        pid = os.fork()
        if pid == 0:
            _become(serve, theirs_in, theirs_out)
        os.close(theirs_in)
        os.close(theirs_out)
        self._child = _Forked(pid=pid, stdin=os.fdopen(ours_out, "wb", 0), stdout=os.fdopen(ours_in, "rb", 0))

    def close(self) -> None:
        """End the child."""
        with self._lock:
            self._end()

    def _running(self) -> Child | _Forked:
        if self.stuck is not None:
            if self._edge.alive(self.stuck):
                raise ChildFailed(f"pid {self.stuck.pid} is stuck in the kernel; no other is started")
            self.stuck = None
        if self._child is None:
            self._child = start(self.argv)
        return self._child

    def _exchange(self, child: Child | _Forked, line: bytes, deadline_s: float) -> bytes:
        assert child.stdin is not None
        assert child.stdout is not None
        until = time.monotonic() + deadline_s
        child.stdin.write(line)
        child.stdin.flush()
        reply = bytearray()
        with selectors.DefaultSelector() as selector:
            selector.register(child.stdout, selectors.EVENT_READ)
            while not reply.endswith(b"\n"):
                if not selector.select(max(0.0, until - time.monotonic())):
                    raise TimeoutError(f"no answer in {deadline_s:g} s")
                chunk = os.read(child.stdout.fileno(), 1 << 18)
                if not chunk:
                    raise EOFError("it ended")
                reply += chunk
        return bytes(reply)

    def _end(self) -> None:
        child, self._child = self._child, None
        if child is None:
            return
        for pipe in (child.stdin, child.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()
        self.stuck = self._edge.end(child.pid)
        child.returncode = -signal.SIGKILL


def _become(serve: Callable[[], int], stdin: int, stdout: int) -> NoReturn:
    """In the fork: only the two pipes and standard error are left of what the parent had open."""
    status = 1
    try:
        os.setsid()
        os.chdir("/")
        os.dup2(stdin, 0)
        os.dup2(stdout, 1)
        os.closerange(3, 1 << 20)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, signal.SIG_DFL)
        sys.stdin = os.fdopen(0, encoding="utf-8")
        sys.stdout = os.fdopen(1, "w", encoding="utf-8")
        status = serve()
    finally:
        os._exit(status)
