"""Which nodes Slurm shows drained or down, kept for `ops.node_now`: a dashboard has no Slurm to ask.

Two things are also kept as events, since they say why a job ended: Slurm drained a node because a Prolog failed there, and a person
set a node DOWN.
"""

from __future__ import annotations

from datetime import datetime

from probing_cluster.control_plane import context
from probing_cluster.control_plane.policy import view
from probing_cluster.core import records, sanitize, vocabulary
from probing_cluster.db.store import actions as store_actions

_DOWN = frozenset({"DOWN", "FAIL", "FAILING"})


def _prolog_failed(
    cluster: str, drain: store_actions.SlurmDrain, reason_at: datetime | None, now: datetime
) -> records.HealthEvent:
    """`reason_at`: as Slurm says it. The event's identity may not hang on when we looked."""
    at = drain.since_at or now
    position = f"prolog_failed:{reason_at.isoformat() if reason_at else drain.reason}"
    return records.HealthEvent(
        event_id=records.make_event_id(cluster, drain.node, "slurm", position),
        cluster=cluster,
        node=drain.node,
        at=at,
        observed_at=now,
        kind="slurmd",
        code="prolog_failed",
        severity=records.Severity.INFO,
        source="slurm",
        message=f"Slurm drained the node: {drain.reason}",
    )


def _set_down(
    cluster: str, drain: store_actions.SlurmDrain, node: view.Node, by: str, now: datetime
) -> records.HealthEvent:
    """`by`: whose account set the node DOWN."""
    position = f"set_down:{node.reason_at.isoformat() if node.reason_at else drain.reason}"
    return records.HealthEvent(
        event_id=records.make_event_id(cluster, drain.node, "slurm", position),
        cluster=cluster,
        node=drain.node,
        at=drain.since_at or now,
        observed_at=now,
        kind="node_set_down",
        severity=records.Severity.INFO,
        source="slurm",
        message=f"{by} set {drain.node} DOWN: {drain.reason}",
        detail={"by": by, "reason": drain.reason},
    )


def run(service: context.Context) -> str:
    """One look at every node; what changed."""
    nodes = service.slurm.nodes()
    if not nodes:
        return ""  # a Slurm that lists no node at all says nothing
    cluster, now, nodes_by_name = service.cluster, service.clock.now(), {node.name: node for node in nodes}
    known = {drain.node: drain for drain in service.store.slurm_drains(cluster)}
    found = {
        node.name: store_actions.SlurmDrain(
            node=node.name,
            states="+".join(sorted(node.states)),
            reason=sanitize.clean(node.reason),
            since_at=_since(node, known.get(node.name), now),
        )
        for node in nodes
        if node.states & (vocabulary.DRAINED_STATES | _DOWN)
    }
    changed = [drain for name, drain in found.items() if known.get(name) != drain]
    over = sorted(known.keys() - found.keys())
    refusals = [d for d in changed if nodes_by_name[d.node].prolog_failed]
    events = [_prolog_failed(cluster, d, nodes_by_name[d.node].reason_at, now) for d in refusals]
    by_hand = [(d, nodes_by_name[d.node], view.set_down_by(nodes_by_name[d.node])) for d in changed]
    events += [_set_down(cluster, d, node, by, now) for d, node, by in by_hand if by]
    if events:
        # Not above: ADBC's threads, begun before process_memory.keep_small, would each have a heap.
        from probing_cluster.db import bulk

        bulk.load_events(service.store.connection_uri(), events)
    if changed or over:
        service.store.save_slurm_drains(cluster, changed, over)
    return f"{len(changed)} drains seen, {len(over)} over" if changed or over else ""


def _since(node: view.Node, known: store_actions.SlurmDrain | None, now: datetime) -> datetime | None:
    """When the reason was set, at the latest when it was first seen: the controller's clock may be far ahead of ours."""
    if node.reason_at is None or node.reason_at <= now:
        return node.reason_at
    first_seen = known.since_at if known is not None and known.reason == sanitize.clean(node.reason) else None
    return first_seen or now


TASK = context.Task(
    name="drained",
    meaning="keeps which nodes Slurm shows drained or down",
    run=run,
    every_s=lambda _: 10.0,
)
