"""From a drained node to one whose tests may begin: queued, reserved, resumed inside our reservation."""

from __future__ import annotations

import uuid

from probing_cluster.control_plane.policy import confirm, view
from probing_cluster.control_plane.repair import way_back, workflow
from probing_cluster.core import errors, records, vocabulary

_NO_STEP = "and no repair step is left that could end it"
_NOBODY_IDLE = "no idle node is there to test it with: beside others it was not proven well before"
_ELSEWHERE = "which is mended elsewhere: it is tested once that is over"
_IN_PAIRS = ("pair: ", f"{workflow.NOT_PROVEN}pair: ")
_BY_AGENT = "by_agent"
"""In a repair's detail: its ticket was written for what its agent confirms, without a test."""


def queued(work: workflow.Pass, incident: records.RepairIncident) -> records.RepairIncident:
    """Drained and waiting: for its jobs, its agent, its quiet time, or a person."""
    node = work.at_beginning(incident.node)
    if incident.held_by or view.drain_over(node):
        return work.leave_to_person(incident, node)
    why = _not_yet(work, incident, node) or work.no_room()
    if why.endswith(_NO_STEP) and (failing := _stands(work, incident)):
        detail = {**incident.detail, "failing": failing, _BY_AGENT: True}
        return work.save(incident, state="ticketing", why=why, detail=detail)
    if why:
        return work.wait(incident, why)
    if taken := work.reservations_over(incident):
        return work.wait(incident, f"reservation {taken} lies over {incident.node}")
    # Something is about to be done: from here on it counts how Slurm shows the node now.
    node = work.node(incident.node)
    if view.drain_over(node):
        return incident
    if why := _not_yet(work, incident, node):
        return work.wait(incident, why)
    if incident.detail.get(_BY_AGENT):
        left_out = {_BY_AGENT, "failing"}
        incident = work.save(incident, detail={k: v for k, v in incident.detail.items() if k not in left_out})
    references = work.idle_references(incident)
    if not references and _failed_beside_others(incident):
        return work.wait(incident, _NOBODY_IDLE)
    return work.save(
        incident,
        state="reserving",
        reservation=workflow.reservation_of(incident),
        reference_nodes=references,
        why="",
    )


def _failed_beside_others(incident: records.RepairIncident) -> bool:
    """Whether it failed a test with another node in this repair, or nobody could tell: its own tests alone prove nothing then."""
    failing = map(str, incident.detail.get("failing") or ())
    return incident.n_rounds > 0 or any(w.startswith(_IN_PAIRS) for w in failing)


def is_by_agent(incident: records.RepairIncident) -> bool:
    """Whether its ticket was written for what its agent confirms, without a test: it is over once the agent does not."""
    return bool(incident.detail.get(_BY_AGENT))


def _stands(work: workflow.Pass, incident: records.RepairIncident) -> list[str]:
    """What its agent has confirmed for as long as it would have to be quiet; empty before that."""
    waited_s = (work.context.clock.now() - incident.changed_at).total_seconds()
    return work.faults_at_beginning(incident.node) if waited_s >= work.context.config.repair.quiet_s else []


def _not_yet(work: workflow.Pass, incident: records.RepairIncident, node: view.Node | None) -> str:
    """Why its tests cannot begin now."""
    if node is None or not node.ours:
        return way_back.overwritten(node)
    if work.switched_off == "observe-only":
        return f"observe-only: it would be reserved, tested, {_plan(work, incident)}"
    if work.switched_off:
        return f"{work.switched_off}{way_back.NOT_TESTED}"
    if node.states & workflow.BUSY:
        return "its jobs are finishing"
    taken = node.states & (vocabulary.UNTOUCHABLE_STATES - vocabulary.DRAINED_STATES)
    if taken and not (taken == {"DOWN"} and way_back.is_back_from_boot(node)):
        return way_back.held_down(node)
    if incident.node in work.refused_lately:
        return "a permission to refuse jobs at its Prolog has not run out"
    if incident.detail.get("asked"):
        return ""
    config = work.context.config
    beat = work.beats.get(incident.node)
    if beat is None or not confirm.is_current(beat, work.ages.get(incident.node)):
        return "its agent is silent"
    green = work.context.green.get(incident.node)
    if green is None:
        left = work.steps_of(incident)[incident.steps_done :]
        shown = ", ".join(sorted(beat.faults)) or "a fault"
        if left:
            return ""
        # Links and mounts are mended elsewhere: such a node needs nobody here, and is well once they are.
        elsewhere = not work.every_step_of(incident)
        return f"its agent still confirms {shown}, {_ELSEWHERE if elsewhere else _NO_STEP}"
    quiet_s = (work.context.clock.now() - green.since).total_seconds()
    if quiet_s < config.repair.quiet_s:
        return f"no fault for {quiet_s:.0f} of {config.repair.quiet_s:g} s"
    return ""


def _plan(work: workflow.Pass, incident: records.RepairIncident) -> str:
    left = work.steps_of(incident)
    return f"then {', '.join(left)}, tested again after each" if left else "and resumed or ticketed"


def reserving(work: workflow.Pass, incident: records.RepairIncident) -> records.RepairIncident:
    """A reservation of ours over the node and its references, while the node is still drained."""
    if incident.held_by:
        return work.step_aside(incident)
    wanted = [incident.node, *incident.reference_nodes]
    try:
        work.context.reservations.create(incident.reservation, wanted)
    except errors.NotPermitted as exc:
        return work.save(incident, state="queued", reservation="", reference_nodes=(), why=str(exc))
    # A job may have started on a reference between our look and the reservation: busy ones are let go, while the node is drained.
    busy = [r for r in incident.reference_nodes if not work.is_idle(work.node(r))]
    if busy:
        kept = tuple(r for r in incident.reference_nodes if r not in busy)
        if not kept and _failed_beside_others(incident):
            return work.begin_anew(incident, busy, why=_NOBODY_IDLE)
        return reserving(work, work.save(incident, reference_nodes=kept))
    return work.save(incident, state="opening", why="")


def opening(work: workflow.Pass, incident: records.RepairIncident) -> records.RepairIncident:
    """Resumed inside the reservation: Slurm starts no job on a drained node, and only ours may start there."""
    node = work.node(incident.node)
    if node is None or incident.held_by or work.is_anothers(node):
        return work.make_way(incident, node)
    if not work.is_covered(incident):
        if node.ours:
            return work.save(incident, state="reserving", why="its reservation is gone")
        return work.unprotected(incident)
    back = way_back.is_back_from_boot(node)
    if node.states & way_back.AWAY and not back:
        return work.wait(incident, way_back.held_down(node))
    if why := work.too_many_rounds():  # after a reboot its turn comes again
        return work.wait(incident, why)
    if out := [r for r in incident.reference_nodes if way_back.is_out(work.node(r))]:
        why = f"reference node {out[0]} is out of service"
        if node.ours:
            return work.save(incident, state="reserving", why=why)
        # Its reservation is made anew only while it is drained.
        return work.begin_anew(incident, out, why=why)
    if back or node.states & vocabulary.DRAINED_STATES:
        outcome = work.context.slurm.resume(incident.node, incident.reservation)
        if outcome.state != "done":
            return work.wait(incident, way_back.held_down(node) if back else outcome.why)
        node = work.node(incident.node)
        if node is None or node.states & (vocabulary.DRAINED_STATES | way_back.AWAY):
            return work.wait(incident, "Slurm accepted the resume, yet it is drained or down")
    return work.save(incident, state="testing", round_id=uuid.uuid4(), n_rounds=incident.n_rounds + 1, why="")
