"""A log's last lines: the program's own among what Slurm writes at the end."""

from __future__ import annotations

import pytest

from probing_cluster.core.catalogue import slurm_lines

NOISE = [
    "slurmstepd: error: *** JOB 7 ON n1 CANCELLED AT 2026-01-05T10:00:00 DUE TO TIME LIMIT ***",
    "slurmstepd: error: *** STEP 7.0 ON n1 CANCELLED AT 2026-01-05T10:00:00 DUE TO TIME LIMIT ***",
    "srun: Job step aborted: Waiting up to 32 seconds for job step to finish.",
    "srun: got SIGCONT",
    "srun: forcing job termination",
    "srun: error: n1: task 0: Terminated",
    "/var/spool/slurmd/job00007/slurm_script: line 9:  4242 Terminated              srun python train.py",
    "Terminated",
    "",
]


@pytest.mark.parametrize("line", NOISE)
def test_what_slurm_writes_at_the_end_is_known(line: str) -> None:
    """And blank lines."""
    assert slurm_lines.is_closing(line)


@pytest.mark.parametrize(
    "line",
    ["step 5 loss 1.9", "Killed", "srun: error: n1: task 0: Exited with exit code 127", "srun: error: Unable to create step: Invalid account", "Terminating the pool", "ValueError: x"],
)  # fmt: skip
def test_what_says_more_is_no_noise(line: str) -> None:
    """A kill is evidence, and so is an error of srun's own."""
    assert not slurm_lines.is_closing(line)


def test_the_programs_last_lines_stand_among_the_last() -> None:
    """In order, with a mark where lines are left out; as many lines as were wanted, and the mark."""
    steps = [f"step {n}" for n in range(9)]
    shown = slurm_lines.last_lines([*steps, *NOISE[:6]], 5, 2)
    assert shown == ("step 7", "step 8", "…", NOISE[1], "…", *NOISE[4:6])
    assert slurm_lines.last_lines(steps, 3, 2) == ("step 6", "step 7", "step 8")
    assert slurm_lines.last_lines(NOISE[:6], 3, 2) == tuple(NOISE[3:6])
    assert slurm_lines.last_lines(steps[:2], 5, 3) == ("step 0", "step 1")
    assert slurm_lines.last_lines([], 5, 3) == ()


def test_what_slurm_reports_beside_the_end_does_not_hide_the_program() -> None:
    """Its errors stand in place of no line of the program; of its closing lines the reason of the cancellation stays longest."""
    killed = "slurmstepd: error: Detected 1 oom_kill event in StepId=7.0. Some of the step tasks have been OOM Killed."
    own = ["reader up", "waiting for its child"]
    slurm = [f"slurmstepd: error: setting {n} could not be read" for n in range(4)]
    shown = slurm_lines.last_lines([*own, *slurm, killed], 5, 2)
    assert shown == (*own, "…", *slurm[2:], killed)
    shown = slurm_lines.last_lines(
        [*own, NOISE[0], "srun: got SIGCONT", "", "srun: forcing job termination"], 4, 2
    )
    assert shown == (*own, NOISE[0], "…", "srun: forcing job termination")
    assert slurm_lines.last_lines(["x", "…", "", "y", "z", "w"], 6, 1) == ("x", "…", "", "y", "z", "w")


@pytest.mark.parametrize(
    ("lines", "last"),
    [
        (["/opt/a.js:1", "throw 'no data'", "^", "no data", "(Use `node --trace-uncaught ...`)", "", "Node.js v20.20.2"], "no data"),
        (["/opt/a.js:1", "f()", "^", "", "Error: no data", "    at f (/opt/a.js:1:1) {", "  code: 'X'", "}", "", "Node.js v20.20.2", *NOISE], "Error: no data"),
        (["no data", "Node.js v20.20.2"], "no data"),
        (["Node.js v20.20.2"], "Node.js v20.20.2"),
        (["step 3", "}", *NOISE], "step 3"),
        (NOISE, ""),
    ],
)  # fmt: skip
def test_the_last_line_of_the_program_names_what_node_did_not_catch(lines: list[str], last: str) -> None:
    """Not Node's version, which it prints last."""
    assert slurm_lines.last_of_program(lines) == last


def test_lines_that_were_chosen_before_have_one_mark_for_what_is_left_out() -> None:
    """The agent keeps some lines of a file, and a report shows some of those: no mark counts as a line, or stands twice."""
    steps = [f"step {i}" for i in range(9)]
    kept = slurm_lines.last_lines([*steps, *NOISE[:6]], 6, 3)
    assert kept.count("…") == 1
    shown = slurm_lines.last_lines(kept, 4, 2)
    assert shown == ("step 7", "step 8", *NOISE[:2])
    assert slurm_lines.last_lines(kept, len(kept), 3) == kept
    # A mark above the first line that is shown says nothing; one of the program's own stands for itself between lines.
    assert slurm_lines.last_lines(["…", "a", "b"], 2, 1) == ("a", "b")
    assert slurm_lines.last_lines(["a", "…", "b"], 3, 2) == ("a", "…", "b")
