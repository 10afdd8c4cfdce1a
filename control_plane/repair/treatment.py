"""What follows failed tests: drained again, rebooted or power cycled, or a ticket for a person."""

from __future__ import annotations

from datetime import timedelta

from probing_cluster.control_plane.policy import view
from probing_cluster.control_plane.repair import admission, way_back, workflow
from probing_cluster.core import records, vocabulary

_MOST_ISSUES = 2
"""A reboot of which Slurm shows nothing is asked for so often."""
_ISSUE_AGAIN = timedelta(seconds=120)


def closing(work: workflow.Pass, incident: records.RepairIncident) -> records.RepairIncident:
    """Drained again, before it leaves the reservation or is rebooted."""
    work.context.rounds.stop(incident.reservation, incident.round_id)
    node = work.node(incident.node)
    if node is not None and work.is_anothers(node):
        return work.abandon(incident, node)
    if node is not None and not node.states & vocabulary.DRAINED_STATES:
        if way_back.is_back_from_boot(node) and work.is_covered(incident):
            # Slurm drains no node that is down: it comes up in our reservation first, where only our jobs may start.
            outcome = work.context.slurm.resume(incident.node, incident.reservation)
            if outcome.state != "done":
                return work.wait(incident, way_back.held_down(node))
        outcome = work.context.slurm.drain(incident.node, work.drain_reason(incident), incident.reservation)
        if outcome.state != "done":
            return work.wait(incident, f"it cannot be drained: {outcome.why}")
        node = work.node(incident.node)
        if node is None or not node.ours:
            return work.wait(incident, "Slurm accepted the drain, yet does not show it")
    following = str(incident.detail.get("next", "ticketing"))
    if following != "acting":
        work.context.reservations.delete(incident.reservation)
    if following in {"queued", "again"}:
        # Rounds of which nobody could tell who failed in them are counted on, beside further references.
        n_rounds = incident.n_rounds if following == "again" else 0
        return work.save(
            incident, state="queued", reservation="", reference_nodes=(), round_id=None, n_rounds=n_rounds
        )
    if following == "ticketing":
        return work.save(incident, state="ticketing", reference_nodes=())
    return work.save(incident, state=following, acted_at=None)


def acting(work: workflow.Pass, incident: records.RepairIncident) -> records.RepairIncident:
    """A reboot or a power cycle of the drained node."""
    step, now = str(incident.detail.get("act", "")), work.context.clock.now()
    node = work.node(incident.node)
    if node is None or incident.held_by or work.is_anothers(node):
        return work.make_way(incident, node)
    issued = int(incident.detail.get("issued", 0))
    if incident.acted_at is None:
        incident = work.save(
            incident, acted_at=now, detail={**incident.detail, "issued": 1}, why=f"{step} under way"
        )
        return _issue(work, incident, step)
    booted = node.boot_at is not None and node.boot_at >= incident.acted_at
    if booted and (way_back.is_back_from_boot(node) or not node.states & way_back.AWAY):
        detail = {k: v for k, v in incident.detail.items() if k not in {"act", "issued", "next"}}
        return work.save(
            incident,
            state="opening",
            steps_done=incident.steps_done + 1,
            n_rounds=0,
            acted_at=None,
            why=f"tested after {step}",
            detail=detail | {"look_again": True},
        )
    if now - incident.acted_at > timedelta(seconds=work.context.config.repair.reboot_s):
        words = f"{step}: it did not come back within {work.context.config.repair.reboot_s:g} s"
        failing = [*incident.detail.get("failing", []), words]
        return work.save(
            incident,
            state="closing",
            why=words,
            detail={**incident.detail, "failing": failing, "next": "ticketing"},
        )
    overdue = not node.states & way_back.AWAY and now - incident.acted_at > issued * _ISSUE_AGAIN
    if overdue and issued < _MOST_ISSUES:
        incident = work.save(incident, detail={**incident.detail, "issued": issued + 1})
        return _issue(work, incident, step)
    return incident


def _issue(work: workflow.Pass, incident: records.RepairIncident, step: str) -> records.RepairIncident:
    if step == "power":
        why = work.context.power(incident.node)
    else:
        outcome = work.context.slurm.reboot(incident.node)
        why = "" if outcome.state == "done" else outcome.why
    return work.wait(incident, f"{step} failed: {why}") if why else incident


def ticketing(work: workflow.Pass, incident: records.RepairIncident) -> records.RepairIncident:
    """Bundle and ticket, written once; the reservation is gone, the node drained."""
    wrote = work.context.ticket(incident)
    detail = {
        k: v for k, v in incident.detail.items() if k not in {"next", "act", "issued", "step", "before"}
    }
    return work.save(incident, state="ticket", reservation="", round_id=None, detail=detail | dict(wrote))


def ticket(work: workflow.Pass, incident: records.RepairIncident) -> records.RepairIncident:
    """Out until a person has been there; a boot since then and a clean agent are reason enough to test again, and a clean agent where no test has failed."""
    node = work.at_beginning(incident.node)
    if incident.held_by or view.drain_over(node):
        return work.leave_to_person(incident, node)
    booted = node is not None and node.boot_at is not None and node.boot_at > incident.changed_at
    if (booted or admission.is_by_agent(incident)) and incident.node in work.context.green:
        return work.save(
            incident,
            state="queued",
            steps_done=0,
            n_rounds=0,
            why="it was rebooted: tested again" if booted else "its agent sees no fault any more: tested",
            detail={**incident.detail, "look_again": True},
        )
    return incident
