"""Actions: what the commands do, by the commands' own functions, in the name of who asks."""

from __future__ import annotations

import contextlib

from probing_cluster.control_plane.cli import attribute_commands, nodes_commands
from probing_cluster.control_plane.policy import repaired
from probing_cluster.core import errors, sanitize
from probing_cluster.reports import job_ref
from probing_cluster.web import documents
from probing_cluster.web.api import operation

LOOK_S = 45.0
"""How long a node's agent is waited for when somebody says that the node is repaired."""


def drain(ask: operation.Ask) -> documents.Done:
    """Drain a node in Slurm, recorded as the viewer's."""
    node, service = _node(ask), ask.site.service
    reason = nodes_commands.drain_reason(ask.body.reason, ask.viewer.user)
    outcome = nodes_commands.drain_one(
        service.config, service.store, service.hands, node, reason, ask.viewer.user
    )
    return documents.Done(subject=node, outcome=outcome)


def resume(ask: operation.Ask) -> documents.Done:
    """Lift a drain of ours."""
    node, service = _node(ask), ask.site.service
    outcome = nodes_commands.resume_one(service.store, service.hands, node, ask.viewer.user)
    return documents.Done(subject=node, outcome=outcome)


def ack(ask: operation.Ask) -> documents.Done:
    """Say that a node's fault is known and being dealt with."""
    node, service = _node(ask), ask.site.service
    nodes_commands.add_note(service.config, service.store, node, "ack", ask.body.note, ask.viewer.user)
    return documents.Done(subject=node, outcome="acknowledged")


def set_healthy(ask: operation.Ask) -> documents.Done:
    """Say that a node is repaired: its agent looks again, and our drain is lifted if nothing fails."""
    node, service = _node(ask), ask.site.service
    why = repaired.look_again(service.store, [node], ask.viewer.user, wait_s=LOOK_S)[node]
    outcome = nodes_commands.heal_one(
        service.config, service.store, service.hands, node, ask.body.note, why, ask.viewer.user
    )
    return documents.Done(subject=node, outcome=outcome)


def verdict(ask: operation.Ask) -> documents.Done:
    """Set a job's verdict by hand; the rules never replace it."""
    ref = job_ref.parse(ask.path["job"])
    given: documents.NewVerdict = ask.body
    words = attribute_commands.set_verdict(
        ask.site.service.store,
        attribute_commands.ByHand(
            job=str(ref), attempt=given.attempt, cause=given.cause, note=given.note, node=given.node,
            device=given.device, author=ask.viewer.user,
        ),
    )  # fmt: skip
    return documents.Done(subject=str(ref), outcome=words)


def _node(ask: operation.Ask) -> str:
    """The node of the path, which Slurm or an agent must know; raises NotFound."""
    name, service = ask.path["node"], ask.site.service
    known = {beat.node for beat in service.store.heartbeats([name])}
    if name not in known:
        with contextlib.suppress(
            errors.SlurmUnavailable
        ):  # then it is known to no agent, and Slurm does not say
            known |= {n.name for n in service.hands.nodes()}
    if name not in known:
        raise errors.NotFound(f"{sanitize.clean(name, 64)} is not known: neither Slurm nor an agent names it")
    return name
