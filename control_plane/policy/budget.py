"""The drain budget: how many nodes we may take in a window, whole cluster and per partition.

It fails safe: a node whose partition, or a cluster whose size, is not known gets no drain. A
share that comes to less than one node still allows one, or small clusters could never act.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import timedelta
from typing import Self

from probing_cluster.control_plane.policy import view
from probing_cluster.core import records, settings

_TAKING = frozenset({"drain", "refuse", "exclude"})


class Ledger:
    """The nodes taken in the window, and whether one more may be."""

    def __init__(self, fleet_view: view.View, policy: settings.PolicySettings) -> None:
        self._policy = policy
        self._nodes: Mapping[str, view.Node] = fleet_view.nodes
        self._taken = taken_nodes(fleet_view, policy)
        self._shared_nodes = fleet_view.shared_nodes

    @classmethod
    def of_references(cls, fleet_view: view.View, policy: settings.PolicySettings) -> Self:
        """The idle nodes that tests of others hold now: as many may be as nodes are drained in a window, and no drain is denied for them."""
        made = cls(fleet_view, policy)
        made._taken = set(fleet_view.under_test) - {d.node for d in _open_drains(fleet_view)}
        return made

    def refuses(self, node: str) -> str:
        """Why `node` may not be taken now; empty when it may. A node already taken costs nothing more."""
        if node in self._taken:
            return ""
        found = self._nodes.get(node)
        if found is None or not found.partitions:
            return "budget: Slurm does not say how big the node's partition is"
        limit = _limit(self._policy.budget_frac, len(self._nodes), self._policy.budget_nodes)
        window = f"{self._policy.budget_window_s:.0f} s"
        if (used := self._count(self._taken)) >= limit:
            return f"budget: {used} of {limit} nodes of the cluster taken within {window}"
        for partition in found.partitions:
            members = {n.name for n in self._nodes.values() if partition in n.partitions}
            share = _limit(self._policy.budget_partition_frac, len(members))
            used = self._count(members & self._taken)
            if used >= share:
                return f"budget: {used} of {share} nodes of partition {partition} taken within {window}"
        return ""

    def _count(self, nodes: set[str]) -> int:
        """How many the budget counts: the nodes of a place that is itself the suspect count once."""
        return len(nodes - self._shared_nodes) + bool(nodes & self._shared_nodes)

    def take(self, node: str) -> None:
        """Count `node` against the budget."""
        self._taken.add(node)


def taken_nodes(fleet_view: view.View, policy: settings.PolicySettings) -> set[str]:
    """The distinct nodes we drained, or let refuse jobs, within the window; in observe-only mode also in thought."""
    states = {"done", "resumed"} | ({"simulated"} if policy.observe_only else set())
    since = fleet_view.now - timedelta(seconds=policy.budget_window_s)
    recent = [d for d in fleet_view.drains if d.owner == "probing" and d.at > since]
    decided = {d.node for d in recent if d.action in _TAKING and (d.state in states or view.is_begun(d))}
    # A restart, or the requeue of a hang, that was begun leaves its nodes out once its job is held.
    decided.update(str(n) for d in recent if view.is_begun(d) for n in d.detail.get("exclude", ()))
    # A drain whose row was lost with the database still stands in Slurm. A repair that failed gives a drain a new time there.
    recorded = {d.node for d in _open_drains(fleet_view)}
    open_drains = {
        n.name
        for n in fleet_view.nodes.values()
        if n.ours and n.name not in recorded and (n.reason_at is None or n.reason_at > since)
    }
    return decided | open_drains


def _open_drains(fleet_view: view.View) -> list[records.Drain]:
    """The drains of nodes on record that were not lifted, whoever made them."""
    return [d for d in fleet_view.drains if d.action == "drain" and d.state == "done" and d.ended_at is None]


def _limit(share: float, size: int, most: int | None = None) -> int:
    allowed = max(math.floor(share * size + 1e-9), 1) if share > 0 and size > 0 else 0
    return allowed if most is None else min(allowed, most)
