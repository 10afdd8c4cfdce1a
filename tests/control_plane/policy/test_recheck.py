"""`probing-ctl set-healthy`: a person's word is tried on the node before its drain is lifted."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import fakes
import pytest

from probing_cluster.control_plane.cli import main
from probing_cluster.control_plane.cli.nodes import nodes_commands
from probing_cluster.control_plane.policy import recheck
from probing_cluster.core import records
from probing_cluster.db import store as db_store

LOST = {"gpu_lost:gpu0": {"severity": "high", "code": "nvml", "message": "gpu0 is lost: NVML says so"}}
Run = Callable[..., tuple[int, str]]


@pytest.fixture
def slurm(monkeypatch: pytest.MonkeyPatch) -> fakes.FakeSlurm:
    """n1 is drained by us."""
    made = fakes.FakeSlurm()
    made.drain("n1", "probing: xid 79 gpu0")
    made.acts.clear()
    monkeypatch.setattr(nodes_commands, "_slurm_operations", lambda _config: made)
    return made


@pytest.fixture
def run(
    store: db_store.Store, slurm: fakes.FakeSlurm, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> Run:
    """`probing-ctl set-healthy`: its exit code and what it printed."""
    assert slurm.acts == []
    config = tmp_path / "probing.toml"
    config.write_text(f'[cluster]\nname = "c"\n[database]\nurl = "{store.connection_uri()}"\n')
    store.save_drain(
        records.Drain(
            drain_id=uuid.UUID(int=1), cluster="c", node="n1", at=datetime.now(UTC), action="drain",
            reason="probing: xid 79 gpu0", owner="probing", state="done",
        )
    )  # fmt: skip

    def one(*words: str) -> tuple[int, str]:
        code = main.main(["set-healthy", *words, "--config", str(config)])
        return code, capsys.readouterr().out

    return one


def test_a_node_that_is_well_comes_back(store: db_store.Store, run: Run, slurm: fakes.FakeSlurm) -> None:
    """Its agent was told to forget and found nothing: the drain is lifted, and whose word it was is kept."""
    with fakes.answering(store.connection_uri(), "n1") as calls:
        code, printed = run("n1", "--note", "new riser")
    assert (code, printed) == (0, "n1: noted as repaired and resumed\n")
    assert [(r.verb, r.detail["clear"]) for r in calls] == [("recheck", True)]
    assert [act[:2] for act in slurm.acts] == [("resume", "n1")]
    assert [(n.action, n.note) for n in store.notes("node:n1")] == [("repaired", "new riser")]
    assert [d.state for d in store.drains(node="n1")] == ["resumed"]


def test_a_node_that_is_broken_stays_out(store: db_store.Store, run: Run, slurm: fakes.FakeSlurm) -> None:
    """What still fails is said with what to do; nothing is lifted and no repair is noted."""
    with fakes.answering(store.connection_uri(), "n1", LOST):
        code, printed = run("n1")
    assert code == 1
    assert "n1: not done: still failing: gpu_lost gpu0 (gpu0 is lost: NVML says so); do: " in printed
    assert "replace GPU 0 of n1" in printed
    assert "--relearn" not in printed
    assert (slurm.acts, store.notes()) == ([], [])
    assert [d.state for d in store.drains(node="n1")] == ["done"]


def test_a_part_taken_away_for_good_is_missed_no_more(store: db_store.Store, run: Run) -> None:
    """The answer about a missing part names the option, and the option reaches the agent; without it nothing is relearned."""
    gone = {"mount:/old": {"severity": "high", "code": "missing", "message": "/old (nfs4) is not mounted"}}
    with fakes.answering(store.connection_uri(), "n1", gone) as calls:
        assert "again; with --relearn if what is gone is not to come back" in run("n1")[1]
    assert "relearn" not in calls[0].detail
    with fakes.answering(store.connection_uri(), "n1") as calls:
        assert run("n1", "--relearn") == (0, "n1: noted as repaired and resumed\n")
    assert calls[-1].detail["relearn"] is True


def test_an_information_holds_nobody_back(store: db_store.Store, run: Run) -> None:
    """Only what would drain the node again keeps it out."""
    with fakes.answering(store.connection_uri(), "n1", {"xid:gpu0": {"severity": "info"}}):
        assert run("n1")[0] == 0


def test_a_silent_node_is_not_believed(store: db_store.Store, run: Run, slurm: fakes.FakeSlurm) -> None:
    """Nobody can look there: said at once, and the way past it is named."""
    code, printed = run("n1")
    assert code == 1
    assert "its agent has never been heard" in printed
    assert "probing-ctl resume n1" in printed
    assert (slurm.acts, store.notes()) == ([], [])


def test_only_a_heartbeat_after_the_clearing_counts(store: db_store.Store) -> None:
    """An agent that goes on beating without an answer says nothing about the repair."""
    clock = iter(range(100))
    with fakes.answering(store.connection_uri(), "n1", acknowledges=False) as calls:
        while not store.heartbeats():
            pass
        answers = recheck.look_again(store, ["n1"], "bob", cluster="c", wait_s=3, now_s=lambda: next(clock))
    assert "did not answer within 3 s" in answers["n1"]
    assert len(calls) <= 1


def test_each_node_of_several_has_its_own_answer(
    store: db_store.Store, run: Run, slurm: fakes.FakeSlurm
) -> None:
    """One that is broken does not hold back the other."""
    slurm.drain("n2", "probing: xid 48 gpu1")
    slurm.acts.clear()
    url = store.connection_uri()
    with fakes.answering(url, "n1", LOST), fakes.answering(url, "n2"):
        code, printed = run("n[1-2]")
    assert code == 1
    assert "n1: not done: still failing" in printed
    assert "n2: noted as repaired and resumed" in printed
    assert [act[:2] for act in slurm.acts] == [("resume", "n2")]


@pytest.mark.parametrize("fault", ["boo", None, [1], {"severity": [3]}, {"severity": "low", "code": [1]}])
def test_whatever_a_node_claims_is_put_into_words(fault: Any) -> None:
    """A hostile heartbeat cannot end the command for the others."""
    assert isinstance(recheck.still_failing("n1", {"xid:gpu0": fault, "": fault}), str)


def test_a_failing_check_names_its_own_next_step() -> None:
    """The manual's words for that check."""
    sentence = recheck.still_failing(
        "n1", {"check:gpu0": {"severity": "high", "code": "gpu_count", "message": "7 of 8"}}
    )
    assert "power-cycle the node" in sentence


def test_a_driver_that_is_gone_is_no_gpu_to_reset() -> None:
    """The library through which no GPU is reached is no part of the node; a driver that fails at one GPU has that GPU reset."""
    gone = {
        "severity": "high",
        "kind": "driver",
        "code": "DRIVER_NOT_LOADED",
        "device": "nvml",
        "message": "no GPU can be reached",
    }
    step = recheck.next_step("n1", "driver:nvml", gone)
    assert step.startswith("Reload the GPU driver of n1, or reboot it;")
    at_one = gone | {"device": "gpu3"}
    assert recheck.next_step("n1", "driver:gpu3", at_one).startswith("Reset GPU 3 of n1;")


SIGNS = {
    "xid:gpu0": {"severity": "high", "kind": "xid", "code": "79", "device": "gpu0", "message": "GPU has fallen off the bus."},
    "gpu_lost:gpu0": {"severity": "high", "kind": "gpu_lost", "device": "gpu0", "message": "gpu0 is lost: NVML says GPU is lost"},
    "check:gpu_xid:gpu0": {"severity": "high", "kind": "check", "code": "gpu_xid", "device": "gpu0", "message": "1 GPU with a grave Xid"},
    "ecc:gpu0": {"severity": "info", "device": "gpu0", "message": "corrected"},
}  # fmt: skip
"""What an agent confirms of one lost GPU."""


def test_the_signs_of_one_part_are_one_fault() -> None:
    """In the words of the sign that names it best, with one step."""
    sentence = recheck.still_failing("gpu007", SIGNS)
    assert sentence.startswith(
        "still failing: Xid 79 gpu0 (GPU has fallen off the bus); do: Reseat or replace GPU 0"
    )
    assert sentence.endswith("Then `probing-ctl set-healthy gpu007` again")
    assert len(sentence) < 260


def test_of_many_faults_the_worst_are_named() -> None:
    """And it is said how many more there are, and where; a message of any length is cut."""
    faults = {
        f"gpu_lost:gpu{n}": {"severity": "low" if n < 2 else "high", "kind": "gpu_lost", "device": f"gpu{n}", "message": "lost " * 50}
        for n in range(6)
    }  # fmt: skip
    sentence = recheck.still_failing("n1", faults)
    named = [n for n in range(6) if f"gpu_lost gpu{n} (" in sentence]
    assert named == [2, 3, 4]
    assert "; and 3 more (probing-ctl nodes n1); do: " in sentence
    assert "lost " * 20 not in sentence


@pytest.mark.parametrize("columns", ["60", "100"])
def test_the_answer_is_folded_to_the_terminal(
    store: db_store.Store, run: Run, monkeypatch: pytest.MonkeyPatch, columns: str
) -> None:
    """No line is wider, the later ones are indented, and no word is broken; a pipe has one line."""
    with fakes.answering(store.connection_uri(), "n1", SIGNS):
        monkeypatch.setenv("COLUMNS", columns)
        (whole,) = run("n1")[1].splitlines()
        monkeypatch.setattr("sys.stdout.isatty", lambda: True)
        lines = run("n1")[1].splitlines()
    assert max(map(len, lines)) <= int(columns)
    assert [line[:2] == "  " for line in lines] == [False] + [True] * (len(lines) - 1)
    assert " ".join(line.strip() for line in lines) == whole
