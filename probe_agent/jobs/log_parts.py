"""Which parts of a job's output are read where reading all of it would take too long.

The end says how a job died. Of thousands of ranks the end is what the others had to say about it, rank after rank, and what came
first stands many megabytes above: there the part is read, too, at which the trouble began.
"""

from __future__ import annotations

import dataclasses
import hashlib
import os
import re
from collections.abc import Iterator, Sequence

MOST_BYTES = 4 * 1024 * 1024
"""Of one file in all."""
BEGINNING_BYTES = 1024 * 1024
"""Of the part at which the trouble began; the rest of MOST_BYTES is the file's end."""
LOOK_BACK_BYTES = 64 * 1024 * 1024
"""How far above the end the beginning of the trouble is looked for."""
_BLOCK_BYTES = 256 * 1024
_MARK_BYTES = 4096
_MATCHES = 8
"""So many words of trouble in a block are no healthy program's: a rank's own stack is of 3 to 30 kB and has one at least."""
_CALM_BLOCKS = 4
"""So many blocks without trouble, one after another, end it: a burst of one library's notices between two ranks is shorter."""

_TROUBLE = re.compile(
    rb"Traceback \(most recent call last\)|\w(?:Error|Exception)\b|\b(?:ERROR|FATAL|Fatal|FAILED|Watchdog)\b|\berror:|\bterminate called|\bABORT|\bSIG[A-Z]{3,4}\b"
)


@dataclasses.dataclass(frozen=True)
class LogPart:
    """Some bytes of a file, and the offset of the first."""

    start: int
    data: bytes
    is_first: bool = False
    """Whether the file, or what the job wrote into it, begins here: elsewhere the first line is cut."""


def read(fd: int, size: int, begin: int = 0) -> list[LogPart]:
    """The parts of an open file of `size` bytes that are read, in the file's order; of what stands from `begin` on."""
    if size - begin <= MOST_BYTES:
        return [LogPart(begin, pread(fd, begin, MOST_BYTES), is_first=True)]
    end = LogPart(size - MOST_BYTES, pread(fd, size - MOST_BYTES, MOST_BYTES))
    if not _is_troubled(end.data[: 2 * _BLOCK_BYTES]):
        return [end]
    return _both(fd, end, _beginning(fd, end.start, begin), begin)


def read_above(fd: int, end: LogPart, begin: int = 0) -> list[LogPart]:
    """The parts of a file of whose `end` no line says what went wrong: the last trouble above it, and its end; empty where there is none."""
    for start in _blocks_above(end.start, begin):
        if _TROUBLE.search(pread(fd, start, _BLOCK_BYTES)):
            return _both(fd, end, start, begin)
    return []


def _blocks_above(end_at: int, begin: int) -> Iterator[int]:
    """Where the blocks begin that are looked at, from the last one up; the uppermost may reach into the one below it."""
    top = max(begin, end_at - LOOK_BACK_BYTES)
    yield from range(end_at - _BLOCK_BYTES, top, -_BLOCK_BYTES)
    yield top


def _both(fd: int, end: LogPart, begins_at: int, begin: int) -> list[LogPart]:
    """The part about `begins_at`, with what the program said just before, and as much of the end as is left."""
    start = max(begin, begins_at - _BLOCK_BYTES)
    rest = LogPart(end.start + BEGINNING_BYTES, end.data[BEGINNING_BYTES:])
    return [LogPart(start, pread(fd, start, BEGINNING_BYTES), is_first=start == begin), rest]


def _beginning(fd: int, end_at: int, begin: int) -> int:
    """The offset at which the trouble begins that goes on at `end_at`."""
    begins_at, n_calm = end_at, 0
    for start in _blocks_above(end_at, begin):
        block = pread(fd, start, _BLOCK_BYTES)
        n_calm = 0 if _is_troubled(block) else n_calm + 1
        first = _TROUBLE.search(block)
        if first is not None:
            begins_at = start + first.start()
        if n_calm == _CALM_BLOCKS:
            break
    return begins_at


def _is_troubled(block: bytes) -> bool:
    return sum(1 for _ in zip(range(_MATCHES), _TROUBLE.finditer(block), strict=False)) == _MATCHES


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
    """A digest of the last bytes in front of `size`: whether a file still has what it had then."""
    start = max(0, size - _MARK_BYTES)
    return hashlib.sha256(pread(fd, start, size - start)).hexdigest()


def words(parts: Sequence[LogPart], size: int, begin: int = 0) -> str:
    """What a report says of a file that was not read whole; empty where it was, or all of what the job wrote."""
    n_read = sum(len(p.data) for p in parts)
    if n_read >= size - begin:
        return f"its first {begin} bytes were there before the job began" if begin else ""
    if len(parts) == 1:
        return f"only its last {n_read} of {size} bytes were read"
    return f"only its end and where its trouble began were read, {n_read} of {size} bytes"
