"""Finds where an attempt's own lines begin in a file that earlier runs wrote to as well (`--open-mode=append`, `>> train.log`).

The times in the lines show it. Without times nothing is left out. A run that follows the one before within PAUSE cannot be
told apart from it. The log's first lines, where they come again, show only that another run began: the job itself may have
started several. So they never clear an error, but decide between two.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta, tzinfo

from probing_cluster.evidence import dates
from probing_cluster.evidence.joblog import cause, standstill, unexplained_end
from probing_cluster.evidence.joblog.grammar import LineRole

PAUSE = timedelta(minutes=1)
"""Least gap between the last time of an earlier run and the first one of this run. The times of a log that is written in another
time zone pass the start of the attempt without a gap."""
_CLOCKS_DIFFER = timedelta(minutes=1)
_HEAD_CHARS = 200
_UNDATED_LINES = 10_000
"""A log without a time in so many lines has none."""
FIRST_LINES = 8
"""A log's beginning stands within so many lines."""
_HEAD_LINES, _LEAST_CHARS = 2, 12
"""So many of the first lines make the log's beginning; shorter ones, such as rules, do not count."""
_END_LINES = 8
"""A run's beginning stands at most so many lines below the error that ended the run before it."""


class AppendedLog:
    """One file's lines in order, of an attempt that started at `start_at`; times without a zone are of `zone` (None: this machine's).

    `start_at` without a zone is this machine's, too; without it nothing is left out.
    """

    def __init__(self, start_at: datetime | None, zone: tzinfo | None) -> None:
        self._zone = zone
        self._own_from = start_at.astimezone() - _CLOCKS_DIFFER if start_at else None
        self._last_at: datetime | None = None
        self._undated = 0

    @property
    def may_begin(self) -> bool:
        """Whether the attempt's own lines may still begin at a later line."""
        return self._own_from is not None

    def begins(self, text: str) -> bool:
        """Whether the attempt's own lines begin with this one, and all before were an earlier run's; true once at most."""
        if self._own_from is None:
            return False
        at = None if standstill.is_of_slurm(text) else dates.written(text[:_HEAD_CHARS], self._zone)
        if at is None:
            self._undated += self._last_at is None
            if self._undated > _UNDATED_LINES:
                self._own_from = None
            return False
        before, self._last_at = self._last_at, at
        if at < self._own_from:
            return False
        own_from, self._own_from = self._own_from, None
        return before is not None and before < own_from and at - before >= PAUSE


class RepeatedHead:
    """Follows one log's lines in order and remembers where its first lines come again."""

    def __init__(self) -> None:
        self._head: list[str] = []
        self._again: list[int] = []
        """Lines of the head that the last lines repeated."""
        self._began = 0
        """Line at which the last run began; 0 if the head did not come again."""

    def read(self, line: int, text: str) -> None:
        """A line of the log."""
        text = text.strip()
        if len(text) < _LEAST_CHARS:
            return
        if len(self._head) < _HEAD_LINES:
            if line <= FIRST_LINES and text not in self._head:
                self._head.append(text)
            return
        if text != self._head[len(self._again)]:
            self._again = []
        if text == self._head[len(self._again)]:
            self._again.append(line)
        if len(self._again) == _HEAD_LINES:
            self._began, self._again = self._again[0], []

    def extend(self, first: int, lines: Iterable[str]) -> None:
        """Several consecutive lines, from number `first` on."""
        for line, text in enumerate(lines, first):
            self.read(line, text)

    def choose(self, candidates: cause.CauseCandidates) -> None:
        """If the last run ended by another error of the program than an earlier one, that is the first cause."""
        best = candidates.candidate
        before = [f for f in candidates.held if f.line < self._began]
        if best not in before or self._began - before[-1].line > _END_LINES:
            return
        for later in candidates.held[len(before) :]:
            counts = later.role is LineRole.ROOT and not {"survived", "handled"} & later.detail.keys()
            if counts and later.kind == best.kind and unexplained_end.is_of_next(later, best):
                candidates.next_run(self._began)
                return
