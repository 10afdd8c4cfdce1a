"""Finds since when a job's log shows no progress, by the times in its own lines.

The form of a line shows whether it is progress (see `progress`). A log gives no answer if it may have been buffered, if it went on
without times or if it reports that the work was finished.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Any, NamedTuple

from probing_cluster.core import vocabulary
from probing_cluster.evidence import dates
from probing_cluster.evidence.joblog import grammar, labels, progress

_LEAST = timedelta(minutes=5)
"""A shorter silence is a checkpoint, an evaluation, a slow step."""
_TIMES = 5
"""The silence must last so many times as long as the usual gap before."""
_SKEW = timedelta(seconds=60)
"""Lines of several ranks and streams may be out of order by so much."""
_CHATTER = 64
"""Most lines after the last progress; with more, the program went on with something else."""
_MAX_ADVANCES = 256
_PAGE_CHARS = 4096
_BUFFER_CHARS = 8192
"""The smallest and the usual buffer of a stream to a file. A killed program loses its content."""
_HEAD_CHARS = 600
_CLOCKS_DIFFER = timedelta(minutes=2)
_NEAR_START = timedelta(minutes=15)
"""A log whose first time is so near the start was written in the zone in which it is read: zones differ by more."""
_COMPACT = re.compile(r"(?<![\d-])(20\d\d)(0[1-9]|1[0-2])([0-3]\d) (?=\d\d:\d\d:\d\d)")
"""Glog's day: `I20260905 17:18:04.44`."""
_CLOCK = re.compile(
    r"[\[(]?(?P<h>[01]\d|2[0-3]):(?P<m>[0-5]\d):(?P<s>[0-5]\d)(?:[.,]\d{1,6})?[\])]?(?=[ \t:|-])"
)
"""A time without its day, at the beginning of a line."""
_CLOCK_BEHIND = re.compile(r"[ \t\[(](?P<h>[01]\d|2[0-3]):(?P<m>[0-5]\d):(?P<s>[0-5]\d)[\])]?\s{0,4}$")
"""The same at a line's end: `step 7 loss 0.3 17:18:04`."""
_SOME_DAY = datetime(2000, 1, 1, tzinfo=UTC)
_HALF_DAY = timedelta(hours=12)
"""A clock that goes back by more has passed midnight."""
NO_ERROR = frozenset({grammar.LineRole.OBSERVATION, grammar.LineRole.END})
"""Roles of findings that end no silence."""
_LOGGER = re.compile(r"\d\d:\d\d:\d\d,\d{3}\b")
"""A time of Python's logging, which flushes every line."""
_SLURM = re.compile(r"(?:srun|slurmstepd(?:-[\w.-]{1,253})?|slurmd|sbatch): |\*\*\* (?:JOB|STEP) ")
_OVER = re.compile(
    r"\b(?:all done|done training|finish(?:ed|ing)|completed?|goodbye|exit(?:ed|ing)|shutting down|total (?:\w{1,20} )?time|end of (?:the )?(?:training|run|program))\b|\bdone\W*$",
    re.IGNORECASE,
)
"""Messages of programs whose work is finished."""
_STANDS = re.compile(
    r"\bno (?:progress|heartbeat|new steps?)\b|\b(?:hang|hung|stall|stuck|deadlock|watchdog|straggler)\w{0,8}\b|\bdump(?:ing|ed)? (?:\w{1,12} ){0,2}(?:stacks?|tracebacks?)\b",
    re.IGNORECASE,
)
"""A standstill reported by the program's own watchdog; such a line is no work."""
_RATIO = re.compile(r"(?<![\w./:-])(\d{1,12})\s{0,2}/\s{0,8}(\d{1,12})(?![\w/.:-])")


def is_of_slurm(text: str) -> bool:
    """Whether Slurm wrote the line; its times are in the cluster's zone, not in the program's."""
    return _SLURM.search(text) is not None


@dataclass(frozen=True, kw_only=True)
class Standstill:
    """The last progress of a log that then showed none until its job's end."""

    line: int
    """1-based number of the line of the last progress."""
    text: str
    last_at: datetime
    """When the last progress was, UTC."""
    before_s: float
    """Seconds from the progress before it."""
    gap_s: float
    """The longest time between two earlier steps, seconds; scaled to the usual step if the log leaves steps out."""
    error_at: datetime | None = None
    """Time of the error that ended the silence, UTC; None if it lasted until the job's end."""

    def later(self, by: timedelta) -> Standstill:
        """The same, so much later."""
        error_at = None if self.error_at is None else self.error_at + by
        return replace(self, last_at=self.last_at + by, error_at=error_at)

    @property
    def words(self) -> str:
        """The finding's text."""
        return f"no progress after: {self.text}"

    @property
    def detail(self) -> dict[str, Any]:
        """The finding's decoded fields."""
        ended = {} if self.error_at is None else {vocabulary.UNTIL_ERROR: True}
        return {"line": self.line, "before_s": self.before_s, "gap_s": self.gap_s, **ended}


class LastStep(NamedTuple):
    """The last dated step of a log."""

    at: datetime
    gap_s: float
    """The longest time between two steps, seconds; scaled to the usual step if the log leaves steps out."""
    text: str


class _LineBehind(NamedTuple):
    """A line behind the last progress."""

    line: int
    at: datetime | None
    is_work: bool
    """It reports progress without a time, or that the work was finished."""
    of_watchdog: bool
    """The program's own watchdog wrote it."""


class DatedProgress:
    """Follows the lines of one job's output in order, with their instants; of bounded size."""

    def __init__(self) -> None:
        self.first_at: datetime | None = None
        """The first instant that any line names."""
        self._chars = 0
        self._last: tuple[int, str] = (0, "")
        self._last_at: datetime | None = None
        self._before_s = 0.0
        self._counters: dict[str, progress.Counters] = {}
        self._advances: Counter[float] = Counter()
        """Count of each advance of the counter; 0 stands for an unknown advance."""
        self._gaps: dict[float, float] = {}
        """Per advance the longest gap, seconds."""
        self._behind: list[_LineBehind] = []
        """The lines after the last progress; at most twice the allowed number."""
        self._growing, self._named = progress.GrowingLines(), False
        """Lines whose number grows are progress as long as no line names a counter."""
        self._cut = self._disordered = False
        self.has_steps = False
        """Whether any line reports progress, with a time or without."""

    def feed(self, line: int, text: str, at: datetime | None) -> None:
        """Take one line; `at` is its instant, UTC, or None."""
        if found := _SLURM.search(text):
            # Slurm writes into the same file. Half a line before its message shows that a buffer was lost.
            begins = labels.strip(line, text).text.lstrip().startswith(found[0])
            self._cut |= not begins and not found[0].startswith("*")
            return
        if not text.strip():
            return
        self._cut = not text.endswith("\n")
        self._chars += len(text)
        step = progress.read_counters(text.rstrip())
        self._named |= step is not None
        if not self._named:
            step = self._growing.step(text.rstrip())
        self.has_steps |= step is not None
        stands = step is None and _STANDS.search(text) is not None
        if at is not None and not stands:
            self.first_at = self.first_at or at
            if step is not None:
                self._step(line, text, at, step)
                return
        if len(self._behind) <= 2 * _CHATTER:
            works = step is not None or _OVER.search(text) is not None
            self._behind.append(_LineBehind(line, at, is_work=not stands and works, of_watchdog=stands))

    def _step(self, line: int, text: str, at: datetime, step: tuple[str, progress.Counters]) -> None:
        words, now = step
        before, self._counters[words] = self._counters.get(words), now
        if len(self._counters) > _MAX_ADVANCES:
            self._counters.clear()
        last_at = self._last_at
        if last_at is not None and at <= last_at:
            self._disordered |= last_at - at > _SKEW
        else:
            if last_at is not None:
                self._before_s = (at - last_at).total_seconds()
                self._note_gap(_advance(before, now))
            self._last_at = at
        self._last = line, text
        self._behind.clear()

    def _note_gap(self, advance: float) -> None:
        if advance not in self._gaps and len(self._gaps) >= _MAX_ADVANCES:
            advance = 0.0
        self._advances[advance] += 1
        self._gaps[advance] = max(self._gaps.get(advance, 0.0), self._before_s)

    @property
    def last_line(self) -> int:
        """Number of the line of the last progress; 0 before any."""
        return self._last[0]

    @property
    def last_step(self) -> LastStep | None:
        """The last dated step; None without two of them in order."""
        if self._last_at is None or not self._gaps or self._disordered:
            return None
        return LastStep(self._last_at, self._gap_s(), self._last[1])

    def may_stand(self, end_at: datetime) -> bool:
        """Whether the log may have stood still until `end_at`, if the lines so far are its last ones."""
        return self._last_at is not None and end_at - self._last_at > _LEAST

    def standstill(self, end_at: datetime, error_line: int | None = None) -> Standstill | None:
        """Since when there was no progress until `end_at`, the job's end; None if the log does not show a standstill.

        `error_line`: the first error after the last progress. The silence then ends at the time of that line, or at the end if it has none.
        """
        last_at, line, text = self._last_at, *self._last
        if last_at is None or not self._gaps or self._disordered or (self._cut and error_line is None):
            return None
        behind = [
            b for b in self._behind if not b.of_watchdog and (error_line is None or b.line < error_line)
        ]
        if any(b.is_work for b in behind) or len(behind) > _CHATTER or _is_last_step(text):
            return None
        error_at = next((b.at for b in self._behind if b.line == error_line), None) or end_at
        silence_s, gap_s = ((error_at if error_line else end_at) - last_at).total_seconds(), self._gap_s()
        shortest_s = max(_LEAST.total_seconds(), _TIMES * gap_s, *self._gaps.values(), self._buffered_s())
        latest_at = max((b.at for b in behind if b.at), default=last_at)
        if silence_s <= shortest_s or latest_at > last_at + _SKEW + timedelta(seconds=gap_s):
            return None
        return Standstill(
            line=line,
            text=text,
            last_at=last_at,
            before_s=self._before_s,
            gap_s=gap_s,
            error_at=error_at if error_line else None,
        )

    def _gap_s(self) -> float:
        """The longest gap, seconds; a gap with a larger advance than usual counts in proportion."""
        usual = _median({a: n for a, n in self._advances.items() if a})
        return max(gap * min(1.0, usual / a) if a else gap for a, gap in self._gaps.items())

    def _buffered_s(self) -> float:
        """Longest time for which a buffer may have held back output, seconds; 0 without a buffer."""
        assert self.first_at is not None
        assert self._last_at is not None
        if self._chars < _PAGE_CHARS or _LOGGER.search(self._last[1]):
            return 0.0
        return (self._last_at - self.first_at).total_seconds() * _BUFFER_CHARS / self._chars


class LogSteps:
    """The dated steps of one attempt's output; times that name no zone are of `zone` (None: of this machine's)."""

    def __init__(self, zone: tzinfo | None, *, is_sure: bool) -> None:
        self._zone = zone
        self._is_sure = is_sure
        """Whether the program is known to write in that zone; else the log must begin with the job."""
        self._zone_missing = False
        self._clock_at: datetime | None = None
        """The latest instant of those that name no day."""
        self._clock_leads = self._dated = False
        """Lines begin with a time; they name a date."""
        self._first_at: datetime | None = None
        self._steps = DatedProgress()

    @property
    def has_steps(self) -> bool:
        """Whether any line reports progress."""
        return self._steps.has_steps

    def may_stand(self, lines: Iterable[bytes], end_at: datetime) -> bool:
        """Take a log's last lines, newest first; whether reading the whole log could show a standstill."""
        last: list[str] = []
        for raw in lines:
            text = raw[: 2 * _HEAD_CHARS].decode("utf-8", "replace")
            if text.strip() and not is_of_slurm(text):
                last.append(text)
            if len(last) > _CHATTER:
                break
        for number, text in enumerate(reversed(last), 1):
            self.feed(number, text)
        return self._steps.may_stand(end_at)

    def feed_head(self, text: str) -> None:
        """Take a line of the log's beginning, if only the end of a long log is fed."""
        if self._first_at is None and not is_of_slurm(text):
            self._first_at = self._instant(text[:_HEAD_CHARS])

    def feed(self, line: int, text: str) -> None:
        """Take one line with its end."""
        at = None if is_of_slurm(text) else self._instant(text[:_HEAD_CHARS])
        self._first_at = self._first_at or at
        self._steps.feed(line, text, at)

    def _instant(self, text: str) -> datetime | None:
        at = dates.iso(_COMPACT.sub(r"\1-\2-\3 ", text))
        if at is None:
            if self._dated:
                return None
            clock = _CLOCK.match(text)
            self._clock_leads |= clock is not None
            clock = clock or (None if self._clock_leads else _CLOCK_BEHIND.search(text))
            return self._of_clock(clock) if clock else None
        if not self._dated and self._clock_at is not None:
            # Lines with a date come after lines with only a clock time: drop the latter.
            self._steps, self._first_at, self._clock_at = DatedProgress(), None, None
        self._dated = True
        if dates.names_zone(text):
            return at
        self._zone_missing = True
        return dates.of_zone(at, self._zone)

    def _of_clock(self, found: re.Match[str]) -> datetime | None:
        """The instant of a line without a date, counted from _SOME_DAY; `standstill` adds the real day."""
        clock = timedelta(hours=int(found["h"]), minutes=int(found["m"]), seconds=int(found["s"]))
        if self._clock_at is not None:
            days = (self._clock_at - _SOME_DAY).days
            turned = self._clock_at - (_SOME_DAY + timedelta(days=days) + clock) > _HALF_DAY
            clock += timedelta(days=days + turned)
        self._clock_at = _SOME_DAY + clock
        return self._clock_at

    def _days(self, start_at: datetime) -> timedelta | None:
        """Offset that gives instants without a date their day, for an attempt that began at `start_at`; None if they cannot be its own."""
        first_at = self._first_at
        if self._clock_at is None or first_at is None:
            return timedelta()
        began = start_at.astimezone(self._zone)
        day = began.replace(hour=0, minute=0, second=0, microsecond=0)
        first = day + (first_at - _SOME_DAY)
        if first < began - _CLOCKS_DIFFER:
            first += timedelta(days=1)
        # A log that does not begin with its job may count from its start, or have begun on another day.
        return first.astimezone(UTC) - first_at if first <= began + _NEAR_START else None

    def last_step(self, start_at: datetime, end_at: datetime) -> LastStep | None:
        """The last dated step of an attempt that was at work until shortly before its end; None if the log does not show that."""
        # A time so near the end is of the zone in which it is read: zones differ by more.
        last = self._steps.last_step
        if last is None:
            return None
        at = last.at
        if self._clock_at is not None:
            end = end_at.astimezone(self._zone)
            at = end.replace(hour=0, minute=0, second=0, microsecond=0) + (at - _SOME_DAY) % timedelta(days=1)
            at = (at if at <= end + _CLOCKS_DIFFER else at - timedelta(days=1)).astimezone(UTC)
        if not max(start_at, end_at - _NEAR_START) <= at <= end_at + _CLOCKS_DIFFER:
            return None
        if at - timedelta(seconds=last.gap_s) < start_at - _CLOCKS_DIFFER:
            return None  # the step before is of an earlier job that wrote into the same file
        return last._replace(at=min(at, end_at))

    def standstill(
        self, start_at: datetime, end_at: datetime, found: Iterable[grammar.JobFinding]
    ) -> Standstill | None:
        """Since when there was no progress until `end_at`, the end of the attempt; None if the log does not show that.

        An error (`found`) after the last progress ends the silence, since waiting ranks time out at last. None also if the first cause
        is before the last progress or is the program's own, and if the times are outside the attempt's life.
        """
        days = self._days(start_at)
        if self._first_at is None or days is None:
            return None
        first_at = self._first_at + days
        if first_at < start_at - _CLOCKS_DIFFER:
            return None
        if self._zone_missing and not self._is_sure and first_at > start_at + _NEAR_START:
            return None
        errors = [f for f in found if f.role not in NO_ERROR]
        last = self._steps.last_line
        behind = [f for f in errors if f.line > last]
        if any(f.first_cause and (f.line <= last or f.domains == grammar.USER) for f in errors):
            return None
        stood = self._steps.standstill(end_at - days, min((f.line for f in behind), default=None))
        return stood and stood.later(days)


def _advance(before: progress.Counters | None, now: progress.Counters) -> float:
    """Advance of the innermost counter; 0 if it is not known."""
    if before is None or len(before) != len(now) or before[:-1] != now[:-1]:
        return 0.0
    return max(now[-1] - before[-1], 0.0)


def _median(counts: Mapping[float, int]) -> float:
    """The median of values with their counts; 0 without any."""
    left = sum(counts.values()) // 2
    for value in sorted(counts):
        left -= counts[value]
        if left < 0:
            return value
    return 0.0


def _is_last_step(text: str) -> bool:
    """Whether every counter that names its end has reached it."""
    pairs = _RATIO.findall(text)
    return bool(pairs) and all(int(n) >= int(of) for n, of in pairs)
