"""The instant of a log line: what its prefix says, in the zone the person named where it names none."""

from __future__ import annotations

import re
from collections import deque
from datetime import UTC, datetime, timedelta, tzinfo

from probing_cluster.evidence import prefixes

_ABSOLUTE = re.compile(
    r"\s*(?:\{|\d{9,10}\.\d{6}\s)|.{0,160}?\d\d:\d\d:\d\d(?:[.,]\d+)?\s?(?:Z|UTC|GMT|[+-]\d\d(?::?\d\d)?)\b",
    re.ASCII,
)
_ABBREVIATION = re.compile(r".{0,160}?\d\d:\d\d:\d\d(?:[.,]\d+)?\s([A-Z]{3,5})\s", re.ASCII)
_LINES_BACK = 4096
"""How many lines before a finding are asked whether the clocks went back; on a busy node some minutes."""
_DISORDER = timedelta(minutes=2)
"""Loggers swap lines of a moment; further back than this it is the clock."""


class LogClock:
    """Dates the lines of one log; the order they stand in tells the two passes of a repeated hour apart."""

    def __init__(
        self, zone: tzinfo | None, boot_at: datetime | None = None, reference: datetime | None = None
    ) -> None:
        self.zone = zone
        self.boot_at = boot_at
        self.reference = reference
        self._skipped: deque[str] = deque(maxlen=_LINES_BACK)
        self._latest = datetime.min.replace(tzinfo=UTC)

    def skip(self, raw: str) -> None:
        """Takes a line that nobody asks the instant of; it may yet tell when the clocks went back."""
        if self.zone is not None:
            self._skipped.append(raw)

    def instant(self, line: prefixes.PrefixedLine, raw: str) -> datetime | None:
        """UTC; None when the prefix gives no date that can be, and no boot instant is known."""
        try:
            return self._instant(line, raw)
        except OverflowError:  # a date of the year 1, or an uptime of ages
            return None

    def _instant(self, line: prefixes.PrefixedLine, raw: str) -> datetime | None:
        if line.at is None:
            return prefixes.boot_time(line, self.boot_at) if self.boot_at else None
        if self.zone is None or _ABSOLUTE.match(raw):
            return line.at
        first, second = _readings(line.at, self.zone)
        if first == second:
            self._latest = max(self._latest, first)
            return first
        self._catch_up()
        return self._choose(raw, first, second)

    def _choose(self, raw: str, first: datetime, second: datetime) -> datetime:
        """The pass that the line names itself; else the earliest that is not before what stands above it."""
        assert self.zone is not None
        named = _ABBREVIATION.match(raw)
        if named and named[1] == second.astimezone(self.zone).tzname():
            at = second
        elif named and named[1] == first.astimezone(self.zone).tzname():
            at = first
        else:
            at = second if first + _DISORDER < self._latest <= second + _DISORDER else first
        self._latest = max(self._latest, at)
        return at

    def _catch_up(self) -> None:
        """Reads what was skipped, each line once: only in a repeated hour does it matter."""
        assert self.zone is not None
        while self._skipped:
            raw = self._skipped.popleft()
            at = prefixes.parse(raw, self.reference).at
            if at is not None and at.year > 1 and not _ABSOLUTE.match(raw):
                self._choose(raw, *_readings(at, self.zone))


def _readings(written: datetime, zone: tzinfo) -> tuple[datetime, datetime]:
    """What a wall clock of `zone` can mean by `written`: twice the same but in the hour it repeats."""
    first, second = (written.replace(tzinfo=zone, fold=fold).astimezone(UTC) for fold in (0, 1))
    return (first, second) if first < second else (first, first)
