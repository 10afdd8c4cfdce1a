"""Times of two files that lie whole hours apart: the zone of one of them was not the one it was read in."""

from __future__ import annotations

import bisect
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta

from probing_cluster.core import records, vocabulary

_HOUR = timedelta(hours=1)
_MOST_HOURS = 14
_JUST_BEFORE, _JUST_AFTER = timedelta(minutes=2), timedelta(seconds=-5)
"""How far before a job's end lies a fault that ended it; a clock may be a little late."""
_FARTHEST = _MOST_HOURS * _HOUR + _JUST_BEFORE
_NEAR = timedelta(minutes=10)
_FAILED = frozenset({"FAILED", "NODE_FAIL", "BOOT_FAIL", "OUT_OF_MEMORY", "REQUEUED"})


def words(events: Sequence[records.HealthEvent], attempts: Iterable[records.JobAttempt]) -> str:
    """A hint at --timezone where a grave event lies whole hours off the end of its node's job and none lies near it; else empty."""
    ends: dict[str, list[tuple[datetime, str]]] = {}
    for attempt in attempts:
        if attempt.end_at is not None and attempt.state in _FAILED:
            for node in attempt.nodes:
                ends.setdefault(node, []).append((attempt.end_at, attempt.ref))
    for of_node in ends.values():
        of_node.sort()
    hint = ""
    for event in events:
        if event.severity is not records.Severity.HIGH:
            continue
        of_node = ends.get(event.node, [])
        first = bisect.bisect_left(of_node, (event.at - _FARTHEST, ""))
        last = bisect.bisect_right(of_node, (event.at + _FARTHEST, ""))
        for end_at, ref in of_node[first:last]:
            if abs(end_at - event.at) <= _NEAR:
                return ""
            if not hint and (hours := _hours_off(event.at, end_at)):
                hint = (
                    f"a fault of {event.node} lies {vocabulary.plural(abs(hours), 'hour')} {'before' if hours > 0 else 'after'}"
                    f" the end of job {ref}, almost to the minute: are times without a zone in another than UTC (--timezone)?"
                )
    return hint


def _hours_off(at: datetime, end_at: datetime) -> int:
    """How many whole hours the event lies before the moment before the end; negative for after, 0 for neither."""
    hours = round((end_at - at) / _HOUR)
    off = end_at - at - hours * _HOUR
    return hours if 0 < abs(hours) <= _MOST_HOURS and _JUST_AFTER <= off <= _JUST_BEFORE else 0
