"""The drain budget: how many nodes we may take in a window, and how many may be out by drains of ours; whole cluster and per partition.

It fails safe: a node whose partition, or a cluster whose size, is not known gets no drain. A
share that comes to less than one node still allows one, or small clusters could never act.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping
from datetime import timedelta
from typing import Self

from probing_cluster.control_plane.policy import view
from probing_cluster.core import records, settings

DRAINED = "are out of service by drains of ours"
"""Said of the nodes whose drains stand; those of a window are another limit."""
_TAKING = frozenset({"drain", "refuse", "exclude"})


class Ledger:
    """The nodes taken in the window, those whose drains stand, and whether one more may be taken."""

    def __init__(self, fleet_view: view.View, policy: settings.PolicySettings) -> None:
        self._policy = policy
        self._nodes: Mapping[str, view.Node] = fleet_view.nodes
        self._members: dict[str, set[str]] = defaultdict(set)
        for node in fleet_view.nodes.values():
            for partition in node.partitions:
                self._members[partition].add(node.name)
        self._taken = taken_nodes(fleet_view, policy)
        self._drained = drained_nodes(fleet_view)

    @classmethod
    def of_references(cls, fleet_view: view.View, policy: settings.PolicySettings) -> Self:
        """The idle nodes that tests of others hold now: as many may be as nodes are drained in a window, and no drain is denied for them."""
        made = cls(fleet_view, policy)
        made._taken = {name for name in fleet_view.under_test if fleet_view.is_reference(name)}
        return made

    def refuses(self, node: str, *, leaves_service: bool = True) -> str:
        """Why `node` may not be taken now; empty when it may. A node already taken costs nothing more.

        `leaves_service`: false for one that is only left out of a job, or tested with others.
        """
        policy = self._policy
        found = self._nodes.get(node)
        if node not in self._taken:
            if found is None or not found.partitions:
                return "budget: Slurm does not say how big the node's partition is"
            words = f"taken within {policy.budget_window_s:.0f} s"
            shares = (policy.budget_frac, policy.budget_partition_frac)
            if why := self._full(found, self._taken, words, *shares, policy.budget_nodes):
                return why
        if not leaves_service or node in self._drained or found is None:
            return ""
        shares = (policy.drained_frac, policy.drained_partition_frac)
        return self._full(found, self._drained, DRAINED, *shares)

    def _full(
        self,
        node: view.Node,
        counted: set[str],
        words: str,
        share: float,
        partition_share: float,
        most: int | None = None,
    ) -> str:
        """Words for a cluster, or a partition of the node, in which as many nodes are counted as may be."""
        limit = _limit(share, len(self._nodes), most)
        if (used := len(counted)) >= limit:
            return f"budget: {used} of {limit} nodes of the cluster {words}"
        for partition in node.partitions:
            members = self._members[partition]
            limit = _limit(partition_share, len(members))
            if (used := len(members & counted)) >= limit:
                return f"budget: {used} of {limit} nodes of partition {partition} {words}"
        return ""

    def take(self, node: str) -> None:
        """Count `node` against the budget."""
        self._taken.add(node)
        self._drained.add(node)


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


def drained_nodes(fleet_view: view.View) -> set[str]:
    """The nodes that drains of ours keep out of service, however old these are, those under test among them."""
    drains = _open_drains(fleet_view)
    ours = {d.node for d in drains if d.owner == "probing"}
    by_persons = {d.node for d in drains} - ours
    drained = {n.name for n in fleet_view.nodes.values() if n.ours} - by_persons
    return drained | (ours & fleet_view.under_test.keys())


def _open_drains(fleet_view: view.View) -> list[records.Drain]:
    """The drains of nodes on record that were not lifted, whoever made them."""
    return [d for d in fleet_view.drains if d.action == "drain" and d.state == "done" and d.ended_at is None]


def _limit(share: float, size: int, most: int | None = None) -> int:
    allowed = max(math.floor(share * size + 1e-9), 1) if share > 0 and size > 0 else 0
    return allowed if most is None else min(allowed, most)
