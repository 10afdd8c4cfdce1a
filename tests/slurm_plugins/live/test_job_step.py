"""A step on a job's own nodes: which job, how srun is called, and what comes back."""

import base64
from collections.abc import Mapping

import pytest

from probing_cluster.core import errors
from probing_cluster.slurm_plugins.live import job_step, live_records

JOB = (
    "JobId={id} {more}JobName=x UserId=eva(1001) GroupId=eva(1001) Priority=1 Account=ml QOS=normal JobState={state} Reason=None Dependency=(null) Requeue=1 Restarts=0 BatchFlag=1 "
    "SubmitTime=1 EligibleTime=1 StartTime=1 EndTime=2 TimeLimit=01:00:00 NodeList=n[1-2] NumNodes=2 NumCPUs=4 Partition=gpu\n"
)


class Slurm:
    """Answers as the commands would, and keeps how it was asked."""

    def __init__(self, output: bytes) -> None:
        self.output = output
        self.asked: list[tuple[str, ...]] = []

    def __call__(self, *words: str, environment: Mapping[str, str] | None = None) -> bytes:
        self.asked.append(words)
        return self.output


def line(job_id: int, state: str = "RUNNING", more: str = "") -> bytes:
    """A job as scontrol shows it."""
    return JOB.format(id=job_id, state=state, more=more).encode()


def test_a_running_job_is_found() -> None:
    """By its number; what does not run, and a whole array, are refused with the way out."""
    (found,) = job_step.running(Slurm(line(7)), "7")
    assert (found.job_id, found.uid, found.nodes) == (7, 1001, ("n1", "n2"))
    with pytest.raises(errors.NotFound, match="does not run"):
        job_step.running(Slurm(line(7, "PENDING")), "7")
    array = line(7, more="ArrayJobId=6 ArrayTaskId=1 ") + line(8, more="ArrayJobId=6 ArrayTaskId=2 ")
    with pytest.raises(errors.UsageError, match="6_1"):
        job_step.running(Slurm(array), "6")
    het = line(7, more="HetJobId=7 HetJobOffset=0 ") + line(8, more="HetJobId=7 HetJobOffset=1 ")
    assert [j.job_id for j in job_step.running(Slurm(het), "7")] == [7, 8]
    assert [j.job_id for j in job_step.running(Slurm(het), "7+1")] == [8]


def test_answers_of_nodes_are_put_together() -> None:
    """By their labels, whatever their order; without GPUs and memory of its own; anything else that is printed is named."""
    job = live_records.LiveJob(job_id=8, het_job_id=7, het_offset=1, state="RUNNING", nodes=("n1", "n2"))
    first, second = (base64.b64encode(text).decode() for text in (b"first" * 300, b"second"))
    slurm = Slurm(f"0: {first[:960]}\n1: {second}\n0: {first[960:]}\n".encode())
    assert job_step.run_on_nodes(slurm, job, ["child"], {"A": "b"}) == [b"first" * 300, b"second"]
    (asked,) = slurm.asked
    assert asked[0] == "srun"
    assert asked[-1] == "child"
    for word in ("--overlap", "--gres=none", "--mem=0", "--jobid=7", "--het-group=1", "--nodelist=n1,n2"):
        assert word in asked
    with pytest.raises(errors.SlurmUnavailable, match="TaskProlog"):
        job_step.run_on_nodes(Slurm(b"0: hello world\n"), job, ["child"], {})
