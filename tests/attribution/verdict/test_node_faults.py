"""Which faults of its nodes may have stopped a gang: not a neighbour's, not those its ranks outlived."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from probing_cluster.attribution.gang import snapshots
from probing_cluster.attribution.verdict import node_faults, view_builder
from probing_cluster.core import records
from probing_cluster.probe_agent.ranks import stall


def lost(make: Any, *, after_onset_s: float = 1, **over: Any) -> records.HealthEvent:
    """GPU 3 of n2 falls off its bus so long after the gang's last progress, a minute before the usual end."""
    values = {"kind": "xid", "code": "79", "device": "gpu3", "gpu_uuid": make.uuid("n2", 3)}
    found: records.HealthEvent = make.event(60 - after_onset_s, **(values | over))
    return found


def live(make: Any, *events: records.HealthEvent, **over: Any) -> dict[str, set[str]]:
    """The faults counted for a gang that stopped a minute before the usual end."""
    allocations = over.pop("allocations", [])
    attempt = make.attempt(end_at=None, state="RUNNING", exit_code=None, **over)
    return node_faults.faults_of_running(events, attempt, allocations, make.end - timedelta(seconds=60))


def test_a_fault_on_what_the_gang_held_counts(make: Any) -> None:
    """Just before or after it stopped; on its nodes alone."""
    assert live(make, lost(make)) == live(make, lost(make, after_onset_s=-50)) == {"n2": {"xid"}}
    assert live(make, lost(make, node="n9")) == {}


@pytest.mark.parametrize(
    "fault",
    [{}, {"kind": "ib_link", "code": "link_down", "device": "mlx5_0", "gpu_uuid": None}],
    ids=["gpu", "link"],
)
def test_what_the_ranks_outlived_did_not_stop_them(make: Any, fault: dict[str, Any]) -> None:
    """They made steps for minutes after it."""
    before = lost(make, after_onset_s=-300, **fault)
    assert live(make, before) == {}
    assert live(make, lost(make, after_onset_s=-5, **fault)) == {"n2": {before.kind}}


@pytest.mark.parametrize(
    ("fault", "found_s", "later_s"),
    [
        ({}, 250, 310),
        ({"kind": "ib_link", "code": "port_down", "device": "mlx5_0", "gpu_uuid": None}, 40, 107),
        ({"kind": "nfs", "code": "not_responding", "device": "/scratch", "gpu_uuid": None}, 200, 310),
    ],
    ids=["gpu", "link", "mount"],
)
def test_a_fault_after_the_gang_stopped_did_not_stop_it(
    make: Any, fault: dict[str, Any], found_s: float, later_s: float
) -> None:
    """A link that goes down two minutes into a hang is not its cause; the driver and mounts report late."""
    in_time = lost(make, after_onset_s=found_s, **fault)
    assert live(make, in_time) == {"n2": {in_time.kind}}
    assert live(make, lost(make, after_onset_s=later_s, **fault)) == {}


def test_a_mount_may_hang_for_long_before_somebody_needs_it(make: Any) -> None:
    """Nobody outlives it who has not used it."""
    fault = make.event(360, kind="nfs", code="not_responding", device="/scratch")
    assert live(make, fault) == {"n2": {"nfs"}}


def test_a_neighbours_gpu_proves_nothing(make: Any) -> None:
    """By UUID, by what the Prolog told, and where it is not known whose it is."""
    mine, theirs = make.gpus("n2", indices=(0, 1)), make.gpus("n2", indices=(2, 3))
    assert live(make, lost(make), gpus=mine) == {}
    assert live(make, lost(make), gpus=theirs) == {"n2": {"xid"}}
    assert live(make, lost(make), gpus=None) == {}
    allocation = records.JobAllocation(
        cluster="c", job_id=4242, node="n2", at=make.start, gpu_uuids=theirs["n2"], gpu_indices="2,3"
    )
    assert live(make, lost(make), gpus=None, allocations=[allocation]) == {"n2": {"xid"}}


def test_what_the_job_says_of_itself_and_what_is_no_root_proves_nothing(make: Any) -> None:
    """A page can be forged; Xid 43 is a consequence."""
    assert live(make, lost(make, source="joblog")) == {}
    assert live(make, lost(make, code="43")) == {}


def test_an_ended_attempts_faults_are_taken_alike(make: Any) -> None:
    """Of what its rules look at: not what was outlived, nor what may be a neighbour's."""

    def at_end(*events: records.HealthEvent, **over: Any) -> Any:
        found = view_builder.build(make.case(*events, attempt=make.attempt(**over)))
        assert found is not None
        return node_faults.faults_of_ended(found, make.end - timedelta(seconds=60))

    assert at_end(lost(make)) == {"n2": {"xid"}}
    assert at_end(lost(make, after_onset_s=-300)) == {}
    assert at_end(make.event(-60, kind="ib_link", code="port_down", device="mlx5_0", source="sysfs")) == {}
    assert at_end(lost(make), gpus=make.gpus("n2", indices=(0,))) == {}


def test_a_gang_may_notice_a_link_only_at_the_end_of_a_long_step(make: Any) -> None:
    """Its steps take 150 s at most; a job whose steps take seconds has no such time."""
    at_end = make.event(60 - 200, kind="ib_link", code="port_down", device="mlx5_0", source="sysfs")
    later = make.event(60 - 300, kind="ib_link", code="port_down", device="mlx5_0", source="sysfs")
    attempt = make.attempt(end_at=None, state="RUNNING", exit_code=None)
    onset_at = make.end - timedelta(seconds=60)

    def found(event: records.HealthEvent, bound_s: float, **detail: Any) -> dict[str, set[str]]:
        stalled = make.finding(
            "rank_stall",
            source="probe",
            threshold=bound_s,
            detail={"phase": "training", "steps": 400} | detail,
        )
        return node_faults.faults_of_running(
            [event], attempt, (), onset_at, snapshots.longest_step([stalled])
        )

    assert found(at_end, 450) == {"n2": {"ib_link"}}
    assert found(later, 450) == {}
    assert found(at_end, 30) == {}
    assert found(at_end, 900, steps=3) == {}, "the bound of its first steps is a setting"
    assert found(at_end, 900, phase="validating") == {}


def test_the_bound_of_a_rank_is_that_many_of_its_longest_steps() -> None:
    """The agent makes the bound, and the judge reads it."""
    assert (snapshots.BOUND_STEPS, stall.MIN_STEPS) == (stall.LONGEST_FACTOR, 5)
