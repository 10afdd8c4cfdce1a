"""Who brings a node back that is out of service, and how."""

from __future__ import annotations

import pytest

from probing_cluster.control_plane.policy import view
from probing_cluster.control_plane.repair import by_hand, way_back

LIFTS = "scontrol update NodeName=n4 State=RESUME"


@pytest.mark.parametrize(
    ("states", "reason", "words"),
    [
        ({"IDLE", "DRAIN"}, "nvme swap, bob", f"its drain is another's (nvme swap, bob): ask them; {LIFTS} lifts it"),
        ({"IDLE", "DRAIN"}, "Kill task failed", f"Slurm drained it by itself (Kill task failed): {LIFTS} lifts it"),
        ({"DOWN"}, "Not responding", f"Slurm has it DOWN: find out why it is down; once it answers: {LIFTS}"),
        ({"DOWN"}, "Node unexpectedly rebooted", f"Slurm holds it DOWN since it booted unasked: see why it booted; {LIFTS} returns it untested (with ReturnToService=2 in slurm.conf such a node returns by itself)"),
        ({"DOWN", "NOT_RESPONDING"}, "Node unexpectedly rebooted", f"Slurm has it DOWN+NOT_RESPONDING: find out why it is down; once it answers: {LIFTS}"),
        ({"DOWN"}, "alice: pdu work", f"another set it DOWN (alice: pdu work): ask them; {LIFTS} brings it back"),
        ({"IDLE", "MAINT"}, "", "Slurm shows it IDLE+MAINT"),
        ({"IDLE"}, "", ""),
        ({"IDLE", "DRAIN"}, "probing: xid 79", ""),
    ],
)  # fmt: skip
def test_who_brings_it_back_is_said(states: set[str], reason: str, words: str) -> None:
    """A test that is refused says it, too: never to resume what another drained."""
    node = view.Node(name="n4", states=frozenset(states), reason=reason)
    assert way_back.not_ours(node) == words
    taken = by_hand.why_taken("n4", node)
    assert taken == (f"n4 takes no job: {words}" if words else taken)
    assert node.ours == ("drained by us" in taken)
