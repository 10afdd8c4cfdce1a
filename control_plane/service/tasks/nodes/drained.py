"""Which nodes Slurm shows drained or down, kept for `ops.node_now`: a dashboard has no Slurm to ask.

That Slurm drained a node because a Prolog failed there is also kept as an event: it is why the job that was to start was requeued.
"""

from __future__ import annotations

from datetime import datetime

from probing_cluster.control_plane import context
from probing_cluster.core import records, sanitize, vocabulary
from probing_cluster.db.store import actions as store_actions

_DOWN = frozenset({"DOWN", "FAIL", "FAILING"})


def _prolog_failed(cluster: str, drain: store_actions.SlurmDrain, now: datetime) -> records.HealthEvent:
    at = drain.since_at or now
    return records.HealthEvent(
        event_id=records.make_event_id(cluster, drain.node, "slurm", f"prolog_failed:{at.isoformat()}"),
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


def run(service: context.Context) -> str:
    """One look at every node; what changed."""
    nodes = service.slurm.nodes()
    if not nodes:
        return ""  # a Slurm that lists no node at all says nothing
    found = {
        node.name: store_actions.SlurmDrain(
            node=node.name,
            states="+".join(sorted(node.states)),
            reason=sanitize.clean(node.reason),
            since_at=node.reason_at,
        )
        for node in nodes
        if node.states & (vocabulary.DRAINED_STATES | _DOWN)
    }
    cluster, nodes_by_name = service.config.cluster.name, {node.name: node for node in nodes}
    known = {drain.node: drain for drain in service.store.slurm_drains(cluster)}
    changed = [drain for name, drain in found.items() if known.get(name) != drain]
    over = sorted(known.keys() - found.keys())
    refusals = [d for d in changed if nodes_by_name[d.node].prolog_failed]
    if refusals:
        # Not above: ADBC's threads, begun before process_memory.keep_small, would each have a heap.
        from probing_cluster.db import bulk

        now = service.clock.now()
        bulk.load_events(service.store.connection_uri(), [_prolog_failed(cluster, d, now) for d in refusals])
    if changed or over:
        service.store.save_slurm_drains(cluster, changed, over)
    return f"{len(changed)} drains seen, {len(over)} over" if changed or over else ""


TASK = context.Task(
    name="drained",
    meaning="keeps which nodes Slurm shows drained or down",
    run=run,
    every_s=lambda _: 10.0,
)
