"""Processes that read one table at a time for the collector: what hangs, raises or is hostile there costs its own table.

A fork costs a node three times what most tables do. Therefore a reader that has answered for one of our own tables waits for the next
question; one that read for a plugin or an expression, held much, or did not answer is ended.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import select
import signal
import struct
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from probing_cluster.live.table import Scan
from probing_cluster.live.tables import registry

LENGTH = struct.Struct("<Q")
MAX_FRAME_BYTES = 256 << 20
MAX_KEPT_FRAME_BYTES = 1 << 20
"""A reader that made a larger frame gives its memory back by ending."""
MAX_KEPT = 4
MEMORY_BYTES = 1 << 30
"""Of address space, for each reader."""

Answer = Callable[[Scan, float], bytes]
"""The frame of one scan, read until that instant of the monotonic clock; raises nothing it can help."""


@dataclass(kw_only=True)
class TableReader:
    """One such process, and the scan that it reads now."""

    pid: int
    questions: int
    answers: int
    scan: Scan
    data: bytearray = field(default_factory=bytearray)

    def take(self) -> bool:
        """Reads once what has come; whether more is to come."""
        chunk = os.read(self.answers, 1 << 18)
        self.data += chunk
        return bool(chunk) and len(self.data) <= MAX_FRAME_BYTES and not self._is_whole

    @property
    def frame(self) -> bytes:
        """The whole answer; empty where it ended without one."""
        return bytes(self.data[LENGTH.size :]) if self._is_whole else b""

    @property
    def _is_whole(self) -> bool:
        return (
            len(self.data) >= LENGTH.size and len(self.data) - LENGTH.size == LENGTH.unpack_from(self.data)[0]
        )

    @property
    def may_be_kept(self) -> bool:
        """It has answered and holds nothing of others."""
        return self.scan.table in registry.NAMES and self._is_whole and len(self.data) <= MAX_KEPT_FRAME_BYTES

    def end(self) -> None:
        """Ends it with its children. One that nothing ends is left to the step's end."""
        for pipe in (self.questions, self.answers):
            os.close(pipe)
        for stop in (os.killpg, os.kill):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                stop(self.pid, signal.SIGKILL)
        for _ in range(20):
            pid, _status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                break
            time.sleep(0.005)


class TableReaders:
    """The readers of one collector."""

    def __init__(self, answer: Answer) -> None:
        self._answer = answer
        self._idle: list[TableReader] = []
        self._open: list[TableReader] = []

    def start(self, scan: Scan, deadline: float) -> TableReader:
        """A process that reads this one."""
        line = json.dumps([scan.to_json(), deadline]).encode() + b"\n"
        # Loaded here, once for all readers to come.
        is_own = registry.own(scan.table) is not None
        while self._idle and is_own:
            reader = self._idle.pop()
            reader.scan, reader.data = scan, bytearray()
            if _written(reader.questions, line):
                return reader
            self.end(reader)
        reader = self._fork(scan)
        self._open.append(reader)
        _written(reader.questions, line)
        return reader

    @staticmethod
    def collect(
        readers: list[TableReader], deadline: float, done: Callable[[TableReader], None]
    ) -> list[TableReader]:
        """Calls `done` with each that has answered or ended; those that have done neither at the deadline."""
        waiting = {r.answers: r for r in readers}
        while waiting:
            ready = select.select(list(waiting), [], [], max(0.0, deadline - time.monotonic()))[0]
            for pipe in ready:
                if not waiting[pipe].take():
                    done(waiting.pop(pipe))
            if not ready:
                break
        return list(waiting.values())

    def release(self, reader: TableReader) -> None:
        """Keeps it for the next question, or ends it."""
        if reader.may_be_kept and len(self._idle) < MAX_KEPT:
            reader.data = bytearray()
            self._idle.append(reader)
        else:
            self.end(reader)

    def end(self, reader: TableReader) -> None:
        """Ends it with its children."""
        self._open.remove(reader)
        reader.end()

    def _fork(self, scan: Scan) -> TableReader:
        (questions_fd, asks), (reads, answers) = os.pipe(), os.pipe()
        pid = os.fork()
        if pid:
            os.close(questions_fd)
            os.close(answers)
            return TableReader(pid=pid, questions=asks, answers=reads, scan=scan)
        status = 1
        try:
            os.setsid()  # its own children end with it
            os.dup2(os.open(os.devnull, os.O_RDWR), 0)
            os.dup2(0, 1)  # what a plugin prints is not a row
            # Held open here, they would keep another reader alive after the collector.
            for other in (asks, reads, *(p for r in self._open for p in (r.questions, r.answers))):
                os.close(other)
            resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
            self._serve(questions_fd, answers)
            status = 0
        finally:
            os._exit(status)

    def _serve(self, questions_fd: int, answers: int) -> None:
        """Answers until nobody can ask any more."""
        with os.fdopen(questions_fd, "rb") as questions, os.fdopen(answers, "wb") as out:
            for line in questions:
                raw, deadline = json.loads(line)
                frame = self._answer(Scan.of_json(raw), deadline)
                out.write(LENGTH.pack(len(frame)))
                out.write(frame)
                out.flush()


def _written(pipe: int, line: bytes) -> bool:
    """Whether the reader took it; false where it has ended."""
    left = memoryview(line)
    try:
        while left:
            left = left[os.write(pipe, left) :]
    except BrokenPipeError:
        return False
    return True
