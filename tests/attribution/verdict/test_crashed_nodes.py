"""A job that fails by itself because one of its nodes is gone: Slurm reports the node only when it gives it up."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from probing_cluster.core import records

PEER = {"kind": "nccl_remote_error", "message": "remote process exited or there was a network error"}


def gone(make: Any, before_end_s: float = 4.0, **changes: Any) -> list[records.HealthEvent]:
    """The service's events about n2: its agent's last heartbeat, and that slurmctld gave it up 45 s later."""
    silence = {
        "source": "agent",
        "severity": records.Severity.INFO,
        "node": "n2",
        "observed_at": make.end + timedelta(seconds=45),
    }
    return [
        make.event(before_end_s, kind=kind, **(silence | changes)) for kind in ("agent_silent", "node_down")
    ]


def allocation(make: Any, released_s: float | None = None) -> records.JobAllocation:
    """The job's Prolog on n2, and its Epilog so long after the end."""
    released = None if released_s is None else make.end + timedelta(seconds=released_s)
    return records.JobAllocation(cluster="c", node="n2", job_id=4242, at=make.start, released_at=released)


def crashed(make: Any, *events: records.HealthEvent, **case: Any) -> records.Verdict:
    case = {
        "allocations": (allocation(make),),
        "watched": {"n1": make.end, "n2": make.end - timedelta(seconds=4)},
    } | case
    found: records.Verdict = make.judge(*events, **case)
    return found


@pytest.mark.parametrize("words", [[], [PEER]])
def test_a_node_that_is_gone_before_the_job_fails_is_why(make: Any, words: list[dict[str, str]]) -> None:
    """Peers end the job by themselves; that one of them died is no word against the node."""
    found = crashed(make, *gone(make), *(make.finding(**w) for w in words))
    assert (found.cause, found.node, found.confidence) == ("node_lost", "n2", records.Confidence.LIKELY)
    assert found.domain is records.Domain.HARDWARE


def test_an_agent_alone_that_is_gone_convicts_no_node(make: Any) -> None:
    """Silence without Slurm's word may be the agent's own end."""
    silent = gone(make)[0]
    assert crashed(make, silent).cause == "user_error"


def test_a_node_that_ran_the_jobs_epilog_has_outlived_it(make: Any) -> None:
    """It fell silent in the same beat, but after the job."""
    found = crashed(make, *gone(make), allocations=(allocation(make, released_s=1.0),))
    assert found.cause == "user_error"


def test_an_epilog_of_after_the_return_is_none_of_before(make: Any) -> None:
    """An agent that comes back releases what it finds over; the node was gone all the same."""
    found = crashed(make, *gone(make), allocations=(allocation(make, released_s=300.0),))
    assert found.cause == "node_lost"


def test_a_node_last_heard_after_the_end_did_not_end_it(make: Any) -> None:
    """Its last beat is younger than the job's end."""
    assert crashed(make, *gone(make, before_end_s=-20.0)).cause == "user_error"


def test_a_node_that_was_given_up_before_the_job_began_there_had_come_back(make: Any) -> None:
    """Neither is it why a job of four seconds died, nor does it stand beside what is: a mount that is gone."""
    make.start = make.end - timedelta(seconds=4)
    earlier = gone(make, before_end_s=100, observed_at=make.start - timedelta(seconds=20))
    assert crashed(make, *earlier).cause == "user_error"
    mount = make.event(-3, kind="mount", code="missing", source="mount", device="/scratch", node="n2")
    found = crashed(make, *earlier, mount, watched={"n1": make.end, "n2": make.end})
    assert (found.cause, found.confidence) == ("filesystem_mount", records.Confidence.LIKELY)


def test_a_node_whose_last_beat_was_before_the_job_began_went_away_under_it(make: Any) -> None:
    """Slurm gave it up after the start; a job may begin between a node's last beat and its crash."""
    make.start = make.end - timedelta(seconds=4)
    assert crashed(make, *gone(make, before_end_s=6)).cause == "node_lost"


def test_an_error_of_the_programs_own_leaves_a_doubt(make: Any) -> None:
    """A KeyError is nothing that a lost peer makes: never sure enough to restart the job."""
    found = crashed(make, *gone(make), make.finding("python_traceback", message="KeyError: 'labels'"))
    assert not (found.cause == "node_lost" and found.confidence is not records.Confidence.POSSIBLE)


def test_a_boot_after_the_end_without_an_epilog_is_a_crash(make: Any) -> None:
    """The node was back before two beats were missed."""
    boot = make.event(-90.0, kind="node_boot", source="agent", severity=records.Severity.INFO)
    found = crashed(make, boot)
    assert (found.cause, found.node, found.confidence) == ("node_reboot", "n2", records.Confidence.LIKELY)
    over = crashed(make, boot, allocations=(allocation(make, released_s=2.0),))
    assert over.cause == "user_error"
    last_signs = {"n1": make.end, "n2": make.end + timedelta(seconds=20)}
    soon = make.event(-40.0, kind="node_boot", source="agent", severity=records.Severity.INFO)
    assert crashed(make, soon, watched=last_signs).cause == "node_reboot"
    # Where no Prolog was heard of, that no Epilog was heard of says nothing.
    assert crashed(make, soon, watched=last_signs, allocations=()).cause == "user_error"


def test_a_reboot_of_a_node_that_was_heard_after_the_end_is_no_crash(make: Any) -> None:
    """An Epilog that hangs leaves no word, and the operator who reboots the node for it no crash; a boot at once may be one."""
    silence = {"kind": "node_boot", "source": "agent", "severity": records.Severity.INFO}
    last_signs = {"n1": make.end, "n2": make.end + timedelta(seconds=300)}
    assert crashed(make, make.event(-90.0, **silence), watched=last_signs).cause == "user_error"
    assert crashed(make, make.event(-30.0, **silence), watched=last_signs).cause == "node_reboot"
