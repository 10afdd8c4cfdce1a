"""Which nodes Slurm shows drained, by whomever, kept for `ops.node_now`: a dashboard has no Slurm to ask."""

from __future__ import annotations

from probing_cluster.control_plane import context
from probing_cluster.core import sanitize, vocabulary
from probing_cluster.db.store import actions as store_actions


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
        if node.states & vocabulary.DRAINED_STATES
    }
    cluster = service.config.cluster.name
    known = {drain.node: drain for drain in service.store.slurm_drains(cluster)}
    changed = [drain for name, drain in found.items() if known.get(name) != drain]
    over = sorted(known.keys() - found.keys())
    if changed or over:
        service.store.save_slurm_drains(cluster, changed, over)
    return f"{len(changed)} drains seen, {len(over)} over" if changed or over else ""


TASK = context.Task(
    name="drained",
    meaning="keeps which nodes Slurm shows drained, by whomever",
    run=run,
    every_s=lambda _: 10.0,
)
