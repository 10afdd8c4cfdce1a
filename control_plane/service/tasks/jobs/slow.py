"""Slow ranks of running jobs, and gangs that have slowed down, as events of source `probe`.

What the pages say is the users' word: these events inform, and are by themselves no reason to touch a node.
Each is reported once per attempt, rank and component; reported again after a restart of the service it is the same event.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from probing_cluster.attribution.gang import slow
from probing_cluster.control_plane import context
from probing_cluster.control_plane.gangs import gang_pace, rank_rows
from probing_cluster.core import records

COMPONENTS = {
    "compute": "computing",
    "host": "work outside of the backward pass",
    "input": "waiting for its data loader",
    "checkpoint": "writing checkpoints",
    "network": "collectives",
}


@dataclass(frozen=True, kw_only=True)
class _Finding:
    """What was found in a job's pace, before it has an attempt and an event id."""

    kind: str
    code: str
    node: str | None
    position: str
    message: str
    measured: float
    threshold: float | None
    detail: Mapping[str, Any]


class GangPaces(dict[int, gang_pace.GangPace]):
    """Per running job what its steps take."""


def run(service: context.Context) -> str:
    """One look at the pace of every running gang; what is new."""
    jobs = rank_rows.by_job(
        rank_rows.of_heartbeats(service.store.heartbeats(with_ranks=True, cluster=service.cluster))
    )
    paces = service.memory(GangPaces)
    for job_id in [j for j in paces if j not in jobs]:
        del paces[job_id]
    fresh: dict[int, list[_Finding]] = {}
    paces.update(_known(service, [job_id for job_id in jobs if job_id not in paces]))
    for job_id, ranks in _on_own_nodes(service, paces, jobs).items():
        pace = paces[job_id]
        if ranks and pace.take(ranks):
            found = [t for t in _found(pace, ranks) if t.position not in pace.reported]
            fresh |= {job_id: found} if found else {}
    if not fresh:
        return ""
    running = service.store.attempts(job_ids=sorted(fresh), ended=False)
    latest = {a.job_id: a for a in running if a.job_id in fresh}  # of a requeued job the last one runs
    new = [(a, t, e) for a in latest.values() for t in fresh[a.job_id] if (e := _event(service, a, t))]
    from probing_cluster.db import (
        bulk,
    )  # ADBC's threads, begun before process_memory.keep_small, would each have a heap

    bulk.load_events(service.store.connection_uri(), [event for *_, event in new])
    for attempt, t, _ in new:
        paces[attempt.job_id].reported.add(t.position)
    return "; ".join(f"job {a.job_id}: {t.message}" for a, t, _ in new if t.kind != "gang_pace")


def _known(service: context.Context, job_ids: Sequence[int]) -> dict[int, gang_pace.GangPace]:
    """The pace of gangs this service meets for the first time; their first windows come from a stored `gang_pace` event, if there is one."""
    paces = {job_id: gang_pace.GangPace() for job_id in job_ids}
    running = service.store.attempts(job_ids=job_ids, ended=False) if paces else []
    began = {a.job_id: a for a in running if a.job_id in paces and a.start_at is not None}
    if not began:
        return paces
    since = min(a.start_at for a in began.values() if a.start_at is not None)
    for event in service.store.events(job_ids=list(began), since=since, kinds=("gang_pace",)):
        attempt = None if event.job_id is None else began[event.job_id]
        if attempt is None or attempt.start_at is None or event.at < attempt.start_at:
            continue
        # Ours name the first of its nodes; whoever holds a node's certificate may name any job in an event.
        if event.node in attempt.nodes and (first := _first(event.detail.get("first"))):
            paces[attempt.job_id].first = first
            paces[attempt.job_id].reported.add("pace")
    return paces


def _first(stored: object) -> list[slow.Pace]:
    """The gang's first windows as an event of ours holds them; none where it is no such event."""
    if not isinstance(stored, list) or len(stored) != gang_pace.FIRST:
        return []
    try:
        return [
            slow.Pace(index=int(p["index"]), **{name: float(p[name]) for name in _SECONDS}) for p in stored
        ]
    except (TypeError, KeyError, ValueError, OverflowError):
        return []


_SECONDS = ("step_s", "compute_s", "input_s", "network_s")


def _on_own_nodes(
    service: context.Context, paces: GangPaces, jobs: Mapping[int, Sequence[rank_rows.RankNow]]
) -> dict[int, list[rank_rows.RankNow]]:
    """The ranks on the nodes that Slurm gave each job; accounting is asked where a node is new to us, or another job's."""
    odd = [j for j, ranks in jobs.items() if not paces[j].nodes.issuperset(r.node for r in ranks)]
    attempts = service.store.attempts(job_ids=sorted(odd), ended=False) if odd else []
    for attempt in attempts:
        if attempt.job_id in paces:
            paces[attempt.job_id].nodes = frozenset(attempt.nodes)
    return rank_rows.on_own_nodes(jobs, {j: paces[j].nodes for j in jobs})


def _found(pace: gang_pace.GangPace, ranks: Sequence[rank_rows.RankNow]) -> Iterator[_Finding]:
    nodes = {r.rank: r.node for r in ranks}
    for s in pace.slow_now:
        yield _slow(s, nodes.get(s.rank), len(pace.windows))
    for d in pace.drifts():
        yield _drift(d, pace)
    if pace.settled and "pace" not in pace.reported:
        step_s = pace.first[-1].step_s
        yield _Finding(
            kind="gang_pace",
            code="",
            node=None,
            position="pace",
            message=f"{len(pace.windows)} ranks take {step_s:.3g} s a step",
            measured=step_s,
            threshold=None,
            detail={"first": [vars(p) for p in pace.first], "ranks": len(pace.windows)},
        )


def _slow(slow_rank: slow.SlowRank, node: str | None, n_ranks: int) -> _Finding:
    times = f"{1 + slow_rank.excess_frac:.2f} times " if slow_rank.median_s > 0 else "against "
    return _Finding(
        kind="rank_slow",
        code=slow_rank.component,
        node=node,
        position=f"slow:{slow_rank.rank}:{slow_rank.component}",
        message=f"rank {slow_rank.rank} is slow: {COMPONENTS[slow_rank.component]} takes it {slow_rank.own_s:.3g} s a step, "
        f"{times}the median of {n_ranks} ranks ({slow_rank.median_s:.3g} s); "
        f"the others wait {slow_rank.waited_s:.3g} s for it in each step of {slow_rank.step_s:.3g} s",
        measured=slow_rank.own_s,
        threshold=slow_rank.limit_s,
        detail={
            "rank": slow_rank.rank,
            "component": slow_rank.component,
            "median_s": slow_rank.median_s,
            "waited_s": slow_rank.waited_s,
            "step_s": slow_rank.step_s,
            "ranks": n_ranks,
        },
    )


def _drift(drift: slow.PaceDrift, pace: gang_pace.GangPace) -> _Finding:
    return _Finding(
        kind="gang_drift",
        code=drift.component,
        node=None,
        position=f"drift:{drift.component}",
        message=f"the whole job has slowed down: {COMPONENTS[drift.component]} takes {drift.now_s:.3g} s a step "
        f"now, {drift.first_s:.3g} s at its beginning",
        measured=drift.now_s,
        threshold=drift.limit_s,
        detail={"component": drift.component, "first_s": drift.first_s, "ranks": len(pace.windows)},
    )


def _event(
    service: context.Context, attempt: records.JobAttempt, finding: _Finding
) -> records.HealthEvent | None:
    """The finding as an event of the attempt; None for an attempt without a node."""
    node = finding.node or (attempt.nodes[0] if attempt.nodes else None)
    if node is None:
        return None
    now = service.clock.now()
    position = f"{attempt.job_id}:{attempt.submit_at.timestamp():.3f}:{finding.position}"
    return records.HealthEvent(
        event_id=records.make_event_id(attempt.cluster, node, "probe", position),
        cluster=attempt.cluster,
        node=node,
        at=now,
        observed_at=now,
        kind=finding.kind,
        code=finding.code or None,
        severity=records.Severity.INFO,
        job_id=attempt.job_id,
        source="probe",
        message=finding.message,
        measured=finding.measured,
        threshold=finding.threshold,
        unit="s",
        detail=dict(finding.detail),
    )


TASK = context.Task(
    name="slow",
    meaning="names slow ranks of running jobs, and jobs that have slowed down",
    run=run,
    every_s=lambda _: 5.0,
)
