"""Finds where an attempt's own lines begin in a file that earlier runs wrote to as well (`--open-mode=append`, `>> train.log`).

The times in the lines show it. Without times nothing is left out. A run that follows the one before within PAUSE cannot be
told apart from it.
"""

from __future__ import annotations

from datetime import datetime, timedelta, tzinfo

from probing_cluster.evidence import dates
from probing_cluster.evidence.joblog import standstill

PAUSE = timedelta(minutes=1)
"""Least gap between the last time of an earlier run and the first one of this run. The times of a log that is written in another
time zone pass the start of the attempt without a gap."""
_CLOCKS_DIFFER = timedelta(minutes=1)
_HEAD_CHARS = 200
_UNDATED_LINES = 10_000
"""A log without a time in so many lines has none."""


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
