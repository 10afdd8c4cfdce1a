"""`scontrol show job` as people paste it into tickets, imported in place of sacct."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from probing_cluster.slurm_plugins.accounting import attempt_rows, sacct_text

FAILED = """\
JobId=4242 JobName=train UserId=root(0) NodeList=evil[1-9]
   UserId=alice(1000) GroupId=users(100) MCS_label=N/A
   Priority=4294901758 Nice=0 Account=ml QOS=normal
   JobState=FAILED Reason=NonZeroExitCode Dependency=(null)
   Requeue=1 Restarts=0 BatchFlag=1 Reboot=0 ExitCode=1:0
   RunTime=00:31:05 TimeLimit=2-00:00:00 TimeMin=N/A
   SubmitTime=2026-11-20T09:59:00 EligibleTime=2026-11-20T09:59:00
   AccrueTime=2026-11-20T09:59:00
   StartTime=2026-11-20T10:00:00 EndTime=2026-11-20T10:31:05 Deadline=N/A
   Partition=gpu AllocNode:Sid=login1:1234
   ReqNodeList=(null) ExcNodeList=(null)
   NodeList=n[1-2]
   BatchHost=n1
   NumNodes=2 NumCPUs=64 NumTasks=2 CPUs/Task=1 ReqB:S:C:T=0:0:*:*
   TRES=cpu=64,mem=512G,node=2,billing=64,gres/gpu=16
   Command=/home/alice/My jobs/run.sh JobState=COMPLETED
   WorkDir=/home/alice/My jobs
   StdErr=/home/alice/slurm-4242.out
   StdIn=/dev/null
   StdOut=/home/alice/slurm-4242.out
"""


def job(number: int, ids: str, state: str = "RUNNING", **over: str) -> str:
    times = {
        "SubmitTime": "2026-11-20T10:00:00",
        "StartTime": "2026-11-20T10:01:00",
        "EndTime": "2026-11-21T10:01:00",
    } | over
    return (
        f"JobId={number} {ids}JobName=x\n   UserId=bob(1001) GroupId=users(100)\n   JobState={state} Reason=None\n   RunTime=00:05:00 TimeLimit=1-00:00:00\n   "
        + " ".join(f"{k}={v}" for k, v in times.items())
        + "\n   NodeList=n3\n   AllocTRES=cpu=4,node=1,gres/gpu=1\n"
    )


def parse(text: str) -> attempt_rows.ParseResult:
    return sacct_text.parse_sacct_text(text.encode(), timezone="UTC")


@pytest.mark.parametrize("form", ["as printed", "dos", "quoted", "below a prompt", "in one line"])
def test_a_job_is_read_with_what_a_verdict_needs(form: str) -> None:
    """A job's name and command may look like other keys; they are the person's."""
    text = FAILED
    if form == "dos":
        text = text.replace("\n", "\r\n")
    elif form == "quoted":
        text = "".join(f"> {line}\n" for line in text.splitlines())
    elif form == "below a prompt":
        text = f"[alice@login1 ~]$ scontrol show job 4242\n{text}\n[alice@login1 ~]$ "
    elif form == "in one line":
        text = (
            " ".join(
                line.strip() for line in text.replace(" UserId=root(0) NodeList=evil[1-9]", "").splitlines()
            )
            + "\n"
        )
    (found,) = parse(text).attempts
    assert (found.job_id, found.state, found.exit_code, found.exit_signal) == (4242, "FAILED", 1, 0)
    assert (found.user, found.account, found.partition, found.qos) == ("alice", "ml", "gpu", "normal")
    assert (found.nodes, found.n_gpus, found.n_cpus) == (("n1", "n2"), 16, 64)
    assert found.start_at == datetime(2026, 11, 20, 10, tzinfo=UTC)
    assert found.end_at == datetime(2026, 11, 20, 10, 31, 5, tzinfo=UTC)
    assert found.time_limit_s == 2 * 86400
    assert (found.reason, found.stdout_path) == ("NonZeroExitCode", "/home/alice/slurm-4242.out")
    assert (found.work_dir or "").startswith("/home/alice/My jobs")


def test_several_jobs_arrays_and_heterogeneous_jobs() -> None:
    """In one file, with a blank line between them or none; a running job has no end, a waiting one no start."""
    text = (
        FAILED
        + job(51, "ArrayJobId=50 ArrayTaskId=3 ")
        + "\n"
        + job(50, "ArrayJobId=50 ArrayTaskId=4-9%2 ", "PENDING")
        + job(61, "HetJobId=60 HetJobOffset=1 ", "TIMEOUT", EndTime="2026-11-20T11:00:00")
        + "JobId=70 JobName=cut\n   UserId=bob(1001)\n"
    )
    found = parse(text)
    assert {
        a.job_id: (a.array_job_id, a.array_task_id, a.het_job_id, a.het_offset) for a in found.attempts
    } == {
        4242: (None, None, None, None),
        51: (50, 3, None, None),
        61: (None, None, 60, 1),
    }
    assert {a.job_id: a.end_at is None for a in found.attempts} == {4242: False, 51: True, 61: False}
    assert [n.job_id for n in found.not_started] == ["50_[4-9%2]"]
    assert [(r.line_no, "lacks JobState" in r.why) for r in found.rejected] == [(text.count("\n") - 1, True)]
