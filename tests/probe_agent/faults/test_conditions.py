"""Conditions: one event when they come, one when they go, none while they stay."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

from probing_cluster.core import records
from probing_cluster.probe_agent.faults import conditions

NOW = datetime(2026, 1, 31, 14, 0, tzinfo=UTC)


def condition(device: str = "/scratch", **fields: Any) -> conditions.Condition:
    values = {
        "kind": "mount",
        "code": "missing",
        "severity": records.Severity.HIGH,
        "message": "gone",
    } | fields
    return conditions.Condition(device=device, **values)


def look(tracker: conditions.Tracker, *present: conditions.Condition, after_s: float = 0, **more: Any) -> Any:
    judged = conditions.Judgement(present=present, **more)
    found, _ = tracker.observe(judged, at=NOW + timedelta(seconds=after_s), event_id=lambda p: f"id of {p}")
    return found


def test_standing_condition_is_one_event_and_its_end_another() -> None:
    """However often it is read in between."""
    tracker = conditions.Tracker(source="mount", boot_id="b")
    (came,) = look(tracker, condition())
    assert look(tracker, condition(), after_s=10) == []
    (went,) = look(tracker, after_s=60)
    assert (str(came.severity), str(went.severity)) == ("high", "info")
    assert went.detail["recovered"] is True
    assert went.detail["lasted_s"] == 60.0
    assert went.detail["began"] == f"id of {came.position}"
    assert not came.latches


def test_same_condition_later_is_another_event() -> None:
    """Identities are numbered by occurrence, not by time."""
    tracker = conditions.Tracker(source="mount", boot_id="b")
    first = look(tracker, condition())[0].position
    look(tracker)
    assert look(tracker, condition())[0].position != first


def test_restart_of_the_agent_repeats_nothing() -> None:
    """A condition that stood before the restart is only confirmed again."""
    tracker = conditions.Tracker(source="mount", boot_id="b")
    look(tracker, condition())
    state = json.loads(json.dumps(tracker.to_state()))
    again = conditions.Tracker.from_state("mount", "b", state)
    assert look(again, condition(), after_s=5) == []
    assert look(again, after_s=10)[0].detail["recovered"] is True


def test_conditions_of_a_later_release_are_known() -> None:
    """A node that goes back to this release repeats nothing."""
    tracker = conditions.Tracker(source="mount", boot_id="b")
    look(tracker, condition())
    state = json.loads(json.dumps(tracker.to_state()))
    (row,) = state["active"].values()
    row["condition"]["of_a_later_release"] = [1]
    again = conditions.Tracker.from_state("mount", "b", state)
    assert look(again, condition(), after_s=5) == []


def test_reboot_forgets_without_a_recovery() -> None:
    """Nobody saw it end; the next boot's reading speaks for itself."""
    tracker = conditions.Tracker(source="mount", boot_id="b")
    look(tracker, condition())
    fresh = conditions.Tracker.from_state("mount", "b2", tracker.to_state())
    assert look(fresh) == []
    assert look(fresh, condition())[0].position.startswith("b2:")


def test_unreadable_part_keeps_its_condition() -> None:
    """Not seeing is not health."""
    tracker = conditions.Tracker(source="mount", boot_id="b")
    look(tracker, condition(), condition("/home"))
    assert look(tracker, condition("/home"), unknown=frozenset({"/scratch"})) == []
    assert look(tracker, unknown=frozenset({"*"})) == []
    assert len(tracker.active) == 2


def test_edge_is_told_each_time_with_its_value() -> None:
    """The value is the identity: the same step read twice has the same one."""
    tracker = conditions.Tracker(source="sysfs", boot_id="b")
    edge = conditions.ConditionEdge(what=condition(), value="17")
    one = look(tracker, edges=(edge,))[0].position
    two = look(tracker, edges=(edge,))[0].position
    assert one == two == "b:/scratch:mount:missing:17"
