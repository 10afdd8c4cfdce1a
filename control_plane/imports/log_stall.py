"""That a job stood still until somebody ended it, as the times in its own log tell it."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta, tzinfo

from probing_cluster.core import records, sanitize, vocabulary
from probing_cluster.evidence import dates
from probing_cluster.evidence.joblog import grammar, standstill

_HEAD_CHARS = 600
_CLOCKS_DIFFER = timedelta(minutes=2)
_NEAR_START = timedelta(minutes=15)
"""A log whose first time is so near the start was written in the zone it is read in: zones differ by more."""
_NO_ERROR = frozenset({grammar.LineRole.OBSERVATION, grammar.LineRole.END})


class LogSteps:
    """The dated steps of one attempt's output; times without a zone are of `zone`, by default UTC."""

    def __init__(self, zone: tzinfo | None) -> None:
        self._zone = zone
        self._zone_known = True
        self._steps = standstill.DatedProgress()

    def feed(self, line: int, text: str) -> None:
        """Take one line with its end."""
        at = None if standstill.is_of_slurm(text) else self._instant(text[:_HEAD_CHARS])
        self._steps.feed(line, text, at)

    def _instant(self, text: str) -> datetime | None:
        at = dates.iso(text)
        if at is None or dates.names_zone(text):
            return at
        self._zone_known &= self._zone is not None
        try:
            return at.replace(tzinfo=self._zone or UTC).astimezone(UTC)
        except OverflowError:  # a date of the year 1
            return None

    def finding(
        self, attempt: records.JobAttempt, found: Iterable[grammar.JobFinding], read_at: datetime
    ) -> records.HealthEvent | None:
        """The finding, at the attempt's end, with the silence as its measured value; None where the log does not show one.

        Also none where its times do not lie in the attempt's life, or where it tells of an error (`found`): that has a story of its own.
        """
        if attempt.state not in vocabulary.ENDED_FROM_OUTSIDE or None in (attempt.start_at, attempt.end_at):
            return None
        start_at, end_at = attempt.start_at, attempt.end_at
        assert start_at is not None
        assert end_at is not None
        stood, first_at = self._steps.standstill(end_at), self._steps.first_at
        if stood is None or first_at is None or first_at < start_at - _CLOCKS_DIFFER:
            return None
        if not self._zone_known and first_at > start_at + _NEAR_START:
            return None
        errors = (f for f in found if f.role not in _NO_ERROR)
        if any(f.first_cause or f.line > stood.line for f in errors):
            return None
        node = next(iter(attempt.nodes), "")
        silence_s = (end_at - stood.last_at).total_seconds()
        position = f"{attempt.job_id}:{attempt.submit_at.isoformat()}:{stood.line}:{vocabulary.LOG_STALL}"
        return records.HealthEvent(
            event_id=records.make_event_id(attempt.cluster, node, "joblog", position),
            cluster=attempt.cluster,
            node=node,
            at=end_at,
            observed_at=read_at,
            kind=vocabulary.LOG_STALL,
            severity=records.Severity.INFO,
            measured=silence_s,
            unit="s",
            job_id=attempt.job_id,
            source="joblog",
            message=sanitize.clean(f"no progress after line {stood.line}: {stood.text}", 1024),
            detail={"line": stood.line, "before_s": stood.before_s, "gap_s": stood.gap_s},
        )
