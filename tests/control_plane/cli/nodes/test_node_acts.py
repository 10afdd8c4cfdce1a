"""What a person's word does to one node, where more than a drain of ours keeps it out."""

from __future__ import annotations

import dataclasses
import uuid
from datetime import timedelta

import fakes
import pytest

from probing_cluster.control_plane.cli.nodes import node_acts
from probing_cluster.control_plane.policy import view
from probing_cluster.control_plane.repair import round_findings, workflow
from probing_cluster.core import clock, errors, records, settings
from probing_cluster.db import store as db_store
from probing_cluster.slurm_plugins import commands
from probing_cluster.slurm_plugins.acts import nodes as slurm_nodes

CONFIG = settings.Settings(
    cluster=settings.ClusterSettings(name="c"), policy=settings.PolicySettings(observe_only=False)
)


@pytest.fixture
def slurm() -> fakes.FakeSlurm:
    """n1 is drained by us and booted since, n4 by bob; Slurm lifts no drain of a node that is down."""
    made = fakes.FakeSlurm()
    made.state["n1"] = dataclasses.replace(
        made.state["n1"], states=frozenset({"DOWN", "DRAIN"}), reason="probing: xid 79 gpu1",
        reason_at=fakes.NOW, boot_at=fakes.NOW + timedelta(seconds=9),
    )  # fmt: skip
    made.state["n4"] = dataclasses.replace(
        made.state["n4"], states=frozenset({"IDLE", "DRAIN"}), reason="nvme swap, bob"
    )
    made.outcome = slurm_nodes.Outcome(state="skipped", why="n1 is also DOWN")
    return made


def _under_repair(store: db_store.Store, node: str = "n1", failing: tuple[str, ...] = ()) -> None:
    store.open_incident(
        records.RepairIncident(
            incident_id=uuid.uuid4(), cluster="c", node=node, drain_id=uuid.uuid4(), reason="probing: xid 79 gpu1",
            cause="gpu", state="ticket", opened_at=fakes.NOW, changed_at=fakes.NOW, detail={"failing": failing},
        )
    )  # fmt: skip


def _heal(store: db_store.Store, slurm: fakes.FakeSlurm, node: str, config: settings.Settings) -> str:
    return node_acts.heal_one(config, store, slurm, node, "new board", "", "ada")


def test_a_node_that_booted_goes_to_its_tests(store: db_store.Store, slurm: fakes.FakeSlurm) -> None:
    """set-healthy gives it back to its repair, as `repair release` does."""
    _under_repair(store)
    answer = _heal(store, slurm, "n1", CONFIG)
    assert "its repair tests it before it returns (probing-ctl repair show n1)" in answer
    assert [(n.action, n.note) for n in store.notes("node:n1")] == [
        ("repaired", "new board"),
        ("release", "new board"),
    ]


def _drained_by_us(slurm: fakes.FakeSlurm) -> None:
    slurm.state["n2"] = dataclasses.replace(
        slurm.state["n2"], states=frozenset({"IDLE", "DRAIN"}), reason="probing: repair: xid 79 gpu1"
    )
    slurm.outcome = slurm_nodes.Outcome(state="done")


@pytest.mark.parametrize(
    "failing",
    [
        ("agent: xid:gpu1: it is lost", "gemm on cpu: 3 of 900 elements are wrong"),
        ("memory: the pattern does not hold",),
        ("pair: it fails with every node that is proven good",),
        ("compute: slower than nodes of its kind, in two rounds",),
        (f"{workflow.NOT_PROVEN}pair: {round_findings.NEITHER} (it fails with n3)",),
        (f"{workflow.NOT_PROVEN}ring fails, and nobody can tell whose fault it is: no answer",),
    ],
)
def test_a_node_whose_last_tests_did_not_pass_goes_to_its_tests_again(
    store: db_store.Store, slurm: fakes.FakeSlurm, failing: tuple[str, ...]
) -> None:
    """A clean agent says nothing of wrong arithmetic: a person's word brings it to its tests, not to users."""
    _drained_by_us(slurm)
    _under_repair(store, "n2", failing)
    answer = _heal(store, slurm, "n2", CONFIG)
    assert f"its last tests did not pass ({failing[-1]}), and its repair tests it before it returns" in answer
    assert "probing-ctl resume n2" in answer
    assert [n.action for n in store.notes("node:n2")] == ["repaired", "release"]
    assert slurm.acts == []


@pytest.mark.parametrize(
    "failing",
    [
        (),
        ("agent: xid:gpu1: it is lost",),
        (f"{workflow.NOT_PROVEN}the test's job did not start",),
        ("power: it did not come back within 300 s",),
        ("the same fault again after 3 cures: inspect the hardware",),
    ],
)
def test_a_node_that_failed_no_test_is_resumed(
    store: db_store.Store, slurm: fakes.FakeSlurm, failing: tuple[str, ...]
) -> None:
    """What the agent saw is looked at again by the command itself; of the rest the person has taken care."""
    _drained_by_us(slurm)
    _under_repair(store, "n2", failing)
    assert _heal(store, slurm, "n2", CONFIG) == "noted as repaired and resumed"


def test_failed_tests_that_cannot_be_repeated_keep_the_drain(
    store: db_store.Store, slurm: fakes.FakeSlurm
) -> None:
    """Where tests are switched off the untested way back is a person's to choose, by name."""
    _drained_by_us(slurm)
    _under_repair(store, "n2", ("gemm: wrong", "memory: wrong"))
    config = dataclasses.replace(CONFIG, repair=settings.RepairSettings(test_before_return=False))
    words = r"last tests did not pass \(gemm: wrong; and 1 more\), and \[repair\] test_before_return = false .*probing-ctl resume n2"
    with pytest.raises(node_acts.NotDone, match=words):
        _heal(store, slurm, "n2", config)
    assert (slurm.acts, store.notes("node:n2")) == ([], [])


@pytest.mark.parametrize("tests", [True, False])
def test_what_brings_it_back_is_named_where_nobody_tests_it(
    store: db_store.Store, slurm: fakes.FakeSlurm, *, tests: bool
) -> None:
    """`resume`, and set-healthy of a node under no repair or where tests are switched off: the exact command."""
    if not tests:
        _under_repair(store)
    config = dataclasses.replace(CONFIG, repair=settings.RepairSettings(test_before_return=tests))
    for act in (
        lambda: _heal(store, slurm, "n1", config),
        lambda: node_acts.resume_one(CONFIG, store, slurm, "n1", "ada"),
    ):
        with pytest.raises(
            node_acts.NotDone, match="scontrol update NodeName=n1 State=RESUME returns it untested"
        ):
            act()
    assert [n.action for n in store.notes("node:n1")] == ["repaired"]


@pytest.mark.parametrize("repaired", [True, False])
def test_a_repair_is_named_as_the_way_back_only_where_there_is_one(
    store: db_store.Store, slurm: fakes.FakeSlurm, *, repaired: bool
) -> None:
    """`probing-ctl repair release` of a node under no repair ends with an error; and the command stands there once."""
    if repaired:
        _under_repair(store)
    with pytest.raises(node_acts.NotDone) as raised:
        node_acts.resume_one(CONFIG, store, slurm, "n1", "ada")
    assert ("probing-ctl repair release n1" in str(raised.value)) is repaired
    assert str(raised.value).count("scontrol update") == 1


@pytest.mark.parametrize(
    ("states", "reason", "words"),
    [
        ({"IDLE", "DRAIN"}, "Kill task failed", r"by itself \(Kill task failed\): scontrol update NodeName=n1 State=RESUME"),
        ({"IDLE", "DRAIN"}, "nvme swap, bob", r"another's \(nvme swap, bob\): ask them"),
        ({"DOWN"}, "alice: pdu work", r"another set it DOWN \(alice: pdu work\): ask them"),
    ],
)  # fmt: skip
def test_a_resume_that_is_not_ours_to_do_names_who_does_it(
    store: db_store.Store, slurm: fakes.FakeSlurm, states: set[str], reason: str, words: str
) -> None:
    """As set-healthy does; nobody's drain is lifted."""
    slurm.state["n1"] = dataclasses.replace(
        slurm.state["n1"], states=frozenset(states), reason=reason, boot_at=None
    )
    with pytest.raises(node_acts.NotDone, match=words):
        node_acts.resume_one(CONFIG, store, slurm, "n1", "ada")


def test_anothers_drain_stays_and_who_lifts_it_is_said(store: db_store.Store, slurm: fakes.FakeSlurm) -> None:
    assert _heal(store, slurm, "n4", CONFIG) == (
        "noted as repaired; its drain is another's (nvme swap, bob): ask them;"
        " scontrol update NodeName=n4 State=RESUME lifts it"
    )
    assert _heal(store, slurm, "n3", CONFIG) == "noted as repaired; it is not drained"
    assert slurm.acts == []


@pytest.mark.parametrize(
    ("policy", "severity", "age_s", "requeues"),
    [
        ({}, "high", 5, True),
        ({}, "low", 5, False),
        ({}, "high", 86400, False),
        ({"requeue": False}, "high", 5, False),
        ({"observe_only": True}, "high", 5, False),
    ],
)
def test_a_drain_by_hand_says_that_jobs_are_requeued(
    store: db_store.Store,
    slurm: fakes.FakeSlurm,
    policy: dict[str, bool],
    severity: str,
    age_s: float,
    *,
    requeues: bool,
) -> None:
    """A node that the budget kept in service is drained by a person, and a second later its jobs are in the queue."""
    slurm.outcome = slurm_nodes.Outcome(state="done")
    config = dataclasses.replace(CONFIG, policy=dataclasses.replace(CONFIG.policy, **policy))
    now = clock.SYSTEM.now()
    at = now - timedelta(seconds=age_s)
    fault = records.HealthEvent(
        event_id=uuid.uuid4(), cluster="c", node="n2", at=at, observed_at=at, kind="xid", code="79",
        severity=records.Severity(severity), source="kernel", message="fell off the bus", device="gpu3",
    )  # fmt: skip
    fakes.deliver(store, "n2", fault, at=now)
    answer = node_acts.drain_one(config, store, slurm, "n2", "probing: by hand (ada)", "ada")
    assert answer.startswith("drained")
    assert ("its agent reports xid 79 gpu3: the service requeues" in answer) is requeues


def test_an_unanswered_drain_waits_for_slurms_word(store: db_store.Store, slurm: fakes.FakeSlurm) -> None:
    """It is neither done nor refused: the service settles it, as it settles its own."""
    slurm.drain = _unanswered  # type: ignore[method-assign]
    with pytest.raises(commands.SlurmAway, match="Unable to contact slurm controller"):
        node_acts.drain_one(CONFIG, store, slurm, "n2", "probing: fan (ada)", "ada")
    (row,) = store.drains()
    assert (row.owner, row.state, row.why_state) == ("ada", "failed", view.OUTCOME_UNKNOWN)


def test_a_refused_drain_is_settled_at_once(store: db_store.Store, slurm: fakes.FakeSlurm) -> None:
    """Slurm answered, so there is nothing to wait for."""
    slurm.drain = _refused  # type: ignore[method-assign]
    with pytest.raises(errors.SlurmUnavailable):
        node_acts.drain_one(CONFIG, store, slurm, "n2", "probing: fan (ada)", "ada")
    (row,) = store.drains()
    assert (row.state, row.why_state) == ("failed", "Access denied")


def test_an_unanswered_resume_leaves_the_drain_as_it_stands(
    store: db_store.Store, slurm: fakes.FakeSlurm
) -> None:
    """Nobody knows whether it was lifted; the service reads that from Slurm."""
    row = records.Drain(
        drain_id=uuid.uuid4(), cluster="c", node="n2", at=fakes.NOW, action="drain", reason="probing: xid 79 gpu1",
        owner="probing", state="done",
    )  # fmt: skip
    store.save_drain(row)
    slurm.resume = _unanswered  # type: ignore[method-assign]
    with pytest.raises(commands.SlurmAway):
        node_acts.resume_one(CONFIG, store, slurm, "n2", "ada")
    assert [d.drain_id for d in store.drains(open_only=True)] == [row.drain_id]


def _unanswered(*_: object) -> slurm_nodes.Outcome:
    raise commands.SlurmAway("Unable to contact slurm controller")


def _refused(*_: object) -> slurm_nodes.Outcome:
    raise errors.SlurmUnavailable("Access denied")
