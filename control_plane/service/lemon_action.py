"""Acting on lemons: nothing, or a drain after their jobs, inside the same budget as every other drain.

A lemon passes every check, so no heartbeat can confirm it: the proof is its history, and the action is
the gentle one. Running jobs end by themselves; only a person's word brings the node back.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta

from probing_cluster.control_plane import context
from probing_cluster.control_plane.policy import actions, budget, policy, view
from probing_cluster.control_plane.service import picture, turns
from probing_cluster.core import errors, records, vocabulary
from probing_cluster.lemon import nightly
from probing_cluster.reports.lemon import lemon_view

_MEMORY = timedelta(days=400)
"""How far back a node's earlier drain for being a lemon is looked for."""


def carry_out(service: context.Context, night: nightly.Night) -> list[records.Drain]:
    """Drain the night's lemons as the settings say; the rows as stored."""
    lemons = (*night.new, *night.still)
    if service.config.lemon.action == "off" or not lemons:
        return []
    with turns.take(service, "actions") as mine:
        if not mine:
            raise errors.DatabaseUnavailable("another service is acting just now; the next pass tries again")
        fleet_view = _fleet_view(service)
        made = list(decide(lemons, fleet_view, service))
        return actions.carry_out(
            made, service.slurm, service.store, service.config, service.clock, turns.check
        )


def decide(
    lemons: Iterable[records.LemonScore], fleet_view: view.View, service: context.Context
) -> Iterator[policy.Decision]:
    """One drain per lemon that is still in service; every reason to hold back says so in words."""
    ledger = budget.Ledger(fleet_view, service.config.policy)
    for lemon in lemons:
        if _dealt_with(lemon, fleet_view):
            continue
        made = policy.Decision(
            node=lemon.node, action="drain", reason=reason(lemon), severity=records.Severity.LOW, event_ids=()
        )
        state, why = _objection(lemon.node, fleet_view, ledger)
        yield policy.left_undone(made, state, why) if state else made


def reason(lemon: records.LemonScore) -> str:
    """The drain reason as it will stand in Slurm."""
    n = lemon.multi_node_node_fails + lemon.single_node_node_fails
    return f"{vocabulary.LEMON_PREFIX}, {lemon_view.chance(lemon.score)}, {n} failures; probing-ctl lemon list {lemon.node}"


def _objection(node: str, fleet_view: view.View, ledger: budget.Ledger) -> tuple[str, str]:
    found = fleet_view.nodes.get(node)
    if found is None:
        return "skipped", "Slurm knows no such node"
    if found.hands_off:
        return "skipped", found.hands_off
    if found.ours:
        return "skipped", f"it is drained already ({found.reason})"
    denied = ledger.refuses(node)
    if denied:
        return "denied", denied
    ledger.take(node)
    return "", ""


def _dealt_with(lemon: records.LemonScore, fleet_view: view.View) -> bool:
    """It was drained as a lemon since it became one: if it is back, a person put it back, and we do not fight."""
    since = datetime.fromisoformat(lemon.signals["since"]) if lemon.signals.get("since") else lemon.day
    return any(
        d.node == lemon.node
        and d.action == "drain"
        and d.reason.startswith(vocabulary.LEMON_PREFIX)
        and d.state in {"done", "resumed", "simulated"}
        and d.at >= since
        for d in fleet_view.drains
    )


def _fleet_view(service: context.Context) -> view.View:
    """What the budget counts, and our older drains."""
    found = picture.of_budget(service, {n.name: n for n in service.slurm.nodes()})
    window = timedelta(seconds=service.config.policy.budget_window_s)
    older = service.store.drains(
        since=found.now - _MEMORY, until=found.now - window, actions=["drain"], cluster=service.cluster
    )
    return dataclasses.replace(found, drains=(*older, *found.drains))
