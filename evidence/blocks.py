"""Whole logs as batches of lines with constant memory, and a sieve that drops lines without any trigger.

Logs repeat themselves: without its digits, nearly every line is one seen before. The sieve remembers such
templates, so that a batch of known ones costs a set difference. It is sound because no trigger contains a
digit: a trigger in the line is in its template too.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol, runtime_checkable

from probing_cluster.core.sanitize import literals

BLOCK_BYTES = 1 << 20
MAX_LINE_BYTES = 1 << 16
"""The middle of a longer line is dropped. Of a progress bar that overwrites itself, the overwritten text is dropped instead."""
LINE_END_BYTES = 1 << 12
"""Kept of the end of such a line: a program that prints dots or numbers writes its error behind them."""
_BATCH_LINES = 512
_DIGITS = b"0123456789"
_MAX_TEMPLATES = 1 << 15
_MAX_WORD_BYTES = 64
_MAX_TEMPLATE_BYTES = 1 << 10
"""Longer templates are not remembered: one log of long lines must not fill the memory."""


@runtime_checkable
class Stream(Protocol):
    """An open binary file."""

    def read1(self, size: int = ..., /) -> bytes:
        """What is there, at most `size` bytes; empty at the end."""
        ...


def shortened(line: bytes) -> bytes:
    """The line, without its middle where it is longer than MAX_LINE_BYTES."""
    if len(line) <= MAX_LINE_BYTES:
        return line
    return line[: MAX_LINE_BYTES - LINE_END_BYTES] + line[-LINE_END_BYTES:]


def _from_stream(stream: Stream) -> Iterator[list[bytes]]:
    """Batches of whole lines, as they arrive."""
    rest, skipping = b"", False
    while block := stream.read1(BLOCK_BYTES):
        lines = (rest + block).split(b"\n")
        rest = lines.pop()
        if skipping and lines:
            lines[0], skipping = shortened(lines[0]), False
        if len(rest) > MAX_LINE_BYTES:
            rest = rest[rest.rfind(b"\r") + 1 :]
            rest, skipping = shortened(rest), len(rest) > MAX_LINE_BYTES
        if lines:
            yield lines
    if rest:
        yield [rest]


def _from_lines(lines: Iterable[bytes]) -> Iterator[list[bytes]]:
    batch: list[bytes] = []
    for line in lines:
        batch.append(shortened(line.rstrip(b"\n")).replace(b"\n", b" "))
        if len(batch) >= _BATCH_LINES:
            yield batch
            batch = []
    if batch:
        yield batch


def batches(lines: Iterable[bytes] | Stream) -> Iterator[list[bytes]]:
    """Lists of lines without their newlines."""
    return _from_stream(lines) if isinstance(lines, Stream) else _from_lines(lines)


_COMMON = frozenset(
    [
        "error",
        "Error",
        "device",
        "process",
        "failed",
        "Failed",
        "failure",
        "kernel",
        "memory",
        "host",
        "rank",
        "module",
        "limit",
        "client",
        "exit",
        "received",
        "return",
        "status",
        "space",
        "timeout",
        "Timeout",
        "when",
        "without",
        "signal",
        "active",
        "without",
        "communicator",
        "is",
        "on",
        "a",
        "at",
        "of",
        "for",
        ":",
        "[",
        "]",
        "not",
    ]
)


def fragment(trigger: str) -> str:
    """The part of `trigger` without spaces that is rarest in logs: what one word of a line must contain."""
    pieces = trigger.split() or [trigger]
    return max(pieces, key=lambda piece: (piece not in _COMMON, len(piece)))


@functools.lru_cache(maxsize=8)
def _patterns(triggers: tuple[str, ...]) -> tuple[re.Pattern[bytes], re.Pattern[bytes]]:
    """What finds a trigger in a line, and what finds a trigger's fragment in a word; made once for all logs."""
    if any(re.search(r"\d", t) for t in triggers):
        msg = "a trigger with a digit would be lost in a template"
        raise ValueError(msg)
    fragments = tuple(fragment(t) for t in triggers)
    return re.compile(literals.any_of(triggers).encode()), re.compile(literals.any_of(fragments).encode())


class TriggerSieve:
    """Says which lines of a batch contain one of `triggers`.

    It remembers, within bounds, templates without any trigger and words without any fragment of one: a
    batch of known templates costs one set difference, a new template of known words another.
    """

    def __init__(self, triggers: Sequence[str]) -> None:
        self._trigger, self._fragment = _patterns(tuple(triggers))
        self._lines_without_trigger: set[bytes] = set()
        self._words_without_trigger: set[bytes] = set()

    def _wanted(self, templates: set[bytes]) -> set[bytes]:
        """The `templates` that contain a trigger."""
        words = set(b" ".join(templates).split()) - self._words_without_trigger
        with_trigger = {w for w in words if self._fragment.search(w)}
        if len(self._words_without_trigger) > _MAX_TEMPLATES:
            self._words_without_trigger.clear()
        self._words_without_trigger.update(w for w in words - with_trigger if len(w) <= _MAX_WORD_BYTES)
        if not with_trigger:
            return set()
        return {t for t in templates if not with_trigger.isdisjoint(t.split()) and self._trigger.search(t)}

    def hits(self, lines: list[bytes]) -> list[int]:
        """Indices of the lines that contain a trigger."""
        templates = b"\n".join(lines).translate(None, _DIGITS).split(b"\n")
        if len(templates) != len(lines):  # a line holds a line's end
            templates = [line.replace(b"\n", b" ").translate(None, _DIGITS) for line in lines]
        new = set(templates) - self._lines_without_trigger
        if not new:
            return []
        wanted = self._wanted(new)
        if len(self._lines_without_trigger) > _MAX_TEMPLATES:
            self._lines_without_trigger.clear()
        self._lines_without_trigger.update(t for t in new - wanted if len(t) <= _MAX_TEMPLATE_BYTES)
        return [i for i, t in enumerate(templates) if t in wanted] if wanted else []
