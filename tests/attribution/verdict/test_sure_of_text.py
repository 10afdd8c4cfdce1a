"""The confidence that a line of the job's own output earns: by the job's end, the lines after it, and what the job held."""

from __future__ import annotations

import pytest

from probing_cluster.core import records

C, D = records.Confidence, records.Domain
ONE = {"nodes": ("n1",)}


def _raised(make, message="KeyError: 'lr'", **detail):
    name = message.partition(":")[0]
    return make.finding(
        "python_exception", message=message, detail={"exception": name, "domains": ["user_program"], **detail}
    )


@pytest.mark.parametrize(
    ("ended", "word"),
    [
        ({"exit_code": 1}, C.CERTAIN),
        ({"exit_code": 3}, C.LIKELY),
        ({"exit_code": 0, "exit_signal": 9}, C.LIKELY),
        ({"exit_code": 0, "exit_signal": 11}, C.LIKELY),
    ],
)
def test_an_exception_is_certain_where_the_job_ended_as_python_does(make, ended, word):
    """With 1, of what nobody catches: of another end an exception that was caught and logged may stand in the log."""
    v = make.judge(_raised(make, first_cause=True), attempt=make.attempt(**ONE, **ended))
    assert (v.cause, v.confidence) == ("user_error", word)


def test_an_exception_after_which_the_job_worked_on_is_not_certain_and_the_last_line_is_named(make):
    """A script goes on after a failed command, and its last command decides the exit code."""
    went_on = _raised(make, first_cause=True, behind=2, went_on="result written")
    v = make.judge(went_on, attempt=make.attempt(**ONE))
    assert (v.cause, v.confidence) == ("user_error", C.LIKELY)
    assert v.summary == "The program exited with code 1; its last line: result written; the exception above it: KeyError: 'lr'."  # fmt: skip
    assert make.judge(_raised(make, first_cause=True, behind=2), attempt=make.attempt(**ONE)).confidence is C.CERTAIN  # fmt: skip
    of_rank = _raised(make, first_cause=True, behind=2, went_on="step 4", rank=3)
    v = make.judge(of_rank, attempt=make.attempt(**ONE))
    assert (v.confidence, "step 4" in v.summary) == (C.CERTAIN, False), "other ranks print on"


@pytest.mark.parametrize(
    ("line", "message", "word"),
    [
        (2, "mv: cannot stat '/scratch/in.tar': No such file or directory", C.LIKELY),
        (
            2,
            "/var/spool/slurmd/job00007/slurm_script: line 4: cd: /scratch/run: No such file or directory",
            C.LIKELY,
        ),
        (9, "rm: cannot remove '/scratch/in.tar': No such file or directory", C.CERTAIN),
        (2, "ERROR: no earlier run was found", C.CERTAIN),
    ],
)
def test_an_exception_below_a_command_that_the_script_outlived_is_not_certain(make, line, message, word):
    """Under `set -e` such a command has `|| true` behind it, and so may this one: the script's last command may have failed without a word."""
    above = make.finding("program_error", message=message, detail={"line": line, "domains": ["user_program"], "role": "root"})  # fmt: skip
    raised = _raised(make, first_cause=True, line=6)
    v = make.judge(above, raised, attempt=make.attempt(**ONE))
    assert (v.cause, v.confidence) == ("user_error", word)
    of_rank = _raised(make, first_cause=True, line=6, rank=1)
    assert make.judge(above, of_rank, attempt=make.attempt(**ONE)).confidence is C.CERTAIN


@pytest.mark.parametrize(
    ("other", "word"),
    [
        ({"message": "ValueError: second try"}, C.LIKELY),
        ({"message": "ValueError: wrapped", "chained": True}, C.CERTAIN),
        ({"message": "KeyError: 'again'"}, C.CERTAIN),
        ({"message": "ValueError: of another rank", "rank": 3}, C.CERTAIN),
    ],
)
def test_of_two_programs_that_failed_the_first_is_not_certain(make, other, word):
    """`a.py || b.py`: the second decides the exit code. A chain is one failure, and so are the ranks of one job."""
    v = make.judge(_raised(make, first_cause=True), _raised(make, **other), attempt=make.attempt(**ONE))
    assert (v.cause, v.confidence) == ("user_error", word)


def test_a_kill_for_memory_that_slurm_tells_of_is_the_cause_of_a_job_that_was_killed(make):
    """The exception above it was caught: Python would have ended with 1."""
    event = make.finding("slurm_oom", message="slurmstepd: error: StepId=7.batch exceeded memory limit")
    first = _raised(make, first_cause=True)
    v = make.judge(first, event, attempt=make.attempt(**ONE, exit_code=0, exit_signal=9))
    assert v.cause == "oom_host"
    assert event.event_id in v.evidence
    assert make.judge(first, event, attempt=make.attempt(**ONE)).cause == "user_error"


@pytest.mark.parametrize(
    ("over", "detail", "word"),
    [
        ({}, {}, C.CERTAIN),
        ({"n_gpus": 0, "gpus": {}}, {}, C.POSSIBLE),
        ({"exit_code": 6}, {}, C.LIKELY),
        ({"exit_code": 0, "exit_signal": 9}, {}, C.LIKELY),
        ({}, {"goes_on": True}, C.POSSIBLE),
    ],
)
def test_a_full_gpu_is_certain_for_who_has_one_and_ended_of_it(make, over, detail, word):
    """A sentence in a log says as much of a job without a GPU, and of one that skipped the batch."""
    full = make.finding("cuda_oom", message="CUDA out of memory. Tried to allocate 2 GiB", detail={"first_cause": True, **detail})  # fmt: skip
    v = make.judge(full, attempt=make.attempt(**ONE, **over))
    assert (v.cause, v.confidence) == ("oom_gpu", word)


@pytest.mark.parametrize(
    ("detail", "label"),
    [
        ({"host": "slurm-881.out"}, "slurm-881.out: "),
        ({"host": "worker_3"}, "worker_3: "),
        ({"went_on": "3 failed jobs found", "behind": 1}, ""),
        ({"host": "n1", "went_on": "3 failed jobs found", "behind": 1}, ""),
    ],
)
def test_a_full_gpu_of_another_job_in_the_log_of_one_without_gpus_is_quoted_only(make, detail, label):
    """`grep OutOfMemory slurm-*.out` prints the errors of other jobs; a node whose GPUs Slurm does not count may have them.

    The label shows whose line it is, and the next step does not send the owner after it.
    """
    full = make.finding("cuda_oom", message="torch.cuda.OutOfMemoryError: CUDA out of memory", detail={"first_cause": True, **detail})  # fmt: skip
    assert make.judge(full, attempt=make.attempt(**ONE)).cause == "oom_gpu"
    its_own = make.finding(
        "cuda_oom", message="CUDA out of memory", detail={"first_cause": True, "host": "n1"}
    )
    assert make.judge(its_own, attempt=make.attempt(**ONE, n_gpus=0, gpus={})).cause == "oom_gpu"
    v = make.judge(full, attempt=make.attempt(**ONE, n_gpus=0, gpus={}))
    assert v.cause == "user_error"
    assert v.summary == f"The program exited with code 1, with no fault beside it (Slurm gave it no GPU); its log says: {label}torch.cuda.OutOfMemoryError: CUDA out of memory."  # fmt: skip
    assert full.event_id in v.evidence
    assert (
        v.next_step
        == "Look at the program's own output; the line about a full GPU in it is most likely another job's."
    )


@pytest.mark.parametrize(
    "message",
    ["KeyError: 'lr'", "FileNotFoundError: [Errno 2] No such file or directory: '/data/a.tar'", "ZeroDivisionError: division by zero"],
)  # fmt: skip
def test_a_mistake_of_its_own_beside_a_lost_gpu_is_the_programs(make, message):
    """Not every program touches the GPU before it stumbles; that a GPU was lost beside it is why this is not certain."""
    v = make.judge(make.xid(79, before_end_s=40), _raised(make, message, first_cause=True))
    assert (v.cause, v.domain) == ("user_error", D.USER_PROGRAM)
    assert v.confidence is not C.CERTAIN
    assert not any("user program" in r for r in v.ruled_out)


def test_a_refused_command_line_beside_a_lost_gpu_is_the_users(make):
    """argparse reads no GPU."""
    words = "eval.py: error: the following arguments are required: --data"
    refused = make.finding(
        "program_error", message=words, detail={"domains": ["user_program"], "first_cause": True}
    )
    v = make.judge(make.xid(79, before_end_s=40), refused, attempt=make.attempt(exit_code=2))
    assert v.cause == "user_error"


def test_what_a_lost_gpu_makes_programs_say_stays_its_consequence(make):
    """CUDA's own errors, and exceptions of any sort that name no mistake."""
    felt = make.finding(
        "cuda_error", message="RuntimeError: CUDA error: unknown error", detail={"first_cause": True}
    )
    assert make.judge(make.xid(79, before_end_s=40), felt).cause == "gpu_lost"


@pytest.mark.parametrize(
    ("path", "cause"), [("/scratch/a.pt", "filesystem_mount"), ("/home/eva/a.pt", "user_error")]
)
def test_a_missing_file_speaks_for_the_mount_that_it_lies_under(make, path, cause):
    """No other mount that hangs makes it missing."""
    gone = make.event(30, kind="mount", code="missing", device="/scratch", source="mount", node="n1")
    missed = _raised(
        make, f"FileNotFoundError: [Errno 2] No such file or directory: '{path}'", first_cause=True
    )
    assert (
        make.judge(gone, missed, attempt=make.attempt(work_dir="/home/eva", stdout_path="/home/eva/o")).cause
        == cause
    )


def test_a_kernels_line_in_the_log_of_which_its_kernel_knows_nothing_is_possible_at_most(make):
    """`dmesg | tail` at a script's start shows kills of last week."""
    event = make.finding(
        "host_oom_kill", message="Out of memory: Killed process 4711 (python3)", detail={"first_cause": True}
    )
    v = make.judge(event, attempt=make.attempt(**ONE, exit_code=2))
    assert v.confidence in (C.POSSIBLE, C.UNKNOWN)


def test_a_frameworks_own_memory_limit_needs_no_line_of_the_kernel(make):
    """Dask and YARN end their workers themselves; no kernel log has it, watched or not."""
    message = "distributed.nanny.memory - WARNING - Worker exceeded 95% memory budget. Restarting"
    event = make.finding("host_oom_kill", message=message, detail={"first_cause": True, "retried": True})
    v = make.judge(event, attempt=make.attempt(**ONE, exit_code=2))
    assert (v.cause, v.confidence) == ("oom_host", C.LIKELY)
    assert "framework" in v.summary
    assert "kernel killed nothing" in v.next_step


@pytest.mark.parametrize(("before_end_s", "named"), [(100, True), (-150, False), (1102 + 600, False)])
def test_faults_of_other_gpus_are_ruled_out_where_they_came_while_it_ran(make, before_end_s, named):
    """Not those of after its end, and none that was over before it was submitted."""
    mine = make.attempt(nodes=("n2",), n_gpus=1, gpus={"n2": (make.uuid("n2", 2),)})
    v = make.judge(make.xid(48, 5, before_end_s, node="n2"), attempt=mine)
    assert any("did not hold it" in words for words in v.ruled_out) is named


@pytest.mark.parametrize(("signal", "out"), [(10, False), (15, False), (11, True)])
def test_a_limit_of_which_slurm_may_have_warned_is_not_ruled_out(make, signal, out):
    """`sbatch --signal=B:USR1@50` sends it well before the limit."""
    v = make.judge(attempt=make.attempt(**ONE, exit_code=0, exit_signal=signal))
    assert any(words.startswith("time limit") for words in v.ruled_out) is out


@pytest.mark.parametrize(
    ("before_end_s", "felt", "ended", "word"),
    [
        (4, False, {"exit_code": 1}, C.CERTAIN),
        (31, False, {"exit_code": 1}, C.LIKELY),
        (31, True, {"exit_code": 1}, C.CERTAIN),
        (31, False, {"exit_code": 0, "exit_signal": 9}, C.CERTAIN),
    ],
)
def test_a_silent_end_well_after_a_gpu_was_lost_is_likely_its_doing(make, before_end_s, felt, ended, word):
    """Who uses it ends at once, and says so; a code of the script's own half a minute later may be about anything."""
    found = [make.finding("cuda_error", message="RuntimeError: CUDA error: unknown error")] if felt else []
    v = make.judge(make.xid(79, before_end_s=before_end_s), *found, attempt=make.attempt(**ended))
    assert (v.cause, v.confidence) == ("gpu_lost", word)


@pytest.mark.parametrize(
    ("kind", "message", "sure"),
    [
        ("command_not_found", "job.sh: line 2: pip: command not found", C.LIKELY),
        ("program_error", "ERROR: No matching distribution found for scikit-fit", C.LIKELY),
        ("nan_loss", "loss is nan", C.LIKELY),
        ("last_progress", "epoch 2", C.CERTAIN),
    ],
)
def test_a_package_that_is_missing_below_another_failure_is_not_certain(make, kind, message, sure):
    """What should have brought it may be what failed. An error of the code's own stays certain, unless the script outlives failed commands."""
    above = make.finding(kind, message=message, detail={"role": "root", "domains": ["user_program"], "line": 2})  # fmt: skip
    detail = {"role": "root", "domains": ["user_program"], "first_cause": True, "line": 7}
    gone = make.finding("import_error", message="ModuleNotFoundError: No module named 'fit'", detail={**detail, "exception": "ModuleNotFoundError"})  # fmt: skip
    code = make.finding("python_exception", message="KeyError: 'fit'", detail={**detail, "exception": "KeyError"})  # fmt: skip
    below = make.finding(kind, message=message, detail={**above.detail, "line": 9})
    one = make.attempt(exit_code=1, nodes=("n1",))
    assert make.judge(above, gone, attempt=one).confidence is sure
    of_code = C.LIKELY if kind == "command_not_found" else C.CERTAIN
    assert make.judge(above, code, attempt=one).confidence is of_code
    assert make.judge(gone, below, attempt=one).confidence is C.CERTAIN
