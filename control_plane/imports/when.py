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
_UPTIME = re.compile(r"\s*(?:<\d{1,3}>)?\s*\[\s{0,7}(\d{1,9})\.\d", re.ASCII)
_YEAR_LESS = re.compile(r"(?:<\d{1,3}>)?([A-Z][a-z]{2}) ([ \d]\d) \d\d:\d\d:\d\d", re.ASCII)
_MONTHS = "JanFebMarAprMayJunJulAugSepOctNovDec"
_HALF_YEAR = 6 * 31
_RESTART_S = 10
"""The seconds since boot that a line is behind the one above only where the machine started again."""
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
        self.n_since_boot = 0
        """Times given so far that only the seconds since boot tell."""
        self.restarted = False
        """Whether these seconds have begun anew: no boot instant tells then which lines are of it."""
        self._uptime_s = 0
        self._n_unproved = 0
        """Times that no later line can prove any more: the log has left their hour."""

    def skip(self, raw: str) -> None:
        """Takes a line that nobody asks the instant of; it may yet tell when the clocks went back, or the machine started again."""
        self._note_uptime(raw)
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
        self._note_uptime(raw)
        try:
            return self._instant(line, raw)
        except OverflowError:  # a date of the year 1, or an uptime of ages
            return None

    def _instant(self, line: prefixes.PrefixedLine, raw: str) -> datetime | None:
        if line.at is None:
            at = prefixes.boot_time(line, self.boot_at) if self.boot_at else None
            self.n_since_boot += at is not None
            return at
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

    def _note_uptime(self, raw: str) -> None:
        if self.boot_at is not None and (found := _UPTIME.match(raw)):
            uptime_s = int(found[1])
            self.restarted = self.restarted or uptime_s < self._uptime_s - _RESTART_S
            self._uptime_s = uptime_s

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


class YearTurns:
    """Whether a log whose dates name no year is of more than one: each date is read as of the latest year that it can be of."""

    def __init__(self) -> None:
        self._first = self._last = -1
        """Days, of months of 31, since the year's beginning; -1 before the first."""
        self._turns = 0
        self._went_back = False
        """The last step to another day was half a year back, or more."""

    def note(self, text: str) -> None:
        """The next line."""
        if not (found := _YEAR_LESS.match(text)) or (month := _MONTHS.find(found[1])) < 0:
            return
        day = 31 * (month // 3) + int(found[2])
        if self._first < 0:
            self._first = day
        elif day < self._last - _HALF_YEAR:
            self._turns += 1
            self._went_back = True
        elif day > self._last + _HALF_YEAR:
            # A clock that began at 1 January after a start and was set a little later: no year has passed.
            self._turns -= self._went_back
            self._went_back = False
        elif day != self._last:
            self._went_back = False
        self._last = day

    @property
    def is_longer_than_a_year(self) -> bool:
        return self._turns > 1 or (self._turns == 1 and self._last >= self._first)


def _readings(written: datetime, zone: tzinfo) -> tuple[datetime, datetime]:
    """What a wall clock of `zone` can mean by `written`: twice the same but in the hour it repeats."""
    first, second = (written.replace(tzinfo=zone, fold=fold).astimezone(UTC) for fold in (0, 1))
    return (first, second) if first < second else (first, first)
