"""The process edge: real processes, ended with all their children, told what they may see."""

from __future__ import annotations

import os
import time
import tracemalloc
from pathlib import Path

import pytest

from probing_cluster.core import errors, processes, settings
from probing_cluster.slurm_plugins import commands
from probing_cluster.slurm_plugins.acts import job_steps


def test_one_unanswered_subject_does_not_stop_the_others() -> None:
    """Each has its turn, and the caller hears of it at the end; two in a row are an outage, and end the loop."""
    reached = []

    def act(answers: str) -> None:
        acts = commands.OneByOne()
        for at, answer in enumerate(answers):
            with acts.subject():
                if answer == "-":
                    raise commands.SlurmAway(f"{at} timed out")
                reached.append(at)
        acts.end()

    act("yy")
    assert reached == [0, 1]
    with pytest.raises(commands.SlurmAway, match="0 timed out"):
        act("-y-y")
    assert reached == [0, 1, 1, 3]
    with pytest.raises(commands.SlurmAway, match="2 timed out"):
        act("y--y")
    assert reached == [0, 1, 1, 3, 0]


def _script(directory: Path, name: str, text: str) -> None:
    path = directory / name
    path.write_text("#!/bin/sh\n" + text)
    path.chmod(0o755)


def _runner(directory: Path, deadline_s: float = 10.0) -> commands.SlurmCommands:
    return commands.SlurmCommands(
        settings=settings.SlurmSettings(
            bin_directory=str(directory), conf="/etc/x/slurm.conf", command_deadline_s=deadline_s
        )
    )


def test_environment_is_clean(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Variables that change Slurm's output do not reach it; its configuration and UTC do."""
    monkeypatch.setenv("SACCT_FORMAT", "jobid")
    monkeypatch.setenv("SLURM_TIME_FORMAT", "relative")
    _script(tmp_path, "sacct", "env\n")
    environment = dict(
        line.split("=", 1)
        for line in _runner(tmp_path)("sacct", environment={"EXTRA": "1"}).decode().splitlines()
    )
    assert (environment["SLURM_CONF"], environment["TZ"], environment["LC_ALL"], environment["EXTRA"]) == (
        "/etc/x/slurm.conf",
        "UTC",
        "C",
        "1",
    )
    assert not {"SACCT_FORMAT", "SLURM_TIME_FORMAT"} & environment.keys()
    # Else they list a whole federation's jobs and nodes, and its other clusters' jobs would be stored as ours.
    assert {"SACCT_LOCAL", "SCONTROL_LOCAL", "SINFO_LOCAL", "SQUEUE_LOCAL"} <= environment.keys()


def test_failure_carries_what_slurm_said(tmp_path: Path) -> None:
    """Exit status and standard error are in the message, without control characters."""
    _script(tmp_path, "scontrol", "printf 'slurm_update error: \\033[1mInvalid user id\\n' >&2; exit 1\n")
    with pytest.raises(errors.SlurmUnavailable, match=r"ended with 1: slurm_update error: Invalid user id"):
        _runner(tmp_path)("scontrol", "update", "NodeName=n1")
    with pytest.raises(errors.SlurmUnavailable, match="cannot be started") as raised:
        _runner(tmp_path)("sinfo")
    assert not isinstance(raised.value, commands.SlurmAway)


def test_what_a_command_prints_is_no_word_about_the_daemon(tmp_path: Path) -> None:
    """A node's note or a job's name may hold Slurm's words for an outage."""
    _script(tmp_path, "scontrol", "echo 'Reason=error: socket timed out [bob]'; exit 1\n")
    with pytest.raises(errors.SlurmUnavailable) as raised:
        _runner(tmp_path)("scontrol", "show", "node", "n1")
    assert not isinstance(raised.value, commands.SlurmAway)


@pytest.mark.parametrize(
    ("text", "away"),
    [
        ("slurm_load_node error: Unable to contact slurm controller (connect failure)", True),
        ("slurm_load_jobs error: Socket timed out on send/recv operation", True),
        ("slurm_load_partitions: Unable to contact slurm controller (connect failure)", True),
        ("srun: error: Unable to allocate resources: Zero Bytes were transmitted or received", True),
        ("slurm_update error: Invalid node name specified", False),
        ("scontrol: warning: Reason=socket timed out, bob", False),
        ("socket timed out", False),
        ("slurm_update error: Access/permission denied", False),
    ],
)
def test_a_refusal_is_an_answer_and_silence_is_none(tmp_path: Path, text: str, away: bool) -> None:
    """Where nobody answered, nothing is known; where Slurm refused, it is known that the act was not done."""
    _script(tmp_path, "scontrol", f"echo '{text}' >&2; exit 1\n")
    with pytest.raises(errors.SlurmUnavailable) as raised:
        _runner(tmp_path)("scontrol", "show", "nodes")
    assert isinstance(raised.value, commands.SlurmAway) is away
    assert str(raised.value).startswith("Slurm does not answer: ") is away


def test_a_hanging_command_and_its_children_are_ended(tmp_path: Path) -> None:
    """At the deadline the whole process group goes, and the caller hears why."""
    _script(tmp_path, "sacct", f"sleep 60 & echo $! > {tmp_path}/child; sleep 60\n")
    with pytest.raises(errors.SlurmUnavailable, match=r"did not end within 0\.5 s"):
        _runner(tmp_path, 0.5)("sacct")
    child = int((tmp_path / "child").read_text())
    for _ in range(100):
        try:
            os.kill(child, 0)
        except ProcessLookupError:
            return
        if "Z" in Path(f"/proc/{child}/stat").read_text().split()[2]:
            return
        time.sleep(0.05)
    pytest.fail("the child outlived its command")


def test_a_node_that_floods_takes_neither_memory_nor_the_others_answers(tmp_path: Path) -> None:
    """Task 1 prints without end, on both streams; of it a MiB is kept, and all that task 0 says before and after."""
    flood = f"1: {'x' * 900}"
    _script(
        tmp_path, "srun",
        f"read step; echo \"0: got $step\"; yes '{flood}' | head -c 30000000; yes '{flood}' | head -c 3000000 >&2; "
        "echo; echo '0: last'\n",
    )  # fmt: skip
    tracemalloc.start()
    steps = job_steps.JobSteps(settings.SlurmSettings(bin_directory=str(tmp_path)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(job_steps, "_STEP_GRACE_S", 0.0)
        output = steps.step(7, ["n2", "n1"], "x", b"hello\n", 30.0)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert [line for line in output.splitlines() if line.startswith(b"0:")] == [b"0: got hello", b"0: last"]
    assert len(output) < job_steps.MOST_BYTES + 1000
    assert peak < 8 * job_steps.MOST_BYTES


def test_what_is_kept_is_of_whole_lines_and_of_every_task() -> None:
    """However the pieces fall; a line without an end is dropped once it is too long."""
    keep = job_steps.OfEachTask()
    assert b"".join(keep(b"0: a\n1: b\n0: c"[n : n + 1]) for n in range(14)) == b"0: a\n1: b\n"
    assert keep(b"d\n") == b"0: cd\n"
    assert keep(b"2: " + b"x" * (job_steps.MOST_BYTES + 5)) == b""
    assert keep(b"\n3: e\n") == b"3: e\n"


def test_the_output_and_status_of_a_program_that_ends_are_kept(tmp_path: Path) -> None:
    """As without a limit."""
    _script(tmp_path, "srun", "cat; echo wrong >&2; exit 3\n")
    done = _runner(tmp_path).collect("srun", stdin=b"a\nb", deadline_s=10.0, keep=lambda piece: piece)
    assert (done.stdout, done.stderr, done.code) == (b"a\nb", b"wrong\n", 3)


def test_a_command_that_cannot_be_killed_is_not_doubled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One stuck `sacct` at most, and its caller is told at once; other programs go on."""

    class Unkillable(processes.Edge):
        def end(self, pid: int) -> processes.ProcessIdentity | None:
            return processes.identify(pid)

    monkeypatch.setattr(commands, "STUCK", processes.StuckChildren(Unkillable()))
    _script(tmp_path, "sacct", "exec sleep 60\n")
    _script(tmp_path, "sinfo", "echo n1\n")
    with pytest.raises(errors.SlurmUnavailable, match="did not end within"):
        _runner(tmp_path, 0.3)("sacct")
    with pytest.raises(errors.SlurmUnavailable, match="stuck in the kernel"):
        _runner(tmp_path)("sacct")
    assert _runner(tmp_path)("sinfo") == b"n1\n"
    ((_, held),) = commands.STUCK.items()
    assert processes.EDGE.end(held.identity.pid) is None
    _script(tmp_path, "sacct", "echo 7\n")
    assert _runner(tmp_path)("sacct") == b"7\n"
