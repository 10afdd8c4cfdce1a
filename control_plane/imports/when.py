"""The instant of a log line: what its prefix says, in the zone the person named where it names none."""

from __future__ import annotations

import re
from collections import deque
from datetime import UTC, datetime, timedelta, tzinfo

from probing_cluster.control_plane.imports import named_zones
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
        self._first_pass = datetime.min.replace(tzinfo=UTC)
        """The latest instant that was read as a first pass."""
        self._unsure: list[datetime] = []
        """First passes that nothing has proved yet: a step back, or a zone's name, may still come below them."""
        self.n_naive = 0
        """Times given so far that name no zone, and for which the person named none."""
        self._n_unproved = 0
        """Times that no later line can prove any more: the log has left their hour."""

    def skip(self, raw: str) -> None:
        """Takes a line that nobody asks the instant of; it may yet tell when the clocks went back."""
        if self.zone is not None:
            self._skipped.append(raw)
            if self._unsure:
                self._catch_up()

    @property
    def n_unsure(self) -> int:
        """Instants given so far that may be an hour too early: nothing in the log tells which pass they are of."""
        return self._n_unproved + len(self._unsure)

    def instant(self, line: prefixes.PrefixedLine, raw: str) -> datetime | None:
        """UTC; None when the prefix gives no date that can be, and no boot instant is known."""
        try:
            return self._instant(line, raw)
        except OverflowError:  # a date of the year 1, or an uptime of ages
            return None

    def _instant(self, line: prefixes.PrefixedLine, raw: str) -> datetime | None:
        if line.at is None:
            return prefixes.boot_time(line, self.boot_at) if self.boot_at else None
        if _ABSOLUTE.match(raw):
            return line.at
        if self.zone is None:
            named = _ABBREVIATION.match(raw)
            ahead = named_zones.offset(named[1], line.at) if named else None
            self.n_naive += ahead is None
            return line.at - (ahead or timedelta())
        first, second = _readings(line.at, self.zone)
        if first == second:
            return self._pass_by(first)
        self._catch_up()
        at, sure = self._choose(raw, first, second)
        if not sure:
            self._unsure.append(at)
        return at

    def _choose(self, raw: str, first: datetime, second: datetime) -> tuple[datetime, bool]:
        """The pass that the line names itself, else the earliest that is not before what stands above it; and whether that is certain."""
        assert self.zone is not None
        named = _ABBREVIATION.match(raw)
        after_first_pass = first + _DISORDER < self._latest <= second + _DISORDER
        if named and named[1] == second.astimezone(self.zone).tzname():
            at, sure = second, True
        elif named and named[1] == first.astimezone(self.zone).tzname():
            at, sure = first, True
        else:
            at, sure = (second if after_first_pass else first), after_first_pass
        stepped_back = at == second and first + _DISORDER < self._first_pass < second
        if stepped_back or (sure and at == first):
            # What stands above was written before: in the first pass too.
            self._unsure = [u for u in self._unsure if abs(u - first) > second - first]
        if at == first:
            self._first_pass = max(self._first_pass, at)
        self._latest = max(self._latest, at)
        return at, sure

    def _pass_by(self, at: datetime) -> datetime:
        """`at`, the only instant that a line's date can mean; behind a repeated hour nothing more is learnt of it."""
        if self._unsure and at > max(self._unsure):
            self._n_unproved += len(self._unsure)
            self._unsure.clear()
        self._latest = max(self._latest, at)
        return at

    def _catch_up(self) -> None:
        """Reads what was skipped, each line once: only in a repeated hour does it matter."""
        assert self.zone is not None
        while self._skipped:
            raw = self._skipped.popleft()
            at = prefixes.parse(raw, self.reference).at
            if at is not None and at.year > 1 and not _ABSOLUTE.match(raw):
                first, second = _readings(at, self.zone)
                if first == second:
                    self._pass_by(first)
                else:
                    self._choose(raw, first, second)


def _readings(written: datetime, zone: tzinfo) -> tuple[datetime, datetime]:
    """What a wall clock of `zone` can mean by `written`: twice the same but in the hour it repeats."""
    first, second = (written.replace(tzinfo=zone, fold=fold).astimezone(UTC) for fold in (0, 1))
    return (first, second) if first < second else (first, first)
