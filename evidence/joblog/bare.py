"""Exceptions without the head of their traceback: the log began behind it, or only the last line was printed."""

from __future__ import annotations

import re
from collections.abc import Iterable

from probing_cluster.evidence.joblog import languages, progress, python
from probing_cluster.evidence.joblog.grammar import JobFinding, LineRole, Record

TRIGGERS = ('File "', "Error:", "Exception:", "AssertionError", *languages.LAST_TRIGGERS)
_FRAME = re.compile(r"^\s*File \"[^\"]{1,400}\", line \d{1,7}, in \S")
_INSIDE = re.compile(r"^(?:\s|$)")
_PLAIN = re.compile(
    r"^(?:[A-Za-z_]\w{0,60}\.){0,8}(?:[A-Z]\w{0,60}(?:Error|Exception)|Exception)(?:: \S|:?\s*$)"
)
_FRAMES_LINES = 400
_MAX_RANKS = 256
_LAST_LINES = 40
"""An exception without any traceback is how a log ended when no more lines than these stand behind it."""
_COMMAND_LINES = 3
"""A command that was not found ends a script only when hardly anything follows."""
_LAST_WORDS = frozenset({"command_not_found", "program_error"})
_STEPS = 3
"""So many further steps say that the program lived on."""


class Bare:
    """Follows frames that no traceback began and keeps the exception that may have ended the log."""

    def __init__(self, recent: Iterable[str] = ()) -> None:
        self._recent = recent
        """The lines read last, kept by the reader."""
        self._progress = progress.LogProgress()
        self._frames: dict[int | None, bool] = {}
        self._frames_until = 0
        self._last: JobFinding | None = None
        self._steps = 0

    def following(self, line: int) -> bool:
        """Whether `line`, the next one, matters whatever it contains."""
        return self._last is not None or (bool(self._frames) and line <= self._frames_until)

    def ignored(self, record: Record) -> None:
        """The frames to come belong to an exception that nobody gets to catch and that ends nothing."""
        self._frames[record.rank] = False
        self._frames_until = record.line + _FRAMES_LINES

    def read(self, record: Record, *, known: bool) -> JobFinding | None:
        """The exception at the end of frames without a head; nothing of a line that is understood already."""
        if _FRAME.match(record.text):
            if len(self._frames) < _MAX_RANKS:
                self._frames.setdefault(record.rank, True)
            self._frames_until = record.line + _FRAMES_LINES
            return None
        if record.rank in self._frames and _INSIDE.match(record.text):
            return None
        near = record.line <= self._frames_until
        uncaught = self._frames.pop(record.rank, None) if near else None
        if uncaught is False or known:
            return None
        if not _PLAIN.match(record.text):
            if self._last is None and (word := languages.last_word(record)):
                self.hold(word)
            return None
        found = python.exception(record)
        if found and uncaught and found.role is LineRole.ROOT:
            return found
        if found and self._last is None and not python.is_handled(record.text):
            self.hold(found)
        return None

    def hold(self, found: JobFinding) -> None:
        """A message that counts only as the log's last word."""
        self._last, self._steps = found, 0
        self._progress = progress.LogProgress(self._recent)

    def passed(self, line: int, text: str) -> None:
        """A line behind the exception that may have been the last."""
        if self._last is None or line == self._last.line:
            return
        self._steps += progress.is_progress(text) or self._progress.passed(text)
        limit = _COMMAND_LINES if self._last.kind in _LAST_WORDS else _LAST_LINES
        if self._steps >= _STEPS or line - self._last.line > limit:
            self._last = None

    def take_last(self, *, at_exit: bool = False) -> JobFinding | None:
        """The exception behind which nothing but an end came; at a bad exit only one that explains it."""
        found, self._last = self._last, None
        return None if found and at_exit and found.role is not LineRole.ROOT else found
