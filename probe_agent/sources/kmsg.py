"""The kernel's own log, from /dev/kmsg or from a growing file of the same records."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from probing_cluster.probe_agent.sources import file_watch

_RECORD = re.compile(rb"(\d{1,10}),(\d{1,20}),(\d{1,20}),[^;]*;(.*)", re.DOTALL)
_ESCAPE = re.compile(rb"\\x([0-9a-f]{2})")
_RECORD_BYTES = 8192
"""CONSOLE_EXT_LOG_MAX: no record of /dev/kmsg is longer; a shorter buffer gets EINVAL."""
_CHUNK_BYTES = 262144
_LONGEST_LINE_BYTES = 65536
_REPLACED_EVERY = 10
"""Reads of an unchanged file between two checks that its path still names the same file."""

KERNEL_FACILITY = 0


@dataclass(frozen=True, slots=True)
class KmsgLine:
    """One record of the kernel log."""

    seq: int
    """Its number in this boot; -1 where the log keeps none (journald)."""
    ts_us: int
    """The kernel's own clock, microseconds since boot."""
    facility: int
    text: str
    boot_id: str | None = None
    """The boot it belongs to where the log itself says (journald); None = the present one."""
    position: str | None = None
    """What identifies it within its boot where it has no number."""


class LogReader(Protocol):
    """A source of kernel lines."""

    def read(self) -> list[KmsgLine]:
        """What has arrived since the last call; an empty list when there is nothing."""
        ...

    def fileno(self) -> int | None:
        """A descriptor to wait on, or None when it has to be asked again."""
        ...

    def place(self) -> dict[str, int | str]:
        """The reader's place, for a quicker start next time; a hint, never trusted."""
        ...

    def close(self) -> None: ...


def parse_record(raw: bytes) -> KmsgLine | None:
    """The record `priority,sequence,microseconds,flags;text`; None when it is not one.

    Continuation lines (` SUBSYSTEM=…`, the kernel's own dictionary) are left out; `\\xHH` is undone.
    """
    found = _RECORD.match(raw.partition(b"\n")[0])
    if found is None:
        return None
    text = _ESCAPE.sub(lambda m: bytes.fromhex(m[1].decode()), found[4]) if b"\\x" in found[4] else found[4]
    return KmsgLine(
        seq=int(found[2]),
        ts_us=int(found[3]),
        facility=int(found[1]) >> 3,
        text=text.decode("utf-8", "replace"),
    )


class KmsgDevice:
    """/dev/kmsg. An overrun (EPIPE) is not an end: the next record's number tells how much was lost."""

    def __init__(self, path: Path) -> None:
        self._fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)

    def read(self, most: int = 2000) -> list[KmsgLine]:
        lines: list[KmsgLine] = []
        while len(lines) < most:
            try:
                raw = os.read(self._fd, _RECORD_BYTES)
            except BlockingIOError:
                break
            except OSError as exc:
                if exc.errno == errno.EPIPE:
                    continue
                raise
            if not raw:
                break
            line = parse_record(raw)
            if line is not None:
                lines.append(line)
        return lines

    def fileno(self) -> int | None:
        return self._fd

    def place(self) -> dict[str, int | str]:
        return {}

    def close(self) -> None:
        os.close(self._fd)


class KmsgFile:
    """A regular file of kmsg records that grows; follows truncation, replacement and absence."""

    def __init__(self, path: Path, place: dict[str, int | str] | None = None) -> None:
        self._path = path
        self._hint = dict(place or {})
        self._fd: int | None = None
        self._inode = 0
        self._offset = 0
        self._rest = b""
        self._looks = 0
        self._watch = file_watch.open_watch(path.parent)

    def read(self) -> list[KmsgLine]:
        lines: list[KmsgLine] = []
        if self._watch is not None:
            file_watch.drain(self._watch)
        if self._fd is None and not self._open():
            return lines
        assert self._fd is not None
        size = os.fstat(self._fd).st_size
        self._looks += 1
        if size == self._offset and self._watch is None and self._looks % _REPLACED_EVERY:
            return lines
        replaced = self._replaced()
        if size < self._offset:
            self._offset, self._rest = 0, b""
        chunk = os.pread(self._fd, _CHUNK_BYTES, self._offset)
        self._offset += len(chunk)
        lines += self._lines(chunk)
        if replaced and not chunk:
            self._let_go()
            return lines + self.read()
        return lines

    def fileno(self) -> int | None:
        return self._watch

    def place(self) -> dict[str, int | str]:
        return {"inode": self._inode, "offset": self._offset - len(self._rest)}

    def close(self) -> None:
        self._let_go()
        if self._watch is not None:
            os.close(self._watch)
            self._watch = None

    def _let_go(self) -> None:
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    def _open(self) -> bool:
        try:
            self._fd = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        except FileNotFoundError:
            return False
        file_stat = os.fstat(self._fd)
        self._inode, self._rest = file_stat.st_ino, b""
        hinted = int(self._hint.get("offset", 0)) if self._hint.get("inode") == file_stat.st_ino else 0
        self._offset = hinted if hinted <= file_stat.st_size and self._at_line_start(hinted) else 0
        self._hint = {}
        return True

    def _at_line_start(self, offset: int) -> bool:
        assert self._fd is not None
        return offset == 0 or os.pread(self._fd, 1, offset - 1) == b"\n"

    def _replaced(self) -> bool:
        try:
            return os.stat(self._path).st_ino != self._inode  # noqa: PTH116 - asked every second for ever
        except FileNotFoundError:
            return False

    def _lines(self, chunk: bytes) -> Iterator[KmsgLine]:
        *whole, self._rest = (self._rest + chunk).split(b"\n")
        if len(self._rest) > _LONGEST_LINE_BYTES:
            self._rest = b""
        for raw in whole:
            line = None if raw.startswith(b" ") else parse_record(raw)
            if line is not None:
                yield line
