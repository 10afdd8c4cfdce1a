"""A round of tests on a node in our reservation, what its results lead to, and the return to service."""

from __future__ import annotations

import uuid
from typing import Any

from probing_cluster.control_plane.policy import view
from probing_cluster.control_plane.repair import campaign, round_findings, rounds, way_back, workflow
from probing_cluster.core import errors, records, sanitize, settings, vocabulary
from probing_cluster.diagnostics import isolation
from probing_cluster.slurm_plugins import topology
from probing_cluster.slurm_plugins.acts import job_steps


def testing(work: workflow.Pass, incident: records.RepairIncident) -> records.RepairIncident:
    """Its round of tests: begun, under way, or over and judged."""
    node = work.node(incident.node)
    if node is None or incident.held_by or work.is_anothers(node):
        return work.make_way(incident, node)
    if not work.is_covered(incident):
        return work.unprotected(incident)
    assert incident.round_id is not None
    try:
        ended = work.context.rounds.state(incident.round_id)
    except errors.NotFound:
        return _begin(work, incident, node)
    if ended is None:
        return incident
    after = _judge(work, incident, ended)
    if after.state != incident.state:
        work.context.rounds.forget(incident.round_id)
    return after


def _begin(work: workflow.Pass, incident: records.RepairIncident, node: view.Node) -> records.RepairIncident:
    """A round under a new id: of one that another service had begun nothing is used."""
    work.context.rounds.stop(incident.reservation, incident.round_id)
    fresh = work.save(incident, round_id=uuid.uuid4(), why=_under_test(incident))
    assert fresh.round_id is not None
    config, together = work.context.config, (fresh.node, *fresh.reference_nodes)
    partitions = set.intersection(*(set(n.partitions) for n in map(work.node, together) if n is not None))
    wanted = job_steps.StepWanted(
        name=fresh.reservation,
        reservation=fresh.reservation,
        nodes=together,
        partition=min(partitions) if partitions else "",
        account=config.diagnostics.account,
        gpus=node.n_gpus or 0,
        limit_s=config.diagnostics.round_s + 120,
    )
    places, hosts = topology.leaves(work.context.slurm.places()), {n: work.address(n) for n in together}
    step = fresh.detail.get("step", "")

    def request_for(job_id: int) -> campaign.RoundRequest:
        assert fresh.round_id is not None
        return campaign.RoundRequest(
            round_id=fresh.round_id,
            job_id=job_id,
            nodes=(fresh.node,),
            references=fresh.reference_nodes,
            hosts=hosts,
            places=places,
            command=_command(step, config.repair),
            incident_id=fresh.incident_id,
            # Who failed in an earlier round, and nobody can tell why, must pass more often.
            passes=isolation.PROOF * fresh.n_rounds,
        )

    work.context.rounds.start(wanted, request_for, fresh.round_id)
    return fresh


def _under_test(incident: records.RepairIncident) -> str:
    before = incident.detail.get("before")
    return f"under test; {before}" if before else "under test"


def _judge(
    work: workflow.Pass, incident: records.RepairIncident, ended: rounds.RoundEnd
) -> records.RepairIncident:
    found, node = ended.found, incident.node
    # A step that was to come first and did not run is still to come: what the node shows without it is known.
    unrun = "" if found else str(incident.detail.get("step", ""))
    if incident.detail.get("look_again") and not unrun:
        waiting = work.ask_to_look_again(incident)
        if waiting is not None:
            return waiting
    transient = {"step", "asked", "next", "look_again", "recheck", "recheck_at", "beside", "before"}
    transient -= {"step", "look_again"} if unrun else set()
    detail = {k: v for k, v in incident.detail.items() if k not in transient}
    if incident.detail.get("step") and not unrun:
        incident = work.save(incident, steps_done=incident.steps_done + 1, detail=detail)
    # What the agent confirms first: a lost GPU fails tests of other parts, too.
    agent = work.faults_of_agent(node)
    failing = agent + (round_findings.against(found, node) if found else [])
    missing = round_findings.unanswered(found, node) if found else [ended.why]
    slow = dict(found.slow_nodes).get(node) if found else None
    broken = _broken_references(work, incident) if failing or missing or slow else {}
    if broken:
        # Who is silent as its references are confirms nothing: nobody hears several of them.
        both_silent = agent == [workflow.SILENT] and workflow.SILENT in broken.values()
        counts = [] if both_silent else [*agent]
        counts += round_findings.against(found, node, broken) if found else []
        words = [f"reference node {name} broke ({why})" for name, why in broken.items()]
        missing = [*words, *missing, *(w for w in failing if w not in counts)]
        failing, slow = counts, None
    if unrun:
        missing, failing = [*missing, f"{unrun} was not run", *failing], []
    rounds_left = incident.n_rounds < work.context.config.repair.most_rounds
    if not failing and slow and incident.detail.get("slow") != slow and rounds_left:
        # One slow round may be its neighbours' doing; the second one counts.
        why = f"slow by {slow}, to be confirmed"
        return work.save(incident, state="opening", why=why, detail=detail | {"slow": slow, "before": why})
    if not failing and slow:
        failing = [f"{slow}: slower than nodes of its kind, in two rounds"]
    if failing:
        words = [sanitize.clean(w, 300) for w in failing[:8]]
        step = work.next_step(incident)
        return _after_failing(work, incident, step, words, detail)
    if missing:
        if rounds_left:
            why = sanitize.clean(f"tested {'anew' if broken else 'again'}: {missing[0]}", 300)
            is_open = found is not None and node in found.open_nodes
            if broken or (is_open and work.further_references(incident)):
                return work.begin_anew(incident, broken, why=why, detail=detail)
            return work.save(incident, state="opening", why=why, detail=detail | {"before": why})
        words = [sanitize.clean(f"{workflow.NOT_PROVEN}{w}", 300) for w in missing[:8]]
        return work.save(
            incident,
            state="closing",
            why=words[0],
            detail=detail | {"failing": words, "next": "ticketing"},
        )
    passed = detail | {"passed": str(incident.round_id)}
    return work.save(incident, state="returning", why="every test passed", detail=passed)


def _broken_references(work: workflow.Pass, incident: records.RepairIncident) -> dict[str, str]:
    """By reference that is no good any more why: a round that went badly beside it says little of the node."""
    broken = {}
    for name in incident.reference_nodes:
        faults = work.faults_of_agent(name)
        if way_back.is_out(work.node(name)):
            faults.insert(0, "it is out of service")
        if faults:
            broken[name] = faults[0]
    return broken


def _after_failing(
    work: workflow.Pass, incident: records.RepairIncident, step: str, words: list[str], detail: dict[str, Any]
) -> records.RepairIncident:
    why = words[0]
    if step in {"reset", "reload"}:
        # In the tests' own job: the node stays reserved and undrained, as it is.
        return work.save(
            incident,
            state="opening",
            why=f"{step} after {why}",
            n_rounds=0,
            detail=detail | {"failing": words, "step": step, "look_again": True},
        )
    following = {"next": "acting", "act": step} if step else {"next": "ticketing"}
    return work.save(incident, state="closing", why=why, detail=detail | {"failing": words} | following)


def returning(work: workflow.Pass, incident: records.RepairIncident) -> records.RepairIncident:
    """Back in service: only here, and only with a round that passed."""
    node = work.node(incident.node)
    if incident.held_by or incident.detail.get("passed") != str(incident.round_id):
        return work.step_aside(incident)
    if node is None or work.is_anothers(node):
        return work.abandon(incident, node)
    if node.states & vocabulary.DRAINED_STATES:
        return work.step_aside(incident, why="it was drained again")
    work.lift_drains(incident, f"tested and well (round {str(incident.round_id)[:8]})")
    work.context.reservations.delete(incident.reservation)
    return work.close(incident, "returned", "every test passed")


def _command(step: object, config: settings.RepairSettings) -> str:
    return {"reset": config.reset_command, "reload": config.reload_command}.get(str(step), "")
