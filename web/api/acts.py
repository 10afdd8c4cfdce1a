"""Actions: what the commands do, by the commands' own functions, in the name of who asks."""

from __future__ import annotations

import contextlib
import logging
import uuid

from probing_cluster.control_plane.cli.jobs import manual_verdict
from probing_cluster.control_plane.cli.nodes import node_acts, nodes_commands, repair_commands
from probing_cluster.control_plane.policy import recheck
from probing_cluster.control_plane.repair import by_hand
from probing_cluster.control_plane.terminal import node_table
from probing_cluster.core import errors, hostlist, sanitize
from probing_cluster.diagnostics import registry
from probing_cluster.reports import job_ref
from probing_cluster.slurm_plugins import topology
from probing_cluster.web import documents
from probing_cluster.web.api import operation

LOG = logging.getLogger("probing.web")
LOOK_S = 45.0
"""How long a node's agent is waited for when somebody says that the node is repaired."""


def drain(ask: operation.Ask) -> documents.Done:
    """Drain a node in Slurm, recorded as the viewer's."""
    node, service = _node(ask), ask.site.service
    reason = node_acts.drain_reason(ask.body.reason, ask.viewer.user)
    outcome = node_acts.drain_one(service.config, service.store, service.slurm, node, reason, ask.viewer.user)
    return documents.Done(subject=node, outcome=outcome)


def resume(ask: operation.Ask) -> documents.Done:
    """Lift a drain of ours."""
    node, service = _node(ask), ask.site.service
    stands = "".join(
        node_table.still(beat.faults) for beat in service.store.heartbeats([node], cluster=service.cluster)
    )
    outcome = node_acts.resume_one(service.config, service.store, service.slurm, node, ask.viewer.user)
    return documents.Done(subject=node, outcome=outcome + stands)


def ack(ask: operation.Ask) -> documents.Done:
    """Say that a node's fault is known and being dealt with."""
    node, service = _node(ask), ask.site.service
    node_acts.add_notes(service.config, service.store, [node], "ack", ask.body.note, ask.viewer.user)
    return documents.Done(subject=node, outcome="acknowledged")


def set_healthy(ask: operation.Ask) -> documents.Done:
    """Say that a node is repaired: its agent looks again, and our drain is lifted if nothing fails."""
    node, service = _node(ask), ask.site.service
    why = recheck.look_again(service.store, [node], ask.viewer.user, cluster=service.cluster, wait_s=LOOK_S)[
        node
    ]
    outcome = node_acts.heal_one(
        service.config, service.store, service.slurm, node, ask.body.note, why, ask.viewer.user
    )
    return documents.Done(subject=node, outcome=outcome)


def hold(ask: operation.Ask) -> documents.Done:
    """Take a node's repair over: its tests end, it stays drained."""
    return _repair(ask, "hold")


def release(ask: operation.Ask) -> documents.Done:
    """Give a node's repair back, or have it tested now."""
    return _repair(ask, "release")


def done(ask: operation.Ask) -> documents.Done:
    """End a node's repair; the node stays as it is."""
    return _repair(ask, "done")


def _repair(ask: operation.Ask, word: str) -> documents.Done:
    node, service = ask.path["node"], ask.site.service
    under = repair_commands.require_under_repair(service.cluster, service.store, [node])
    node_acts.add_notes(service.config, service.store, [node], word, ask.body.note, ask.viewer.user)
    return documents.Done(subject=node, outcome=repair_commands.recorded(word, under[node]))


def diagnose(ask: operation.Ask) -> documents.Done:
    """Begin a round of tests on a node that takes jobs, as `probing-ctl diagnose` does, and do not wait for it."""
    given: documents.Tests = ask.body
    service, site = ask.site.service, ask.site
    tests = tuple(t.name for t in registry.chosen(given.tests or service.config.diagnostics.tests))
    nodes = {n.name: n for n in service.slurm.nodes()}
    references = tuple(hostlist.expand(given.reference)) if given.reference else ()
    question = by_hand.DiagnosisRequest(
        round_id=uuid.uuid4(), names=(ask.path["node"],), references=references, tests=tests
    )
    everyone = (*question.names, *question.references)
    nodes_commands.require_known(everyone, nodes)
    by_hand.require_free(everyone, nodes)
    wanted, places = by_hand.wanted(service.config, nodes, question), topology.leaves(service.slurm.places())
    node_acts.add_notes(
        service.config, service.store, [ask.path["node"]], "diagnose", f"round {question.round_id}", ask.viewer.user
    )  # fmt: skip
    site.rounds.start(
        wanted, lambda job_id: by_hand.round_request(question, nodes, places, job_id), question.round_id
    )
    LOG.info("a round of tests begins", extra={"fields": {"user": ask.viewer.user, "node": ask.path["node"]}})
    return documents.Done(subject=ask.path["node"], outcome=f"testing begins: round {question.round_id}")


def verdict(ask: operation.Ask) -> documents.Done:
    """Set a job's verdict by hand; the rules never replace it."""
    ref = job_ref.parse(ask.path["job"])
    given: documents.NewVerdict = ask.body
    service = ask.site.service
    words = manual_verdict.set_verdict(
        service.store,
        manual_verdict.ManualVerdict(
            job=str(ref), attempt=given.attempt, cause=given.cause, note=given.note, node=given.node,
            device=given.device, author=ask.viewer.user,
        ),
        manual_verdict.gpu_count(service.slurm, service.config.cluster.name),
    )  # fmt: skip
    return documents.Done(subject=str(ref), outcome=words)


def _node(ask: operation.Ask) -> str:
    """The node of the path, which Slurm or an agent must know; raises NotFound."""
    name, service = ask.path["node"], ask.site.service
    known = {beat.node for beat in service.store.heartbeats([name], cluster=service.cluster)}
    if name not in known:
        with contextlib.suppress(
            errors.SlurmUnavailable
        ):  # then it is known to no agent, and Slurm does not say
            known |= {n.name for n in service.slurm.nodes()}
    if name not in known:
        raise errors.NotFound(f"{sanitize.clean(name, 64)} is not known: neither Slurm nor an agent names it")
    return name
