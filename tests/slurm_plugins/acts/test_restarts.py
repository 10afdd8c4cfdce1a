"""What a restart takes of Slurm: each act reads first, may be repeated, and touches no other start and nobody else's hold."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import hypothesis
import pytest
from hypothesis import strategies as st

from probing_cluster.core import errors, hostlist
from probing_cluster.slurm_plugins.acts import restarts
from probing_cluster.slurm_plugins.live import live_records

START = datetime(2024, 1, 1, tzinfo=UTC)
HELD: dict[str, Any] = {
    "state": "PENDING", "priority": 0, "restart_count": 1, "start_at": None, "reason": "JobHeldAdmin",
    "description": "job requeued in held state",
}  # fmt: skip


class Controller:
    """slurmctld with one job, as far as four acts need it."""

    def __init__(self, **changes: Any) -> None:
        values: dict[str, Any] = {
            "job_id": 7, "state": "FAILED", "batch": True, "requeue": True, "start_at": START, "nodes": ("n1",), "priority": 5,
        }  # fmt: skip
        self.held = live_records.LiveJob(**(values | changes))
        self.deaf = False
        self.writes: list[tuple[str, ...]] = []

    def job(self, job_id: int) -> live_records.LiveJob | None:
        return self.held if job_id == self.held.job_id else None

    def __call__(self, program: str, *arguments: str, environment: Mapping[str, str] | None = None) -> bytes:
        del environment
        self.writes.append((program, *arguments))
        if self.deaf:
            return b""
        if arguments[0] == "requeuehold":
            self.held = dataclasses.replace(self.held, **HELD)
        elif arguments[0] == "release":
            self.held = dataclasses.replace(self.held, priority=5, description="", reason="None")
        else:
            key, _, value = arguments[2].partition("=")
            new: dict[str, Any] = {"dependency": f"{value}(unfulfilled)", "reason": "Dependency"}
            if key == "ExcNodeList":
                new = {"excluded_nodes": tuple(hostlist.expand(value))}
            self.held = dataclasses.replace(self.held, **new)
        return b""


def acts(**changes: Any) -> tuple[restarts.RestartActs, Controller]:
    controller = Controller(**changes)
    return restarts.RestartActs(controller, controller), controller  # type: ignore[arg-type]


def test_a_restart_from_end_to_release() -> None:
    """The four commands of one restart, in their order; done twice, each is done."""
    made, controller = acts(excluded_nodes=("n9",))
    for _ in range(2):
        assert made.requeue_held(7, START, 0).state == "done"
        assert made.exclude(7, 1, ["n2"], []).state == "done"
    for _ in range(2):
        assert made.release(7, 1).state == "done"
    assert controller.writes == [
        ("scontrol", "requeuehold", "7"),
        ("scontrol", "update", "JobId=7", "ExcNodeList=n[2,9]"),
        ("scontrol", "release", "7"),
    ]
    assert made.exclude(7, 1, [], ["n2"]).state == "done"
    assert controller.held.excluded_nodes == ("n9",)


def test_an_arrays_last_task_is_no_array() -> None:
    """Its raw id is the array's: by that number scontrol would requeue every task."""
    made, controller = acts(array_job_id=7, array_task_id=3)
    made.requeue_held(7, START, 0)
    made.release(7, 1)
    assert [w[2] for w in controller.writes] == ["7_3", "7_3"]


@pytest.mark.parametrize(
    "changes",
    [
        {"state": "RUNNING"},
        {"state": "PENDING"},
        {"state": "COMPLETED"},
        {"state": "CANCELLED"},
        {"flags": frozenset({"COMPLETING"})},
        {"batch": False},
        {"requeue": False},
        {"expedite": True},
        {"start_at": START.replace(minute=1)},
        {"restart_count": 1},
    ],
)
def test_what_is_not_requeued(changes: dict[str, Any]) -> None:
    """Another state, another start, a job that may not be requeued."""
    made, controller = acts(**changes)
    assert made.requeue_held(7, START, 0).state == "skipped"
    assert controller.writes == []


@pytest.mark.parametrize(
    "shown", [{"state": "COMPLETING"}, {"state": "PENDING", "flags": frozenset({"COMPLETING"})}]
)
def test_a_job_that_runs_ends_before_it_is_held(
    shown: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Requeued while it runs, it is completing for seconds; Slurm has taken the order all the same. One that runs on has not."""
    made, controller = acts(state="RUNNING")
    assert made.requeue_held(7, START, 0).state == "skipped", "as one that ended"
    monkeypatch.setitem(HELD, "state", shown["state"])
    monkeypatch.setitem(HELD, "flags", shown.get("flags", frozenset()))
    assert made.requeue_held(7, START, 0, running=True).state == "done"
    made, controller = acts(state="RUNNING")
    controller.deaf = True
    assert made.requeue_held(7, START, 0, running=True).state == "failed"


def test_slurm_that_does_nothing_is_a_failure() -> None:
    """What was accepted is read back."""
    made, controller = acts()
    controller.deaf = True
    assert made.requeue_held(7, START, 0).state == "failed"
    made, controller = acts(**HELD)
    controller.deaf = True
    assert made.exclude(7, 1, ["n2"], []).state == "failed"
    assert made.release(7, 1).state == "failed"


def test_a_persons_hold_stays() -> None:
    """Only what requeuehold holds is released; who else holds a job has a reason."""
    made, controller = acts(**(HELD | {"description": "", "reason": "JobHeldUser"}))
    assert made.release(7, 1).state == "skipped"
    assert made.exclude(7, 1, ["n2"], []).state == "skipped"
    assert controller.writes == []


@pytest.mark.parametrize("changes", [{"restart_count": 2}, {"state": "RUNNING"}])
def test_nodes_are_left_out_of_that_wait_only(changes: dict[str, Any]) -> None:
    """A later start, or a job that runs, keeps its list."""
    made, controller = acts(**(HELD | changes))
    assert made.exclude(7, 1, ["n2"], []).state == "skipped"
    assert controller.writes == []


@pytest.mark.parametrize("nodes", [["ALL"] * 65, ["n1 n2"], ["n[1-9]"], ["-x"], [""], ["n1\nn2"]])
def test_only_names_of_nodes_are_left_out(nodes: list[str]) -> None:
    """No lists, options, blanks, and no more than a person would look at."""
    made, controller = acts(**HELD)
    names = [f"{n}{i}" for i, n in enumerate(nodes)] if len(nodes) > 1 else nodes
    with pytest.raises(errors.UsageError):
        made.exclude(7, 1, names, [])
    assert controller.writes == []


def test_a_stuck_dependency_is_set_again() -> None:
    """As it was written, without the states that Slurm shows beside it."""
    stuck = {
        "state": "PENDING",
        "reason": restarts.STUCK,
        "dependency": "afterok:5(failed),afterany:6_*(unfulfilled)",
    }
    made, controller = acts(**stuck)
    assert made.depend(7, 5).state == "done"
    assert controller.writes == [("scontrol", "update", "JobId=7", "Dependency=afterok:5,afterany:6_*")]


@pytest.mark.parametrize(
    ("changes", "state"),
    [
        ({"reason": "Dependency", "dependency": "afterok:5(unfulfilled)"}, "done"),
        ({"dependency": "afterok:4(failed)"}, "skipped"),
        ({"state": "RUNNING"}, "skipped"),
        ({"dependency": "afterok:5(failed),x y"}, "failed"),
    ],
)
def test_other_dependencies_are_left_alone(changes: dict[str, Any], state: str) -> None:
    """Not stuck, on another job, no longer waiting, or written by nobody we know."""
    stuck = {"state": "PENDING", "reason": restarts.STUCK, "dependency": "afterok:5(failed)"}
    made, controller = acts(**(stuck | changes))
    assert made.depend(7, 5).state == state
    assert controller.writes == []


def test_a_job_that_is_gone() -> None:
    """Slurm knows it no longer."""
    made, _ = acts()
    with pytest.raises(errors.NotFound):
        made.requeue_held(8, START, 0)


@pytest.mark.parametrize(
    ("dependency", "found"),
    [
        ("", set()),
        ("afterok:12(failed)", {12}),
        ("afterok:12(failed):13_*(unfulfilled)?afternotok:14_3,singleton", {12, 13, 14}),
        ("after:12+5(unfulfilled)", {12}),
        ("singleton(unfulfilled)", set()),
        ("burstbuffer:x", set()),
    ],
)
def test_whom_a_dependency_names(dependency: str, found: set[int]) -> None:
    """Every form of sbatch's --dependency, as squeue shows it."""
    assert restarts.depends_on(dependency) == found


@hypothesis.given(st.text(max_size=200))
def test_any_dependency_is_read(text: str) -> None:
    """Whatever stands there."""
    assert all(number >= 0 for number in restarts.depends_on(text))
