"""`probing-ctl nodes`: what stands, why, and who deals with it."""

from __future__ import annotations

import dataclasses
import json
import os
import uuid
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import fakes
import pytest

from probing_cluster.control_plane.cli import main
from probing_cluster.control_plane.cli.nodes import nodes_commands
from probing_cluster.control_plane.policy import view
from probing_cluster.core import clock, records
from probing_cluster.db import delivery
from probing_cluster.db import store as db_store
from probing_cluster.reports.asking import door
from probing_cluster.slurm_plugins import commands
from probing_cluster.slurm_plugins.acts import nodes

NOW = datetime.now(UTC)
Run = Callable[..., str]


@pytest.fixture
def run(
    store: db_store.Store,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> Run:
    """probing-ctl on a cluster without Slurm's commands; what it printed."""
    monkeypatch.delenv("COLUMNS", raising=False)  # somebody's terminal
    config = tmp_path / "probing.toml"
    config.write_text(
        f'[cluster]\nname = "c"\n[database]\nurl = "{store.connection_uri()}"\n'
        f'[slurm]\nbin_directory = "{tmp_path}/none"\n[service]\nsocket = "{tmp_path}/s"\n'
    )

    def one(*words: str) -> str:
        assert main.main([*words, "--config", str(config)]) == (6 if words[0] == "nodes" else 0)
        captured = capsys.readouterr()
        assert ("how Slurm has the nodes is not known" in captured.err) is (words[0] == "nodes")
        return captured.out

    return one


def beat(store: db_store.Store, node: str, faults: dict[str, Any]) -> None:
    """One heartbeat of a node's agent."""
    heartbeat = records.AgentHeartbeat(cluster="c", node=node, at=NOW, faults=faults)
    delivery.Delivery(store.connection_uri(), "c", node).deliver(heartbeat=heartbeat)


def drain(store: db_store.Store, at: datetime, why: str = "") -> records.Drain:
    """A drain of ours that stands on n2."""
    made = records.Drain(
        drain_id=uuid.uuid4(), cluster="c", node="n2", at=at, action="drain", reason="probing: xid 79 gpu3", owner="probing",
        state="done", why_state=why,
    )  # fmt: skip
    store.save_drain(made)
    return made


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"state": "queued"}, "xid 79 gpu3, by us; repair queued"),
        ({"state": "queued", "held_by": "ada"}, "repair held by ada"),
        ({"state": "ticket"}, "repair gave up, ticket: a person is needed"),
        ({"state": "returned", "closed_at": NOW}, ""),
    ],
)
def test_how_far_the_repair_of_a_node_is_stands_beside_its_drain(
    store: db_store.Store, run: Run, changes: dict[str, Any], words: str
) -> None:
    """One that is over says nothing."""
    beat(store, "n2", {})
    row = drain(store, NOW)
    store.open_incident(
        records.RepairIncident(
            incident_id=uuid.uuid4(), cluster="c", node="n2", drain_id=row.drain_id, reason=row.reason, cause="gpu",
            opened_at=NOW, changed_at=NOW, **changes,
        )
    )  # fmt: skip
    (shown,) = json.loads(run("nodes", "--json"))
    assert shown["repair"] == words.removeprefix("xid 79 gpu3, by us; ")
    assert words in run("nodes")
    assert ("repair" in run("nodes")) is bool(words)


def test_who_acknowledged_what_stands_is_shown(store: db_store.Store, run: Run) -> None:
    """The next one at the keyboard sees it, until something new begins."""
    beat(store, "n1", {})
    beat(
        store,
        "n2",
        {"xid:gpu3": {"severity": "high", "since": clock.iso_z(NOW - timedelta(hours=1))}},
    )
    first = drain(store, NOW - timedelta(minutes=30))
    assert "known to" not in run("nodes")
    assert run("ack", "n1", "n2", "--note", "reseating it").splitlines() == [
        "n1: no fault to acknowledge; the note is kept",
        "n2: acknowledged",
    ]
    rows = {row["node"]: row["acknowledged"] for row in json.loads(run("nodes", "--json"))}
    assert rows["n1"] == "", "nothing stands there"
    assert rows["n2"].endswith("Z: reseating it")
    table = run("nodes")
    assert "known to" in table
    assert table.count("reseating it") == 1
    store.update_drain(first.drain_id, state="resumed", ended_at=NOW)
    assert "reseating it" in run("nodes"), "the fault it was about still stands"
    drain(store, datetime.now(UTC) + timedelta(minutes=1))
    assert "reseating it" not in run("nodes")


def test_a_drain_under_way_is_no_drain_that_failed(store: db_store.Store, run: Run) -> None:
    """Its row says so until its outcome is recorded, seconds later."""
    beat(store, "n2", {"xid:gpu3": {"severity": "high", "since": clock.iso_z(NOW - timedelta(hours=1))}})
    row = drain(store, datetime.now(UTC), why=view.BEGUN)
    store.update_drain(row.drain_id, state="failed")
    assert "being drained" in run("nodes")
    store.update_drain(row.drain_id, why_state="no such node")
    assert "no: no such node" in run("nodes")


def test_a_reason_and_what_is_not_known_of_it_are_two_things(store: db_store.Store, run: Run) -> None:
    """The words that Slurm shows end before ours about them begin."""
    drain(store, NOW, why="not tried again")
    assert "probing: xid 79 gpu3; not tried again" in run("nodes", "n2", "--json")


def test_a_denied_drain_is_shown_while_what_it_was_for_stands(store: db_store.Store, run: Run) -> None:
    """Whoever looks sees that a broken node still takes jobs, and why; not once it is healed, or drained after all."""
    event = uuid.uuid4()
    why = "budget: 1 of 1 nodes of the cluster taken within 3600 s"
    denied = records.Drain(
        drain_id=uuid.uuid4(), cluster="c", node="n2", at=NOW, action="drain", reason="probing: xid 79 gpu3", owner="probing",
        state="denied", why_state=why, event_ids=(event,),
    )  # fmt: skip
    store.save_drain(denied)
    fault = {"xid:gpu3": {"severity": "high", "event_id": str(event), "event_ids": [str(event)]}}
    beat(store, "n2", fault)
    assert "no: denied: budget: 1 of 1 nodes" in run("nodes")
    (row,) = json.loads(run("nodes", "n2", "--json"))
    assert why in row["denied"]
    beat(store, "n2", {})
    assert "denied" not in run("nodes")
    beat(store, "n2", fault)
    drain(store, NOW + timedelta(seconds=1))
    assert "denied" not in run("nodes")


@pytest.mark.parametrize(
    ("age_s", "stands", "shown"), [(1, True, True), (1, False, False), (61, True, False)]
)
def test_a_node_that_may_refuse_jobs_says_so(
    store: db_store.Store, run: Run, age_s: int, stands: bool, shown: bool
) -> None:
    """While the permission is valid and its fault stands: it is in service, and sends jobs away."""
    event = uuid.uuid4()
    given = records.Drain(
        drain_id=uuid.uuid4(), cluster="c", node="n2", at=datetime.now(UTC) - timedelta(seconds=age_s), action="refuse",
        reason="probing: nvme_gone nvme0", owner="probing", state="done", event_ids=(event,),
    )  # fmt: skip
    store.save_drain(given)
    beat(store, "n2", {"nvme_gone:nvme0": {"severity": "high", "event_id": str(event)}} if stands else {})
    words = "its Prolog may refuse jobs for nvme_gone nvme0"
    (row,) = json.loads(run("nodes", "n2", "--json"))
    assert row["refusing"] == (words if shown else "")
    assert (f"no: not decided yet; {words}" in run("nodes")) is shown


@pytest.mark.parametrize("reason", ["", "  ", "\x07"])
def test_a_drain_without_a_reason_is_refused(reason: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Slurm would show "probing:  (you)": nobody who finds the node later learns anything."""
    assert main.main(["drain", "n1", "--reason", reason]) == 2
    assert "reason says nothing" in capsys.readouterr().err


def test_an_outcome_is_told_in_its_own_words(
    store: db_store.Store, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A node that is not drained is no question of rights, and one that Slurm does not know no silence of Slurm's."""
    slurm = fakes.FakeSlurm()
    monkeypatch.setattr(
        slurm, "resume", lambda name: nodes.Outcome(state="skipped", why=f"{name} is not drained")
    )
    monkeypatch.setattr(
        slurm,
        "drain",
        lambda name, _reason: nodes.Outcome(state="failed", why=f"Slurm knows no node {name} any more"),
    )
    monkeypatch.setattr(nodes_commands, "_slurm_operations", lambda _config: slurm)
    monkeypatch.delenv("COLUMNS", raising=False)  # somebody's terminal
    config = tmp_path / "probing.toml"
    config.write_text(f'[cluster]\nname = "c"\n[database]\nurl = "{store.connection_uri()}"\n')
    assert main.main(["resume", "n1", "--config", str(config)]) == 1
    assert main.main(["drain", "n2", "--reason", "x", "--config", str(config)]) == 1
    assert capsys.readouterr().out.splitlines() == [
        "n1: not done: n1 is not drained",
        "n2: not done: Slurm knows no node n2 any more",
    ]
    calls: list[str] = []
    monkeypatch.setattr(slurm, "drain", lambda name, _reason: calls.append(name))
    assert main.main(["drain", "n[1,9]", "--reason", "x", "--config", str(config)]) == 3
    assert "n9 is not known" in capsys.readouterr().err
    assert calls == [], "a slip of the keyboard drains no half of a list"


def test_the_table_says_when_nobody_decides(store: db_store.Store, tmp_path: Path, run: Run, capsys: pytest.CaptureFixture[str]) -> None:  # fmt: skip
    """The service is dead: a bad node stays open, and "not decided yet" would sound like seconds."""
    beat(store, "n1", {})
    now = datetime.now(UTC)
    for age_s, dead in ((600, True), (1, False)):
        store.remember("accounting.until c", (now - timedelta(seconds=age_s)).isoformat())
        assert main.main(["nodes", "--config", str(tmp_path / "probing.toml")]) == 6
        assert ("probing-ctl serve may not run" in capsys.readouterr().err) is dead


@pytest.mark.parametrize(
    ("serves", "age_s", "words", "undecided"),
    [
        (True, 100, "though probing-ctl serve runs", False),
        (False, 1, "serve does not answer on", True),
        (True, 1, "", False),
    ],
)
def test_the_table_says_whether_the_service_answers(
    store: db_store.Store, tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
    serves: bool, age_s: float, words: str, undecided: bool,
) -> None:  # fmt: skip
    """A frozen one decides nothing from its first second on; one that waits for slurmdbd still drains."""
    beat(store, "n1", {})
    monkeypatch.setattr(door, "serves", lambda _: serves)
    store.remember("accounting.until c", (datetime.now(UTC) - timedelta(seconds=age_s)).isoformat())
    config = tmp_path / "probing.toml"
    config.write_text(config.read_text() + "accounting_poll_s = 2.0\n")
    assert main.main(["nodes", "--config", str(config)]) == 6
    written = capsys.readouterr().err
    assert (words in written, "nothing new below is decided" in written) == (True, undecided)
    assert "may not run" not in written


def test_a_node_that_nobody_knows_is_no_empty_table(
    store: db_store.Store, tmp_path: Path, capsys: pytest.CaptureFixture[str], run: Run
) -> None:
    """A slip of the keyboard ends with 3, garbage with 7, each with a sentence and nothing on standard output."""
    beat(store, "n1", {})
    assert run("nodes", "n1").splitlines()[1].startswith("n1")
    config = str(tmp_path / "probing.toml")
    for words, code in ((["n99"], 3), (["n1", "n99"], 3), (["n[1-"], 7), ([""], 2)):
        assert main.main(["nodes", *words, "--config", config]) == code
        captured = capsys.readouterr()
        assert captured.out == ""
        assert captured.err.startswith("probing-ctl: ")
        assert len(captured.err.splitlines()) == 1


@pytest.mark.parametrize("words", [[], ["n1"], ["--json"]])
def test_where_nobody_knows_a_node_slurm_is_unreachable(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], run: Run, words: list[str]
) -> None:
    """An imported history has neither Slurm nor agents: 6 and a sentence, never an empty table."""
    assert main.main(["nodes", *words, "--config", str(tmp_path / "probing.toml")]) == 6
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "no node is known: " in captured.err
    assert "scontrol cannot be started" in captured.err


def test_no_trouble_is_a_sentence(store: db_store.Store, run: Run) -> None:
    """--faulty on a sound cluster."""
    beat(store, "n1", {})
    assert run("nodes", "--faulty") == "no fault, drain or silent agent on 1 node\n"


def test_a_drain_that_was_lifted_is_the_latest_word(store: db_store.Store, run: Run) -> None:
    """Between the drain and its end something else was decided, and the fault began after the drain: it is not "not decided yet"."""
    began = NOW - timedelta(minutes=20)
    beat(store, "n2", {"gpu_lost:gpu1": {"severity": "high", "since": began.isoformat()}})
    first = drain(store, NOW - timedelta(minutes=30))
    skipped = records.Drain(
        drain_id=uuid.uuid4(), cluster="c", node="n2", at=NOW - timedelta(minutes=10), action="drain", reason="probing: gpu_lost gpu1", owner="probing",
        state="skipped", why_state="it is being tested",
    )  # fmt: skip
    store.save_drain(skipped)
    store.update_drain(first.drain_id, state="resumed", ended_at=NOW, why_state="resumed by alice")
    (row,) = json.loads(run("nodes", "n2", "--json"))
    assert row["drain"] == "no: resumed by alice"


def test_a_node_under_test_and_its_partner_say_so(store: db_store.Store, run: Run) -> None:
    """Slurm shows a reservation alone, and `sinfo -R` nothing."""
    for node in ("n3", "n4"):
        beat(store, node, {})
    now = datetime.now(UTC)
    made = records.RepairIncident(
        incident_id=uuid.uuid4(), cluster="c", node="n4", drain_id=uuid.uuid4(), reason="probing: xid 79 gpu2", cause="gpu_lost",
        state="testing", reservation="probing-n4-x", reference_nodes=("n3",), opened_at=now, changed_at=now,
    )  # fmt: skip
    assert store.open_incident(made)
    by_node = {row["node"]: row["drain"] for row in json.loads(run("nodes", "--json"))}
    assert by_node == {"n3": "partner in the test of n4", "n4": "under test by us: xid 79 gpu2"}


def test_who_lifts_a_drain_is_told_of_the_fault_that_stands(
    store: db_store.Store, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is a person's word and is done; the next job would meet the lost GPU."""
    slurm = fakes.FakeSlurm()
    monkeypatch.setattr(slurm, "resume", lambda _name: nodes.Outcome(state="done"))
    monkeypatch.setattr(nodes_commands, "_slurm_operations", lambda _config: slurm)
    config = tmp_path / "probing.toml"
    config.write_text(f'[cluster]\nname = "c"\n[database]\nurl = "{store.connection_uri()}"\n')
    beat(store, "n2", {"gpu_lost:gpu1": {"severity": "high"}})
    beat(store, "n1", {})
    drain(store, NOW)
    assert main.main(["resume", "n[1-2]", "--config", str(config)]) == 0
    first, second = capsys.readouterr().out.splitlines()
    assert first == "n1: resumed"
    assert "resumed, although its agent still reports" in second
    assert "set-healthy" in second


@pytest.fixture
def ctl(
    store: db_store.Store,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    slurm: fakes.FakeSlurm,
) -> Callable[..., tuple[int, str, str]]:
    """probing-ctl on a cluster whose Slurm is `slurm`; exit code and what it printed."""
    monkeypatch.setattr(nodes_commands, "_slurm_operations", lambda _config: slurm)
    monkeypatch.delenv("COLUMNS", raising=False)  # somebody's terminal
    config = tmp_path / "probing.toml"
    config.write_text(f'[cluster]\nname = "c"\n[database]\nurl = "{store.connection_uri()}"\n')

    def one(*words: str) -> tuple[int, str, str]:
        code = main.main([*words, "--config", str(config)])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return one


@pytest.fixture
def slurm() -> fakes.FakeSlurm:
    return fakes.FakeSlurm()


def _away(*_: object) -> Any:
    raise commands.SlurmAway("scontrol ended with 1: Unable to contact slurm controller")


@pytest.mark.parametrize("words", [("drain", "--reason", "fan"), ("resume",), ("set-healthy",)])
def test_an_act_while_slurm_does_not_answer_ends_with_6(
    words: tuple[str, ...], ctl: Callable[..., Any], slurm: fakes.FakeSlurm, store: db_store.Store, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    """Nothing is asked of a node, and no row says that something was tried."""
    monkeypatch.setattr(slurm, "nodes", _away)
    code, out, err = ctl(*words, "n[1-2]")
    assert (code, out) == (6, "")
    assert (
        err
        == "probing-ctl: Slurm does not answer: scontrol ended with 1: Unable to contact slurm controller\n"
    )
    assert (slurm.acts, store.drains(), store.notes()) == ([], [], [])


def test_slurm_that_stops_answering_within_a_list_ends_it(
    ctl: Callable[..., Any], slurm: fakes.FakeSlurm, store: db_store.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first is drained, the second is not known, the third is not tried."""
    plain = slurm.drain
    monkeypatch.setattr(slurm, "drain", lambda name, reason: (_away if name == "n2" else plain)(name, reason))
    code, out, err = ctl("drain", "n[1-3]", "--reason", "fan")
    assert (code, out) == (6, "n1: drained\n")
    assert "whether it was done on n2 is not known, and no node named after it was tried" in err
    assert [(d.node, d.state, d.why_state) for d in store.drains()] == [
        ("n1", "done", ""),
        ("n2", "failed", view.OUTCOME_UNKNOWN),
    ]


def test_what_is_known_without_slurm_is_shown(
    ctl: Callable[..., Any], slurm: fakes.FakeSlurm, store: db_store.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Agents still report; a script hears by the exit code that Slurm's side is missing, and standard output stays JSON."""
    beat(store, "n1", {})
    assert ctl("nodes")[0] == 0
    monkeypatch.setattr(slurm, "nodes", _away)
    code, out, err = ctl("nodes", "--json")
    assert (code, [row["slurm"] for row in json.loads(out)]) == (6, ["unknown"])
    assert err == (
        "probing-ctl: Slurm does not answer: scontrol ended with 1: Unable to contact slurm controller;"
        " how Slurm has the nodes is not known\n"
    )


def test_a_note_needs_no_slurm(ctl: Callable[..., Any], slurm: fakes.FakeSlurm, store: db_store.Store, monkeypatch: pytest.MonkeyPatch) -> None:  # fmt: skip
    monkeypatch.setattr(slurm, "nodes", _away)
    assert ctl("ack", "n1", "--note", "on it")[0] == 0
    assert [n.note for n in store.notes("node:n1")] == ["on it"]


@pytest.mark.parametrize(
    "words", [["nodes"], ["drain", "n1", "--reason", "x"], ["resume", "n1"], ["ack", "n1"]]
)
def test_another_clusters_nodes_are_not_ours(
    ctl: Callable[..., tuple[int, str, str]],
    store: db_store.Store,
    slurm: fakes.FakeSlurm,
    monkeypatch: pytest.MonkeyPatch,
    words: list[str],
) -> None:
    """With an imported history Slurm's commands reach the cluster that SLURM_CONF names; where our agents report, its name is not asked for."""
    monkeypatch.setattr(slurm, "cluster_name", lambda: "other")
    code, out, err = ctl(*words)
    assert (code, out) == (6, "")
    assert "Slurm here is cluster other, and the settings are of c ([cluster] name)" in err
    assert slurm.acts == []
    beat(store, "n1", {})
    assert "cluster other" not in ctl(*words)[2]


def test_anothers_drain_is_acknowledged_and_by_whom_is_shown(
    ctl: Callable[..., Any], slurm: fakes.FakeSlurm
) -> None:
    """Until the node is back, or is drained anew."""
    since = datetime.now(UTC) - timedelta(hours=1)
    slurm.state["n2"] = dataclasses.replace(
        slurm.state["n2"], states=frozenset({"IDLE", "DRAIN"}), reason="nvme swap, bob", reason_at=since
    )
    _, out, _ = ctl("ack", "n[1-2]", "--note", "bob is there")
    assert out.splitlines() == ["n1: no fault to acknowledge; the note is kept", "n2: acknowledged"]

    def known() -> list[str]:
        return [row["node"] for row in json.loads(ctl("nodes", "--json")[1]) if row["acknowledged"]]

    assert known() == ["n2"]
    slurm.state["n2"] = dataclasses.replace(
        slurm.state["n2"], reason_at=datetime.now(UTC) + timedelta(minutes=1)
    )
    assert known() == []
    slurm.state["n2"] = dataclasses.replace(slurm.state["n2"], states=frozenset({"IDLE"}), reason="")
    assert known() == []


@pytest.mark.parametrize(("acked_before_s", "shown"), [(600, False), (-5, True)])
def test_an_old_word_about_a_node_is_not_of_the_fault_that_it_is_tested_for(
    ctl: Callable[..., Any],
    slurm: fakes.FakeSlurm,
    store: db_store.Store,
    acked_before_s: int,
    *,
    shown: bool,
) -> None:
    """Under test it has no fault and Slurm shows no drain; it is known since when the drain stands, and to a partner nothing happened."""
    now = datetime.now(UTC)
    row = drain(store, now - timedelta(minutes=1))
    for node in ("n2", "n3"):
        slurm.state[node] = dataclasses.replace(
            slurm.state[node], states=frozenset({"IDLE", "MAINTENANCE", "RESERVED"})
        )
    assert store.open_incident(
        records.RepairIncident(
            incident_id=uuid.uuid4(), cluster="c", node="n2", drain_id=row.drain_id, reason=row.reason, cause="gpu", state="testing",
            reservation="probing-n2-x", reference_nodes=("n3",), opened_at=row.at, changed_at=now,
        )
    )  # fmt: skip
    store.add_notes(
        records.OperatorNote(
            note_id=uuid.uuid4(), cluster="c", at=row.at - timedelta(seconds=acked_before_s), author="ada",
            subject=f"node:{node}", action="ack", note="on it",
        )
        for node in ("n2", "n3")
    )  # fmt: skip
    rows = {row["node"]: row for row in json.loads(ctl("nodes", "--json")[1])}
    assert rows["n2"]["drain"] == "under test by us: xid 79 gpu3"
    assert bool(rows["n2"]["acknowledged"]) is shown
    assert rows["n3"]["acknowledged"] == ""


def test_who_calls_is_a_number_where_the_account_has_no_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """The directory of accounts is away, or a container has none: an operator may still act."""
    for variable in ("SUDO_USER", "LOGNAME", "USER", "LNAME", "USERNAME"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setattr(os, "getuid", lambda: 4_000_000)
    assert nodes_commands.caller_name() == "uid 4000000"
