"""A stall seen on one node of a job: the other nodes are asked what their ranks do, and who is at fault is named."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from probing_cluster.attribution.gang import finding, snapshots, stacks
from probing_cluster.control_plane import context
from probing_cluster.control_plane.gangs import gang_board, rank_rows
from probing_cluster.control_plane.service.tasks.jobs import accounting
from probing_cluster.core import errors, records
from probing_cluster.db.store import actions as store_actions

LOOK_BACK = timedelta(seconds=120)
"""A stall reported longer ago is history: its job has been looked at, or has ended."""
REQUEST_TTL_S = 60.0
KINDS = (snapshots.STALL, snapshots.DEAD)
PATIENCE = timedelta(seconds=20)
"""How long all nodes' snapshots are waited for before those that came are judged."""
SETTLE = timedelta(seconds=5)
"""How long after a death the gang is looked at again before it is reported: a job that ends kills all its ranks."""
SECOND_THOUGHTS = timedelta(seconds=10)
"""How old what is said next of an attempt's gang must be: who ends a job wakes its stopped ranks first, and then ends them all."""
STANDS = timedelta(days=30)
"""No gang stands still for longer than a job may run."""
MAX_TREE_LINES = 60
ENDS_EVERY_S = 3.0
"""No sooner is accounting asked again whether jobs that hung have ended."""
_RELEASED_WITHIN = timedelta(minutes=2)
_RELEASED = """
select distinct job_id from probing.job_allocation
where cluster = :cluster and job_id = any(:jobs) and released_at is not null and updated_at >= :since
order by job_id
"""


class AnsweredStalls(dict[int, uuid.UUID]):
    """Per job the last stall for which its nodes have been asked."""


def run(service: context.Context) -> str:
    """Asks every node of each job that has just stalled for its ranks, and names who is at fault."""
    now = service.clock.now()
    events = service.store.events(since=now - LOOK_BACK, kinds=KINDS, cluster=service.cluster)
    running = _running(service, {e.job_id for e in events if e.job_id is not None})
    own = _own_nodes(running.values())
    latest = {e.job_id: e for e in events if e.job_id is not None and _is_of(e, own.get(e.job_id))}
    answered = service.memory(AnsweredStalls)
    fresh = {job: e for job, e in latest.items() if answered.get(job) != e.event_id}
    answered.clear()
    answered.update({job: e.event_id for job, e in latest.items()})
    open_verdicts = service.store.gang_verdicts(open_only=True, since=now - STANDS, cluster=service.cluster)
    wanted = sorted({*latest, *(v.job_id for v in open_verdicts)})
    if not wanted:
        return ""
    running |= _running(service, set(wanted) - running.keys())
    running = _without_ended(service, running, {v.job_id for v in open_verdicts}, now)
    words = []
    n_requested = _ask(service, fresh, running)
    if fresh:
        words.append(f"jobs {', '.join(map(str, sorted(fresh)))}: {n_requested} nodes asked")
    nodes = sorted({n for a in running.values() for n in a.nodes})
    rows = rank_rows.on_own_nodes(
        rank_rows.by_job(
            rank_rows.of_heartbeats(service.store.heartbeats(nodes, with_ranks=True, cluster=service.cluster))
        ),
        {job_id: attempt.nodes for job_id, attempt in running.items()},
    )
    over = [v for v in open_verdicts if _is_over(v, running.get(v.job_id), rows.get(v.job_id, ()))]
    known = {v.gang_id: v for v in open_verdicts if v not in over}
    named = {(v.job_id, v.submit_at) for v in open_verdicts}
    stalled = [running[job_id] for job_id in sorted(latest.keys() & running.keys())]
    new = [
        verdict
        for verdict in _verdicts(service, stalled, rows, named, now)
        if _adds_evidence(verdict, known.get(verdict.gang_id))
    ]
    service.store.save_gang_verdicts([*(replace(v, ended_at=now) for v in over), *new])
    return "; ".join([*words, *(f"job {v.job_id}: {v.summary}" for v in new)])


def _running(service: context.Context, job_ids: Collection[int]) -> dict[int, records.JobAttempt]:
    """The attempts of these jobs that run, by job."""
    wanted = sorted(job_ids)
    if not wanted:
        return {}
    found = service.store.attempts(job_ids=wanted, ended=False, cluster=service.cluster)
    return {a.job_id: a for a in found}


def _own_nodes(attempts: Iterable[records.JobAttempt]) -> dict[int, frozenset[str]]:
    """Job to its nodes: of a large job every node's event is looked up among as many nodes."""
    return {a.job_id: frozenset(a.nodes) for a in attempts}


def _is_of(event: records.HealthEvent, own_nodes: frozenset[str] | None) -> bool:
    """Whether a node may speak of the job: whoever holds a node's certificate may name any job in an event."""
    return not own_nodes or event.node in own_nodes


def _ask(
    service: context.Context,
    fresh: Mapping[int, records.HealthEvent],
    running: Mapping[int, records.JobAttempt],
) -> int:
    """Asks the nodes of the jobs that have just stalled, but those that told of it; how many were asked."""
    places = [
        store_actions.RequestSubject(node, job_id, running[job_id].cluster)
        for job_id, event in sorted(fresh.items())
        if job_id in running
        for node in running[job_id].nodes
        if node != event.node
    ]
    return len(service.store.request_all(places, "collect", REQUEST_TTL_S))


def _without_ended(
    service: context.Context, running: dict[int, records.JobAttempt], hung: set[int], now: datetime
) -> dict[int, records.JobAttempt]:
    """The same without hung jobs that have ended: of those that a node has released accounting is asked out of turn."""
    given = {
        "cluster": service.config.cluster.name,
        "jobs": sorted(hung & running.keys()),
        "since": now - _RELEASED_WITHIN,
    }
    released = [row["job_id"] for row in service.store.rows(_RELEASED, given)] if given["jobs"] else []
    if not released:
        return running
    with contextlib.suppress(errors.SlurmUnavailable):  # then its end is learnt at the next poll
        service.seldom("hang_ends", ENDS_EVERY_S, lambda: accounting.of_jobs(service, released))
    return {k: a for k, a in running.items() if k not in released} | _running(service, set(released))


def _verdicts(
    service: context.Context,
    stalled: Sequence[records.JobAttempt],
    rows: Mapping[int, Sequence[rank_rows.RankNow]],
    named: Collection[tuple[int, datetime]],
    now: datetime,
) -> list[records.GangVerdict]:
    """Verdicts on the stalled gangs; none for a job whose snapshots are not complete yet, or that has not stalled.

    `named`: attempts of which something stands; what comes later of those must have settled.
    """
    if not stalled:
        return []
    events_by_job: dict[int, list[records.HealthEvent]] = {a.job_id: [] for a in stalled}
    by_id, own = {a.job_id: a for a in stalled}, _own_nodes(stalled)
    over_at = _over_at(service, stalled)
    ages_s = service.store.heartbeat_ages_s(cluster=service.cluster) if named else {}
    beat_at = {node: now - timedelta(seconds=age_s) for node, age_s in ages_s.items()}
    for event in service.store.events(
        job_ids=list(events_by_job), since=now - LOOK_BACK, kinds=(*snapshots.KINDS, snapshots.LAST_STEP)
    ):
        attempt = by_id.get(event.job_id or 0)
        if attempt is None or not _is_of(event, own[attempt.job_id]):
            continue
        if event.at > over_at[attempt.job_id]:
            events_by_job[attempt.job_id].append(event)
    ready = []
    for attempt in stalled:
        mine = events_by_job[attempt.job_id]
        gang = snapshots.gang(mine) if any(e.kind in KINDS for e in mine) else None
        mine_now = rows.get(attempt.job_id, ())
        if gang is None or not _is_whole(gang, attempt, mine, mine_now, now):
            continue
        if (attempt.job_id, attempt.submit_at) in named and not (
            _has_settled(gang, mine_now, now) and _are_all_there(gang, attempt, beat_at)
        ):
            continue
        ready.append((attempt, gang))
    bad = gang_board.faults_of(service.store, ready)
    found = (_verdict(a, gang, bad[a.job_id], rows.get(a.job_id, ()), now) for a, gang in ready)
    return [verdict for verdict in found if verdict is not None]


def _over_at(service: context.Context, stalled: Sequence[records.JobAttempt]) -> dict[int, datetime]:
    """Job to the time after which its evidence is of the stall that it is in now: its start, or the end of its latest stall before."""
    found = {a.job_id: a.start_at or a.submit_at for a in stalled}
    submitted = {a.job_id: a.submit_at for a in stalled}
    for v in service.store.gang_verdicts(job_ids=sorted(found), cluster=service.cluster):
        of_stall = v.kind in finding.KINDS and v.submit_at == submitted[v.job_id]
        if of_stall and v.ended_at is not None:
            found[v.job_id] = max(found[v.job_id], v.ended_at)
    return found


def _is_whole(
    gang: snapshots.Gang,
    attempt: records.JobAttempt,
    mine: Sequence[records.HealthEvent],
    rows: Sequence[rank_rows.RankNow],
    now: datetime,
) -> bool:
    """Whether all nodes' snapshots have come, or were waited for long enough, and a death has settled."""
    first = min(e.at for e in mine if e.kind in KINDS)
    if not gang.nodes >= set(attempt.nodes) and now - first < PATIENCE:
        return False
    deaths = [e.at for e in mine if e.kind == snapshots.DEAD]
    return not (deaths and (now - max(deaths) < SETTLE or not any(r.alive for r in rows)))


def _has_settled(gang: snapshots.Gang, rows: Sequence[rank_rows.RankNow], now: datetime) -> bool:
    """Whether its ranks live on well after the last look at them."""
    return now - max(e.at for e in gang.evidence) >= SECOND_THOUGHTS and any(r.alive for r in rows)


def _are_all_there(
    gang: snapshots.Gang, attempt: records.JobAttempt, beat_at: Mapping[str, datetime]
) -> bool:
    """Whether the agents of all its nodes have been heard after the last look: when a node goes away, the ranks elsewhere die of that."""
    last = max(e.at for e in gang.evidence)
    return all(beat_at[node] > last for node in attempt.nodes if node in beat_at)


def _verdict(
    attempt: records.JobAttempt,
    gang: snapshots.Gang,
    faults: Mapping[str, set[str]],
    rows: Sequence[rank_rows.RankNow],
    now: datetime,
) -> records.GangVerdict | None:
    """The finding on one gang; None when it is not stalled."""
    found = snapshots.judge(gang, faults, attempt.nodes)
    if found.kind in finding.PATIENT or _got_on(gang, rows):
        return None
    position = f"{attempt.job_id}:{attempt.submit_at.timestamp():.3f}:{_steps(gang)}"
    return records.GangVerdict(
        gang_id=records.make_event_id(attempt.cluster, "", "gang", position),
        cluster=attempt.cluster,
        job_id=attempt.job_id,
        submit_at=attempt.submit_at,
        kind=found.kind,
        ranks=found.ranks,
        nodes=found.nodes,
        domain=found.domain,
        confidence=found.confidence,
        summary=found.summary,
        location=found.where,
        proof=found.proof,
        evidence=tuple(e.event_id for e in gang.evidence),
        onset_at=gang.onset_at,
        made_at=now,
        detail={
            "steps": _steps(gang),
            "ranks_seen": len(gang.ranks),
            "world_size": gang.world_size,
            "tree": stacks.render(stacks.merge((r.rank, r.stack) for r in gang.ranks if r.stack))[
                :MAX_TREE_LINES
            ],
        },
    )


def _steps(gang: snapshots.Gang) -> int:
    """How far the gang was: a stall after another step is another stall."""
    return max((r.steps for r in gang.ranks), default=0)


def _got_on(gang: snapshots.Gang, rows: Sequence[rank_rows.RankNow]) -> bool:
    """The heartbeats show more steps than the snapshots did, of ranks that live or that the snapshots show."""
    own = {(r.node, r.pid) for r in gang.ranks}
    return max((r.steps for r in rows if r.alive or (r.node, r.pid) in own), default=0) > _steps(gang)


def _is_over(
    verdict: records.GangVerdict, attempt: records.JobAttempt | None, rows: Sequence[rank_rows.RankNow]
) -> bool:
    """The attempt has ended (or is another one by now), or its ranks have made a step since."""
    if attempt is None or attempt.submit_at != verdict.submit_at:
        return True
    steps = verdict.detail.get("steps")
    return isinstance(steps, int) and max((r.steps for r in rows if r.alive), default=0) > steps


def _adds_evidence(new: records.GangVerdict, old: records.GangVerdict | None) -> bool:
    """It names something, and not what was named already."""
    if old is None:
        return True
    same = ("kind", "ranks", "nodes", "domain", "confidence", "location")
    return new.kind != "unknown" and any(getattr(new, f) != getattr(old, f) for f in same)


TASK = context.Task(
    name="gangs",
    meaning="asks all nodes of a stalled job what their ranks are doing, and names who is at fault",
    run=run,
    every_s=lambda _: 2.0,
)
