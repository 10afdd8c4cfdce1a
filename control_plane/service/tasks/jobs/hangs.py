"""Jobs whose gangs hang, requeued where their owners or the site asked for it: all ranks are looked at once more just before."""

from __future__ import annotations

import dataclasses
import uuid
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from typing import Any

from probing_cluster.control_plane import context
from probing_cluster.control_plane.gangs import rank_rows
from probing_cluster.control_plane.policy import (
    budget,
    hang,
    restart_acts,
    restart_loop,
    view,
)
from probing_cluster.control_plane.service import picture, restart_picture, turns
from probing_cluster.core import clock, records
from probing_cluster.db.store import actions as store_actions

PATIENCE = timedelta(seconds=20)
"""How long all nodes are waited for that were asked once more."""
_TTL_S = 60.0
_STANDS = timedelta(days=30)


class SecondLooks(dict[uuid.UUID, tuple[datetime, list[uuid.UUID]]]):
    """Per hang whose ranks are looked at once more: since when, by which requests."""


def run(service: context.Context) -> str:
    """One look at gangs that stand still; what was asked, decided or done."""
    policy = service.config.policy
    hang.check(policy)
    now = service.clock.now()
    open_verdicts = service.store.gang_verdicts(open_only=True, since=now - _STANDS, cluster=service.cluster)
    looks = service.memory(SecondLooks)
    for gang_id in looks.keys() - {g.gang_id for g in open_verdicts}:
        del looks[gang_id]
    if not open_verdicts:
        return ""
    known = restart_picture.past(service, now)
    ripe = [h for h in _hangs(service, open_verdicts, known, now) if hang.is_ripe(h, now, policy)]
    words = [w for h in ripe if (w := _ask(service, h, now))]
    answered = _answered(service, ripe, now)
    ready = [h for h in ripe if h.verdict.gang_id in answered]
    if not ready:
        return ", ".join(words)
    # Drains take nodes of the same budget.
    with turns.take(service, "restarts") as mine, turns.take(service, "actions") as budgeted:
        if mine and budgeted:
            words += _decide(service, ready, now)
    return ", ".join(words)


def _hangs(
    service: context.Context,
    open_verdicts: Sequence[records.GangVerdict],
    known: restart_picture.RecentDecisions,
    now: datetime,
) -> Iterator[hang.Hang]:
    """The gangs whose jobs are to be requeued when they hang, and about which nothing is recorded yet."""
    policy = service.config.policy
    jobs = sorted({g.job_id for g in open_verdicts})
    running = {
        (a.job_id, a.submit_at): a
        for a in service.store.attempts(job_ids=jobs, ended=False, cluster=service.cluster)
    }
    starts = [a.start_at for a in running.values() if a.start_at is not None]
    allocations = (
        service.store.allocations(
            since=min(starts) - timedelta(minutes=5), job_ids=jobs, cluster=service.cluster
        )
        if starts
        else []
    )
    since = now - timedelta(seconds=policy.restart_window_s)
    for found in open_verdicts:
        attempt = running.get((found.job_id, found.submit_at))
        if attempt is None or _decided(found, known):
            continue
        wish = hang.on_hang_of(allocations, attempt, policy.on_hang)
        if wish != "requeue":
            continue
        earlier = [
            r for r in known.rows if r.job_id == found.job_id and r.detail.get("hang") and r.state == "done"
        ]
        yield hang.Hang(
            attempt=attempt,
            verdict=found,
            on_hang=wish,
            deaths=(*(_death(r) for r in earlier), restart_loop.Death(cause=found.kind, step=_step(found))),
            n_restarts=known.n_restarts(attempt, since),
        )


def _decided(found: records.GangVerdict, known: restart_picture.RecentDecisions) -> bool:
    return any(r.detail.get("hang") == str(found.gang_id) for r in known.rows)


def _death(row: records.Drain) -> restart_loop.Death:
    step = row.detail.get("step")
    return restart_loop.Death(
        cause=str(row.detail.get("cause")), step=step if isinstance(step, int) else None
    )


def _step(found: records.GangVerdict) -> int | None:
    step = found.detail.get("steps")
    return step if isinstance(step, int) else None


def _ask(service: context.Context, ripe: hang.Hang, now: datetime) -> str:
    """Ask every node of the job for stacks, dumps and ranks, once; that is also what is kept of the hang."""
    looks = service.memory(SecondLooks)
    if ripe.verdict.gang_id in looks:
        return ""
    places = [
        store_actions.RequestSubject(node, ripe.attempt.job_id, ripe.attempt.cluster)
        for node in ripe.attempt.nodes
    ]
    looks[ripe.verdict.gang_id] = (now, service.store.request_all(places, "collect", _TTL_S))
    return f"job {ripe.attempt.job_id} hangs: all nodes asked once more"


def _answered(
    service: context.Context, ripe: Sequence[hang.Hang], now: datetime
) -> dict[uuid.UUID, set[str]]:
    """Per gang the nodes whose heartbeat came after they had answered; no gang of which nodes are still waited for."""
    looks = service.memory(SecondLooks)
    beats = service.store.beats_after([i for h in ripe for i in looks[h.verdict.gang_id][1]]) if ripe else {}
    found = {}
    for one in ripe:
        since, ids = looks[one.verdict.gang_id]
        nodes = {beats[i].node for i in ids if i in beats}
        if nodes >= set(one.attempt.nodes) or now - since >= PATIENCE:
            found[one.verdict.gang_id] = nodes
    return found


def _decide(service: context.Context, ready: Sequence[hang.Hang], now: datetime) -> Iterator[str]:
    policy = service.config.policy
    queue = restart_picture.queue(service, (), now)
    ledger = budget.Ledger(picture.of_budget(service, queue.nodes), policy)
    nodes = sorted({n for h in ready for n in h.attempt.nodes})
    beats = service.store.heartbeats(nodes, with_ranks=True, cluster=service.cluster)
    ranks = rank_rows.on_own_nodes(
        rank_rows.by_job(rank_rows.of_heartbeats(beats)), {h.attempt.job_id: h.attempt.nodes for h in ready}
    )
    known = restart_picture.past(service, now)
    answered = _answered(service, ready, now)
    for one in ready:
        if one.verdict.gang_id not in answered or _decided(one.verdict, known):
            continue
        nodes_answered = answered[one.verdict.gang_id]
        state, why, live, exclude = hang.decide(
            one, ranks.get(one.attempt.job_id, ()), nodes_answered, queue, policy, ledger
        )
        leader = one.attempt.het_job_id or one.attempt.job_id
        components = sorted(j.job_id for j in queue.jobs.values() if j.het_job_id == leader) or [leader]
        row = _row(one, now, {**hang.detail(one, live, components, exclude)})
        yield _carry_out(service, row, state, why, live.start_at if live else None, now)


def _carry_out(
    service: context.Context,
    row: records.Drain,
    state: str,
    why: str,
    start_at: datetime | None,
    now: datetime,
) -> str:
    if not state and service.config.policy.observe_only:
        state, why = "simulated", "observe-only"
    if state or start_at is None:
        row = dataclasses.replace(row, state=state or "skipped", why_state=why)
        service.store.save_drain(row)
        restart_acts.log(row)
        return f"hang of job {row.job_id} {row.state}: {row.why_state}"
    row = dataclasses.replace(row, detail={**row.detail, "start_at": clock.iso_z(start_at)})
    service.store.save_drain(row)
    made = restart_acts.Restarter(slurm=service.slurm, ledger=service.store, now=now).begin(row)
    return f"hang of job {row.job_id}: requeue {'goes on' if restart_acts.is_begun(made) else made.state}"


def _row(one: hang.Hang, now: datetime, detail: dict[str, Any]) -> records.Drain:
    return records.Drain(
        drain_id=uuid.uuid4(),
        cluster=one.attempt.cluster,
        node=next(iter(one.verdict.nodes or one.attempt.nodes), ""),
        at=now,
        action="requeue",
        reason=hang.reason_for(one.verdict),
        owner="probing",
        state="failed",
        why_state=view.BEGUN,
        job_id=one.attempt.job_id,
        submit_at=one.attempt.submit_at,
        event_ids=one.verdict.evidence[:16],
        detail=detail,
    )


TASK = context.Task(
    name="hangs",
    meaning="requeues jobs that hang where their owners or the site asked for it",
    run=run,
    every_s=lambda _: 2.0,
)
