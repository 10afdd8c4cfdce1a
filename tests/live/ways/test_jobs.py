"""Which job a text names, from Slurm's own words; and what srun is asked for it."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

import pytest

from probing_cluster.core import errors, settings
from probing_cluster.live.ways import jobs, slurm, step_count

LINE = (
    "JobId={job} {extra}JobName=train UserId=ada({uid}) GroupId=ada(1000) Priority=1 Account=ml QOS=normal JobState={state} Reason=None Dependency=(null) "
    "Requeue=0 Restarts=0 BatchFlag=1 ExitCode=0:0 TimeLimit=01:00:00 SubmitTime=1700000000 EligibleTime=1700000000 StartTime=1700000001 "
    "Partition=gpu ReqNodeList=(null) NodeList={nodes} BatchHost=n1 NumNodes=2 NumCPUs=2 WorkDir=/home/ada StdOut=/home/ada/out\n"
)
CONFIG = "TreeWidth               = 50\nMaxStepCount            = 40000\n"


class Scontrol:
    """Answers as scontrol does."""

    def __init__(self, *lines: str, config: str = CONFIG) -> None:
        self.output, self.config = "".join(lines).encode(), config.encode()
        self.ids = "".join(f"{re.split('[= ]', line)[1]}\n" for line in lines).encode()
        self.calls: list[tuple[str, ...]] = []

    def __call__(self, program: str, *arguments: str, environment: Mapping[str, str] | None = None) -> bytes:
        self.calls.append((program, *arguments))
        if arguments[-1] == "config":
            return self.config
        if program == "squeue":
            return self.ids
        if not self.output:
            raise errors.SlurmUnavailable(
                "scontrol ended with 1: slurm_load_jobs error: Invalid job id specified"
            )
        return self.output


def line(job: int, *, nodes: str = "n[1-2]", state: str = "RUNNING", extra: str = "", uid: int = 1000) -> str:
    return LINE.format(job=job, nodes=nodes, state=state, extra=extra, uid=uid)


SLURM = settings.SlurmSettings()


def test_a_plain_job() -> None:
    run = Scontrol(line(7))
    found = jobs.find("7", SLURM, run)
    assert (found.job_id, found.uid, found.user, found.nodes) == (7, 1000, "ada", ("n1", "n2"))
    assert run.calls == [("scontrol", "-a", "-d", "-o", "show", "job", "7")]


def test_an_arrays_task_by_its_written_name_and_its_raw_id() -> None:
    """Slurm rejects `--jobid=7_2`."""
    found = jobs.find("7_2", SLURM, Scontrol(line(9, extra="ArrayJobId=7 ArrayTaskId=2 ")))
    assert found.job_id == 9
    both = Scontrol(
        line(9, extra="ArrayJobId=7 ArrayTaskId=2 "), line(10, extra="ArrayJobId=7 ArrayTaskId=3 ")
    )
    with pytest.raises(errors.UsageError, match="name one: 7_2, 7_3"):
        jobs.find("7", SLURM, both)


def test_a_heterogeneous_job_whole_and_one_component() -> None:
    parts = [
        line(7, nodes="n1", extra="HetJobId=7 HetJobOffset=0 HetJobIdSet=7-8 "),
        line(8, nodes="n[2-3]", extra="HetJobId=7 HetJobOffset=1 HetJobIdSet=7-8 "),
    ]
    whole = jobs.find("7", SLURM, Scontrol(*parts))
    assert (whole.job_id, whole.nodes) == (7, ("n1", "n2", "n3"))
    assert [(p.job_id, p.offset) for p in whole.parts] == [(7, 0), (8, 1)]
    one = jobs.find("7+1", SLURM, Scontrol(*parts))
    assert (one.job_id, one.nodes) == (7, ("n2", "n3"))


@pytest.mark.parametrize("state", ["PENDING", "COMPLETED", "CANCELLED"])
def test_what_does_not_run_cannot_be_asked(state: str) -> None:
    with pytest.raises(errors.NotFound, match="probing-report 7"):
        jobs.find("7", SLURM, Scontrol(line(7, state=state)))


def test_a_job_that_slurm_has_forgotten() -> None:
    with pytest.raises(errors.NotFound, match="does not know job 7"):
        jobs.find("7", SLURM, Scontrol())


def test_nobody_makes_root_read_with_anothers_rights() -> None:
    """A name that ends its own line and begins another cannot say whose the job is, nor that it is a component of another's."""
    forged = "x " + line(7, uid=0).partition("JobName=train ")[2].replace("\n", "") + "\nJobId=9 JobName=y"
    with pytest.raises(errors.MalformedInput, match="exactly once"):
        jobs.find("7", SLURM, Scontrol(line(7).replace("train", forged)))
    other = jobs.find("7", SLURM, Scontrol(line(7).replace("train", "x HetJobId=3 HetJobOffset=0")))
    assert (other.job_id, other.parts[0].offset) == (7, None)


def test_limits_are_slurms_or_its_defaults() -> None:
    """65533 is how Slurm writes that there is no tree; groups stay small all the same."""
    assert jobs.limits(SLURM, Scontrol()) == jobs.Limits(tree_width=50, max_steps=40_000)
    assert jobs.limits(SLURM, Scontrol(config="TreeWidth = 65533\nMaxStepCount = 100\n")) == jobs.Limits(
        tree_width=64, max_steps=100
    )
    assert jobs.limits(SLURM, Scontrol(config="")) == jobs.Limits(tree_width=16, max_steps=40_000)


def test_nodes_go_in_groups_of_the_trees_width() -> None:
    """A hung node hides those behind it, so that none may stand behind another."""
    names = tuple(f"n{i}" for i in range(35))
    found = list(slurm.groups(names, 16))
    assert [len(g) for g in found] == [16, 16, 3]
    assert tuple(n for g in found for n in g) == names


def test_the_step_takes_nothing_from_the_job_and_nothing_from_the_caller(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The recipe, option by option; SLURM_LABELIO, SBATCH_* and the like do not reach srun."""
    monkeypatch.setenv("SLURM_LABELIO", "1")
    monkeypatch.setenv("SBATCH_EXCLUSIVE", "1")
    monkeypatch.setenv("PYTHONPATH", "/x")
    monkeypatch.setenv("SLURM_CONF", "/etc/slurm.conf")
    config = settings.Settings()
    job = jobs.find(
        "7+1", SLURM, Scontrol(line(8, extra="HetJobId=7 HetJobOffset=1 HetJobIdSet=7-8 ", uid=os.geteuid()))
    )
    argv = slurm.argv(config, job, job.parts[0], ("n1", "n2"), 60)
    for word in ("--overlap", "--label", "--gres=none", "--mem=0", "--immediate=3", "--kill-on-bad-exit=0", "--mpi=none",
                 "--jobid=7", "--het-group=1", "--nodelist=n1,n2", "--ntasks-per-node=1"):  # fmt: skip
        assert word in argv
    assert "--tables-only" not in argv
    variables = slurm.environment(config)
    assert {k: v for k, v in variables.items() if k.startswith(("SLURM", "SBATCH", "PY"))} == {
        "SLURM_CONF": "/etc/slurm.conf"
    }
    assert variables["PROBING"] == "on"


def test_another_user_is_refused_with_the_way_out_and_root_does_not_evaluate(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    job = jobs.find("7", SLURM, Scontrol(line(7, uid=os.geteuid() + 1)))
    assert "--tables-only" in slurm.argv(settings.Settings(), job, job.parts[0], ("n1",), 60)
    monkeypatch.setattr(os, "geteuid", lambda: 12345)
    with pytest.raises(errors.NotPermitted, match="nobody else"):
        slurm._account(job)


def test_a_job_of_many_steps_is_asked_no_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond MaxStepCount its own srun would fail; a home that cannot be written costs only the count."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    counter = step_count.StepCount("c", 7)
    counter.require(100)
    counter.note({"23", "noise"})
    step_count.StepCount("c", 7).require(100)
    counter.note({"24", "25"})
    counter.note({"3"})
    with pytest.raises(errors.NotPermitted, match="made 26 steps"):
        step_count.StepCount("c", 7).require(100)
    step_count.StepCount("c", 8).require(100)
    assert not step_count.StepCount("c", 7).allows(set(), 1, 100)
    assert step_count.StepCount("c", 8).allows({"20"}, 5, 100)
    assert not step_count.StepCount("c", 8).allows({"20"}, 6, 100)
    monkeypatch.setenv("XDG_STATE_HOME", "/proc/nowhere")
    step_count.StepCount("c", 7).note({"5"})


def test_what_names_no_job_is_wrong_usage() -> None:
    """As for every other command that takes a job."""
    with pytest.raises(errors.UsageError, match="'abc' is not a job id; write 123, 123_4"):
        jobs.find("abc", settings.SlurmSettings(), Scontrol())
