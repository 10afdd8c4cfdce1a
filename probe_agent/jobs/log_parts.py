"""Which parts of a job's output are read where reading all of it would take too long.

The end says how a job died. Of thousands of ranks the end is what the others had to say about it, rank after rank, and what came
first stands many megabytes above: there the part is read, too, at which the trouble began.
"""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Sequence

MOST_BYTES = 4 * 1024 * 1024
"""Of one file in all."""
BEGINNING_BYTES = 1024 * 1024
"""Of the part at which the trouble began; the rest of MOST_BYTES is the file's end."""
LOOK_BACK_BYTES = 64 * 1024 * 1024
"""How far above the end the beginning of the trouble is looked for."""
_BLOCK_BYTES = 256 * 1024
_MATCHES = 8
"""So many words of trouble in a block are no healthy program's: a rank's own stack is of 3 to 30 kB and has one at least."""
_QUIET_BLOCKS = 4
"""So many blocks without trouble, one after another, end it: a burst of one library's notices between two ranks is shorter."""

_TROUBLE = re.compile(
    rb"Traceback \(most recent call last\)|\w(?:Error|Exception)\b|\b(?:ERROR|FATAL|Fatal|FAILED|Watchdog)\b|\berror:|\bterminate called|\bABORT|\bSIG[A-Z]{3,4}\b"
)


@dataclasses.dataclass(frozen=True)
class Part:
    """Some bytes of a file, and the offset of the first."""

    start: int
    data: bytes


def read(fd: int, size: int) -> list[Part]:
    """The parts of an open file of `size` bytes that are read, in the file's order."""
    if size <= MOST_BYTES:
        return [Part(0, pread(fd, 0, MOST_BYTES))]
    end = Part(size - MOST_BYTES, pread(fd, size - MOST_BYTES, MOST_BYTES))
    if not _is_troubled(end.data[: 2 * _BLOCK_BYTES]):
        return [end]
    return _both(fd, end, _beginning(fd, end.start))


def read_above(fd: int, end: Part) -> list[Part]:
    """The parts of a file of whose `end` no line says what went wrong: the last trouble above it, and its end; empty where there is none."""
    for start in range(end.start - _BLOCK_BYTES, max(-1, end.start - LOOK_BACK_BYTES), -_BLOCK_BYTES):
        if _TROUBLE.search(pread(fd, start, _BLOCK_BYTES)):
            return _both(fd, end, start)
    return []


def _both(fd: int, end: Part, begins_at: int) -> list[Part]:
    """The part about `begins_at`, with what the program said just before, and as much of the end as is left."""
    start = max(0, begins_at - _BLOCK_BYTES)
    rest = Part(end.start + BEGINNING_BYTES, end.data[BEGINNING_BYTES:])
    return [Part(start, pread(fd, start, BEGINNING_BYTES)), rest]


def _beginning(fd: int, end_at: int) -> int:
    """The offset at which the trouble begins that goes on at `end_at`."""
    begins_at, quiet = end_at, 0
    for start in range(end_at - _BLOCK_BYTES, max(-1, end_at - LOOK_BACK_BYTES), -_BLOCK_BYTES):
        block = pread(fd, start, _BLOCK_BYTES)
        quiet = 0 if _is_troubled(block) else quiet + 1
        first = _TROUBLE.search(block)
        if first is not None:
            begins_at = start + first.start()
        if quiet == _QUIET_BLOCKS:
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


def words(parts: Sequence[Part], size: int) -> str:
    """What a report says of a file that was not read whole; empty where it was."""
    n_read = sum(len(p.data) for p in parts)
    if n_read >= size:
        return ""
    if len(parts) == 1:
        return f"only its last {n_read} of {size} bytes were read"
    return f"only its end and where its trouble began were read, {n_read} of {size} bytes"
