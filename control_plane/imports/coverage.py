"""From when to when a kernel log was written: that it says nothing of a job's time is then a look at the node, too."""

from __future__ import annotations

from collections import deque
from datetime import datetime, tzinfo

from probing_cluster.control_plane.imports import when
from probing_cluster.core import records
from probing_cluster.evidence import prefixes

KIND, CODE = "kernel_log", "covered"
_FIRST_LINES, _LAST_LINES = 64, 64
"""Lines at either end of a log that are searched for a date."""


class LogSpan:
    """The first and the last date of a log that is read line by line."""

    def __init__(self, zone: tzinfo | None, boot_at: datetime | None, reference: datetime) -> None:
        self._zone, self._boot_at, self._reference = zone, boot_at, reference
        self._first: list[str] = []
        self._last: deque[str] = deque(maxlen=_LAST_LINES)
        self.is_naive = False
        """Whether a date of `span` names no zone, and none was given."""

    def note(self, text: str) -> None:
        """The next line."""
        if len(self._first) < _FIRST_LINES:
            self._first.append(text)
        self._last.append(text)

    def span(self) -> tuple[datetime, datetime] | None:
        """Both dates, UTC; None where there are none, or where they run backwards."""
        first = next((at for text in self._first if (at := self._at(text))), None)
        last = next((at for text in reversed(self._last) if (at := self._at(text))), None)
        return (first, last) if first is not None and last is not None and first <= last else None

    def _at(self, text: str) -> datetime | None:
        clock = when.LogClock(self._zone, self._boot_at, self._reference)
        at = clock.instant(prefixes.parse(text, self._reference), text)
        self.is_naive = self.is_naive or clock.n_naive > 0
        return at


def event_of(
    span: tuple[datetime, datetime], cluster: str, node: str, read_at: datetime
) -> records.HealthEvent:
    """What `attribution` reads of the log's span; the same log read twice is one event."""
    first, last = span
    position = f"{KIND}:{first.isoformat()}:{last.isoformat()}"
    return records.HealthEvent(
        event_id=records.make_event_id(cluster, node, "import", position),
        cluster=cluster,
        node=node,
        at=first,
        last_at=last,
        observed_at=read_at,
        kind=KIND,
        code=CODE,
        severity=records.Severity.INFO,
        source="import",
        message="a kernel log from a file, from its first date to its last",
        detail={"from": "kernel"},
    )
