"""A resident child that answers JSON lines, which the caller waits for itself (the agent's wait in an event loop)."""

from __future__ import annotations

import contextlib
import gc
import json
import os
import selectors
import signal
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import IO, Any, NoReturn

from probing_cluster.core import processes

_KEY = "child"


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

    def __init__(self, argv: Sequence[str], *, edge: processes.Edge = processes.EDGE) -> None:
        self.argv = list(argv)
        self._stuck = processes.StuckChildren(edge)
        self._child: processes.Child | _Forked | None = None
        self._lock = threading.Lock()

    @property
    def stuck(self) -> processes.StuckChild | None:
        """The one that would not die, while it is there."""
        return self._stuck.of(_KEY)

    @property
    def pid(self) -> int | None:
        """The child's process id while it runs."""
        return self._child.pid if self._child is not None else None

    @property
    def forked(self) -> bool:
        """Whether it is a copy of this process, which costs little to keep."""
        return isinstance(self._child, _Forked)

    def ask(self, request: Mapping[str, Any], *, deadline_s: float) -> Any:
        """Its reply; raises processes.ChildFailed when there is none in time, and ends the child then."""
        with self._lock:
            child = self._running()
            try:
                return json.loads(self._exchange(child, json.dumps(request).encode() + b"\n", deadline_s))
            except (OSError, ValueError, TimeoutError, EOFError) as exc:
                self._end()
                raise processes.ChildFailed(f"{type(exc).__name__}: {exc}") from exc

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

    def _running(self) -> processes.Child | _Forked:
        if (held := self._stuck.of(_KEY)) is not None:
            raise processes.ChildFailed(f"{held.description}; no other is started")
        if self._child is None:
            self._child = processes.start(self.argv)
        return self._child

    def _exchange(self, child: processes.Child | _Forked, line: bytes, deadline_s: float) -> bytes:
        assert child.stdin is not None
        assert child.stdout is not None
        until = time.monotonic() + deadline_s
        question, source = memoryview(line), child.stdin.fileno()
        # A child that does not read must not hold up its asker once the pipe is full.
        os.set_blocking(source, False)
        reply = bytearray()
        with selectors.DefaultSelector() as selector:
            selector.register(child.stdout, selectors.EVENT_READ)
            selector.register(source, selectors.EVENT_WRITE)
            while not reply.endswith(b"\n"):
                ready = {key.fd for key, _ in selector.select(max(0.0, until - time.monotonic()))}
                if not ready:
                    raise TimeoutError(f"no answer in {deadline_s:g} s")
                if source in ready:
                    question = question[os.write(source, question) :]
                    if not question:
                        selector.unregister(source)
                if child.stdout.fileno() not in ready:
                    continue
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
        identity = self._stuck.edge.end(child.pid)
        if identity is not None:
            self._stuck.hold(_KEY, identity)
        child.returncode = -signal.SIGKILL


def _become(serve: Callable[[], int], stdin: int, stdout: int) -> NoReturn:
    """Runs in the fork: closes all that the parent had open but the two pipes and standard error."""
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
