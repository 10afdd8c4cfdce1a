"""A node that stopped answering, or came back rebooted: the catch-all when nothing before it says why."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta

from probing_cluster.attribution.verdict import claims, evidence_view
from probing_cluster.core import records

LOST, REBOOT = "node_lost", "node_reboot"
STATES = frozenset({"NODE_FAIL", "BOOT_FAIL"})
_STILL_ALIVE = timedelta(seconds=60)


def rule(view: evidence_view.EvidenceView) -> Iterable[claims.Claim]:
    """NODE_FAIL is Slurm's word for it; a reboot seen while the attempt still ran says more."""
    boots = [s for s in view.of(REBOOT) if s.when is evidence_view.When.RUNNING and not s.ours]
    boots = [s for s in boots if s.at > view.start_at]
    yield from claims.collect(view, REBOOT, "node_lost", boots)
    if view.state in STATES:
        yield _lost(view)


def _lost(view: evidence_view.EvidenceView) -> claims.Claim:
    node = view.lost_node
    sightings = [
        s for s in (*view.of(LOST), *view.of(REBOOT)) if s.when is not evidence_view.When.BEFORE_START
    ]
    events = [s.event for s in sightings if s.event.node == node]
    silent = node is not None and node not in view.case.by_log and _fell_silent(view, node)
    named = view.attempt.failed_node is not None or len(view.attempt.nodes) == 1
    return claims.Claim(
        cause=LOST,
        weight=0.97 if events or (named and silent) else 0.9,
        # Slurm says so of a node whose daemon or network failed, too: alone it proves no broken part.
        domain=None if events or silent else records.Domain.UNKNOWN,
        at=min((e.at for e in events), default=view.end_at),
        rule="node_lost",
        node=node,
        evidence=tuple(events),
        nodes=frozenset({node} if node else ()),
        n_sources=1 + bool(events),
    )


def _fell_silent(view: evidence_view.EvidenceView, node: str) -> bool:
    """True when the node had an agent, and that did not live on after Slurm gave the node up."""
    last = view.case.watched.get(node)
    return last is not None and last <= view.end_at + _STILL_ALIVE
