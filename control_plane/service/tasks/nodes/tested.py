"""Failed tests of nodes as events, whoever ran them: `probing-ctl diagnose` or a repair."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field
from datetime import timedelta

from probing_cluster.control_plane import context
from probing_cluster.core import records
from probing_cluster.diagnostics import evidence

_BACK = timedelta(days=7)
"""How far a service looks back when it begins: for so long it may have been down."""
_SLACK = timedelta(minutes=10)
"""How much longer than a round it looks back each time: a round stores its results when it ends, under the times at which they were made."""


@dataclass(kw_only=True)
class _Reported:
    """What this service has made of tests."""

    began: bool = False
    """Whether it has looked at the days before it began."""
    events: set[uuid.UUID] = field(default_factory=set)
    """Events of failed tests that are stored."""


def run(service: context.Context) -> str:
    """One look at what tests found since the last; what is already an event stays one, by its identity."""
    now, reported = service.clock.now(), service.memory(_Reported)
    recent = timedelta(seconds=service.config.diagnostics.round_s) + _SLACK
    back = recent if reported.began else _BACK
    bad = [records.Outcome.FAIL.value, records.Outcome.WARN.value]
    results = service.store.results(since=now - back, outcomes=bad)
    fresh = [e for e in evidence.events(results) if e.event_id not in reported.events]
    if fresh:
        from probing_cluster.db import bulk  # ADBC's threads, as in silence.py

        bulk.load_events(service.store.connection_uri(), fresh)
    reported.began = True
    reported.events = {e.event_id for e in evidence.events(results)}
    return f"{len(fresh)} failed tests of {len({e.node for e in fresh})} nodes" if fresh else ""


TASK = context.Task(
    name="tested",
    meaning="makes failed tests of nodes events, which verdicts, lemons and reports see",
    run=run,
    every_s=lambda _: 10.0,
)
