"""A stall seen on one node of a job: the other nodes are asked what their ranks do, and who is at fault is named."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from probing_cluster.attribution.gang import finding, snapshots, stacks
from probing_cluster.control_plane import context, gang_board, rank_rows
from probing_cluster.core import records

LOOK_BACK = timedelta(seconds=120)
"""A stall told longer ago is history: its job has been looked at, or has ended."""
REQUEST_TTL_S = 60.0
KINDS = (snapshots.STALL, snapshots.DEAD)
PATIENCE = timedelta(seconds=20)
"""How long all nodes' snapshots are waited for before those that came are judged."""
SETTLE = timedelta(seconds=5)
"""How long after a death the gang is looked at again before it is told: a job that ends kills all its ranks."""
STANDS = timedelta(days=30)
"""No gang stands still for longer than a job may run."""
MAX_TREE_LINES = 60


def run(service: context.Context) -> str:
    """Asks every node of each job that has just stalled for its ranks, and names who is at fault."""
    now = service.clock.now()
    told = service.store.events(since=now - LOOK_BACK, kinds=KINDS)
    latest = {e.job_id: e for e in told if e.job_id is not None}
    fresh = {job: e for job, e in latest.items() if service.stalls.get(job) != e.event_id}
    service.stalls = {job: e.event_id for job, e in latest.items()}
    standing = service.store.gang_verdicts(standing_only=True, since=now - STANDS)
    wanted = sorted({*latest, *(v.job_id for v in standing)})
    if not wanted:
        return ""
    running = {a.job_id: a for a in service.store.attempts(job_ids=wanted, ended=False)}
    words = []
    asked = sum(_ask(service, running[j], told_on=e.node) for j, e in sorted(fresh.items()) if j in running)
    if fresh:
        words.append(f"jobs {', '.join(map(str, sorted(fresh)))}: {asked} nodes asked")
    nodes = sorted({n for a in running.values() for n in a.nodes})
    rows = rank_rows.by_job(rank_rows.of_heartbeats(service.store.heartbeats(nodes, with_ranks=True)))
    over = [v for v in standing if _is_over(v, running.get(v.job_id), rows.get(v.job_id, ()))]
    service.store.save_gang_verdicts([replace(v, ended_at=now) for v in over])
    known = {v.gang_id: v for v in standing if v not in over}
    for job_id in sorted(latest.keys() & running.keys()):
        verdict = _verdict(service, running[job_id], rows.get(job_id, ()), now)
        if verdict is not None and _says_more(verdict, known.get(verdict.gang_id)):
            service.store.save_gang_verdicts([verdict])
            words.append(f"job {job_id}: {verdict.summary}")
    return "; ".join(words)


def _ask(service: context.Context, attempt: records.JobAttempt, *, told_on: str) -> int:
    others: Iterable[str] = [n for n in attempt.nodes if n != told_on]
    asked = 0
    for node in others:
        service.store.request(node, "collect", attempt.job_id, REQUEST_TTL_S, cluster=attempt.cluster)
        asked += 1
    return asked


def _verdict(
    service: context.Context, attempt: records.JobAttempt, rows: Sequence[rank_rows.RankNow], now: datetime
) -> records.GangVerdict | None:
    """What can be said of a stalled gang now; None while snapshots are on their way, or it is no stall."""
    events = service.store.events(job_id=attempt.job_id, since=now - LOOK_BACK, kinds=snapshots.KINDS)
    mine = [e for e in events if attempt.start_at is None or e.at >= attempt.start_at]
    gang = snapshots.gang(mine)
    if gang is None:
        return None
    first = min(e.at for e in mine if e.kind in KINDS)
    if not gang.nodes >= set(attempt.nodes) and now - first < PATIENCE:
        return None
    deaths = [e.at for e in mine if e.kind == snapshots.DEAD]
    if deaths and (now - max(deaths) < SETTLE or not any(r.alive for r in rows)):
        return None
    found = snapshots.judge(gang, gang_board.faults(service.store, attempt, gang.onset_at), attempt.nodes)
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
    """The heartbeats show more steps than the snapshots did."""
    return max((r.steps for r in rows if r.alive), default=0) > _steps(gang)


def _is_over(
    verdict: records.GangVerdict, attempt: records.JobAttempt | None, rows: Sequence[rank_rows.RankNow]
) -> bool:
    """The attempt has ended (or is another one by now), or its ranks have made a step since."""
    if attempt is None or attempt.submit_at != verdict.submit_at:
        return True
    steps = verdict.detail.get("steps")
    return isinstance(steps, int) and max((r.steps for r in rows if r.alive), default=0) > steps


def _says_more(new: records.GangVerdict, old: records.GangVerdict | None) -> bool:
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
