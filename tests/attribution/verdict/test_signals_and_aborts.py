"""Ends by MPI_Abort and by a signal that somebody sent: who went first, and what Slurm's lines show of it."""

from __future__ import annotations

import pytest

from probing_cluster.core import records
from probing_cluster.evidence.joblog import reader

C = records.Confidence
BANNER = "MPI_ABORT was invoked on rank 1 in communicator MPI_COMM_WORLD"


def _abort(make, **detail):
    about = {"role": "exit", "called_abort": True, "rank": 1, **detail}
    return make.finding("process_aborted", message=BANNER, detail=about)


def _task(make, code=42, rank=1, **detail):
    about = {"role": "exit", "tasks": str(rank), "rank": rank, "exit_code": code, "host": "n2", **detail}
    return make.finding(
        "task_exit", message=f"srun: error: n2: task {rank}: Exited with exit code {code}", detail=about
    )


def _terminated(make):
    return make.finding(
        "process_terminated",
        message="srun: error: n1: task 0: Terminated",
        detail={"role": "exit", "rank": 0},
    )


@pytest.mark.parametrize("exit_code", [15, 143])
def test_the_code_of_the_rank_that_called_mpi_abort_outranks_the_signal_of_the_others(make, exit_code):
    """`srun --kill-on-bad-exit` ends the others with SIGTERM, and the highest code, 143, becomes the script's."""
    v = make.judge(
        _abort(make, first_cause=True),
        _task(make),
        _terminated(make),
        attempt=make.attempt(exit_code=exit_code),
    )
    assert (v.cause, v.confidence) == ("user_error", C.LIKELY)
    assert v.summary == "The program called MPI_Abort in rank 1 with code 42, and its launcher ended the others, with no fault beside it."  # fmt: skip


def test_an_abort_below_sruns_line_on_its_task_is_named(make):
    """Standard output and error of a step are not written in order."""
    abort, task = _abort(make), _task(make, first_cause=True)
    v = make.judge(abort, task, _terminated(make), attempt=make.attempt(exit_code=15))
    assert "called MPI_Abort in rank 1 with code 42" in v.summary
    other = make.judge(
        abort, _task(make, rank=3, first_cause=True), _terminated(make), attempt=make.attempt(exit_code=15)
    )
    assert "exited with code 42 (task 3 on n2, before any other)" in other.summary


@pytest.mark.parametrize("own_code", [None, 143])
def test_without_the_ranks_own_code_the_signal_stays_in_doubt(make, own_code):
    """MPI_Abort may be what a program calls that was sent SIGTERM; a rank that ended by a signal gave no code."""
    own = [] if own_code is None else [_task(make, own_code)]
    attempt = make.attempt(exit_code=15)
    v = make.judge(_abort(make, first_cause=True), *own, _terminated(make), attempt=attempt)
    assert (v.cause, v.confidence) == ("rank_killed", C.POSSIBLE)


def test_a_job_that_ended_with_the_aborts_code_exited_with_it(make):
    """Of its launcher's signals to the others nothing is known."""
    v = make.judge(_abort(make, first_cause=True), _task(make), attempt=make.attempt(exit_code=42))
    assert (
        v.summary
        == "The program called MPI_Abort in rank 1 and exited with code 42, with no fault beside it."
    )


@pytest.mark.parametrize(
    ("line", "named"),
    [
        ("slurmstepd-n1: error: *** JOB 4242 ON n1 CANCELLED AT 2026-03-02T14:32:00 ***", True),
        ("slurmstepd-n1: error: *** JOB 4243 ON n1 CANCELLED AT 2026-03-02T14:32:00 ***", False),
        ("slurmstepd-n1: error: *** STEP 4242.0 ON n1 CANCELLED AT 2026-03-02T14:32:00 ***", False),
    ],
)
def test_a_signal_that_slurm_passed_on_is_called_so(make, line, named):
    """`scancel -s TERM --full`: of a step, srun's own end of it reads the same; another job's line is of another job."""
    event = make.finding("slurm_cancelled", message=line, detail={"role": "end", "first_cause": True})
    v = make.judge(event, attempt=make.attempt(exit_code=0, exit_signal=15))
    assert (v.cause, v.confidence) == ("rank_killed", C.POSSIBLE)
    assert ("Slurm passed the signal on" in v.summary and line in v.summary) is named
    assert ("nothing shows who sent the signal" in v.summary) is not named
    assert (event.event_id in v.evidence) is named
    assert ("slurmctld's log" in v.next_step) is named
    assert "Memory" not in v.next_step


STEP_LIMIT = "slurmstepd: error: *** STEP 4242.0 ON n1 CANCELLED AT 2026-03-02T14:20:00 DUE TO TIME LIMIT ***"


def test_a_steps_own_limit_is_not_the_jobs(make):
    """The job has time left; what ends the script is its step."""
    event = make.finding("slurm_timeout", message=STEP_LIMIT, detail={"role": "end", "first_cause": True})
    for code, signal in (0, 15), (15, 0), (143, 0), (137, 0):
        v = make.judge(event, attempt=make.attempt(exit_code=code, exit_signal=signal))
        assert (v.cause, v.confidence) == ("time_limit", C.LIKELY)
        assert v.summary == "Step 4242.0 of the job reached its own time limit (srun --time), not the job's."
        assert "srun's own --time" in v.next_step
        assert v.evidence == (event.event_id,)
    by_code = make.judge(event, attempt=make.attempt(exit_code=1))
    assert (by_code.cause, by_code.confidence) == ("time_limit", C.POSSIBLE)


def test_a_steps_limit_that_the_script_outlived_explains_no_later_error(make):
    """Nor does another job's, nor one of a job that reached its own limit."""
    detail = {"role": "end", "first_cause": True}
    event = make.finding("slurm_timeout", message=STEP_LIMIT, detail=detail)
    later = make.finding("python_exception", message="KeyError: 'lr'", detail={"role": "root", "domains": ["user_program"]})  # fmt: skip
    v = make.judge(event, later, attempt=make.attempt(exit_code=1))
    assert (v.cause, event.event_id in v.evidence) == ("user_error", True)
    other = make.finding("slurm_timeout", message=STEP_LIMIT.replace("4242", "4243"), detail=detail)
    assert make.judge(other, attempt=make.attempt(exit_code=15)).cause == "user_error"
    whole = make.judge(event, attempt=make.attempt(state="TIMEOUT", exit_code=0, time_limit_s=60.0))
    assert "The job reached its time limit" in whole.summary


@pytest.mark.parametrize(
    ("message", "cause"),
    [
        ("FileNotFoundError: [Errno 2] No such file or directory: 'weights.bin'", "time_limit"),
        ("tar: out: Cannot stat: No such file or directory", "time_limit"),
        ("ValueError: 3 columns expected", "user_error"),
        ("python3: can't open file '/home/u/eval.py': [Errno 2] No such file or directory", "user_error"),
        ("FileNotFoundError: [Errno 2] No such file or directory: '/opt/tool/a.cfg'", "user_error"),
    ],
)
def test_a_file_missing_after_a_steps_limit_is_its_consequence(make, message, cause):
    detail = {"role": "end", "first_cause": True, "line": 3}
    limit = make.finding("slurm_timeout", message=STEP_LIMIT, detail=detail)
    (read,) = reader.read([message])
    later = make.finding(read.kind, message=message, detail={**read.detail, "role": "root", "domains": ["user_program"], "line": 9})  # fmt: skip
    v = make.judge(limit, later, attempt=make.attempt(exit_code=2))
    assert (v.cause, v.confidence) == (cause, C.LIKELY)
    assert limit.event_id in v.evidence


def test_a_stage_that_died_before_the_script_ended_is_quoted(make):
    line = "run.sh: line 4: 812 Aborted    ./fold"
    detail = {"role": "exit", "first_cause": True}
    died = make.finding("process_aborted", message=line, detail=detail)
    v = make.judge(died, attempt=make.attempt(exit_code=1))
    assert "its log says: Aborted in `./fold`" in v.summary


def test_memory_sends_no_sigterm(make):
    v = make.judge(attempt=make.attempt(exit_code=0, exit_signal=15))
    assert v.next_step.startswith("Find out who sent it: a person (kill, `scancel -s TERM`)")
    assert "Memory" in make.judge(attempt=make.attempt(exit_code=0, exit_signal=9)).next_step


@pytest.mark.parametrize(
    ("kind", "message", "code", "cause"),
    [
        ("oom_kill_suspected", "./run.sh: line 7: 90 Killed ./merge", 137, "rank_killed"),
        ("process_terminated", "./run.sh: line 7: 90 Terminated ./merge", 143, "rank_killed"),
        ("slurm_oom", "slurmstepd: error: Detected 1 oom_kill event in StepId=4242.1.", 137, "oom_host"),
        ("oom_kill_suspected", "srun: error: n1: task 0: Killed", 137, "time_limit"),
        ("oom_kill_suspected", "./run.sh: line 7: 90 Killed srun ./train", 137, "time_limit"),
    ],
)
def test_a_steps_limit_explains_no_later_kill(make, kind, message, code, cause):
    """The script outlived the step; Slurm's own end of the step's tasks is none."""
    detail = {"role": "end", "first_cause": True, "line": 3}
    limit = make.finding("slurm_timeout", message=STEP_LIMIT, detail=detail)
    killed = make.finding(kind, message=message, detail={"role": "root", "line": 6})
    assert make.judge(limit, killed, attempt=make.attempt(exit_code=code)).cause == cause


def test_a_steps_limit_takes_nothing_from_a_fault(make):
    """A lost GPU and a kill for memory explain the end; a lost peer shows that it may have hung."""
    detail = {"role": "end", "first_cause": True, "line": 3}
    limit = make.finding("slurm_timeout", message=STEP_LIMIT, detail=detail)
    lost = make.judge(limit, make.xid(79), attempt=make.attempt(exit_code=143))
    assert (lost.cause, lost.confidence) == ("gpu_lost", C.CERTAIN)
    peer = make.finding("nccl_remote_error", message="[rank3]: NCCL error: remote process exited", detail={"role": "remote", "line": 2})  # fmt: skip
    v = make.judge(limit, peer, attempt=make.attempt(exit_code=143))
    assert (v.cause, v.confidence) == ("time_limit", C.POSSIBLE)


@pytest.mark.parametrize(
    ("line", "code", "number"),
    [
        ("/spool/job7/slurm_script: Zeile 3:  4711 Beendet      ./solve", 15, "15 (SIGTERM)"),
        ("/spool/job7/slurm_script: ligne 3 :  4711 Complété     ./solve", 143, "15 (SIGTERM)"),
        ("/spool/job7/slurm_script: Zeile 3:  4711 Gleitkomma-Ausnahme (Speicherabzug geschrieben) ./solve", 8, "8 (SIGFPE)"),
        ("/spool/job7/slurm_script: línea 3:  4711 Superado el límite de tamaño de fichero ./solve", 25, "25 (SIGXFSZ)"),
    ],
)  # fmt: skip
def test_a_shells_message_in_another_language_shows_the_signal(make, line, code, number):
    """For a script's 143 Slurm records 15."""
    found = [f for f in reader.read(["start", line]) if f.first_cause]
    events = [make.finding(f.kind, message=f.message, detail={**f.detail, "first_cause": True, "line": f.line}) for f in found]  # fmt: skip
    v = make.judge(*events, attempt=make.attempt(exit_code=code, nodes=("n1",)))
    assert f"was ended by signal {number}" in v.summary


@pytest.mark.parametrize(
    ("code", "behind", "went_on"), [(4, 2, True), (1, 2, False), (15, 2, False), (4, None, False)]
)
def test_a_step_that_failed_before_the_script_ended_with_its_own_code_is_no_first_of_its_tasks(
    make, code, behind, went_on
):
    """Six steps of one task each, of which the fourth fails; a launcher that ends the others leaves 15."""
    detail = {"role": "exit", "first_cause": True, "rank": 0, "tasks": "0", "exit_code": 1, "host": "n1", "behind": behind}  # fmt: skip
    line = make.finding(
        "task_exit", message="srun: error: n1: task 0: Exited with exit code 1", detail=detail
    )
    v = make.judge(line, attempt=make.attempt(exit_code=code))
    assert ("before any other" in v.summary) is not went_on
    words = "The program exited with code 4 after a step of its script had exited with code 1 (task 0 on n1) and the script had gone on, with no fault beside it."
    assert (v.summary == words) is went_on
    assert ("above srun's line" in v.next_step) is went_on
    of_another = make.finding("task_exit", message="srun: error: n2: task 3: Exited with exit code 4", detail=detail | {"first_cause": False, "rank": 3, "tasks": "3", "exit_code": 4, "host": "n2"})  # fmt: skip
    v = make.judge(line, of_another, attempt=make.attempt(exit_code=code))
    assert "gone on" not in v.summary, "srun ends with the highest of its tasks' codes"
