"""Each user's share of the rows that a node may deliver in an hour.

A node's quota is its own, and jobs use it: without shares, many short jobs of one user use up the hour's rows, and other
users' allocations, the node's checks and its lesser events wait for the next hour.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from probing_cluster.core import clock
from probing_cluster.probe_agent.faults.sighting import Sighting

MAX_SIGHTINGS = 1000
"""Of everything that one job left on a node together: a job that prints distinct errors without end uses up its user's share."""
USER_ROWS = 10_000
"""Each user has a bucket of so many rows on a node, which refills at so many an hour: at most twice as many in any hour, a
fifth of a node's quota (100,000, agent_role.rows_per_hour)."""
ONE_JOB_FRAC = 0.1
"""Of what is left of its user's share a job gets at most this: some is always left for the jobs that follow."""
OWN_ROWS = 3
"""What each job costs beside its findings: its row when it begins, when it ends, and with its output files."""
_MAX_USERS = 4096
_HOUR_S = 3600.0


class RowShares:
    """What is left of each user's share; it grows back within an hour."""

    def __init__(self, clock: clock.Clock) -> None:
        self._clock = clock
        self._left: dict[int, tuple[float, float]] = {}
        """User to the rows left, and when that was by the monotonic clock."""

    def take(self, uid: int, sightings: Sequence[Sighting]) -> list[Sighting] | None:
        """Those of an ended job's sightings that its user's share has room for, first causes before all others; None when it is used up."""
        return self._take(uid, sightings, OWN_ROWS)

    def take_running(self, uid: int, sightings: Sequence[Sighting]) -> list[Sighting]:
        """The same of a running job, whose own rows count when it is collected."""
        return self._take(uid, sightings, 0) or []

    def _take(self, uid: int, sightings: Sequence[Sighting], own_rows: int) -> list[Sighting] | None:
        left = self._left_of(uid)
        kept = most(sightings, min(MAX_SIGHTINGS, int(left * ONE_JOB_FRAC)))
        while len(self._left) >= _MAX_USERS:
            del self._left[next(iter(self._left))]
        n_rows = own_rows + sum(map(_rows, kept))
        self._left[uid] = max(0.0, left - n_rows), self._clock.monotonic_s()
        return kept if left >= own_rows else None

    def _left_of(self, uid: int) -> float:
        left, at_s = self._left.pop(uid, (float(USER_ROWS), 0.0))
        return min(USER_ROWS, left + (self._clock.monotonic_s() - at_s) * USER_ROWS / _HOUR_S)


def _rows(sighting: Sighting) -> int:
    """The rows that it counts as, one and another per 4 KiB, as the database counts a node's (db/deliver.sql)."""
    return 1 + len(json.dumps(sighting.detail, default=str)) // 4096


def most(sightings: Sequence[Sighting], limit: int) -> list[Sighting]:
    """At most `limit` of them, in their order: first causes before what dumps and pages show, and that before other lines."""
    if len(sightings) <= limit:
        return list(sightings)
    if limit == 0:  # a share that is used up costs the agent nothing more
        return []
    order = sorted(
        range(len(sightings)),
        key=lambda i: (not sightings[i].detail.get("first_cause"), sightings[i].source == "joblog"),
    )
    return [sightings[i] for i in sorted(order[:limit])]
