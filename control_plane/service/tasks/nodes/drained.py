"""Which nodes Slurm shows drained, by whomever, or a person set down, kept for `ops.node_now`: a dashboard has no Slurm to ask."""

from __future__ import annotations

from probing_cluster.control_plane import context
from probing_cluster.control_plane.policy import view
from probing_cluster.core import sanitize, vocabulary
from probing_cluster.db.store import actions as store_actions
from probing_cluster.slurm_plugins.acts import node_events

_DOWN = frozenset({"DOWN", "FAIL", "FAILING"})


def _set_down(node: view.Node) -> bool:
    """Whether a person set the node down: it takes no job either, and its agent goes on."""
    return bool(node.states & _DOWN) and node_events.is_a_persons(node.reason)


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
        if node.states & vocabulary.DRAINED_STATES or _set_down(node)
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
    meaning="keeps which nodes Slurm shows drained, or a person set down",
    run=run,
    every_s=lambda _: 10.0,
)
