"""Nodes we drained, through their tests and repair steps back into service or to a ticket."""

from __future__ import annotations

import shlex
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from probing_cluster.control_plane import context
from probing_cluster.control_plane.policy import resume_policy, view
from probing_cluster.control_plane.repair import bundle, engine, rounds, steps, workflow
from probing_cluster.control_plane.service import picture, turns
from probing_cluster.control_plane.service.tasks.nodes import resume
from probing_cluster.core import errors, records, vocabulary
from probing_cluster.slurm_plugins import commands
from probing_cluster.slurm_plugins.acts import reservations

_WORDS = ("hold", "release", "done")
_COMMAND_S = 120.0


@dataclass(kw_only=True)
class _RepairState:
    """What this service keeps of repairs between its passes."""

    repair_context: workflow.RepairContext | None = None
    """What the workflow touches, and the rounds of tests that run in this service."""
    orphans_sought: bool = False
    """Whether reservations of ours without a repair were looked for since the service began."""


def run(service: context.Context) -> str:
    """One look at every node of ours that is drained, and at every repair under way; what changed."""
    store, policy = service.store, service.config.policy
    incidents = store.incidents(open_only=True, cluster=service.cluster)
    tested = service.config.repair.test_before_return and policy.auto_resume
    if not tested and not incidents:
        return ""
    resume.follow_beats(service)
    drains = (
        [d for d in store.drains(open_only=True, cluster=service.cluster) if d.owner == "probing"]
        if tested
        else []
    )
    kept = service.memory(_RepairState)
    if not drains and not incidents and kept.orphans_sought:
        return ""
    with turns.take(service, "repair") as mine:
        if not mine:
            return ""
        repair_context = kept.repair_context = kept.repair_context or _repair_context(service)
        nodes = {n.name: n for n in service.slurm.nodes()}
        done = _opened(service, drains, nodes, {i.node for i in incidents})
        incidents = store.incidents(open_only=True, cluster=service.cluster)
        if not policy.observe_only:
            done += engine.orphans(repair_context, incidents)
            kept.orphans_sought = True
        done += _passed(service, repair_context, nodes, incidents)
    return ", ".join(text for text in done if text)


def _passed(
    service: context.Context,
    repair_context: workflow.RepairContext,
    nodes: Mapping[str, view.Node],
    incidents: list[records.RepairIncident],
) -> list[str]:
    beats = {
        b.node: b for b in service.store.heartbeats({i.node for i in incidents}, cluster=service.cluster)
    }
    fleet_view = picture.with_nodes(picture.waiting(service), nodes)
    one_pass = workflow.Pass(
        context=repair_context,
        nodes=nodes,
        beats=beats,
        ages=service.store.heartbeat_ages_s(cluster=service.cluster),
        notes=_notes(service, incidents),
        fleet_view=fleet_view,
        in_tests=workflow.in_tests(incidents, service.clock.now()),
    )
    done = []
    for incident in incidents:
        try:
            done.append(engine.advance(one_pass, incident))
        except errors.NotFound as exc:
            done.append(f"{incident.node}: {exc}")  # a person ended it meanwhile
    return done


def _notes(
    service: context.Context, incidents: list[records.RepairIncident]
) -> dict[str, records.OperatorNote]:
    """By node what was said last."""
    if not incidents:
        return {}
    since = min(i.opened_at for i in incidents)
    notes = [
        n for n in service.store.notes(since=since) if n.action in _WORDS and n.subject.startswith("node:")
    ]
    return {n.subject.removeprefix("node:"): n for n in notes}


def _opened(
    service: context.Context,
    drains: list[records.Drain],
    nodes: Mapping[str, view.Node],
    known: set[str],
) -> list[str]:
    """A repair for every drain of ours that stands, lemons apart: those come back by a person's word."""
    done = []
    names = sorted({d.node for d in drains} - known)
    # One query for all: of a drain whose repair a person has ended nothing more is asked in any pass.
    since = min((d.at for d in drains if d.node not in known), default=None)
    past = service.store.incidents(since=since, cluster=service.cluster) if since else []
    repaired = {incident.drain_id for incident in past}
    for name in names:
        drain, node = resume_policy.latest(drains, name), nodes.get(name)
        if drain is None or node is None or not node.ours or drain.reason.startswith(vocabulary.LEMON_PREFIX):
            continue
        if drain.drain_id not in repaired:
            done.append(_open(service, drain))
    return done


def _open(service: context.Context, drain: records.Drain) -> str:
    store, config, now = service.store, service.config, service.clock.now()
    events = store.events_by_id(set(drain.event_ids))
    kinds, cause = {e.kind for e in events}, steps.cause_of(steps.names_of(events), steps.load(config.repair))
    past = store.drains(
        node=drain.node, since=drain.at - timedelta(days=config.policy.escalate_days), cluster=service.cluster
    )
    drained = resume_policy.DrainedNode(drain=drain, kinds=frozenset(kinds), past=tuple(past))
    cures = resume_policy.cures(drained, config.policy)
    escalated = cures >= config.policy.escalate_cures and not config.policy.observe_only
    why = f"the same fault again after {cures} cures: inspect the hardware" if escalated else ""
    incident = records.RepairIncident(
        incident_id=uuid.uuid5(drain.drain_id, "repair"),
        cluster=config.cluster.name,
        node=drain.node,
        drain_id=drain.drain_id,
        reason=drain.reason,
        cause=cause.name,
        state="ticketing" if escalated else "queued",
        why=why,
        opened_at=now,
        changed_at=now,
        detail={"failing": [why]} if escalated else {},
    )
    return f"{drain.node} repair opened ({cause.name})" if store.open_incident(incident) else ""


def _repair_context(service: context.Context) -> workflow.RepairContext:
    config = service.config

    def power(node: str) -> str:
        turns.check()
        return site_command(config.repair.power_command, node)

    def ticket(incident: records.RepairIncident) -> Mapping[str, Any]:
        return bundle.ticket(config, service.store, site_command, incident, service.clock.now())

    return workflow.RepairContext(
        config=config,
        store=service.store,
        slurm=service.slurm,
        reservations=reservations.Reservations(service.run_slurm, rounds.user(), turns.check),
        rounds=rounds.Rounds(config, service.store),
        clock=service.clock,
        green=service.memory(resume.GreenTimes),
        power=power,
        ticket=ticket,
    )


def site_command(command: str, argument: str) -> str:
    """Runs a site's command with one argument; why it failed, empty when it did not."""
    try:
        done = commands.collect([*shlex.split(command), argument], commands.plain_environment(), _COMMAND_S)
    except (errors.SlurmUnavailable, ValueError) as exc:
        return str(exc)
    if done.code == 0:
        return ""
    words = done.stderr.decode("utf-8", "replace").strip()[-200:]
    return (
        f"it ended with {done.code}: {words}"
        if done.code is not None
        else f"it did not end within {_COMMAND_S:g} s"
    )


TASK = context.Task(
    name="repair",
    meaning="tests the nodes we drained, tries repair steps, and resumes those that pass",
    run=run,
    every_s=lambda _: 5.0,
)
