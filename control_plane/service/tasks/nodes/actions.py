"""Fresh, confirmed faults into drains and requeues."""

from __future__ import annotations

from dataclasses import dataclass

from probing_cluster.control_plane import context
from probing_cluster.control_plane.policy import actions, policy
from probing_cluster.control_plane.service import picture, reconcile, turns

_EVERYWHERE_S = 5.0
"""How often faults that stand without a fresh event are looked for, on every node."""

_AGAIN_S = 60.0
"""How often what a drain has answered is looked at again: a person may have changed something in Slurm."""


@dataclass(kw_only=True)
class Looks:
    """When, by the monotonic clock, this task last looked."""

    everywhere_s: float = float("-inf")
    """At every node."""
    answered_s: float = float("-inf")
    """At faults that a drain has answered."""
    overdue_s: float = float("-inf")
    """At faults that stand and about which nobody decided."""


def run(service: context.Context) -> str:
    """One look at what nodes report; what was decided."""
    looks, now_s = service.memory(Looks), service.clock.monotonic_s()
    everywhere = now_s - looks.everywhere_s >= _EVERYWHERE_S
    if everywhere:
        looks.everywhere_s = now_s
    fleet_view = picture.waiting(service, everywhere=everywhere)
    open_ends = everywhere and bool(reconcile.unrecorded(service, fleet_view.now))
    again = everywhere and now_s - looks.answered_s >= _AGAIN_S
    late = everywhere and now_s - looks.overdue_s >= _AGAIN_S
    if late:
        looks.overdue_s = now_s
        fleet_view = picture.with_overdue(fleet_view, service)
    if not open_ends and not picture.asks_for_more(fleet_view, service.config.policy, again=again):
        return ""
    if again:
        looks.answered_s = now_s
    with turns.take(service, "actions") as mine:
        if not mine:
            return ""
        # First what was begun and never recorded: what is decided now rests on it.
        settled = reconcile.settle(service, fleet_view.now)
        fleet_view = picture.waiting(service)
        if late:
            fleet_view = picture.with_overdue(fleet_view, service)
        fleet_view = picture.with_slurm(fleet_view, service)
        decisions = policy.decide(fleet_view, service.config.policy)
        rows = actions.carry_out(
            decisions, service.slurm, service.store, service.config, service.clock, turns.check
        )
    return ", ".join([*settled, *(f"{r.action} {r.node} {r.state}" for r in rows)])


TASK = context.Task(
    name="actions",
    meaning="drains nodes and requeues jobs for fresh, confirmed faults",
    run=run,
    every_s=lambda config: config.service.action_poll_s,
)
