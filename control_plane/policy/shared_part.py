"""Faults that are no node's own: of a part that many nodes share, or shown by a large share of the nodes at once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from probing_cluster.attribution.passes import incidents
from probing_cluster.attribution.places import layout, scan
from probing_cluster.attribution.verdict import signatures
from probing_cluster.control_plane.policy import confirm, view
from probing_cluster.core import records, settings, vocabulary

MANY = 3
"""So many nodes may have any fault by chance."""
SURE = 1e-3
"""A place is the suspect instead of its nodes when chance would name any place at most this often."""
_MOUNT = "filesystem_mount"
"""The cause of faults of mounts, and of the sorts that they are by what is mounted."""
_ACTING = frozenset({records.Severity.HIGH.value, records.Severity.LOW.value})

Sort = tuple[str, str, str]
"""Faults are alike by kind and code; those of mounts by what is mounted."""


def cause_of(kind: str, code: str | None) -> str:
    """The cause that a fault points at if a part shared by many nodes can have it, else nothing; its severity says nothing of that."""
    signature = signatures.find(kind, code, records.Severity.HIGH)
    return signature.cause if incidents.is_shared(signature) else ""


def is_of(name: str, fault: Any) -> bool:
    """Whether a fault of a heartbeat (`ib_link:mlx5_0`, its value) can be that of a part many nodes share."""
    return bool(cause_of(name.partition(":")[0], _code(fault)))


def suspect(
    failed: Collection[str], where: layout.NodeLayout
) -> tuple[scan.SharedPlace | None, frozenset[str]]:
    """The place that explains which nodes have a fault of a shared part, and its nodes; nothing if chance does."""
    found = scan.shared(failed, where) if len(failed) >= scan.LEAST else None
    if found is None or found.odds > SURE:
        return None, frozenset()
    return found, where.members[found.kind, found.name]


class Suspicions:
    """What is suspected instead of the nodes that have the faults of one picture."""

    def __init__(self, fleet_view: view.View, policy: settings.PolicySettings) -> None:
        self._view = fleet_view
        self._n_reporting, counts = _counted(fleet_view)
        most = max(MANY, policy.common_frac * self._n_reporting)
        # A mount is a file server's: it hangs for its clients, who may be few of the cluster.
        self._common = {s: n for s, n in counts.items() if n > (MANY if s[0] == _MOUNT else most)}

    def own(self, node: str, events: Sequence[records.HealthEvent]) -> tuple[list[records.HealthEvent], str]:
        """The events that are the node's own, and why others, or all, are not.

        Beside a fault of a part that others share, a low one is not taken for its own: a mount that hangs leaves processes in
        the kernel, and logs that cannot be written.
        """
        beat = self._view.heartbeats.get(node)
        faults = beat.faults if beat is not None else {}
        beside = (
            self.of_fault(node, name, fault)
            for name, fault in faults.items()
            if cause_of(name.partition(":")[0], _code(fault))
        )
        shared_fault = next(filter(None, beside), "")
        reasons = {e.event_id: self._of_event(e) for e in events}
        if shared_fault:
            low = (e for e in events if e.severity is not records.Severity.HIGH)
            reasons |= {e.event_id: reasons[e.event_id] or shared_fault for e in low}
        return [e for e in events if not reasons[e.event_id]], next(filter(None, reasons.values()), "")

    def _of_event(self, event: records.HealthEvent) -> str:
        return self._why(event.node, event.kind, event.code, event.device or event.pci_bus_id or "")

    def of_fault(self, node: str, name: str, fault: Any) -> str:
        """Why the node must not pay for this fault of its heartbeat; empty when it may."""
        kind, _, device = name.partition(":")
        return self._why(node, kind, _code(fault), device)

    def _why(self, node: str, kind: str, code: str | None, device: str) -> str:
        place = self._view.shared
        if place is not None and node in self._view.shared_nodes and cause_of(kind, code):
            return f"{place.kind} {place.name} is the suspect, not the node: {place.sentence}"
        for sort in _sorts(kind, code, device):
            if n := self._common.get(sort):
                what = " ".join(w for w in sort if w)
                return f"{n} of {self._n_reporting} nodes in service show the same ({what}): what they share is the suspect, not the node"
        return ""


def _counted(fleet_view: view.View) -> tuple[int, Mapping[Sort, int]]:
    """Nodes in service whose agents are heard, and of each sort of fault how many of them show it now.

    A node that is out already is no sign of what is wrong with all others.
    """
    counts: Counter[Sort] = Counter()
    n_reporting = 0
    for name, beat in fleet_view.heartbeats.items():
        node = fleet_view.nodes.get(name)
        if node is None or node.states & vocabulary.UNTOUCHABLE_STATES or name in fleet_view.under_test:
            continue
        if not confirm.is_current(beat, fleet_view.silent_s.get(name)):
            continue
        n_reporting += 1
        if beat.faults:
            counts.update(
                {
                    sort
                    for key, fault in beat.faults.items()
                    if isinstance(fault, Mapping) and fault.get("severity") in _ACTING
                    for sort in _sorts(key.partition(":")[0], _code(fault), key.partition(":")[2])
                }
            )
    return n_reporting, counts


def _sorts(kind: str, code: str | None, device: str) -> Iterator[Sort]:
    yield kind, code if code and code != kind else "", ""
    if device and cause_of(kind, code) == _MOUNT:
        yield _MOUNT, "", device


def _code(fault: Any) -> str | None:
    code = fault.get("code") if isinstance(fault, Mapping) else None
    return code if isinstance(code, str) else None
