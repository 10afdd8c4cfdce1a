"""A job without times in its log that no longer wrote when the limit came: no advice to ask for more time, and no certainty."""

from __future__ import annotations

from datetime import timedelta

import pytest

from probing_cluster.core import records, vocabulary

C = records.Confidence


def _silent(make, silence_s=300.0, **detail):
    found = {"gap_s": 12.0, "n_writes": 1, "last_line": "step 5 loss 1.9", **detail}
    message = f"nothing was written after: {found['last_line']}"
    return make.finding(vocabulary.OUTPUT_STALL, 0.0, measured=silence_s, unit="s", message=message, detail=found)  # fmt: skip


def _timeout(make, state="TIMEOUT", **over):
    return make.attempt(state=state, exit_code=0, start_at=make.end - timedelta(minutes=7), time_limit_s=420.0, **over)  # fmt: skip


def test_silence_before_the_limit_is_stated_and_lowers_the_confidence(make):
    """It may have hung, or it prints rarely: both stay possible."""
    v = make.judge(_silent(make), attempt=_timeout(make))
    assert (v.cause, v.confidence) == ("time_limit", C.LIKELY)
    assert v.summary.startswith("The job reached its time limit of 7 min; nothing was written to its output")
    assert "for the last 5 min of 7 min" in v.summary
    assert "Ask for more time" not in v.next_step
    assert "before you ask for more time" in v.next_step
    assert v.stalled_at is None


def test_a_job_that_wrote_regularly_is_named_with_its_gaps(make):
    """Three growths or more make the gap between them a measure."""
    v = make.judge(_silent(make, n_writes=9, gap_s=31.0), attempt=_timeout(make))
    assert "before that it was never silent for longer than 31 s" in v.summary


@pytest.mark.parametrize(
    "line", ["Overwrite existing checkpoint? [y/N]", "Proceed ([y]/n)? (y/n)", "Password for alice: "]
)
def test_an_output_that_ends_in_a_question_waited_for_its_answer(make, line):
    """Nobody sits at a batch job's terminal."""
    v = make.judge(_silent(make, last_line=line), attempt=_timeout(make))
    assert "which ends in a question" in v.summary
    assert "nobody could answer" in v.next_step


def test_without_silence_the_limit_is_certain(make):
    """As before."""
    v = make.judge(attempt=_timeout(make))
    assert (v.confidence, v.summary) == (C.CERTAIN, "The job reached its time limit of 7 min.")


def _raised(make, **detail):
    words = "RuntimeError: dataset server said 403"
    found = {
        "exception": "RuntimeError",
        "role": "root",
        "first_cause": True,
        "line": 3,
        "behind": 2,
        **detail,
    }
    return make.finding("python_exception", 0.0, message=words, detail=found)


def test_an_error_that_the_output_ends_with_is_named_beside_the_limit(make):
    """The program died at once and the script slept on: more time would not help."""
    end = make.finding("slurm_timeout", 0.0, detail={"role": "end", "line": 5})
    v = make.judge(_raised(make), end, attempt=_timeout(make, nodes=("n1",), n_gpus=1))
    assert (v.cause, v.confidence) == ("time_limit", C.LIKELY)
    assert v.summary == "The job reached its time limit of 7 min; its output ends with an error: RuntimeError: dataset server said 403."  # fmt: skip
    assert v.next_step.startswith("Look at the error that its output ends with before you ask for more time")
    both = make.judge(_raised(make), _silent(make), attempt=_timeout(make, nodes=("n1",), n_gpus=1))
    assert "nothing was written to its output" in both.summary
    assert "RuntimeError: dataset server said 403" in both.summary
    assert both.next_step == v.next_step


@pytest.mark.parametrize(
    ("reason", "held"),
    [
        (" (Requested nodes are busy)", "nodes"),
        (" (Memory required by task is not available)", "memory"),
        ("", "nodes"),
        (" (Required node not available (down, drained or reserved))", ""),
    ],
)
@pytest.mark.parametrize(("role", "is_named"), [("symptom", True), ("observation", False)])
def test_a_step_that_waited_until_the_limit_is_named_beside_it(make, role, is_named, reason, held):
    """Its resources were held by another step of the job: more time would not help. A step that began at last explains nothing."""
    words = f"srun: Job 6 step creation temporarily disabled, retrying{reason}"
    detail = {"role": role, "first_cause": is_named, "line": 1, "behind": 7}
    waited = make.finding("slurm_launch_failed", 0.0, message=words, detail=detail)
    v = make.judge(waited, attempt=_timeout(make, nodes=("n1",), n_gpus=1))
    assert v.cause == "time_limit"
    why = f", because other steps of the job held the {held}" if held else ""
    named = f"; one of its steps never began: srun waited until the time limit{why}; its log says: {words}."
    assert v.summary.endswith(named) is is_named
    assert "with an error" not in v.summary
    assert "may have ended" not in v.next_step
    assert ("`srun --overlap`" in v.next_step) is (is_named and bool(held))
    assert ("A longer time limit does not help" in v.next_step) is (is_named and bool(held))
    assert ("before you ask for more time" in v.next_step) is (is_named and not held)
    late = make.judge(waited, attempt=_timeout(make, nodes=("n1",), n_gpus=1, state="DEADLINE"))
    assert ("srun waited until that deadline" in late.summary) is is_named


@pytest.mark.parametrize("took_turns", [True, False])
def test_steps_that_took_turns_want_more_at_a_time_or_more_time(make, took_turns):
    """An earlier step that had waited began: steps end and make room, so more time does help."""
    words = "srun: Job 6 step creation temporarily disabled, retrying (Requested nodes are busy)"
    detail = {"role": "symptom", "first_cause": True, "line": 5, "behind": 1}
    detail |= {vocabulary.STEPS_TOOK_TURNS: True} if took_turns else {}
    waited = make.finding("slurm_launch_failed", 0.0, message=words, detail=detail)
    v = make.judge(waited, attempt=_timeout(make, nodes=("n1",), n_gpus=1))
    assert "because other steps of the job held the nodes" in v.summary
    assert v.next_step.startswith("Its steps took turns") is took_turns
    assert ("or ask for more time" in v.next_step) is took_turns
    assert ("A longer time limit does not help" in v.next_step) is not took_turns


def test_an_error_in_one_file_beside_steps_in_the_other_did_not_end_the_program(make):
    """A thread that uploads died, and wrote that into the error file; the training went on until the limit."""
    end = make.finding("slurm_timeout", 0.0, detail={"role": "end", "line": 5})
    steps = make.finding(
        vocabulary.LOG_PROGRESS, 4.0, measured=1.0, unit="s", message="progress until: step 60"
    )
    v = make.judge(_raised(make), end, steps, attempt=_timeout(make, nodes=("n1",), n_gpus=1))
    assert v.summary == "The job reached its time limit of 7 min."
    assert "Look at the error" not in v.next_step
    early = make.finding(
        vocabulary.LOG_PROGRESS, 400.0, measured=1.0, unit="s", message="progress until: step 3"
    )
    v = make.judge(_raised(make), end, early, attempt=_timeout(make, nodes=("n1",), n_gpus=1))
    assert "its output ends with an error" in v.summary


@pytest.mark.parametrize(
    "detail",
    [{"behind": 40}, {"handled": True}, {"survived": True}, {"first_cause": False}, {"line": 9}, {"role": "exit"}],
)  # fmt: skip
def test_an_error_that_the_program_got_over_leaves_the_limit_certain(make, detail):
    """It went on, or the error came of the limit itself: then it stands below Slurm's line."""
    end = make.finding("slurm_timeout", 0.0, detail={"role": "end", "line": 5})
    v = make.judge(_raised(make, **detail), end, attempt=_timeout(make, nodes=("n1",), n_gpus=1))
    assert (v.confidence, v.summary) == (C.CERTAIN, "The job reached its time limit of 7 min.")


def test_a_job_that_ended_by_itself_was_at_work(make):
    """Its silence was work: an exit code says that it went on."""
    v = make.judge(_silent(make))
    assert "nothing was written" not in v.summary


def test_times_in_the_log_and_the_probe_say_more(make):
    """A dated standstill names its instant; a step that the probe saw later excludes the silence."""
    detail = {"line": 3, "before_s": 20.0, "gap_s": 20.0}
    dated = make.finding(vocabulary.LOG_STALL, 0.0, measured=400.0, unit="s", detail=detail)
    assert "no progress since" in make.judge(_silent(make), dated, attempt=_timeout(make)).summary
    later = make.judge(
        _silent(make), attempt=_timeout(make), last_progress_at=make.end - timedelta(seconds=9)
    )
    assert "nothing was written" not in later.summary
