"""A kill is for memory only where something of memory is seen: of the job's own processes, and not by its signal alone."""

from __future__ import annotations

import pytest

from probing_cluster.core import records

C = records.Confidence
WORKER = "RuntimeError: DataLoader worker (pid 31337) is killed by signal: Killed."


def worker(make, **detail):
    """The parent of a data loader's worker reports that SIGKILL ended it."""
    own = {"first_cause": True, "role": "root", "domains": ["user_program"], "line": 3}
    return make.finding("dataloader_oom", message=WORKER, pid=31337, node="n1", detail={**own, **detail})


def one_node(make, **over):
    """A job on one node."""
    return make.attempt(nodes=("n1",), **over)


def kill(make, group, pid=999, process="other", **over):
    """The kernel's three lines about one kill, of which one names the group."""
    at = {"kind": "oom", "node": "n1", "process": process}
    return [
        make.event(3.2, code="invoked", **at),
        make.event(
            3.1, code="memcg", pid=pid, detail={"task_memcg": group, "oom_memcg": group}, **at, **over
        ),
        make.event(3.0, code="memcg", pid=pid, **at),
    ]


def test_a_killed_worker_without_a_sign_of_memory_is_a_kill_by_nobody_known(make):
    """The kernel of the node was watched and killed nothing."""
    found = make.judge(worker(make), attempt=one_node(make))
    assert (found.cause, found.confidence) == ("rank_killed", C.POSSIBLE)
    assert "the kernel killed nothing for lack of memory" in found.summary
    assert "Memory (compare MaxRSS" in found.next_step
    unwatched = make.judge(worker(make), attempt=one_node(make), watched={})
    assert (unwatched.cause, unwatched.confidence) == ("oom_host", C.POSSIBLE)
    assert "no evidence here confirms it" in unwatched.summary


@pytest.mark.parametrize("shown_by", ["kernel", "slurm"])
def test_a_killed_worker_beside_a_sign_of_memory_ran_out_of_it(make, shown_by):
    """The kernel's line, or slurmstepd's."""
    line = "slurmstepd: error: Detected 1 oom_kill event in StepId=4242.batch. Some of the step tasks have been OOM Killed."
    sign = (
        kill(make, "/slurm/uid_1/job_4242/step_0", 31337, "python", job_id=4242)
        if shown_by == "kernel"
        else [make.finding("slurm_oom", message=line, node="n1", detail={"line": 9})]
    )
    found = make.judge(worker(make), *sign, attempt=one_node(make))
    assert found.cause == "oom_host"
    assert found.confidence in (C.LIKELY, C.CERTAIN)
    assert "--mem" in found.next_step


@pytest.mark.parametrize(
    ("end", "cause"),
    [
        ({"exit_code": 137}, "rank_killed"),
        ({"exit_code": 0, "exit_signal": 9}, "rank_killed"),
        ({"exit_code": 1}, "user_error"),
    ],
)
def test_a_kill_at_the_limit_of_a_service_is_no_cause(make, end, cause):
    """More memory for the job helps nobody; the kill is mentioned."""
    found = make.judge(*kill(make, "/system.slice"), attempt=one_node(make, **end))
    alone = make.judge(attempt=one_node(make, **end))
    assert (found.cause, found.confidence) == (alone.cause, alone.confidence)
    assert found.cause == cause
    assert "Ask for more memory" not in found.next_step
    beside = "out of memory (the kernel of n1 killed other at the limit of its own cgroup, /system.slice, which is not the job's)"
    assert beside in found.ruled_out
    assert not any("no process was killed" in s for s in found.ruled_out)


def test_a_kill_in_a_container_may_be_the_jobs_and_is_not_bounded_by_its_memory(make):
    """A job's own process may have been moved there."""
    found = make.judge(*kill(make, "/system.slice/docker-ab12.scope"), attempt=one_node(make, exit_code=137))
    assert (found.cause, found.confidence) == ("oom_host", C.POSSIBLE)
    assert "Ask for more memory" not in found.next_step
    assert "--mem does not bound it" in found.next_step


def test_a_kill_of_the_job_counts_beside_one_of_a_service(make):
    """Two kills at once: the lines that name no group are of either."""
    own = kill(make, "/slurm/uid_1/job_4242/step_0", 4711, "python", job_id=4242)
    found = make.judge(*kill(make, "/system.slice"), *own, attempt=one_node(make, exit_code=137))
    assert (found.cause, found.confidence) == ("oom_host", C.CERTAIN)
    assert "Ask for more memory" in found.next_step


@pytest.mark.parametrize("group", ["/", "/lxc/c1", "/htcondor/x", "/machine.slice/machine-x.scope"])
def test_a_kill_in_a_group_that_is_no_services_may_be_the_jobs(make, group):
    """Where no cgroup of Slurm's holds the job, the kernel names such a one; nothing then denies that memory was short."""
    found = make.judge(*kill(make, group), attempt=one_node(make, exit_code=137))
    assert found.cause == "oom_host"
    assert not any("its own cgroup" in words for words in found.ruled_out)
