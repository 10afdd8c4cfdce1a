from __future__ import annotations

import io
import uuid
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from probing_cluster.control_plane.policy import view
from probing_cluster.control_plane.terminal import node_table, table
from probing_cluster.core import records
from probing_cluster.core.catalogue import fault_names
from tests.every_case import every

NOW = datetime(2026, 11, 22, 12, tzinfo=UTC)
FAULT = fault_names.NamedFault(name="Xid 79 gpu0", severity="high", since=NOW, keys=("xid:gpu0",))
MINOR = fault_names.NamedFault(name="load", severity="info", since=NOW, keys=("load",))


def decision(state: str, **changes: Any) -> records.Drain:
    values: dict[str, Any] = {
        "drain_id": uuid.uuid4(), "cluster": "c", "node": "n1", "at": NOW + timedelta(seconds=1), "action": "drain",
        "reason": "probing: xid 79 gpu0", "owner": "probing", "state": state,
    }  # fmt: skip
    return records.Drain(**(values | changes))


def node(states: str, reason: str = "", reservation: str = "") -> view.Node:
    return view.Node(name="n1", states=frozenset(states.split("+")), reason=reason, reservation=reservation)


OURS = decision("done")
OPERATORS = decision("done", owner="alice", reason="probing: fan (alice)")
MAINTAINED = decision("skipped", why_state="MAINTENANCE by another (no reason given)")
DENIED = decision("denied", why_state="the budget of 2 nodes in 3600 s is spent")


@every(
    ("there", "faults", "drain", "latest", "words"),
    [
        (node("IDLE"), [], None, None, ""),
        (node("IDLE+DRAIN", "probing: xid 79 gpu0"), [FAULT], OURS, OURS, "xid 79 gpu0, by us 11-22 12:00Z"),
        (
            node("IDLE+DRAIN", "probing: fan (alice)"),
            [],
            OPERATORS,
            OPERATORS,
            "fan (alice), by alice 11-22 12:00Z",
        ),
        (node("MIXED+DRAIN", "fan noise"), [FAULT], None, None, "not by us: fan noise"),
        (node("MIXED+DRAIN", "fan noise"), [FAULT], OURS, OURS, "not by us: fan noise"),
        (
            node("DOWN+NOT_RESPONDING", "Not responding"),
            [],
            None,
            None,
            "no: DOWN+NOT_RESPONDING, by Slurm itself: Not responding",
        ),
        (
            node("DOWN", "Node unexpectedly rebooted"),
            [],
            None,
            None,
            "no: Slurm holds it DOWN since it booted unasked: see why it booted; scontrol update NodeName=n1 State=RESUME returns it untested (with ReturnToService=2 in slurm.conf such a node returns by itself)",
        ),
        (
            node("DOWN+NOT_RESPONDING", "Node unexpectedly rebooted"),
            [],
            None,
            None,
            "no: DOWN+NOT_RESPONDING, by Slurm itself: Node unexpectedly rebooted",
        ),
        (node("IDLE+DRAIN", "Kill task failed"), [], None, None, "by Slurm itself: Kill task failed"),
        (
            node("IDLE+REBOOT_REQUESTED", "kernel update"),
            [FAULT],
            None,
            DENIED,
            "no: REBOOT_REQUESTED, not by us: kernel update",
        ),
        (node("IDLE+INVALID_REG", "7 < 8"), [FAULT], None, None, "no: INVALID_REG, not by us: 7 < 8"),
        (node("IDLE"), [FAULT], None, DENIED, "no: denied: the budget of 2 nodes in 3600 s is spent"),
        (node("IDLE"), [FAULT], None, decision("simulated"), "no: observe-only, it would have been"),
        (node("IDLE"), [FAULT], None, decision("skipped", why_state="the job ended"), "no: the job ended"),
        (node("IDLE"), [FAULT], None, decision("under way"), "being drained"),
        (
            None,
            [FAULT],
            None,
            decision("under way", why_state="Slurm did not answer"),
            "being drained: Slurm did not answer",
        ),
        (node("IDLE"), [FAULT], None, None, "no: not decided yet"),
        (node("IDLE"), [FAULT], None, decision("denied", at=NOW - timedelta(hours=1)), "no: not decided yet"),
        (node("IDLE"), [MINOR], None, None, ""),
        (
            node("IDLE+MAINTENANCE"),
            [FAULT],
            None,
            MAINTAINED,
            "no: MAINTENANCE, not by us: no reason given; drained once that is over, if the fault stands",
        ),
        (node("IDLE+MAINTENANCE"), [], None, None, ""),
        (
            node("IDLE+MAINTENANCE", reservation="rack12-power"),
            [FAULT],
            None,
            None,
            "no: MAINTENANCE, not by us: reservation rack12-power; drained once that is over, if the fault stands",
        ),
        (
            node("IDLE+DRAIN", "fan noise", reservation="course"),
            [FAULT],
            None,
            None,
            "not by us: fan noise",
        ),
        (node("DOWN", reservation="course"), [FAULT], None, None, "no: DOWN, not by us: no reason given"),
        (node("DOWN"), [FAULT], None, None, "no: DOWN, not by us: no reason given"),
        (node("IDLE"), [FAULT], None, MAINTAINED, "no: it was in maintenance; decided anew within a minute"),
        (None, [FAULT], None, MAINTAINED, "no: MAINTENANCE by another (no reason given)"),
        (
            node("IDLE"),
            [FAULT],
            None,
            decision("skipped", why_state="DRAIN by another (fan, bob)"),
            "no: brought back by another; it was DRAIN by another (fan, bob)",
        ),
        (node("IDLE"), [], OURS, OURS, "xid 79 gpu0, by us; Slurm shows it lifted"),
        (None, [FAULT], OURS, OURS, "xid 79 gpu0, by us"),
    ],
)
def test_why_a_node_is_or_is_not_drained(
    there: view.Node | None,
    faults: list[fault_names.NamedFault],
    drain: records.Drain | None,
    latest: records.Drain | None,
    words: str,
) -> None:
    """One sentence for each way it can stand; a decision older than the fault explains nothing."""
    assert node_table.drained(there, faults, drain, latest) == words


def test_one_line_a_node_within_the_width() -> None:
    """However long states, names and reasons are."""
    rows = [
        {"node": f"gpu-rack{n:02}-node{n:03}", "slurm": "DOWN+DRAIN+NOT_RESPONDING+POWERED_DOWN", "age_s": 5000.0 * n, "silent_s": 5000.0 * n,
         "beat_s": 10.0, "named": [FAULT, MINOR], "drain": "no: denied: " + "x" * 150, "acknowledged": "alice, 11-22 12:00Z"}
        for n in range(3)
    ]  # fmt: skip
    lines = node_table.text(rows, 100).splitlines()
    assert len(lines) == 4
    assert max(len(line) for line in lines) <= 100
    assert node_table.text(rows).count("x" * 150) == 3, "in a pipe nothing is cut"
    narrow = node_table.text(rows, 50)
    assert max(len(line) for line in narrow.splitlines()) <= 50
    assert narrow.replace("\n  ", "").count("x" * 150) == 3, "what is narrow is wrapped"
    assert "SILENT" not in lines[1]
    assert "SILENT 1 h" in lines[2]
    assert "known to alice" in lines[1]


@pytest.mark.parametrize(
    ("age_s", "silent_s", "words"),
    [(2.0, 2.0, "none"), (42.0, 42.0, "not known"), (158.0, 5.0, "not known"), (None, None, "not known")],
)
def test_nobody_says_that_a_silent_node_has_no_fault(
    age_s: float | None, silent_s: float | None, words: str
) -> None:
    """A node whose agent is not heard may have any."""
    row = {
        "node": "n1",
        "slurm": "IDLE",
        "age_s": age_s,
        "silent_s": silent_s,
        "beat_s": 4.0,
        "named": [],
        "drain": "",
        "acknowledged": "",
    }
    assert words in node_table.text([row]).splitlines()[1]


def test_an_agent_that_could_not_be_heard_is_not_called_silent() -> None:
    """The database was away: what is old is said to be old, and no more."""
    row = {
        "node": "n1",
        "slurm": "IDLE",
        "age_s": 612.0,
        "silent_s": 2.0,
        "beat_s": 4.0,
        "named": [],
        "drain": "",
        "acknowledged": "",
    }
    line = node_table.text([row]).splitlines()[1]
    assert "612 s ago" in line
    assert "SILENT" not in line


@pytest.mark.parametrize(
    ("columns", "width"), [("50", 50), ("200", 200), ("", None), ("0", None), ("wide", None)]
)
def test_what_columns_says_holds_and_a_pipe_has_no_width(
    columns: str, width: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    monkeypatch.setattr("sys.stdout", io.StringIO())
    assert table.terminal_width() == width


@pytest.mark.parametrize(
    ("states", "shown"), [("IDLE", True), ("IDLE+DRAIN", False), ("DOWN", False), ("IDLE+MAINTENANCE", False)]
)
def test_only_a_node_in_service_may_refuse_jobs(states: str, shown: bool) -> None:
    """No job starts on one that is out."""
    permission = decision("done", action="refuse", reason="probing: xid 79 gpu0")
    words = node_table.refusing(node(states), permission)
    assert words == ("its Prolog may refuse jobs for xid 79 gpu0" if shown else "")
    assert node_table.refusing(None, permission)
    assert not node_table.refusing(node(states), None)


def test_a_drain_says_more_than_the_test_it_waits_for() -> None:
    """Only where Slurm shows a reservation alone."""
    assert node_table.under_test(node("MAINTENANCE+RESERVED"), "under test by us: x") == {
        "drain": "under test by us: x"
    }
    assert node_table.under_test(node("IDLE+DRAIN", "probing: x"), "under test by us: x") == {}
    assert node_table.under_test(None, None) == {}
