"""Which parts of a job's output are read where reading all of it would take too long.

The end of a log usually shows the failure. With thousands of ranks the first error may be megabytes above the end: so the part
in which the errors begin is read as well.
"""

from __future__ import annotations

import dataclasses
import hashlib
import os
import re
from collections.abc import Iterator, Sequence

from probing_cluster.core import vocabulary
from probing_cluster.evidence import utf16

MOST_BYTES = 4 * 1024 * 1024
"""Read of one file in all."""
BEGINNING_BYTES = 1024 * 1024
"""Read where the errors begin; the rest of MOST_BYTES is the file's end."""
LOOK_BACK_BYTES = 64 * 1024 * 1024
"""How far above the end the beginning of the errors is looked for."""
_BLOCK_BYTES = 256 * 1024
_MARK_BYTES = 4096
_MATCHES = 8
"""Matches of _TROUBLE in a block that is part of a failure. The stack of one rank is 3 to 30 kB long and has at least one."""
_CALM_BLOCKS = 4
"""Consecutive blocks without _TROUBLE that end the search upwards. What a library prints between the stacks of two ranks is shorter."""
LONGEST_LINE = 1 << 16
"""As `evidence.blocks.MAX_LINE_BYTES`, which is not imported here: a job without output is to cost no reader."""

_TROUBLE = re.compile(
    rb"Traceback \(most recent call last\)|\w(?:Error|Exception)\b|\b(?:ERROR|FATAL|Fatal|FAILED|Watchdog)\b|\berror:|\bterminate called|\bABORT|\bSIG[A-Z]{3,4}\b"
)


@dataclasses.dataclass(frozen=True)
class LogPart:
    """Some bytes of a file, and the offset of the first."""

    start: int
    data: bytes
    is_first: bool = False
    """Whether the job's output begins here; otherwise the first line may be cut and is not used."""
    encoding: utf16.Encoding | None = None
    """That of the file where it is UTF-16; None for UTF-8."""


def read(fd: int, size: int, begin: int = 0) -> list[LogPart]:
    """The parts to judge of an open file of `size` bytes, in the file's order; what is before `begin` is not the job's."""
    encoding = utf16.encoding_of(pread(fd, begin, utf16.HEAD_BYTES))
    if size - begin <= MOST_BYTES:
        return [LogPart(begin, pread(fd, begin, size - begin), is_first=True, encoding=encoding)]
    end = LogPart(size - MOST_BYTES, pread(fd, size - MOST_BYTES, MOST_BYTES), encoding=encoding)
    if not _is_troubled(end.data[: 2 * _BLOCK_BYTES]):
        return [end]
    return _both(fd, end, _beginning(fd, end.start, begin), begin)


def read_above(fd: int, end: LogPart, begin: int = 0) -> list[LogPart]:
    """The part with the last errors above `end`, and the end, for a file whose `end` shows no error; empty where there are none."""
    for start in _blocks_above(end.start, begin):
        if _TROUBLE.search(utf16.ascii_of(pread(fd, start, _BLOCK_BYTES))[0]):
            return _both(fd, end, start, begin)
    return []


def _blocks_above(end_at: int, begin: int) -> Iterator[int]:
    """Offsets of the blocks to search, from `end_at` upwards; the uppermost block may overlap the one below it."""
    top = max(begin, end_at - LOOK_BACK_BYTES)
    yield from range(end_at - _BLOCK_BYTES, top, -_BLOCK_BYTES)
    yield top


def _both(fd: int, end: LogPart, begins_at: int, begin: int) -> list[LogPart]:
    """The part around `begins_at`, from one block above it on, and as much of the end as MOST_BYTES leaves."""
    start = max(begin, begins_at - _BLOCK_BYTES)
    rest = LogPart(end.start + BEGINNING_BYTES, end.data[BEGINNING_BYTES:], encoding=end.encoding)
    data = pread(fd, start, BEGINNING_BYTES)
    return [LogPart(start, data, is_first=start == begin, encoding=end.encoding), rest]


def _beginning(fd: int, end_at: int, begin: int) -> int:
    """The offset at which the errors begin that continue at `end_at`."""
    begins_at, n_calm = end_at, 0
    for start in _blocks_above(end_at, begin):
        block = pread(fd, start, _BLOCK_BYTES)
        n_calm = 0 if _is_troubled(block) else n_calm + 1
        characters, n_bytes_each = utf16.ascii_of(block)
        first = _TROUBLE.search(characters)
        if first is not None:
            begins_at = start + first.start() * n_bytes_each
        if n_calm == _CALM_BLOCKS:
            break
    return begins_at


def _is_troubled(block: bytes) -> bool:
    matches = _TROUBLE.finditer(utf16.ascii_of(block)[0])
    return sum(1 for _ in zip(range(_MATCHES), matches, strict=False)) == _MATCHES


def pread(fd: int, start: int, most: int) -> bytes:
    """Up to `most` bytes from `start`; of a file that shrank meanwhile fewer."""
    kept = bytearray()
    while len(kept) < most:
        chunk = os.pread(fd, min(1 << 18, most - len(kept)), start + len(kept))
        if not chunk:
            break
        kept += chunk
    return bytes(kept)


def mark(fd: int, size: int) -> str:
    """A digest of the last bytes before offset `size`, to see later whether the file still has the same content there."""
    start = max(0, size - _MARK_BYTES)
    return hashlib.sha256(pread(fd, start, size - start)).hexdigest()


class LogLines:
    """The lines of the parts of a log, in order, as (offset, line, whether its end was read).

    A line that a gap between the parts cuts is left out, but of a last line that began above the last part the end is read. Lines are cut off one at a time: four million empty ones cost no memory.
    """

    def __init__(self, parts: Sequence[LogPart]) -> None:
        self._parts = parts
        self._skip_to = 0

    @property
    def end(self) -> int:
        """The offset behind the last part."""
        return self._parts[-1].start + len(self._parts[-1].data)

    def n_bytes(self, start: int, end: int) -> int:
        """The bytes of the parts between two offsets of the file."""
        spans = ((max(p.start, start), min(p.start + len(p.data), end)) for p in self._parts)
        return sum(max(0, last - first) for first, last in spans)

    def skip_to(self, offset: int) -> None:
        """Go on with the first line that begins after `offset`."""
        self._skip_to = offset

    def __iter__(self) -> Iterator[tuple[int, bytes, bool]]:
        for part in self._parts:
            at, is_cut = 0, not part.is_first
            while at <= len(part.data):
                if part.start + at < self._skip_to:
                    at, is_cut = self._skip_to - part.start, True
                    continue
                end = part.data.find(b"\n", at)
                is_whole = end >= 0
                if is_cut and part is self._parts[-1] and end in (-1, len(part.data) - 1):
                    is_cut = False
                    at = max(at, len(part.data) - LONGEST_LINE)
                if not is_cut and (is_whole or part is self._parts[-1]):
                    yield part.start + at, part.data[at : end if is_whole else len(part.data)], is_whole
                if not is_whole:
                    break
                at, is_cut = end + 1, False


def line_at(parts: Sequence[LogPart], offset: int) -> bytes:
    """The line of the parts that begins at an offset of the file; of a long one the beginning."""
    part = next((p for p in parts if p.start <= offset < p.start + len(p.data)), parts[-1])
    return part.data[max(0, offset - part.start) :][:LONGEST_LINE].partition(b"\n")[0]


def lines_backwards(data: bytes) -> Iterator[bytes]:
    """The lines of `data`, the last one first."""
    end = len(data)
    while end >= 0:
        start = data.rfind(b"\n", 0, end) + 1
        yield data[start:end]
        end = start - 1


def words(parts: Sequence[LogPart], size: int, begin: int = 0, n_unread_bytes: int = 0) -> str:
    """The report's note on a file that was not read whole; empty where all that the job wrote was read.

    `n_unread_bytes`: of the parts, what was left out because judging it took too long.
    """
    n_read = sum(len(p.data) for p in parts) - n_unread_bytes
    if n_read >= size - begin:
        return vocabulary.there_before(begin) if begin else ""
    slow = (
        f"; {n_unread_bytes} bytes were left out because reading them took too long" if n_unread_bytes else ""
    )
    if len(parts) > 1:
        return f"only its end and the part where its errors begin were read, {n_read} of {size} bytes{slow}"
    if len(parts[0].data) >= size - begin:
        return f"{n_read} of {size} bytes were read{slow}"
    return f"only its last {n_read} of {size} bytes were read{slow}"
