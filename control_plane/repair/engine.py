"""The workflow of one drained node, as a state machine whose every step is a row first, then done, then read back.

    queued → reserving → opening → testing → returning → returned
                            ↑         ↓
                          acting ← closing → ticketing → ticket

Each state's work can be done again from its beginning: after a kill at any line the next pass reads Slurm and goes on. A
node leaves our reservation undrained in one place only, `testing.returning`, which needs a round of tests that passed.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta

from probing_cluster.control_plane.repair import admission, testing, treatment, way_back, workflow
from probing_cluster.core import errors, hostlist, records, sanitize, vocabulary
from probing_cluster.slurm_plugins.acts import reservations

TRANSITIONS = 12
"""Most transitions of one node in one pass."""
_OUT_FOR_TESTS = frozenset({"reserving", "opening", "testing", "returning", "acting"})
_STALLED = "it cannot go on: "
STATES: Mapping[str, Callable[[workflow.Pass, records.RepairIncident], records.RepairIncident]] = {
    "queued": admission.queued,
    "reserving": admission.reserving,
    "opening": admission.opening,
    "testing": testing.testing,
    "returning": testing.returning,
    "closing": treatment.closing,
    "acting": treatment.acting,
    "ticketing": treatment.ticketing,
    "ticket": treatment.ticket,
}
"""By state what is done in it; each may be done again from its beginning."""

MEANINGS: Mapping[str, str] = {
    "queued": "drained, waits for its tests",
    "reserving": "a reservation for its tests is being made",
    "opening": "reserved, its tests are about to begin",
    "testing": "its tests run, or their job still waits for the node",
    "returning": "every test passed, it goes back into service",
    "closing": "drained again after its tests",
    "acting": "a reboot or power cycle is under way",
    "ticketing": "its ticket is being written",
    "ticket": "a person is needed: what WHY says still fails, and no repair step is left",
    "returned": "back in service, tested",
    "lifted": "a person resumed it or took it over",
    "closed": "ended by a person, the node stays as it is",
}
"""By state, open or ended, what it means to a person."""


def advice(incident: records.RepairIncident, mend: str = "") -> str:
    """What a person should do about a node under repair, two or three sentences; `mend` says what its standing fault asks for."""
    node = incident.node
    if incident.held_by:
        return f"{incident.held_by} holds its repair; probing-ctl repair release {node} gives it back."
    if incident.state in {"ticket", "ticketing"}:
        why = sanitize.clean(incident.why or "no step is left", 160)
        mended = mend or "Mend the hardware as its ticket says."
        return f"{mended} Then probing-ctl repair release {node} tests it. Repair gave up: {why}"
    if way_back.waits_for_person(incident.why):
        return f"Under repair, {incident.state}: {incident.why}."
    why = f": {incident.why}" if incident.why else ""
    return f"Under repair, {incident.state}{why}. It returns by itself when every test passes."


def failing(incident: records.RepairIncident) -> tuple[str, tuple[str, ...]]:
    """What failed at its last tests, and before it a few words on when that was: it still failed when the tests ended so, and nobody has looked since."""
    words = tuple(map(str, incident.detail.get("failing") or ()))
    if incident.state in {"closing", "acting", "ticketing", "ticket"}:
        return f"still failing at {incident.changed_at:%Y-%m-%d %H:%M}Z", words
    passed = incident.state in {"returning", "returned"}
    return ("failed before its repair" if passed else "failed at its last tests"), words


def advance(work: workflow.Pass, incident: records.RepairIncident) -> str:
    """Takes a repair as far as it goes now; what became of it, empty when nothing changed. Raises NotFound, DatabaseUnavailable."""
    before = (incident.state, incident.why)
    try:
        incident = _advanced(work, incident)
    except (errors.NotFound, errors.DatabaseUnavailable):
        raise
    except errors.ProbingError as exc:
        # One node's trouble, such as a full disk under its bundle, must not keep the others from their tests.
        incident = _stalled(work, incident, str(exc))
    now = (incident.state, incident.why)
    return (
        ""
        if now == before
        else f"{incident.node} {incident.state}{f': {incident.why}' if incident.why else ''}"
    )


def _advanced(work: workflow.Pass, incident: records.RepairIncident) -> records.RepairIncident:
    for _ in range(TRANSITIONS):
        state = incident.state
        after = _follow_note(work, incident)
        if work.switched_off and after.state in _OUT_FOR_TESTS:
            after = work.step_aside(after, why=f"{work.switched_off}: drained again, untested")
        if after.closed_at is None:
            after = STATES[after.state](work, after)
        incident = after
        if incident.closed_at is not None or incident.state == state:
            break
    if incident.closed_at is None and "stalled" in incident.detail:
        detail = {k: v for k, v in incident.detail.items() if k != "stalled"}
        why = incident.detail["stalled"] if incident.why.startswith(_STALLED) else incident.why
        incident = work.save(incident, why=why, detail=detail)
    return incident


def _stalled(work: workflow.Pass, incident: records.RepairIncident, words: str) -> records.RepairIncident:
    """The repair as its row is now, with what keeps it from going on; what it waited for before is kept beside."""
    found = work.context.store.incidents(cluster=incident.cluster, node=incident.node, open_only=True)
    fresh = next((one for one in found if one.incident_id == incident.incident_id), incident)
    why = f"{_STALLED}{sanitize.clean(words, 300)}"
    before = fresh.detail.get("stalled", fresh.why)
    return work.wait(fresh, why, detail={**fresh.detail, "stalled": before})


def _follow_note(work: workflow.Pass, incident: records.RepairIncident) -> records.RepairIncident:
    """What a person asked for since the last pass, done once: hold, release or done."""
    note = work.notes.get(incident.node)
    if note is None or note.at < incident.opened_at or str(note.note_id) == incident.detail.get("note"):
        return incident
    detail = {k: v for k, v in incident.detail.items() if k != "end"} | {"note": str(note.note_id)}
    if note.action == "hold":
        return work.save(incident, held_by=note.author, why=f"taken over by {note.author}", detail=detail)
    if note.action == "release":
        again = (
            {"state": "queued", "steps_done": 0, "n_rounds": 0}
            if incident.state in {"queued", "ticket"}
            else {}
        )
        return work.save(
            incident,
            held_by="",
            why=f"given back by {note.author}",
            detail=detail | {"asked": True, "look_again": True},
            **again,
        )
    if incident.state not in {"queued", "ticket"}:
        # First out of the reservation, drained; then it is over.
        return work.save(
            incident,
            held_by=note.author,
            why=f"to be ended by {note.author}",
            detail=detail | {"end": note.author},
        )
    return work.close(incident, "closed", f"ended by {note.author}", detail=detail)


def orphans(context: workflow.RepairContext, incidents: Sequence[records.RepairIncident]) -> list[str]:
    """Reservations of ours that no open repair has: their nodes are drained if they are not, then they are freed."""
    known = {incident.reservation for incident in incidents if incident.closed_at is None}
    over = {
        incident.reservation
        for incident in context.store.incidents(
            cluster=context.config.cluster.name, since=context.clock.now() - timedelta(days=30)
        )
        if incident.state == "returned"
    }
    done = []
    for found in context.reservations.all():
        if not found.ours or found.name in known:
            continue
        context.rounds.stop(found.name, None)
        if found.name not in over and not _drained(context, found):
            continue  # the next pass tries again: nobody gets a node of which nobody knows whether it was tested
        context.reservations.delete(found.name)
        done.append(
            f"reservation {found.name} of {hostlist.compress(sorted(found.nodes))} had no repair and is freed"
        )
    return done


def _drained(context: workflow.RepairContext, found: reservations.Reservation) -> bool:
    reason = f"{vocabulary.OWN_PREFIX}untested: its test was cut off"
    for name in sorted(found.nodes):
        node = context.slurm.node(name)
        if node is not None and not node.states & vocabulary.DRAINED_STATES:
            outcome = context.slurm.drain(name, reason, found.name)
            if outcome.state != "done":
                return False
            row = records.Drain(
                drain_id=uuid.uuid4(), cluster=context.config.cluster.name, node=name, at=context.clock.now(), action="drain",
                reason=reason, owner="probing", state="done",
            )  # fmt: skip
            context.store.save_drain(row)
    return True
