"""Cases out of the database: for a batch of attempts, everything their judging needs, in a few queries."""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, TypeVar

import sqlalchemy as sa

from probing_cluster.attribution import case as cases
from probing_cluster.attribution import gpus, onset, signatures, window
from probing_cluster.core import records
from probing_cluster.db import engines, rows, store

_R = TypeVar("_R")
_SQL = Path(__file__).parent / "sql"

STANDING = timedelta(days=7)
"""How far back a condition may have begun that still stands."""
PAST = timedelta(days=7)
"""How far back user-type Xids on one GPU make a pattern."""
SHORT = timedelta(minutes=15)
"""An attempt that ran longer than this ran well beside what stood before it began."""
NEAR = timedelta(minutes=15)

Attempts = Sequence[records.JobAttempt]


class Fetcher:
    """Builds the cases of one cluster's attempts from its store."""

    def __init__(self, source: store.Store, policy: cases.WindowPolicy) -> None:
        self._store, self._policy = source, policy

    def build(self, attempts: Attempts) -> list[cases.Case]:
        """One case per attempt that started and ended, in the same order."""
        ready = [a for a in attempts if a.start_at is not None and a.end_at is not None]
        by_cluster: dict[str, list[records.JobAttempt]] = defaultdict(list)
        for attempt in ready:
            by_cluster[attempt.cluster].append(attempt)
        made: dict[tuple[str, int, datetime], cases.Case] = {}
        for cluster, mine in by_cluster.items():
            made.update({key(c.attempt): c for c in self._cluster(cluster, mine)})
        return [made[key(a)] for a in ready]

    def incident_events(
        self, cluster: str, kinds: Sequence[str], since: datetime, until: datetime
    ) -> list[records.HealthEvent]:
        """Every node event of these kinds in a span, whatever node."""
        given = {"cluster": cluster, "kinds": list(kinds), "since": since, "until": until}
        return self._records(records.HealthEvent, "incident_events", given)

    def _cluster(self, cluster: str, attempts: Attempts) -> Iterable[cases.Case]:
        told = self._findings(cluster, attempts)
        windows = [self._window(a, told.get(a.job_id, ())) for a in attempts]
        seen = self._events(cluster, attempts, windows)
        nodes = sorted({n for a in attempts for n in a.nodes})
        watched = self._watched(cluster, nodes)
        standing = self._standing(cluster, nodes, windows)
        actions = self._actions(cluster, attempts, nodes)
        allocations = self._allocations(cluster, attempts, seen)
        for i, attempt in enumerate(attempts):
            yield cases.Case(
                attempt=attempt,
                events=(*seen.get(i, ()), *told.get(attempt.job_id, ())),
                standing=_standing_for(attempt, windows[i], standing),
                overlapping=self._overlapping(attempt, seen.get(i, ())),
                allocations=_in_life(attempt, allocations.get(attempt.job_id, ())),
                actions=_actions_for(attempt, actions),
                watched={n: watched[n] for n in attempt.nodes if n in watched},
                past=self._past(attempt, seen.get(i, ())),
                last_progress_at=last_progress(attempt, told.get(attempt.job_id, ())),
                policy=self._policy,
                **self._preemption(attempt),
            )

    def _window(self, attempt: records.JobAttempt, told: Iterable[records.HealthEvent]) -> window.Window:
        """Wide enough for every row of the signature table."""
        mine = [e for e in told if attempt.start_at is not None and e.at >= attempt.start_at]
        began = onset.onset(attempt, mine, last_progress(attempt, mine))
        plain = window.window(attempt, began, self._policy)
        before_s, after_s = signatures.extra_window_s()
        assert attempt.end_at is not None
        return window.Window(
            start_at=min(plain.start_at, began - timedelta(seconds=before_s)),
            end_at=max(plain.end_at, attempt.end_at + timedelta(seconds=after_s)),
        )

    def _findings(self, cluster: str, attempts: Attempts) -> dict[int, list[records.HealthEvent]]:
        since, until = _span(attempts)
        given = {"job_ids": [a.job_id for a in attempts], "since": since, "until": until}
        found: dict[int, list[records.HealthEvent]] = defaultdict(list)
        for event in self._records(records.HealthEvent, "case_findings", given):
            if event.job_id is not None and event.cluster == cluster:
                found[event.job_id].append(event)
        return found

    def _events(
        self, cluster: str, attempts: Attempts, windows: Sequence[window.Window]
    ) -> dict[int, list[records.HealthEvent]]:
        places = [(i, n, w) for i, (a, w) in enumerate(zip(attempts, windows, strict=True)) for n in a.nodes]
        given = {
            "cluster": cluster,
            "keys": [i for i, _, _ in places],
            "nodes": [n for _, n, _ in places],
            "froms": [w.start_at for _, _, w in places],
            "tos": [w.end_at for _, _, w in places],
        }
        found: dict[int, list[records.HealthEvent]] = defaultdict(list)
        for row in self._rows("case_events", given):
            found[row["key"]].append(rows.from_row(records.HealthEvent, row))
        return found

    def _watched(self, cluster: str, nodes: Sequence[str]) -> dict[str, datetime]:
        found = self._rows("watched", {"cluster": cluster, "nodes": list(nodes)})
        return {r["node"]: r["last_at"] for r in found if r["last_at"] is not None}

    def _standing(
        self, cluster: str, nodes: Sequence[str], windows: Sequence[window.Window]
    ) -> dict[str, list[tuple[records.HealthEvent, datetime | None]]]:
        since = min(w.start_at for w in windows) - STANDING
        until = max(w.start_at for w in windows)
        given = {"cluster": cluster, "nodes": list(nodes), "since": since, "until": until}
        found: dict[str, list[tuple[records.HealthEvent, datetime | None]]] = defaultdict(list)
        for row in self._rows("standing", given):
            found[row["node"]].append((rows.from_row(records.HealthEvent, row), row["gone_at"]))
        return found

    def _actions(self, cluster: str, attempts: Attempts, nodes: Sequence[str]) -> list[records.Drain]:
        since, until = _span(attempts)
        given = {"cluster": cluster, "job_ids": [a.job_id for a in attempts], "nodes": list(nodes)}
        return self._records(records.Drain, "case_actions", {**given, "since": since - NEAR, "until": until})

    def _allocations(
        self, cluster: str, attempts: Attempts, seen: Mapping[int, object]
    ) -> dict[int, list[records.JobAllocation]]:
        jobs = [attempts[i].job_id for i in seen]
        found: dict[int, list[records.JobAllocation]] = defaultdict(list)
        if jobs:
            given = {"cluster": cluster, "job_ids": jobs}
            for row in self._records(records.JobAllocation, "case_allocations", given):
                found[row.job_id].append(row)
        return found

    def _overlapping(
        self, attempt: records.JobAttempt, seen: Iterable[records.HealthEvent]
    ) -> tuple[records.JobAttempt, ...]:
        """Only asked for where it matters: an event that may be a neighbour's."""
        nodes = sorted({e.node for e in seen if _needs_neighbours(e, attempt)})
        if not nodes:
            return ()
        given = {
            "cluster": attempt.cluster,
            "nodes": nodes,
            "since": attempt.start_at,
            "until": attempt.end_at,
        }
        found = self._records(records.JobAttempt, "overlapping", given)
        return tuple(a for a in found if key(a) != key(attempt))

    def _past(
        self, attempt: records.JobAttempt, seen: Iterable[records.HealthEvent]
    ) -> tuple[cases.PastFault, ...]:
        """Who met user-type Xids on these GPUs before; only asked for when one is seen."""
        now = [e for e in seen if signatures.of(e).role is signatures.Role.USER]
        if not now:
            return ()
        until = min(e.at for e in now)
        codes = sorted({e.code or "" for e in now})
        given = {
            "cluster": attempt.cluster,
            "nodes": sorted({e.node for e in now}),
            "since": until - PAST,
            "until": until,
            "codes": codes,
        }
        return tuple(_past_faults(self._rows("past_xids", given), now))

    def _preemption(self, attempt: records.JobAttempt) -> dict[str, Any]:
        """Who took the place of a preempted attempt, and why that one had to start (again)."""
        if attempt.state != "PREEMPTED" or attempt.end_at is None:
            return {}
        given = {
            "cluster": attempt.cluster,
            "nodes": list(attempt.nodes),
            "since": attempt.end_at - timedelta(seconds=1),
            "until": attempt.end_at + NEAR,
        }
        later = [
            a
            for a in self._records(records.JobAttempt, "overlapping", given)
            if key(a) != key(attempt)
            and a.start_at is not None
            and a.start_at >= attempt.end_at - timedelta(seconds=1)
        ]
        if not later:
            return {}
        by = min(later, key=lambda a: (a.start_at, -(a.priority or 0), a.job_id))
        before = [v for v in self._store.verdicts(job_ids=[by.job_id]) if v.attempt < by.attempt]
        behind = max(before, key=lambda v: v.submit_at, default=None)
        faulty = behind is not None and behind.domain in (
            records.Domain.HARDWARE,
            records.Domain.SYSTEM_SOFTWARE,
        )
        return {"preemptor": by, "behind": behind if faulty else None}

    def _records(self, cls: type[_R], name: str, given: Mapping[str, Any]) -> list[_R]:
        return [rows.from_row(cls, row) for row in self._rows(name, given)]

    def _rows(self, name: str, given: Mapping[str, Any]) -> Sequence[Mapping[Any, Any]]:
        query = sa.text((_SQL / f"{name}.sql").read_text("utf-8"))
        with engines.translated(), self._store.engine.connect() as connection:
            return connection.execute(query, dict(given)).mappings().fetchall()


def key(attempt: records.JobAttempt) -> tuple[str, int, datetime]:
    """What makes an attempt this attempt."""
    return (attempt.cluster, attempt.job_id, attempt.submit_at)


def last_progress(attempt: records.JobAttempt, told: Iterable[records.HealthEvent]) -> datetime | None:
    """The last training step the probe saw in this attempt before a rank stalled for good; None when none did.

    A `rank_stall` says how long the rank had not got on when it was told.
    """
    assert attempt.start_at is not None
    assert attempt.end_at is not None
    found = [
        event.at - timedelta(seconds=event.measured)
        for event in told
        if event.source == "probe" and event.kind == "rank_stall" and event.measured is not None
    ]
    inside = [t for t in found if attempt.start_at <= t <= attempt.end_at]
    return max(inside, default=None)


def _span(attempts: Attempts) -> tuple[datetime, datetime]:
    starts = [a.start_at for a in attempts if a.start_at is not None]
    ends = [a.end_at for a in attempts if a.end_at is not None]
    return min(starts) - NEAR, max(ends) + NEAR


def _in_life(
    attempt: records.JobAttempt, found: Iterable[records.JobAllocation]
) -> tuple[records.JobAllocation, ...]:
    """Of a requeued job's allocations, those of this start: the last on each node before its end."""
    assert attempt.end_at is not None
    assert attempt.start_at is not None
    last: dict[str, records.JobAllocation] = {}
    for row in sorted(found, key=lambda r: (r.at, r.node)):
        if attempt.start_at - timedelta(seconds=60) <= row.at <= attempt.end_at:
            last[row.node] = row
    return tuple(last.values())


def _actions_for(attempt: records.JobAttempt, actions: Iterable[records.Drain]) -> tuple[records.Drain, ...]:
    nodes = frozenset(attempt.nodes)
    return tuple(a for a in actions if a.job_id == attempt.job_id or a.node in nodes)


def _standing_for(
    attempt: records.JobAttempt,
    stretch: window.Window,
    standing: Mapping[str, Sequence[tuple[records.HealthEvent, datetime | None]]],
) -> tuple[records.HealthEvent, ...]:
    """Conditions older than the window that stood when the attempt began; a long attempt ran well beside them."""
    assert attempt.start_at is not None
    assert attempt.end_at is not None
    if attempt.end_at - attempt.start_at > SHORT:
        return ()
    return tuple(
        event
        for node in attempt.nodes
        for event, gone_at in standing.get(node, ())
        if event.at < stretch.start_at and (gone_at is None or gone_at > attempt.end_at)
    )


def _needs_neighbours(event: records.HealthEvent, attempt: records.JobAttempt) -> bool:
    signature = signatures.of(event)
    if signature.role is signatures.Role.CONTEXT:
        return False
    if event.kind == "oom":
        return event.job_id is None
    return signature.scope is signatures.Scope.GPU and (
        attempt.gpus is None or event.node not in attempt.gpus or not event.gpu_uuid
    )


def _past_faults(
    found: Iterable[Mapping[Any, Any]], now: Iterable[records.HealthEvent]
) -> Iterable[cases.PastFault]:
    known = gpus.learn(now, ())
    for row in found:
        probe = dataclasses.replace(
            next(iter(now)),
            node=row["node"],
            device=row["device"],
            pci_bus_id=row["pci_bus_id"],
            gpu_uuid=row["gpu_uuid"],
        )
        name = gpus.gpu_key(probe, known.get(row["node"], gpus.GpuMap()))
        held = row["held"]
        if name is None or (held is not None and row["gpu_uuid"] and row["gpu_uuid"] not in held):
            continue
        yield cases.PastFault(
            node=row["node"],
            gpu=name,
            code=row["code"] or "",
            at=row["at"],
            job_id=row["job_id"],
            user=row["user"],
        )
