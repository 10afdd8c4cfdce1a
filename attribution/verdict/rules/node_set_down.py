"""A node that a person set DOWN in Slurm, which ends every job on it at once: no part of it failed."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta

from probing_cluster.attribution.verdict import claims, evidence_view, phrases
from probing_cluster.core import records

CAUSE = "node_set_down"
_BEFORE_END, _AFTER_END = timedelta(seconds=15), timedelta(seconds=5)
"""Slurm ends the jobs as it takes the order; where many jobs end at once it may take some seconds."""
_SILENT_BEFORE = timedelta(seconds=10)
"""An agent that fell silent so long before the order had lost its node already."""
_STATES = frozenset({"NODE_FAIL", "REQUEUED"})


def rule(view: evidence_view.EvidenceView) -> Iterable[claims.Claim]:
    """The claim that a person's order ended the attempt, if Slurm records one of the time of its end."""
    order = order_that_ended(view)
    if order is not None:
        yield claims.Claim(
            cause=CAUSE,
            weight=0.97,
            at=min(order.at, view.end_at),
            rule=CAUSE,
            node=order.node,
            evidence=(order,),
            nodes=frozenset({order.node}),
            n_sources=1,
            sentence=_words(order),
            explains=frozenset({"node_lost"}),
            # Slurm itself names the author, and ended the attempt at that second.
            proven=True,
        )


def _words(order: records.HealthEvent) -> str:
    by, reason = order.detail.get("by"), order.detail.get("reason")
    if not isinstance(by, str) or not isinstance(reason, str):
        return phrases.clean(order.message)
    return f"{order.node} was set DOWN by {phrases.clean(by)}: {phrases.clean(reason)}"


def order_that_ended(view: evidence_view.EvidenceView) -> records.HealthEvent | None:
    """The event of the order that ended the attempt; None without one, or if the node had fallen silent before it."""
    if view.state not in _STATES:
        return None
    # Of a silence before the start the node came back: Slurm started the job there.
    silences = [
        s
        for s in view.of("node_lost")
        if s.event.kind in _SILENCES and s.when is not evidence_view.EventPhase.BEFORE_START
    ]
    silent_since = {s.event.node: s.event.at for s in reversed(silences)}
    for sighting in view.of(CAUSE):
        event = sighting.event
        if event.source == "slurm":
            since = silent_since.get(event.node)
            gone_before = since is not None and since < event.at - _SILENT_BEFORE
            in_time = -_BEFORE_END <= event.at - view.end_at <= _AFTER_END
            of_lost_node = view.attempt.failed_node in (None, event.node)
            if in_time and of_lost_node and not gone_before:
                return event
    return None


_SILENCES = frozenset({"agent_silent", "node_down"})
