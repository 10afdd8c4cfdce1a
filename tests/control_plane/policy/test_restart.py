"""What is brought back after its end, and everything that must not be."""

from __future__ import annotations

import dataclasses
import uuid
from datetime import timedelta
from typing import Any

import fakes
import pytest

from probing_cluster.control_plane.policy import budget, restart, restart_loop, view
from probing_cluster.core import records, settings

END = fakes.NOW - timedelta(seconds=20)
START = fakes.NOW - timedelta(minutes=10)
POLICY = settings.PolicySettings(observe_only=False, budget_frac=1.0, budget_partition_frac=1.0)


def attempt(**changes: Any) -> records.JobAttempt:
    values: dict[str, Any] = {
        "cluster": "c", "job_id": 7, "submit_at": START - timedelta(minutes=1), "start_at": START, "end_at": END,
        "state": "FAILED", "nodes": ("n1", "n2"), "user": "alice", "name": "train", "partition": "gpu", "run_key": "7",
    }  # fmt: skip
    return records.JobAttempt(**(values | changes))


def event(source: str = "kernel", **changes: Any) -> records.HealthEvent:
    values: dict[str, Any] = {
        "event_id": uuid.uuid4(), "cluster": "c", "node": "n2", "at": END - timedelta(seconds=2), "observed_at": END,
        "kind": "xid", "code": "79", "severity": records.Severity.HIGH, "source": source, "message": "fell off the bus",
    }  # fmt: skip
    return records.HealthEvent(**(values | changes))


def verdict(**changes: Any) -> records.Verdict:
    values: dict[str, Any] = {
        "cluster": "c", "job_id": 7, "submit_at": attempt().submit_at, "cause": "gpu_lost", "node": "n2", "device": "gpu3",
        "domain": records.Domain.HARDWARE, "confidence": records.Confidence.LIKELY, "summary": "GPU 3 of n2",
        "rules_version": "1", "made_at": fakes.NOW,
    }  # fmt: skip
    return records.Verdict(**(values | changes))


def case(**changes: Any) -> restart.EndedAttempt:
    values: dict[str, Any] = {"attempt": attempt(), "verdict": verdict(), "evidence": (event(),)}
    return restart.EndedAttempt(**(values | changes))


def node(name: str, *states: str, **changes: Any) -> view.Node:
    return view.Node(name=name, states=frozenset(states or {"IDLE"}), partitions=("gpu",), **changes)


def queue(*others: Any, own: dict[str, Any] | None = None, **changes: Any) -> restart.Queue:
    jobs = [fakes.live_job(7, **({"start_at": START, "end_at": END} | (own or {}))), *others]
    values: dict[str, Any] = {
        "now": fakes.NOW,
        "jobs": {j.job_id: j for j in jobs},
        "nodes": {n: node(n) for n in ("n1", "n2", "n3", "n4")},
    }
    return restart.Queue(**(values | changes))


def decide(
    of: restart.EndedAttempt | None = None,
    now: restart.Queue | None = None,
    policy: settings.PolicySettings = POLICY,
) -> restart.RestartDecision:
    now = now or queue()
    ledger = budget.Ledger(view.View(now=fakes.NOW, nodes=now.nodes), policy)
    return restart.decide(of or case(), now, policy, ledger)


def test_a_hardware_death_comes_back_without_its_culprit() -> None:
    """The verdict's node is left out, the job itself is its only component."""
    made = decide()
    assert (made.held, made.leader, made.components, made.exclude) == ("", 7, (7,), ("n2",))
    assert (made.restart_count, made.start_at) == (0, START)


@pytest.mark.parametrize("states", [{"IDLE", "DRAIN"}, {"MIXED", "DRAIN", "DOWN"}])
def test_a_drained_culprit_needs_no_exclusion(states: set[str]) -> None:
    """Nothing starts there, and the job's own list stays the user's."""
    now = queue(nodes={**queue().nodes, "n2": node("n2", *states)})
    assert (decide(now=now).held, decide(now=now).exclude) == ("", ())


def test_a_job_that_names_another_node_comes_back() -> None:
    """It can start where it asked to, without the culprit."""
    assert decide(now=queue(own={"required_nodes": ("n1",)})).held == ""


NEVER: list[tuple[str, dict[str, Any], dict[str, Any], str]] = [
    ("no requeue", {}, {"requeue": False}, "--no-requeue"),
    ("interactive", {}, {"batch": False}, "interactive"),
    ("expedite", {}, {"expedite": True}, "--requeue=expedite"),
    ("back already", {}, {"state": "PENDING", "restart_count": 1, "nodes": ()}, "has not ended"),
    ("runs already", {}, {"state": "RUNNING", "start_at": END}, "has not ended"),
    ("another start", {}, {"start_at": END}, "another start"),
    ("by name", {}, {"required_nodes": ("n1", "n2")}, "asks for n2 by name"),
    ("cancelled", {"attempt": attempt(state="CANCELLED", cancelled_by="alice")}, {"state": "CANCELLED"}, "by alice"),
    ("job side", {"evidence": (event("joblog"), event("probe"), event("dump"))}, {}, "no node reported"),
    ("imported", {"evidence": (event("import"),)}, {}, "no node reported"),
    ("no evidence", {"evidence": ()}, {}, "no node reported"),
    ("no node", {"verdict": verdict(node=None)}, {}, "names no node"),
    ("unknown node", {"verdict": verdict(node="n9")}, {}, "no node n9"),
]  # fmt: skip


@pytest.mark.parametrize(("of", "own", "words"), [n[1:] for n in NEVER], ids=[n[0] for n in NEVER])
def test_what_is_never_brought_back(of: dict[str, Any], own: dict[str, Any], words: str) -> None:
    """Each with its reason in words."""
    made = decide(case(**of), queue(own=own))
    assert made.held == "skipped"
    assert words in made.why


def test_slurm_has_forgotten_it() -> None:
    """After MinJobAge there is nothing to requeue."""
    assert "MinJobAge" in decide(now=queue(jobs={})).why


@pytest.mark.parametrize("own", [{"flags": frozenset({"COMPLETING"})}, {"state": "COMPLETING"}])
def test_its_nodes_are_waited_for(own: dict[str, Any]) -> None:
    """An Epilog still runs, or Slurm has not given up its crashed node: decided later, and nothing is recorded yet."""
    assert decide(now=queue(own=own)).held == restart.WAIT


@pytest.mark.parametrize(
    ("dependent", "words"),
    [
        (
            {"state": "RUNNING", "dependency": "afterany:7(unfulfilled)"},
            "job 8, which waited for it, has started",
        ),
        ({"state": "COMPLETED", "dependency": "afternotok:7"}, "has started"),
        ({"state": "CANCELLED", "dependency": "afterok:7(failed)"}, "has been cancelled"),
        (
            {"state": "RUNNING"},
            "has started",
        ),  # its dependency is met and forgotten: only our own row knows it
    ],
)
def test_a_dependent_that_has_gone_on(dependent: dict[str, Any], words: str) -> None:
    """Its results would be taken twice, or the pipeline was given up."""
    other = fakes.live_job(8, name="eval", **dependent)
    waiting = (records.JobDependency(cluster="c", job_id=8, on_job_id=7, at=START),)
    made = decide(now=queue(other, waiting=waiting))
    assert made.held == "skipped"
    assert words in made.why


def test_a_strangers_job_forbids_nothing() -> None:
    """Anyone may wait for anyone's job."""
    other = fakes.live_job(8, name="eval", user="eve", state="RUNNING", dependency="afterany:7")
    assert decide(now=queue(other)).held == ""


def test_stuck_dependents_are_set_again() -> None:
    """Whoever waits for success gets a second chance, by the number that it waits for."""
    stuck = fakes.live_job(
        8,
        name="eval",
        user="bob",
        state="PENDING",
        reason="DependencyNeverSatisfied",
        dependency="afterok:7(failed)",
    )
    waits = fakes.live_job(9, name="eval", state="PENDING", dependency="afterany:7(unfulfilled)")
    made = decide(now=queue(stuck, waits))
    assert (made.held, made.dependents) == ("", {8: 7})


@pytest.mark.parametrize("state", ["PENDING", "RUNNING"])
def test_a_chain_of_one_name_goes_on_with_its_next(state: str) -> None:
    """With `singleton` the next job of the name takes its place: both at once would write the same checkpoints."""
    started = {"start_at": END + timedelta(seconds=1)} if state == "RUNNING" else {"start_at": None}
    following = fakes.live_job(
        8, state=state, dependency="singleton" if state == "PENDING" else "", **started
    )
    waiting = (records.JobDependency(cluster="c", job_id=8, on_job_id=0, at=START),)
    assert "takes its place" in decide(now=queue(following, waiting=waiting)).why


def test_its_owner_was_quicker() -> None:
    """The same name, script and directory, submitted after the end."""
    again = fakes.live_job(8, state="PENDING", submit_at=END + timedelta(seconds=9))
    assert "again as job 8" in decide(now=queue(again)).why


@pytest.mark.parametrize(
    "other",
    [
        {"command": "/home/alice/other.sh"},
        {"name": "else"},
        {"user": "bob"},
        {"submit_at": START},
        {"restart_count": 1},
    ],
)
def test_another_job_is_no_resubmission(other: dict[str, Any]) -> None:
    """Another script, name or owner, one that was there before, one that was itself requeued."""
    again = fakes.live_job(8, **({"state": "PENDING", "submit_at": END + timedelta(seconds=9)} | other))
    assert decide(now=queue(again)).held == ""


def test_a_run_is_restarted_so_often_and_no_more() -> None:
    """The budget of a run."""
    made = decide(case(n_restarts=3))
    assert (made.held, made.why) == ("denied", "budget: its run was restarted 3 of 3 times within 24 h")
    assert decide(case(n_restarts=2)).held == ""


def test_a_node_left_out_counts_against_the_drain_budget() -> None:
    """A storm of verdicts stops at the same number of nodes as a storm of drains."""
    tight = dataclasses.replace(POLICY, budget_nodes=1)
    now = queue()
    ledger = budget.Ledger(view.View(now=fakes.NOW, nodes=now.nodes), tight)
    assert restart.decide(case(), now, tight, ledger).exclude == ("n2",)
    other = case(verdict=verdict(node="n1"))
    made = restart.decide(other, now, tight, ledger)
    assert (made.held, made.why.partition(":")[0]) == ("denied", "budget")


def test_a_partition_without_another_node() -> None:
    """Left out of its only place it would wait for ever; a node that is down keeps it away by itself."""
    two = {n: node(n) for n in ("n1", "n2")}
    assert "partition gpu has 1 without n2; n2 is not drained" in decide(now=queue(nodes=two)).why
    own = decide(now=queue(own={"excluded_nodes": ("n3", "n4", "gone")}))
    assert "has 1 without n2 and n[3-4], which the job excludes" in own.why, "its own list, not the partition"
    down = decide(now=queue(nodes=two | {"n2": node("n2", "DOWN")}))
    assert (down.held, down.exclude) == ("", ())


def test_a_het_job_comes_back_by_its_leader() -> None:
    """Every component leaves the node out; a component that still ends is waited for."""
    parts = [fakes.live_job(n, het_job_id=7, het_offset=n - 7, start_at=START, end_at=END) for n in (7, 8)]
    now = queue(jobs={p.job_id: p for p in parts})
    of = case(attempt=attempt(job_id=8, het_job_id=7, het_offset=1))
    made = decide(of, now)
    assert (made.held, made.leader, made.components) == ("", 7, (7, 8))


@pytest.mark.parametrize(
    ("changes", "concerned"),
    [
        ({}, True),
        ({"confidence": records.Confidence.CERTAIN}, True),
        ({"confidence": records.Confidence.POSSIBLE}, False),
        ({"domain": records.Domain.SYSTEM_SOFTWARE}, True),
        ({"domain": records.Domain.SYSTEM_SOFTWARE, "node": None}, False),
        ({"domain": records.Domain.USER_PROGRAM}, False),
        ({"domain": records.Domain.UNKNOWN}, False),
    ],
)
def test_which_verdicts_are_looked_at(changes: dict[str, Any], *, concerned: bool) -> None:
    """Hardware or a node, at least likely."""
    assert restart.concerns(verdict(**changes)) is concerned


def death(step: int | None = 4120, cause: str = "user_error", word: str = "KeyError") -> restart_loop.Death:
    return restart_loop.Death(cause=cause, step=step, word=word)


def test_a_restart_loop_is_stopped_with_a_word() -> None:
    """Three deaths alike: whatever the verdict, the program dies there."""
    made = decide(case(deaths=(death(), death(4121), death())))
    assert (made.held, made.loop) == ("skipped", True)
    assert made.why == "three starts in a row died at step 4120 with the same KeyError: it is the program"


@pytest.mark.parametrize(
    "deaths",
    [
        (death(), death()),
        (death(), death(4000), death()),
        (death(), death(cause="gpu_lost"), death()),
        (death(), death(word="ValueError"), death()),
        (death(None), death(None), death(None)),
        (),
    ],
)
def test_what_is_no_loop(deaths: tuple[restart_loop.Death, ...]) -> None:
    """Two deaths, another step, cause or error between, and steps that nobody saw."""
    assert restart_loop.loop(deaths) == ""
