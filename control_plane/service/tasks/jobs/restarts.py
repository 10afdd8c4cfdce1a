"""Jobs that ended by themselves because of hardware or their node: back into the queue, away from it."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from probing_cluster.control_plane import context
from probing_cluster.control_plane.policy import budget, restart, restart_acts
from probing_cluster.control_plane.service import kept_logs, picture, restart_picture, turns
from probing_cluster.control_plane.service.tasks.jobs import accounting, attribution
from probing_cluster.core import records
from probing_cluster.slurm_plugins import commands
from probing_cluster.slurm_plugins.live import live_records

AGAIN_S = 3.0
"""No sooner is accounting or attribution asked out of turn again, however much dies."""
_RELEASED = timedelta(minutes=2)
"""An Epilog longer ago than this has been accounted for by an ordinary poll."""
_DEATHS = Path(__file__).with_name("deaths.sql").read_text(encoding="utf-8")
LIFT_EVERY_S = 15.0
"""How often it is looked whether nodes that were left out of a job are back."""


@dataclasses.dataclass(kw_only=True)
class _Exclusions:
    """Nodes that restarts left out of their jobs."""

    looked_s: float = float("-inf")
    """When it was last looked whether they are back, by the monotonic clock."""


def run(service: context.Context) -> str:
    """One look at what ended; what was decided, done, or gone on with."""
    now = service.clock.now()
    if service.config.policy.restart_ended:
        _hurry_deaths(service, now)
    known = restart_picture.past(service, now)
    cases = restart_picture.ended(service, known, now) if service.config.policy.restart_ended else []
    exclusions, now_s = service.memory(_Exclusions), service.clock.monotonic_s()
    lifting = bool(known.excluded) and now_s - exclusions.looked_s >= LIFT_EVERY_S
    if not cases and not known.begun and not lifting:
        return ""
    with turns.take(service, "restarts") as mine:
        if not mine:
            return ""
        # Read again under the turn: another service may have decided meanwhile.
        known = restart_picture.past(service, now)
        queue = restart_picture.queue(service, cases, now)
        words = [*_go_on(service, known.begun, queue.jobs, now)]
        words += _decide(service, cases, known, queue)
        if lifting:
            exclusions.looked_s = now_s
            words += _lift(service, known.excluded, queue, now)
    return ", ".join(words)


def _go_on(
    service: context.Context,
    begun: Iterable[records.Drain],
    jobs: Mapping[int, live_records.LiveJob],
    now: datetime,
) -> Iterator[str]:
    acts = commands.OneByOne()
    for row in begun:
        with acts.subject():
            made = _restarter(service, jobs.get(row.detail["leader"]), now).go_on(row, jobs)
            yield f"restart of job {row.job_id} {'goes on' if restart_acts.is_begun(made) else made.state}"
    acts.end()


def _restarter(
    service: context.Context, leader: live_records.LiveJob | None, now: datetime
) -> restart_acts.Restarter:
    name = leader.name_for_slurm if leader is not None else ""
    return restart_acts.Restarter(
        slurm=service.slurm,
        ledger=service.store,
        now=now,
        keep_log=functools.partial(kept_logs.kept, service, name=name, now=now),
    )


def _decide(
    service: context.Context,
    cases: Iterable[restart.EndedAttempt],
    known: restart_picture.RecentDecisions,
    queue: restart.Queue,
) -> Iterator[str]:
    begun = {row.detail.get("leader") for row in known.begun}
    open_cases = [
        c
        for c in cases
        if not known.settles(c.attempt, queue.now) and (c.attempt.het_job_id or c.attempt.job_id) not in begun
    ]
    if not open_cases:
        return
    with turns.take(service, "actions") as mine:
        if mine:  # drains take nodes of the same budget
            yield from _decide_in_turn(service, open_cases, known, queue)


def _decide_in_turn(
    service: context.Context,
    open_cases: Iterable[restart.EndedAttempt],
    known: restart_picture.RecentDecisions,
    queue: restart.Queue,
) -> Iterator[str]:
    policy = service.config.policy
    begun = {row.detail.get("leader") for row in known.begun}
    ledger = budget.Ledger(picture.of_budget(service, queue.nodes), policy)
    for case in open_cases:
        decision = restart.decide(case, queue, policy, ledger)
        if decision.leader in begun:
            continue
        if decision.held == restart.WAIT:
            continue
        if decision.held == "denied" and known.denied(case.attempt):
            continue
        begun.add(decision.leader)
        row = _carry_out(service, decision, queue)
        state = [] if restart_acts.is_begun(row) else [row.state]
        yield f"restart of job {row.job_id} " + ": ".join(filter(None, [*state, row.why_state]))


def _carry_out(
    service: context.Context, decision: restart.RestartDecision, queue: restart.Queue
) -> records.Drain:
    row = restart_acts.row_of(decision, service.config.cluster.name, queue.now)
    if not decision.held and service.config.policy.observe_only:
        row = dataclasses.replace(row, state="simulated", why_state="observe-only")
    # First the row: without a database nothing is done, and nothing is done unrecorded.
    service.store.save_drain(row)
    if row.state != "failed":
        restart_acts.log(row)
        return row
    return _restarter(service, queue.jobs[decision.leader], queue.now).begin(row)


def _lift(
    service: context.Context, excluded: Iterable[records.Drain], queue: restart.Queue, now: datetime
) -> Iterator[str]:
    """Nodes that are back are given back to the jobs that they were left out of."""
    rows = list(excluded)
    green = restart_picture.green_nodes(service, {r.node for r in rows}, queue, now)
    for row in rows:
        over = _is_over(row, queue.jobs)
        if not over and (row.node not in green or now - row.at < _green_time(service)):
            continue
        lifted, why = restart_acts.lift(row, queue.jobs, service.slurm)
        if lifted:
            service.store.update_drain(row.drain_id, ended_at=now, why_state=why)
            yield f"{row.node} no longer left out of job {row.job_id}: {why}"


def _is_over(row: records.Drain, jobs: Mapping[int, live_records.LiveJob]) -> bool:
    mine = [jobs.get(int(j)) for j in row.detail.get("components", ())]
    return all(j is None or j.state in live_records.ENDED_STATES for j in mine)


def _green_time(service: context.Context) -> timedelta:
    return timedelta(seconds=service.config.policy.resume_green_s)


def _hurry_deaths(service: context.Context, now: datetime) -> None:
    """Have jobs that left a node with a fresh hard fault accounted for, and judged."""
    found = _deaths(service, now)
    if any(row["unaccounted"] for row in found):
        service.seldom("deaths_accounting", AGAIN_S, lambda: accounting.recent(service))
        found = _deaths(service, now)
    if any(row["settled"] for row in found):
        service.seldom("deaths_attribution", AGAIN_S, lambda: attribution.run(service))


def _deaths(service: context.Context, now: datetime) -> list[dict[str, Any]]:
    given = {
        "cluster": service.config.cluster.name,
        "fresh": now - timedelta(seconds=service.config.policy.fresh_s),
        "released": now - _RELEASED,
        "settled": now - timedelta(seconds=service.config.service.settle_s),
    }
    return service.store.rows(_DEATHS, given)


TASK = context.Task(
    name="restarts",
    meaning="requeues jobs that ended by themselves because of hardware or their node",
    run=run,
    every_s=lambda config: config.service.action_poll_s,
)
