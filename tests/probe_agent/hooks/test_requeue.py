"""Whether Slurm runs a job again is read off slurmctld's own words; anything else means no."""

from __future__ import annotations

from pathlib import Path

import pytest

from probing_cluster.core import settings
from probing_cluster.probe_agent.hooks import requeue


def shown(job_id: int = 7, flags: str = "1 1", name: str = "train", more: str = "") -> str:
    again, batch = flags.split()
    return (
        f"JobId={job_id} {more}JobName={name}\n   UserId=alice(1000) GroupId=alice(1000) MCS_label=N/A\n"
        f"   Requeue={again} Restarts=0 BatchFlag={batch} Reboot=0 ExitCode=0:0\n   RunTime=00:00:01 TimeLimit=1-00:00:00\n\n"
    )


@pytest.mark.parametrize(
    ("flags", "expected"), [("1 1", True), ("1 2", True), ("0 1", False), ("1 0", False), ("0 0", False)]
)
def test_only_a_batch_job_that_may_be_requeued_is(flags: str, expected: bool) -> None:
    """srun and salloc have no batch script; --no-requeue is Requeue=0."""
    assert requeue.is_requeued(shown(flags=flags)) is expected


def test_of_an_array_every_task_has_to_be() -> None:
    """`show job` of an array's id shows every task, and a name can make one look like another."""
    first, last = shown(8, "1 1", more="ArrayJobId=7 ArrayTaskId=0 "), "ArrayJobId=7 ArrayTaskId=1 "
    assert requeue.is_requeued(first + shown(7, "1 1", more=last))
    assert not requeue.is_requeued(first + shown(7, "0 1", more=last))


@pytest.mark.parametrize("behind", ["", "\n\n", "\n\nJobId=9 JobName=y"])
def test_a_name_that_looks_like_the_line_says_nothing(behind: str) -> None:
    """A user's words cannot make a job look requeued that is not, whatever else stands in the name."""
    name = "x\n   Requeue=1 Restarts=0 BatchFlag=1 Reboot=0 ExitCode=0:0" + behind
    assert not requeue.is_requeued(shown(flags="0 0", name=name))
    assert not requeue.is_requeued(shown(flags="0 0", name="x Requeue=1 BatchFlag=1" + behind))


@pytest.mark.parametrize(
    "text", ["", "slurm_load_jobs error: Invalid job id specified", "JobId=7 JobName=x\n"]
)
def test_what_says_nothing_means_no(text: str) -> None:
    """Not knowing lets the job start."""
    assert not requeue.is_requeued(text)


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("cat <<'E'\n{shown}E\n", True),
        ("cat <<'E'\n{shown}E\nexit 1\n", False),
        ("sleep 30\n", False),
    ],
)
def test_the_command_is_asked_within_its_deadline(tmp_path: Path, script: str, expected: bool) -> None:
    """A slurmctld that does not answer costs the Prolog no more than that."""
    tool = tmp_path / "scontrol"
    tool.write_text("#!/bin/sh\n" + script.format(shown=shown()))
    tool.chmod(0o755)
    assert requeue.asking(settings.SlurmSettings(bin_directory=str(tmp_path)), 0.5)(7) == (
        requeue.NextStart() if expected else None
    )


def test_a_node_without_slurms_commands_refuses_nobody(tmp_path: Path) -> None:
    """No scontrol, no refusal."""
    assert not requeue.asking(settings.SlurmSettings(bin_directory=str(tmp_path)))(7)


@pytest.mark.parametrize(
    ("named", "reserved", "node", "bound_by"),
    [
        (["(null)"], False, "n1", ""),
        (["n[1-3]"], False, "n2", "nodelist"),
        (["n[1-3]"], True, "n2", "nodelist"),
        (["n[1-3]"], False, "n4", ""),
        (["(null)"], True, "n2", "reservation"),
        # What a name holds beside Slurm's own line makes it none.
        (["(null)", "n2"], False, "n2", ""),
        (["n["], False, "n2", ""),
        ([], False, "n2", ""),
    ],
)
def test_what_binds_a_job_to_the_node_that_refuses_it(
    named: list[str], reserved: bool, node: str, bound_by: str
) -> None:
    """Slurm does not start it elsewhere then."""
    lines = "".join(f"   ReqNodeList={text} ExcNodeList=(null)\n" for text in named)
    text = shown() + lines + ("   Reservation=maint_7\n" if reserved else "")
    again = requeue.next_start(text)
    assert again is not None
    assert again.bound_by(node) == bound_by
    assert requeue.next_start(shown(flags="0 1") + lines) is None
