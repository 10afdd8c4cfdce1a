"""Builds cases from the database: for a batch of attempts, all their records in a few queries."""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa

from probing_cluster.attribution.passes import assign_rows, conditions, incidents, node_clocks
from probing_cluster.attribution.places import layout
from probing_cluster.attribution.verdict import case as cases
from probing_cluster.attribution.verdict import (
    co_residency,
    onset,
    view_builder,
    window,
)
from probing_cluster.attribution.verdict import findings as finding_words
from probing_cluster.core import clock, records, vocabulary
from probing_cluster.db import store

_R = TypeVar("_R")
_SQL = Path(__file__).parent / "sql"

PAST = timedelta(days=7)
"""How far back user-type Xids on one GPU are read."""
NEAR = co_residency.NEAR

Attempts = Sequence[records.JobAttempt]


@dataclasses.dataclass(frozen=True, kw_only=True)
class PassCache:
    """The records that a pass over many attempts of one cluster has read already."""

    since: datetime
    """An attempt whose window begins before this is judged without the cache."""
    watched: Mapping[str, assign_rows.AgentWatch]
    active_faults: assign_rows.ActiveFaults
    stalls: assign_rows.ActiveFaults
    co_residents: co_residency.CoResidents
    shared: incidents.SharedIncidents
    """The times at which wide incidents may lie."""
    places: Mapping[cases.Key, Sequence[str]]
    """Attempt to the nodes whose events a verdict may mention; a missing attempt needs all its nodes."""
    depends_on_preemptor: frozenset[cases.Key]
    """Preempted attempts whose preemptor had started before: the verdict on that start is made first."""


class Fetcher:
    """Builds cases from one store."""

    def __init__(
        self, source: store.Store, policy: cases.WindowPolicy, cache: PassCache | None = None
    ) -> None:
        self._store, self._policy, self._cache = source, policy, cache
        self._clocks: dict[str, node_clocks.NodeClocks] = {}
        self.conditions = conditions.ConditionReader(source)

    def build(self, attempts: Attempts) -> list[cases.Case]:
        """One case per attempt that started and ended, in the same order."""
        ready = [a for a in attempts if a.start_at is not None and a.end_at is not None]
        by_cluster: dict[str, list[records.JobAttempt]] = defaultdict(list)
        for attempt in ready:
            by_cluster[attempt.cluster].append(attempt)
        made: dict[cases.Key, cases.Case] = {}
        for cluster, mine in by_cluster.items():
            made.update({cases.key(c.attempt): c for c in self._cluster(cluster, mine)})
        return [made[cases.key(a)] for a in ready]

    def clocks(self, cluster: str) -> node_clocks.NodeClocks:
        """The clocks of a cluster's nodes that were off, read once."""
        if cluster not in self._clocks:
            self._clocks[cluster] = node_clocks.read(self._store, cluster)
        return self._clocks[cluster]

    def incident_events(self, cluster: str, spans: Sequence[incidents.Span]) -> list[records.HealthEvent]:
        """Node events in some spans, on all nodes, that may be part of an incident; overlapping spans repeat them."""
        sinces, untils = [since for since, _ in spans], [until for _, until in spans]
        bounds = {"sinces": sinces, "untils": untils, "first": min(sinces), "last": max(untils)}
        given = {"cluster": cluster, **incidents.sorts(), **bounds}
        return self._records(records.HealthEvent, "incident_events", given)

    def arrived(
        self, cluster: str, places: Sequence[tuple[str, datetime, datetime]]
    ) -> list[records.HealthEvent]:
        """Events of incident kinds on one node and in one span each; both bounds belong to a span."""
        nodes, firsts, lasts = (list(column) for column in zip(*places, strict=True))
        kinds = sorted(set(incidents.sorts()["kinds"]))
        given = {"cluster": cluster, "kinds": kinds, "nodes": nodes, "firsts": firsts, "lasts": lasts}
        return self._records(records.HealthEvent, "arrived_events", given)

    def victims(self, cluster: str, events: Sequence[records.HealthEvent]) -> Sequence[Mapping[Any, Any]]:
        """The rules' verdicts of incident causes on these events: cluster, job_id, submit_at, incident_id, place, evidence."""
        given = {
            "cluster": cluster,
            "causes": sorted(incidents.WIDE),
            "ids": [e.event_id for e in events],
            "since": min(e.at for e in events),
            "until": max(e.at for e in events),
        }
        return self._rows("victims", given)

    def places(self, cluster: str) -> layout.Places:
        """The current and earlier places of every node of a cluster."""
        return layout.Places(self._records(records.NodePlace, "node_places", {"cluster": cluster}))

    def _cluster(self, cluster: str, attempts: Attempts) -> Iterable[cases.Case]:
        findings = self._findings(cluster, attempts)
        # Of the agents' refusals, the rule itself tells by count and time of which start they are.
        job_side = [
            [
                e
                for e in findings.get(a.job_id, ())
                if not finding_words.is_finding(e) or view_builder.is_own(e, a, self._policy)
            ]
            for a in attempts
        ]
        windows = [
            self._window(a, [e for e in t if finding_words.is_finding(e)])
            for a, t in zip(attempts, job_side, strict=True)
        ]
        clocks = self.clocks(cluster)
        # A hang moves a window back by hours: other jobs, stalls and conditions of that time are not in the cache.
        older = {
            cases.key(a)
            for a, w in zip(attempts, windows, strict=True)
            if (cache := self._cache) and w.start_at < cache.since
        }
        if older:
            yield from Fetcher(self._store, self._policy).build(
                [a for a in attempts if cases.key(a) in older]
            )
            yield from self.build([a for a in attempts if cases.key(a) not in older])
            return
        cache = self._cache
        events = self._events(cluster, attempts, windows)
        nodes = sorted({n for a in attempts for n in a.nodes})
        ends = [a.end_at for a in attempts if a.end_at is not None]
        watched = cache.watched if cache else self.watched(cluster, nodes, min(ends), max(ends))
        by_log = assign_rows.by_log(watched)
        for i, boots in self._later_boots(cluster, attempts, windows, by_log).items():
            events[i] += boots
        active = (
            cache.active_faults if cache else self.conditions.for_attempts(cluster, nodes, attempts, windows)
        )
        stalls = cache.stalls if cache else self._stalls(cluster, attempts, windows)
        actions = assign_rows.by_job_and_node(self._actions(cluster, attempts, nodes))
        past = self._past(cluster, attempts, events)
        stood = [assign_rows.active_faults_for(a, w, active) for a, w in zip(attempts, windows, strict=True)]
        met = {i: (*events.get(i, ()), *stood[i]) for i in range(len(attempts))}
        allocations = self._allocations(cluster, [a for i, a in enumerate(attempts) if met[i]])
        co_residents = self._co_residents(cluster, attempts, windows, met)
        preempted = self._preemptions(attempts, co_residents)
        offsets = [
            clocks.offsets_s(a.nodes, w.start_at, w.end_at) for a, w in zip(attempts, windows, strict=True)
        ]
        returned = self._returned(cluster, assign_rows.silences(attempts, watched))
        for i, attempt in enumerate(attempts):
            mine = events.get(i, ())
            yield cases.Case(
                attempt=attempt,
                events=(*mine, *job_side[i]),
                active_faults=stood[i],
                stalls=assign_rows.stalls_for(attempt, windows[i], stalls),
                shared=assign_rows.shared(co_residents, attempt, windows[i], met[i]),
                allocations=assign_rows.in_life(attempt, allocations.get(attempt.job_id, ())),
                actions=assign_rows.actions_for(attempt, actions),
                watched=assign_rows.watched(attempt, watched, offsets[i]),
                away=assign_rows.away(attempt, watched),
                returned=returned.get(i, {}),
                clock_offsets_s=offsets[i],
                by_log=by_log.intersection(attempt.nodes) if by_log else by_log,
                by_whole_log=assign_rows.by_whole_log(attempt, watched) if by_log else by_log,
                past_faults=past.get(i, ()),
                last_progress_at=onset.last_progress(attempt, job_side[i]),
                policy=self._policy,
                **preempted.get(i, {}),
            )

    def _window(self, attempt: records.JobAttempt, job_side: Sequence[records.HealthEvent]) -> window.Window:
        began = onset.onset(attempt, job_side, onset.last_progress(attempt, job_side))
        return window.window(attempt, began, self._policy, onset.unanswered_s(attempt, job_side))

    def _findings(self, cluster: str, attempts: Attempts) -> dict[int, list[records.HealthEvent]]:
        since, until = assign_rows.span(attempts)
        until += timedelta(seconds=self._policy.after_s)
        given = {
            "cluster": cluster,
            "job_ids": [a.job_id for a in attempts],
            "since": since,
            "until": until,
        }
        found: dict[int, list[records.HealthEvent]] = defaultdict(list)
        for event in self._records(records.HealthEvent, "case_findings", given):
            if event.job_id is not None:
                found[event.job_id].append(event)
        return found

    def _events(
        self, cluster: str, attempts: Attempts, windows: Sequence[window.Window]
    ) -> dict[int, list[records.HealthEvent]]:
        places_of = self._cache.places if self._cache else {}
        places = [
            (i, n, w)
            for i, (a, w) in enumerate(zip(attempts, windows, strict=True))
            for n in places_of.get(cases.key(a), a.nodes)
        ]
        given = {
            "cluster": cluster,
            "keys": [i for i, *_ in places],
            "nodes": [n for _, n, _ in places],
            "froms": [w.start_at for *_, w in places],
            "tos": [w.end_at for *_, w in places],
        }
        found: dict[int, list[records.HealthEvent]] = defaultdict(list)
        for row in self._rows("case_events", given):
            found[row["key"]] += self._store.readable(records.HealthEvent, [row])
        return found

    def _later_boots(
        self, cluster: str, attempts: Attempts, windows: Sequence[window.Window], by_log: frozenset[str]
    ) -> dict[int, list[records.HealthEvent]]:
        """For NODE_FAIL and BOOT_FAIL attempts: reboots after the window on agentless nodes. Such a node may be the lost one."""
        lost = [i for i, a in enumerate(attempts) if window.given_up(a) and by_log.intersection(a.nodes)]
        if not lost:
            return {}
        later = [window.reboot_window(attempts[i], windows[i]) for i in lost]
        found = self._events(cluster, [attempts[i] for i in lost], later)
        return {lost[k]: [e for e in some if e.kind == window.BOOT] for k, some in found.items()}

    def watched(
        self, cluster: str, nodes: Sequence[str], since: datetime, until: datetime
    ) -> dict[str, assign_rows.AgentWatch]:
        """Node to the times at which it was watched, for attempts that ended in the span; a node that never was is missing."""
        given = {"cluster": cluster, "nodes": list(nodes), "since": since, "until": until}
        return {
            r["node"]: assign_rows.AgentWatch(
                r["last_at"], tuple(zip(r["gaps_from"], r["gaps_to"], strict=True)), r["beats"]
            )
            for r in self._rows("watched", given)
            if r["last_at"] is not None
        }

    def _returned(
        self, cluster: str, gaps: Sequence[tuple[int, str, datetime, datetime]]
    ) -> dict[int, dict[str, datetime]]:
        """Attempt's index to its nodes that were heard again in the same boot, and since when."""
        if not gaps:
            return {}
        _, nodes, froms, tos = (list(column) for column in zip(*gaps, strict=True))
        given = {"cluster": cluster, "numbers": list(range(len(gaps)))}
        found: dict[int, dict[str, datetime]] = defaultdict(dict)
        for row in self._rows("returned", {**given, "nodes": nodes, "froms": froms, "tos": tos}):
            i, node, _, since = gaps[row["n"]]
            found[i][node] = since
        return found

    def _stalls(
        self, cluster: str, attempts: Attempts, windows: Sequence[window.Window]
    ) -> assign_rows.ActiveFaults:
        ended = [
            (a, w) for a, w in zip(attempts, windows, strict=True) if a.state in vocabulary.ENDED_FROM_OUTSIDE
        ]
        if not ended:
            return {}
        last = max(a.end_at for a, _ in ended if a.end_at is not None)
        lives = [
            (n, max(a.start_at, w.start_at - assign_rows.STALLED), w.start_at)
            for a, w in ended
            if a.start_at is not None and a.start_at < w.start_at
            for n in a.nodes
        ]
        return self.conditions.stalls(cluster, lives, last)

    def _actions(self, cluster: str, attempts: Attempts, nodes: Sequence[str]) -> list[records.Drain]:
        since, until = assign_rows.span(attempts)
        given = {"cluster": cluster, "job_ids": [a.job_id for a in attempts], "nodes": list(nodes)}
        return self._records(records.Drain, "case_actions", {**given, "since": since - NEAR, "until": until})

    def _allocations(self, cluster: str, attempts: Attempts) -> dict[int, list[records.JobAllocation]]:
        found: dict[int, list[records.JobAllocation]] = defaultdict(list)
        if attempts:
            given = {"cluster": cluster, "job_ids": [a.job_id for a in attempts]}
            clocks = self.clocks(cluster)
            for row in self._rows("case_allocations", given):
                for known in self._store.readable(records.JobAllocation, [row]):
                    found[known.job_id].append(
                        clocks.allocation(known, row["received_at"], row["updated_at"])
                    )
        return found

    def _co_residents(
        self,
        cluster: str,
        attempts: Attempts,
        windows: Sequence[window.Window],
        met: Mapping[int, Sequence[records.HealthEvent]],
    ) -> co_residency.CoResidents | None:
        """The attempts that ran in windows with events that may be a neighbour's, and after preemptions."""
        if self._cache is not None:
            return self._cache.co_residents
        wanted = {i: assign_rows.neighbours_since(attempts[i], windows[i], mine) for i, mine in met.items()}
        spans = [
            (a.end_at, windows[i].end_at)
            for i, a in enumerate(attempts)
            if a.end_at is not None and (wanted.get(i) or a.state == "PREEMPTED")
        ]
        if not spans:
            return None
        # A hang may reach far back: for that time only the nodes with such events are read.
        begins = {node: at - NEAR for node, at in assign_rows.earliest(wanted.values()).items()}
        return self.co_residents(cluster, min(spans)[0] - NEAR, max(to for _, to in spans) + NEAR, begins)

    def co_residents(
        self,
        cluster: str,
        since: datetime,
        until: datetime,
        lasting: Mapping[str, datetime] | None = None,
    ) -> co_residency.CoResidents:
        """The attempts that ran in a span; on nodes in `lasting`, from an earlier instant on."""
        query = (_SQL / "ran.sql").read_text("utf-8")
        # The driver accepts no empty list; no node has an empty name.
        earlier = {node: at for node, at in (lasting or {}).items() if at < since} or {"": since}
        from_us = [clock.to_us(at) for at in earlier.values()]
        return co_residency.CoResidents(
            self._store.arrow(query, cluster, since, until, list(earlier), from_us, min(earlier.values()))
        )

    def _past(
        self, cluster: str, attempts: Attempts, events: Mapping[int, Sequence[records.HealthEvent]]
    ) -> dict[int, tuple[cases.PastFault, ...]]:
        """Attempt's index to earlier user-type Xids on its GPUs; read only if such an Xid could explain its end."""
        now = {
            i: [e for e in of_attempt if assign_rows.ended_by_own(e, attempts[i])]
            for i, of_attempt in events.items()
        }
        places = [(i, e) for i, of_attempt in now.items() for e in of_attempt]
        if not places:
            return {}
        given = {
            "cluster": cluster,
            "keys": [i for i, _ in places],
            "nodes": [e.node for _, e in places],
            "untils": [e.at for _, e in places],
            "uuids": [e.gpu_uuid for _, e in places],
            "devices": [e.device for _, e in places],
            "addresses": [e.pci_bus_id for _, e in places],
            "codes": sorted({e.code or "" for _, e in places}),
            "days": PAST.days,
        }
        rows_of: dict[int, list[Mapping[Any, Any]]] = defaultdict(list)
        for row in self._rows("past_xids", given):
            rows_of[row["key"]].append(row)
        return {i: tuple(assign_rows.past_faults(found, now[i])) for i, found in rows_of.items()}

    def _preemptions(
        self, attempts: Attempts, co_residents: co_residency.CoResidents | None
    ) -> dict[int, dict[str, Any]]:
        """The preemptor of each preempted attempt, and the failure that made that preemptor start again."""
        mine = [(i, a) for i, a in enumerate(attempts) if a.state == "PREEMPTED"]
        if not mine or co_residents is None:
            return {}
        ends = [clock.to_us(a.end_at) for _, a in mine if a.end_at is not None]
        nodes = pa.array([a.nodes for _, a in mine], pa.list_(pa.string()))
        found = co_residents.successors(ends, [a.job_id for _, a in mine], nodes)
        by = {i: row for (i, _), row in zip(mine, found, strict=True) if row is not None}
        preemptors = dict(zip(by, co_residents.rows(list(by.values())), strict=True))
        cluster = mine[0][1].cluster
        keys = {i: (cluster, row["job_id"], row["submit_at"]) for i, row in preemptors.items()}
        by_key = {cases.key(a): a for a in self._store.attempts_of(sorted(set(keys.values())))}
        # Most preemptors start for the first time: only others have an earlier end.
        again = sorted({a.job_id for a in by_key.values() if a.attempt > 1})
        starts: dict[int, list[records.JobAttempt]] = defaultdict(list)
        verdicts: dict[int, list[records.Verdict]] = defaultdict(list)
        if again:
            for attempt in self._store.attempts(job_ids=again, cluster=cluster):
                starts[attempt.job_id].append(attempt)
            for verdict in self._store.verdicts(job_ids=again, cluster=cluster):
                verdicts[verdict.job_id].append(verdict)
        return {
            i: {
                "preemptor": a,
                "preemptor_verdict": assign_rows.previous_failure_of(a, starts[a.job_id], verdicts[a.job_id]),
            }
            for i, key in keys.items()
            if (a := by_key.get(key)) is not None
        }

    def _records(self, cls: type[_R], name: str, given: Mapping[str, Any]) -> list[_R]:
        return self._store.readable(cls, self._rows(name, given))

    def _rows(self, name: str, given: Mapping[str, Any]) -> Sequence[Mapping[Any, Any]]:
        return self._store.rows((_SQL / f"{name}.sql").read_text("utf-8"), given)
