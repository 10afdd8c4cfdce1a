from __future__ import annotations

import dataclasses
import re
import uuid
from datetime import timedelta

import conftest_story as example
import pytest

from probing_cluster.core import records
from probing_cluster.reports import job_ref, json_out, model, page, rows, text
from probing_cluster.reports.charts import timeline

NOW = example.at("15:00:00")


def build(found: rows.ReportRows) -> model.ReportModel:
    return model.build(job_ref.parse("4242"), found, now=NOW)


def render(found: rows.ReportRows, **options: object) -> str:
    return text.render(build(found), **options)  # type: ignore[arg-type]


def test_the_report_answers_why_what_it_cost_and_what_now(story: rows.ReportRows) -> None:
    """The four things a person came for are there, with the evidence at its instants."""
    page = render(story)
    for line in (
        "Job 4242  llama-70b-sft                                COMPLETED after 1 requeue",
        "ETTR 0.71 (expected 0.85;",
        "Why attempt 1 was requeued                                     hardware, certain",
        "GPU 3 of n2 fell off the bus (Xid 79) 4 s before the job ended.",
        "14:20:32Z  n2  kernel  Xid 79  gpu3 0000:5e:00",
        "n2 drained 14:20:34Z (probing: xid 79 gpu3); job requeued 14:20:35Z; n1: no",
        "What now      For the operators: Reseat or replace GPU 3 of n2",
        "What it cost  2.6 GPU-hours: 2.0 replayed, 0.3 restarting, 0.3 queued",
    ):
        assert line in page


def test_a_line_of_the_output_has_its_number_in_place_of_a_time(story: rows.ReportRows) -> None:
    """What stands behind the end is the time of its reading; the columns keep their places."""
    read_at = example.at("14:20:59")
    changed = {
        "source": "joblog",
        "kind": "python_exception",
        "message": "KeyError: 'lr'",
        "detail": {"line": 7},
    }
    found = dataclasses.replace(story.evidence[0], at=read_at, **changed)  # type: ignore[arg-type]
    page = render(dataclasses.replace(story, evidence=(found, story.evidence[1])))
    assert "    14:20:32Z  n2  kernel  Xid 79" in page
    assert "    line 7     n2  joblog  python_exception  gpu3  KeyError: 'lr'" in page
    assert "14:20:59Z" not in page


def test_a_node_that_nobody_watched_is_not_called_faultless(story: rows.ReportRows) -> None:
    """Its kernel log was not imported and it has no agent: that nothing is recorded of it says nothing."""
    first = min(a.submit_at for a in story.attempts)
    page = render(dataclasses.replace(story, unwatched=frozenset({(first, "n1")})))
    assert "nobody watched n1" in " ".join(page.split())
    assert "no fault recorded" not in " ".join(page.split())


@pytest.mark.parametrize(
    ("number", "code", "behind", "words"),
    [
        (1, 1, None, "one of its steps ended with exit code 1."),
        (1, 139, None, "one of its steps ended with exit code 139 (signal 11)."),
        (1, 3, 4, "one of its steps ended with exit code 3."),
        (1, 0, 0, "its output ends with an error."),
        (1, None, 0, "its output ends with an error."),
        (1, 0, 1, "its output has an error 1 line before its end."),  # the script's `echo done`
        (1, 0, 3, "its output has an error 3 lines before its end."),
        (1, 0, 4, ""),  # it went on behind the error: a trial, a retry
        (1, 0, None, ""),
        (2, 143, None, ""),  # Slurm keeps the code of the start that was requeued
        (2, 143, 0, "its output ends with an error."),
    ],
)
def test_of_a_job_that_completed_what_failed_in_it_is_shown(
    story: rows.ReportRows, number: int, code: int | None, behind: int | None, words: str
) -> None:
    """Slurm looks at the batch script's end alone: a step that failed before its last command leaves the job COMPLETED."""
    last = dataclasses.replace(
        max(story.attempts, key=lambda a: a.submit_at), attempt=number, derived_exit_code=code
    )
    error = example.event(
        uuid.UUID(int=7), example.at("14:41:09"), node="n1", kind="python_exception", source="joblog", job_id=4242,
        message="KeyError: 'lr'", detail={"behind": behind} if behind else {},
    )  # fmt: skip
    errors = () if behind is None else (error,)
    log = rows.JobLog(node="n1", at=example.at("14:21:40"), path="/home/alice/out", tail=("all done",))
    earlier = (min(story.attempts, key=lambda a: a.submit_at),) * (number - 1)
    found = dataclasses.replace(story, attempts=(last, *earlier), own_errors=errors, logs=(log,))
    report = model.build(job_ref.parse("4242"), found, now=NOW)
    plain = " ".join(text.render(report).split())
    shown = bool(words)
    assert words in plain
    assert ("completed, but part of it failed" in plain) is (
        shown and ((bool(code) and number == 1) or behind == 0)
    )
    assert ("completed, but part of it may have failed" in plain) is (" before its end" in words)
    assert ("| all done" in plain) is shown
    assert ("set -eo pipefail" in plain) is shown
    assert ("KeyError: 'lr'" in plain) is (shown and behind is not None)
    document = json_out.document(report)["attempts"][-1]
    assert words in (document["completed_but"] or "")
    assert [e["message"] for e in document["own_errors"]] == ["KeyError: 'lr'"] * len(errors)
    drawn = page.render(report)
    assert words in drawn
    assert ("Errors in its output" in drawn) is (shown and behind is not None)


CANCELLED = "slurmstepd-n2: error: *** STEP 4242.0 ON n2 CANCELLED AT 2026-12-01T11:13:21 ***"
OVER = "slurmstepd-n1: error: StepId=4242.0 exceeded memory limit (92876800 > 62914560), being killed"


@pytest.mark.parametrize(
    ("code", "kill", "tail", "words", "step", "title"),
    [
        (137, "", (CANCELLED, "finished"), "its step 4242.0 was cancelled and ended with exit code 137 (signal 9).", "If the script cancelled that step itself, or you did (`scancel 4242.0`), nothing failed.", "may have failed"),
        (137, OVER, (CANCELLED, "step rc 137"), "its step 4242.0 ran out of memory and ended with exit code 137 (signal 9).", "Give that step more memory: the job's (--mem)", "part of it failed"),
        (1, "srun: error: n1: task 0: Out Of Memory", ("bye",), "one of its steps ran out of memory and ended with exit code 1.", "Give that step more memory", "part of it failed"),
        (1, "run.sh: line 9:     8 Killed                  ./watcher.sh", ("bye",), "one of its steps ended with exit code 1.", "If the failed part matters", "part of it failed"),
        (137, "", ("srun: error: n1: task 1: Exited with exit code 1", CANCELLED), "one of its steps ended with exit code 137 (signal 9).", "If the failed part matters", "part of it failed"),
        (1, "", (CANCELLED,), "one of its steps ended with exit code 1.", "If the failed part matters", "part of it failed"),
        (137, "", (CANCELLED.replace("4242", "4241"),), "one of its steps ended with exit code 137 (signal 9).", "If the failed part matters", "part of it failed"),
    ],
)  # fmt: skip
def test_a_step_of_a_completed_job_that_was_cancelled_or_lacked_memory_is_named(
    story: rows.ReportRows, code: int, kill: str, tail: tuple[str, ...], words: str, step: str, title: str
) -> None:
    """Another job's line in the file, or a task that failed before, cancels no step."""
    last = dataclasses.replace(
        max(story.attempts, key=lambda a: a.submit_at), attempt=1, derived_exit_code=code
    )
    error = example.event(
        uuid.UUID(int=7), example.at("14:41:09"), node="n1", kind="oom_kill_suspected" if "line 9" in kill else "slurm_oom", source="joblog", job_id=4242, message=kill, detail={},
    )  # fmt: skip
    log = rows.JobLog(node="n1", at=example.at("14:21:40"), path="/home/alice/out", tail=tail)
    found = dataclasses.replace(story, attempts=(last,), own_errors=(error,) if kill else (), logs=(log,))
    report = model.build(job_ref.parse("4242"), found, now=NOW)
    view = report.attempts[0]
    assert words in view.doubt
    assert title in view.doubt_title
    assert report.advice[-1].startswith(step)


@pytest.mark.parametrize("behind", [0, 1])
@pytest.mark.parametrize(("how", "shown"), [("Killed", True), ("Terminated", False)])
def test_of_a_job_that_completed_a_killed_command_is_in_doubt_and_a_stopped_helper_is_none(
    story: rows.ReportRows, how: str, behind: int, shown: bool
) -> None:
    """Scripts end their helpers with `kill`; a kill for memory looks like `kill -9`."""
    last = dataclasses.replace(max(story.attempts, key=lambda a: a.submit_at), attempt=1, derived_exit_code=0)
    error = example.event(
        uuid.UUID(int=7), example.at("14:41:09"), node="n1", kind="oom_kill_suspected" if shown else "process_terminated", source="joblog",
        job_id=4242, message=f"slurm_script: line 9: 4242 {how}                  ./monitor", detail={"behind": behind} if behind else {},
    )  # fmt: skip
    log = rows.JobLog(node="n1", at=example.at("14:21:40"), path="/home/alice/out", tail=("all done",))
    found = dataclasses.replace(story, attempts=(last,), own_errors=(error,), logs=(log,))
    plain = " ".join(
        text.render(model.build(job_ref.parse("4242"), found, now=NOW)).replace("|", " ").split()
    )
    assert "part of it failed" not in plain
    assert ("completed, but part of it may have failed" in plain) is shown
    assert ("its output reports that SIGKILL ended a command of the script" in plain) is shown
    assert ("If the script killed that command itself" in plain) is shown
    assert ("process_killed" in plain, "oom_kill" in plain) == (shown, False), "the label names no reason"
    other = dataclasses.replace(error, event_id=uuid.UUID(int=8), message="KeyError: 'lr'")
    both = dataclasses.replace(found, own_errors=(error, other))
    assert "SIGKILL ended" not in text.render(model.build(job_ref.parse("4242"), both, now=NOW))


@pytest.mark.parametrize(
    ("code", "job", "line", "shown"),
    [
        (143, 4242, "STEP {job}.3 ON n2 CANCELLED AT 2026-03-02T14:30:00 DUE TO TIME LIMIT", True),
        (137, 4242, "STEP {job}.3 ON n2 CANCELLED AT 2026-03-02T14:30:00 DUE TO TIME LIMIT", True),
        (3, 4242, "STEP {job}.3 ON n2 CANCELLED AT 2026-03-02T14:30:00 DUE TO TIME LIMIT", False),  # another one failed
        (0, 4242, "STEP {job}.3 ON n2 CANCELLED AT 2026-03-02T14:30:00 DUE TO TIME LIMIT", None),  # it took it well
        (143, 17, "STEP {job}.3 ON n2 CANCELLED AT 2026-03-02T14:30:00 DUE TO TIME LIMIT", False),  # another job's
        (143, 4242, "JOB {job} ON n2 CANCELLED AT 2026-03-02T14:30:00 DUE TO PREEMPTION", False),
    ],
)  # fmt: skip
def test_of_a_job_that_completed_a_step_at_its_own_limit_is_named(
    story: rows.ReportRows, code: int, job: int, line: str, shown: bool | None
) -> None:
    """Slurm's line is no error where the program took it well; `shown` None: nothing failed."""
    last = dataclasses.replace(
        max(story.attempts, key=lambda a: a.submit_at), attempt=1, derived_exit_code=code
    )
    event = example.event(
        uuid.UUID(int=7), example.at("14:41:09"), node="n1", kind="slurm_timeout", source="joblog", job_id=4242,
        message=f"slurmstepd-n2: error: *** {line.format(job=job)} ***", detail={"role": "end", "behind": 3, "first_cause": True},
    )  # fmt: skip
    found = dataclasses.replace(story, attempts=(last,), own_errors=(event,))
    plain = " ".join(text.render(model.build(job_ref.parse("4242"), found, now=NOW)).split())
    assert ("its step 4242.3 reached its own time limit (srun --time)" in plain) is (shown is True)
    assert ("srun's own --time" in plain) is (shown is True)
    assert ("one of its steps ended with exit code" in plain) is (shown is False)
    assert ("part of it" in plain) is (shown is not None)


def test_the_line_that_a_verdict_quotes_is_in_every_report(story: rows.ReportRows) -> None:
    """Attribution quotes the last line of a program that failed for no known reason; text, page and JSON have its words."""
    summary = "The program exited with code 1, with no fault beside it. Its last line: checkpoint version 3 is too new"
    (of_story, *_) = story.verdicts
    last = max(story.attempts, key=lambda a: a.submit_at)
    verdict = dataclasses.replace(
        of_story, submit_at=last.submit_at, cause="user_error", summary=summary, evidence=()
    )
    found = dataclasses.replace(story, attempts=(last,), verdicts=(verdict,))
    report = model.build(job_ref.parse("4242"), found, now=NOW)
    document = json_out.document(report)["attempts"][0]
    assert (document["explanation"], document["verdict"]["summary"]) == (summary, summary)
    assert summary in " ".join(text.render(report).split())
    assert summary in page.render(report)


@pytest.mark.parametrize(
    ("kind", "detail", "tail", "shown"),
    [
        ("slurm_cancelled", {"role": "end", "behind": 1, "last_words": "checkpoint written"}, ("checkpoint written",), False),
        ("python_exception", {"role": "root", "behind": 2, "last_words": "Finished: 100 of 100"}, ("built token cache", "Finished: 100 of 100"), False),
        ("python_exception", {"role": "root", "behind": 2, "last_words": "done"}, ("retry 2 succeeded", "done"), False),
        ("python_exception", {"role": "root", "behind": 2, "last_words": "done"}, ("[100/100] saved", "done"), False),
        ("python_exception", {"role": "root", "behind": 1, "last_words": "done"}, ("done",), True),
        ("python_exception", {"role": "root", "behind": 1, "last_words": "done", "handled": True}, ("done",), False),
        ("python_exception", {"role": "root", "behind": 1, "last_words": "only 3 of 100 done"}, ("only 3 of 100 done",), True),
        ("python_exception", {"role": "root", "behind": 1, "last_words": "not successful"}, ("not successful",), True),
        ("python_exception", {"role": "root"}, ("Finished: 100 of 100", "KeyError: 'lr'"), True),
        ("python_exception", {"role": "root", "behind": 3}, ("All 500 of 500 recovered", "done"), False),
        ("program_error", {"role": "root", "behind": 1}, ("Skipping evaluation: the training produced no model",), True),
        ("program_error", {"role": "root", "behind": 1}, ("ignoring exit code 1 of train.py",), True),
        ("program_error", {"role": "root", "behind": 1}, ("Error ignored: results incomplete",), True),
        ("program_error", {"role": "root", "behind": 1}, ("no display, continuing without it",), False),
        ("program_error", {"role": "root", "behind": 1}, ("skipping the remaining stages",), True),
        ("python_exception", {"role": "root", "behind": "x"}, ("done",), True),
        ("python_exception", {"role": "root", "behind": -5}, ("done",), True),
    ],
)  # fmt: skip
def test_an_error_that_the_program_got_over_is_none(
    story: rows.ReportRows, kind: str, detail: dict[str, object], tail: tuple[str, ...], shown: bool
) -> None:
    """Of a stop that the program took well, Slurm's line is no error either. A script prints `done` behind whatever failed."""
    last = dataclasses.replace(max(story.attempts, key=lambda a: a.submit_at), attempt=1, derived_exit_code=0)
    error = example.event(
        uuid.UUID(int=7), example.at("14:41:09"), node="n1", kind=kind, source="joblog", job_id=4242, message="x", detail=detail
    )  # fmt: skip
    log = rows.JobLog(node="n1", at=example.at("14:21:40"), path="/home/alice/out", tail=tail)
    found = dataclasses.replace(story, attempts=(last,), own_errors=(error,), logs=(log,))
    assert ("completed, but" in render(found)) is shown


def test_an_error_at_the_end_stays_although_an_earlier_one_was_got_over(story: rows.ReportRows) -> None:
    """What went well stood above the last error."""
    last = max(story.attempts, key=lambda a: a.submit_at)
    last = dataclasses.replace(last, attempt=1, derived_exit_code=0)
    earlier, final = (
        example.event(
            uuid.UUID(int=number), example.at("14:41:09"), node="n1", kind="python_exception", source="joblog", job_id=4242,
            detail={"role": "root", **detail},
        )
        for number, detail in ((7, {"behind": 2, "last_words": "recovered"}), (8, {}))
    )  # fmt: skip
    for errors, shown in (((earlier,), False), ((earlier, final), True)):
        found = dataclasses.replace(story, attempts=(last,), own_errors=errors)
        assert ("its output ends with an error" in " ".join(render(found).split())) is shown


@pytest.mark.parametrize(("n_hosts", "words"), [(99, "n[1-99]."), (100, "n[1-100] and more.")])
def test_no_more_hosts_are_known_than_are_read(story: rows.ReportRows, n_hosts: int, words: str) -> None:
    """`sql/report.sql` reads a hundred of those on which Slurm ran a job in /tmp."""
    last = max(story.attempts, key=lambda a: a.submit_at)
    last = dataclasses.replace(last, attempt=1, state="COMPLETED", exit_code=0, end_at=example.at("14:45:00"))
    moved = [
        example.event(
            uuid.UUID(int=number), example.at("14:41:09"), node="n1", kind="directory_replaced", source="joblog", job_id=4242,
            detail={"directory": "/w", "host": f"n{number}"},
        )
        for number in range(1, n_hosts + 1)
    ]  # fmt: skip
    found = dataclasses.replace(story, attempts=(last,), moved=tuple(moved))
    assert f"ran it in /tmp of {words}" in " ".join(render(found).split())


@pytest.mark.parametrize(("state", "code"), [("COMPLETED", 0), ("FAILED", 2)])
def test_a_job_that_slurm_ran_in_tmp_is_told_so(story: rows.ReportRows, state: str, code: int) -> None:
    """Its --chdir did not exist: its results, or the file that it missed, are not where its owner looks."""
    last = max(story.attempts, key=lambda a: a.submit_at)
    last = dataclasses.replace(last, attempt=1, state=state, exit_code=code, end_at=example.at("14:45:00"))
    verdict = dataclasses.replace(story.verdicts[0], submit_at=last.submit_at)
    moved = [
        example.event(
            uuid.UUID(int=number), example.at("14:41:09"), node="n1", kind="directory_replaced", source="joblog", job_id=4242,
            detail={"directory": "/work/nowhere", "why": "No such file or directory", "host": host},
        )
        for number, host in enumerate(("n1", "n2"), 7)
    ]  # fmt: skip
    found = dataclasses.replace(
        story, attempts=(last,), moved=tuple(moved), verdicts=(verdict,) if code else ()
    )
    report = model.build(job_ref.parse("4242"), found, now=NOW)
    plain, drawn = (" ".join(made.split()) for made in (text.render(report), page.render(report)))
    words = "Slurm could not enter its working directory /work/nowhere (no such file or directory) and ran it in /tmp of n[1-2]."
    assert words in plain
    assert words in drawn
    assert "--chdir" in plain
    assert "part of it failed" not in plain
    assert ("completed, but in /tmp" in plain) is (state == "COMPLETED")
    document = json_out.document(report)["attempts"][-1]
    assert document["ran_elsewhere"] == words
    assert document["own_errors"] == []


@pytest.mark.parametrize(
    ("above", "shown"),
    [
        (("conda: command not found", "b"), ("conda: command not found", "…", "1", "2")),
        (("b", "samtools sort: failed to read header"), ("samtools sort: failed to read header", "1", "2")),
        (("KeyError: 'lr'", "Traceback (most"), ("KeyError: 'lr'", "…", "1", "2")),
        (("0 errors, 0 failures", "loss 0.2"), ("1", "2")),
        (("slurmstepd: error: *** STEP 7.0 ON n1 CANCELLED AT 2026-01-05T10:00:00 ***", "b"), ("1", "2")),
        ((), ("1", "2")),
    ],
)
def test_the_first_line_of_trouble_is_shown_above_the_last_lines(
    above: tuple[str, ...], shown: tuple[str, ...]
) -> None:
    log = rows.JobLog(node="n1", at=example.at("14:21:40"), tail=(*above, "1", "2"))
    assert log.shown(2) == shown


@pytest.mark.parametrize(
    ("ended", "words"),
    [
        ({"state": "FAILED", "exit_code": 1}, "FAILED, exit code 1"),
        ({"state": "FAILED", "exit_code": 15}, "FAILED, exit code 15 (or 143)"),
        ({"state": "FAILED", "exit_code": 143}, "FAILED, exit code 143"),
        ({"state": "FAILED", "exit_code": 72}, "FAILED, exit code 72 (or 200)"),
        ({"state": "FAILED", "exit_code": 127}, "FAILED, exit code 127 (or 255)"),
        ({"state": "FAILED", "exit_code": 124}, "FAILED, exit code 124"),
        ({"state": "FAILED", "exit_code": 0, "exit_signal": 11}, "FAILED, signal 11"),
        ({"state": "FAILED", "exit_code": 0, "exit_signal": 53}, "FAILED"),
        ({"state": "OUT_OF_MEMORY", "exit_code": 0, "exit_signal": 125}, "OUT_OF_MEMORY"),
    ],
)
def test_the_header_shows_how_a_failed_job_ended(
    story: rows.ReportRows, ended: dict[str, object], words: str
) -> None:
    last = dataclasses.replace(max(story.attempts, key=lambda a: a.submit_at), attempt=1, **ended)  # type: ignore[arg-type]
    report = model.build(job_ref.parse("4242"), dataclasses.replace(story, attempts=(last,)), now=NOW)
    assert report.headline == words
    assert text.render(report).splitlines()[0].endswith(words)


@pytest.mark.parametrize("kind", ["slurm_requeued", "slurm_preempted"])
def test_the_end_of_an_earlier_start_is_no_error_of_the_one_that_completed(
    story: rows.ReportRows, kind: str
) -> None:
    """slurmstepd writes CANCELLED … DUE TO JOB REQUEUE into the output, and the next start appends to it."""
    line = example.event(
        uuid.UUID(int=8),
        example.at("14:41:09"),
        node="n1",
        kind=kind,
        source="joblog",
        job_id=4242,
        detail={"role": "end"},
    )
    plain = render(dataclasses.replace(story, own_errors=(line,)))
    assert "part of it failed" not in plain
    assert "nothing to do for it" in " ".join(plain.split())


def test_of_a_running_job_the_decisions_about_it_are_shown(story: rows.ReportRows) -> None:
    """Two jobs on a node with a lost GPU: the owner of one must act, since the service may not requeue it."""
    running = dataclasses.replace(
        min(story.attempts, key=lambda a: a.submit_at), state="RUNNING", end_at=None, attempt=1
    )
    left = example.drain("requeue", example.at("14:20:40"), state="skipped", why_state="it was submitted with --no-requeue", job_id=4242)  # fmt: skip
    found = dataclasses.replace(
        story, attempts=(running,), verdicts=(), evidence=(), others=story.evidence, drains=(left,)
    )
    plain = " ".join(render(found).split())
    assert "Seen on the nodes of attempt 1 so far" in plain
    assert "job not requeued 14:20:40Z (skipped: it was submitted with --no-requeue)" in plain


def test_what_a_job_that_completed_met_stays_in_its_report(story: rows.ReportRows) -> None:
    """A GPU that its nodes lost, and our drain; what is not grave is no section, nor what its own output says."""
    whole = dataclasses.replace(min(story.attempts, key=lambda a: a.submit_at), state="COMPLETED", attempt=1)
    found = dataclasses.replace(story, attempts=(whole,), verdicts=(), evidence=(), others=story.evidence)
    plain = " ".join(render(found).split())
    assert "Seen on the nodes of attempt 1 although it completed" in plain
    assert "Xid 79 gpu3 0000:5e:00 GPU has fallen off the bus." in plain
    assert "n2 drained 14:20:34Z" in plain
    assert "GPU has fallen off the bus." in page.render(build(found))
    for calm in (
        [dataclasses.replace(e, severity=records.Severity.LOW) for e in story.evidence],
        [dataclasses.replace(e, source="joblog", kind="cuda_error", job_id=4242) for e in story.evidence],
    ):
        without = dataclasses.replace(found, others=tuple(calm))
        assert "Seen on the nodes" not in render(without)
        assert "Seen on the nodes" not in page.render(build(without))


def test_a_later_component_of_a_het_job_is_sent_to_the_output_of_the_first(story: rows.ReportRows) -> None:
    """Slurm runs the batch script on component 0 alone: slurm-81.out never exists."""
    part = dataclasses.replace(
        max(story.attempts, key=lambda a: a.submit_at), state="FAILED", exit_code=1, job_id=81, het_job_id=80, het_offset=1
    )  # fmt: skip
    log = rows.JobLog(node="n1", at=example.at("14:21:40"), path="/home/alice/slurm-81.out", why="there is no such file")  # fmt: skip
    found = dataclasses.replace(story, attempts=(part,), verdicts=(), evidence=(), drains=(), logs=(log,))
    plain = " ".join(render(found).split())
    assert "slurm-81.out" not in plain
    assert "its steps write to the output of component 0 (probing-report 80+0)" in plain


def test_a_job_that_completed_and_failed_in_nothing_has_no_such_section(story: rows.ReportRows) -> None:
    """A step's code of 0 is no failure; the report of the story's job still ends with nothing to do."""
    last = dataclasses.replace(max(story.attempts, key=lambda a: a.submit_at), derived_exit_code=0)
    plain = render(
        dataclasses.replace(story, attempts=(last, min(story.attempts, key=lambda a: a.submit_at)))
    )
    assert "part of it failed" not in plain
    assert "nothing to do for it" in " ".join(plain.split())


@pytest.mark.parametrize("width", [72, 80, 110])
def test_no_line_is_wider_than_asked_and_no_byte_is_colour(story: rows.ReportRows, width: int) -> None:
    """At 80 columns, in a pipe, nothing wraps and no escape sequence appears."""
    page = render(story, width=width)
    assert max(len(line) for line in page.splitlines()) <= width
    assert page.isprintable() or set(re.sub(r"[ -~]", "", page)) <= {"\n"}


def test_a_long_state_does_not_touch_the_nodes(story: rows.ReportRows) -> None:
    """OUT_OF_MEMORY is wider than its column."""
    long = dataclasses.replace(story.attempts[0], state="OUT_OF_MEMORY")
    page = render(dataclasses.replace(story, attempts=[long, *story.attempts[1:]]))
    assert re.search(r"attempt \d .*  OUT_OF_MEMORY \S", page)


def test_colour_adds_nothing_but_colour(story: rows.ReportRows) -> None:
    """Without its escape sequences the coloured report is the plain one."""
    assert re.sub(r"\x1b\[\d+m", "", render(story, colour=True)) == render(story)


def test_bars_are_to_scale(story: rows.ReportRows) -> None:
    """Each character stands for the same time: ran, lost, waited and died lie where the clock says."""
    report = model.build(job_ref.parse("4242"), story, now=NOW)
    scale = timeline.Axis(start_at=example.at("14:02:11"), end_at=example.at("14:41:09"), cells=2338)
    first, second = report.attempts
    one = timeline.bar(first, scale, example.at("14:02:11"))
    assert (one.count("."), one.count("#"), one.count("-"), one[-1]) == (3, 1102 - 450, 449, "x")
    two = timeline.bar(second, scale, example.at("14:20:36"))
    assert (len(two) - len(two.lstrip()), two.count("."), two.count("#")) == (1105, 64, 1169)


def test_a_long_first_wait_does_not_squeeze_the_run(story: rows.ReportRows) -> None:
    """After three days in the queue the bar begins at the first start."""
    early = tuple(
        dataclasses.replace(a, submit_at=example.at("14:02:11") - 3 * (example.at("23:59:59") - example.DAY))
        for a in story.attempts[1:]
    )
    report = model.build(job_ref.parse("4242"), dataclasses.replace(story, attempts=early), now=NOW)
    assert timeline.axis(report, 20).start_at == example.at("14:02:14")


def test_hostile_words_cannot_reach_the_terminal(story: rows.ReportRows) -> None:
    """Escapes, newlines and direction marks in a job's name or a message are gone."""
    evil = "x\x1b[31m\x07\n\u202eroot\r"
    attempts = tuple(dataclasses.replace(a, name=evil, user=evil, partition=evil) for a in story.attempts)
    evidence = tuple(dataclasses.replace(e, message=evil, device=evil) for e in story.evidence)
    verdicts = tuple(
        dataclasses.replace(v, summary=evil, next_step=evil, ruled_out=(evil,)) for v in story.verdicts
    )
    page = render(dataclasses.replace(story, attempts=attempts, evidence=evidence, verdicts=verdicts))
    assert not set(page) & {"\x1b", "\x07", "\r", "\u202e"}
    assert max(len(line) for line in page.splitlines()) <= 80


def test_weaker_candidates_stand_apart_from_what_is_ruled_out(story: rows.ReportRows) -> None:
    """On the terminal and in JSON: the prefix that tells them apart in the database is shown nowhere."""
    words = ("network (no link fault on n[1-2])", f"{records.LESS_LIKELY}user program (possible: exited)")
    verdicts = tuple(dataclasses.replace(v, ruled_out=words) for v in story.verdicts)
    shown = render(dataclasses.replace(story, verdicts=verdicts))
    assert "  Ruled out: network (no link fault on n[1-2])\n" in shown
    assert "  Less likely: user program (possible: exited)\n" in shown
    report = model.build(job_ref.parse("4242"), dataclasses.replace(story, verdicts=verdicts), now=NOW)
    drawn = page.render(report)
    assert (
        drawn.index("Ruled out")
        < drawn.index("network (no")
        < drawn.index("Less likely")
        < drawn.index("user program (p")
    )
    assert records.LESS_LIKELY not in shown + drawn
    found = json_out.document(report)["attempts"][0]["verdict"]
    assert found["ruled_out"] == ["network (no link fault on n[1-2])"]
    assert found["less_likely"] == ["user program (possible: exited)"]


def test_a_running_job_says_when_it_was_last_seen() -> None:
    """Still running: who saw it and when, and what its nodes reported so far."""
    running = example.attempt(1, state="RUNNING", start_at=example.at("14:03:00"), nodes=("n2",))
    beat = records.AgentHeartbeat(cluster="c", node="n2", at=example.at("14:50:00"), jobs=(4242,))
    xid = example.event(example.XID, example.at("14:30:00"), severity=records.Severity.LOW, code="63")
    page = render(rows.ReportRows(attempts=(running,), heartbeats=(beat,), others=(xid,)))
    assert "still running, last seen 14:50:00Z" in " ".join(page.split())
    assert "Seen on the nodes of attempt 1 so far" in page
    assert "Xid 63" in page
    assert "died" not in page.replace("x died", "")


def test_a_clean_job_gets_no_verdict() -> None:
    """COMPLETED at once: no why, no cost, no advice."""
    page = render(
        rows.ReportRows(
            attempts=(
                example.attempt(
                    1, start_at=example.at("14:03:00"), end_at=example.at("14:30:00"), nodes=("n1",)
                ),
            )
        )
    )
    assert "COMPLETED" in page
    assert not re.search("Why|cost|What now|Not judged", page)


def test_an_unjudged_death_says_so() -> None:
    """Between the end and the verdict the report says what accounting knows."""
    dead = example.attempt(
        1,
        state="FAILED",
        exit_code=1,
        start_at=example.at("14:03:00"),
        end_at=example.at("14:30:00"),
        nodes=("n1",),
    )
    page = render(rows.ReportRows(attempts=(dead,)))
    assert "Attempt 1 ended FAILED (exit code 1)" in page
    assert "Not judged yet" in page


def test_one_attempt_can_be_asked_for(story: rows.ReportRows) -> None:
    """--attempt 2 leaves out why attempt 1 died."""
    assert "Why attempt 1" not in render(story, attempt=2)
    assert "Why attempt 1" in render(story, attempt=1)


@pytest.mark.parametrize(
    ("state", "words"),
    [
        ("simulated", "n2 would have been drained 14:20:34Z (probing: xid 79 gpu3; observe-only)"),
        ("denied", "n2 not drained 14:20:34Z (denied: budget: 5 of 5)"),
        ("skipped", "n2 not drained 14:20:34Z (skipped: budget: 5 of 5)"),
    ],
)
def test_what_was_not_done_is_said_with_the_reason(story: rows.ReportRows, state: str, words: str) -> None:
    """Observe-only, a spent budget and another's drain each read differently."""
    drains = (example.drain("drain", example.at("14:20:34"), state=state, why_state="budget: 5 of 5"),)
    assert words in " ".join(render(dataclasses.replace(story, drains=drains), width=110).split())


def test_a_drained_node_is_not_said_to_be_not_drained(story: rows.ReportRows) -> None:
    """More of the same fault is skipped while the node is tested: it is drained all the same."""
    tested = example.drain("drain", example.at("14:20:40"), state="skipped", why_state="it is being tested")
    page = render(dataclasses.replace(story, drains=(*story.drains, tested)), width=110)
    assert "n2 drained 14:20:34Z" in page
    assert "not drained" not in page


def test_an_array_by_its_number_lists_what_did_not_complete() -> None:
    """Counts by state, then every task that needs a look with the command to look."""
    tasks = [
        rows.Sibling(job_id=500 + i, array_job_id=500, array_task_id=i, state="COMPLETED", n_attempts=1)
        for i in range(3)
    ]
    tasks.append(
        rows.Sibling(
            job_id=600, array_job_id=500, array_task_id=7, state="FAILED", n_attempts=2, cause="gpu_lost"
        )
    )
    why = "The program failed by itself: ModuleNotFoundError: No module named 'a_package_with_a_long_name'."
    tasks.append(
        dataclasses.replace(tasks[-1], array_task_id=8, n_attempts=1, cause="user_error", summary=why)
    )
    page = text.render_overview("500", rows.ReportRows(siblings=tuple(tasks), n_siblings=5), now=NOW)
    assert "Job array 500: 5 tasks started; 3 COMPLETED, 2 FAILED" in page
    assert "squeue -j 500 shows any." in page, "tasks that wait are nowhere else"
    assert re.search(r"500_7 +FAILED +2 starts +gpu lost\n", page)
    assert re.search(r"500_8 +FAILED +1 start +The program failed by itself: ModuleNotFoundError:.*…\n", page)
    assert all(len(line) <= 80 for line in page.splitlines())
    assert "500_1 " not in page


@pytest.mark.parametrize(("n_failed", "left"), [(20, ""), (22, "and 6 more (4 RUNNING, 2 FAILED): ")])
def test_tasks_that_an_overview_leaves_out_are_counted(n_failed: int, left: str) -> None:
    """Whoever reads twenty lines must know that there are more, and where."""
    states = ["FAILED"] * n_failed + ["RUNNING"] * (4 if left else 0) + ["COMPLETED"] * 5
    tasks = tuple(
        rows.Sibling(job_id=500 + i, array_job_id=500, array_task_id=i, state=state, n_attempts=1)
        for i, state in enumerate(states)
    )
    page = text.render_overview("500", rows.ReportRows(siblings=tasks, n_siblings=len(tasks)), now=NOW)
    assert len(re.findall(r"(?m)^  500_\d+ +FAILED +1 start$", page)) == 20
    assert (f"  {left}probing-report 500 --json has all" in page) is bool(left)
    assert (" more (" in page) is bool(left)


def test_a_slow_rank_is_told_of_a_job_that_completed() -> None:
    """Nothing died, and yet somebody waited: which rank, on which node, within 80 columns."""
    words = "rank 5 is slow: computing takes it 0.24 s a step, 1.20 times the median of 8 ranks (0.2 s)"
    slow = example.event(
        example.XID, example.at("14:10:00"), kind="rank_slow", code="compute", source="probe", message=words,
        severity=records.Severity.INFO,
    )  # fmt: skip
    attempt = example.attempt(
        1, start_at=example.at("14:03:00"), end_at=example.at("14:30:00"), nodes=("n2",)
    )
    late = dataclasses.replace(
        slow, event_id=example.LOST, at=example.at("14:40:00"), message="of another attempt"
    )
    page = render(rows.ReportRows(attempts=(attempt,), pace=(slow, late)))
    assert "Pace of attempt 1" in page
    assert words in " ".join(page.split())
    assert "of another attempt" not in page
    assert max(len(line) for line in page.splitlines()) <= 80


def test_a_stall_is_told_while_the_job_runs() -> None:
    """Which rank, on which node, in which line, since when; of another attempt nothing."""
    running = example.attempt(1, start_at=example.at("14:03:00"), end_at=None, state="RUNNING", nodes=("n2",))
    stall = records.GangVerdict(
        gang_id=example.XID, cluster="c", job_id=running.job_id, submit_at=running.submit_at, kind="python_loop",
        ranks=(5,), nodes=("n2",), domain=records.Domain.USER_PROGRAM, confidence=records.Confidence.LIKELY,
        summary="rank 5 on n2 did not arrive: it is elsewhere in the user's program",
        location="endless (/home/alice/train.py:74)", onset_at=example.at("14:10:00"), made_at=example.at("14:10:12"),
    )  # fmt: skip
    other = dataclasses.replace(stall, submit_at=example.at("01:00:00"), summary="of another attempt")
    shown = render(rows.ReportRows(attempts=(running,), gangs=(other, stall)))
    assert "Stalls of attempt 1" in shown
    assert re.search(r"14:10:00Z? still  python_loop, user program, likely", shown)
    assert "it is elsewhere in the user's program (endless (/home/alice/train.py:74))" in " ".join(
        shown.split()
    )
    assert "of another attempt" not in shown
    assert max(len(line) for line in shown.splitlines()) <= 80
    step = f"What now It stands still. `probing-ctl stacks {running.ref}` shows what each rank does"
    assert step in " ".join(shown.split())
    over = render(
        rows.ReportRows(
            attempts=(running,), gangs=(dataclasses.replace(stall, ended_at=example.at("14:11:00")),)
        )
    )
    assert "until 14:11:00" in over
    assert "What now" not in over
    ended = dataclasses.replace(running, end_at=example.at("14:30:00"), state="FAILED")
    assert "It stands still" not in render(rows.ReportRows(attempts=(ended,), gangs=(stall,)))
    # The service hears of a job's end seconds later, and closes its stall then.
    for ended_at, until in (
        (None, "14:30:00"),
        (example.at("14:30:03"), "14:30:00"),
        (example.at("14:11:00"), "14:11:00"),
    ):
        found = rows.ReportRows(attempts=(ended,), gangs=(dataclasses.replace(stall, ended_at=ended_at),))
        report = model.build(job_ref.parse(running.ref), found, now=NOW)
        assert f"until {until}" in text.render(report)
        assert re.search(rf">[^<]*14:10:00[^<]*</time> until <time[^>]*>[^<]*{until}", page.render(report))
        assert json_out.document(report)["attempts"][-1]["gangs"][0]["ended_at"].endswith(f"{until}Z")


def test_what_passes_since_a_stall_is_not_productive() -> None:
    """A gang that stands still at 14:20 loses what passed since; the parts still add up. One that got on again lost nothing yet."""
    running = example.attempt(1, start_at=example.at("14:05:00"), end_at=None, state="RUNNING", nodes=("n2",))
    account = records.RunAccount(
        cluster="c", run_key="1", start_at=example.at("14:00:00"), end_at=example.at("14:50:00"), n_attempts=1,
        wall_s=3000.0, queued_s=300.0, productive_s=2600.0, restart_s=100.0, ettr_measured=2600 / 3000,
        made_at=example.at("14:50:00"),
    )  # fmt: skip
    stall = records.GangVerdict(
        gang_id=example.XID, cluster="c", job_id=running.job_id, submit_at=running.submit_at, kind="python_loop",
        domain=records.Domain.USER_PROGRAM, confidence=records.Confidence.LIKELY, summary="it loops",
        onset_at=example.at("14:20:00"), made_at=example.at("14:20:12"),
    )  # fmt: skip
    found = rows.ReportRows(attempts=(running,), account=account, gangs=(stall,))
    run = model.build(job_ref.parse("1"), found, now=NOW).run
    assert run is not None
    assert (run.productive_s, run.lost_to_replay_s, run.ettr_measured) == (800.0, 1800.0, 800 / 3000)
    over = dataclasses.replace(found, gangs=(dataclasses.replace(stall, ended_at=example.at("14:21:00")),))
    assert model.build(job_ref.parse("1"), over, now=NOW).run == account


def test_the_verdict_leads_and_the_ratio_comes_last(story: rows.ReportRows) -> None:
    """Whoever reads from the top meets why, then what to do, and only then what it cost."""
    page = render(story)
    places = [page.index(w) for w in ("Why attempt 1", "What now", "What it cost", "ETTR 0.71")]
    assert places == sorted(places)


def test_a_short_failure_has_neither_a_ratio_nor_parts_of_nothing(story: rows.ReportRows) -> None:
    """Four seconds of one GPU: no ETTR of start-up, no '<0.1' three times, no bar of 0 s a character."""
    assert story.account is not None
    brief = dataclasses.replace(
        story.attempts[0],
        submit_at=example.at("14:02:11"),
        start_at=example.at("14:02:11"),
        end_at=example.at("14:02:15"),
        state="FAILED",
        nodes=("n2",),
        n_gpus=1,
    )
    account = dataclasses.replace(
        story.account, n_gpus=1, n_attempts=1, wall_s=4.0, lost_to_replay_s=3.0, restart_s=1.0, queued_s=0.0,
        productive_s=0.0, checkpoint_s=0.0, end_at=example.at("14:02:15"), measured=False, ettr_measured=0.0,
    )  # fmt: skip
    page = render(dataclasses.replace(story, attempts=(brief,), account=account))
    assert "ETTR" not in page
    assert "<0.1" not in page
    assert "What it cost  under 0.1 GPU-hours (from assumed checkpoints)" in page
    assert "bar 14:02:11Z to 14:02:15Z: # ran" in page
    none = dataclasses.replace(brief, end_at=brief.start_at, state="COMPLETED")
    page = render(dataclasses.replace(story, attempts=(none,), account=None))
    assert "  bar " not in page, "within one second"
    free = dataclasses.replace(account, lost_to_replay_s=0.0, restart_s=0.0)
    assert "no GPU-hours\n" in render(dataclasses.replace(story, attempts=(brief,), account=free))
    longer = dataclasses.replace(account, wall_s=model.ETTR_FROM_S)
    page = render(dataclasses.replace(story, attempts=(brief,), account=longer))
    assert "ETTR 0.00, if no work of it was kept" in " ".join(page.split())
    measured = dataclasses.replace(longer, measured=True)
    page = render(dataclasses.replace(story, attempts=(brief,), account=measured))
    assert "ETTR 0.00, since no work of it was kept" in " ".join(page.split())


def test_an_ettr_that_is_mostly_the_queue_says_so(story: rows.ReportRows) -> None:
    """0.23 after a first wait of three hours of four reads like lost work; three seconds of running say nothing of an ETTR."""
    assert story.account is not None
    last = story.attempts[0]
    alone = dataclasses.replace(story, attempts=(last,), verdicts=(), evidence=(), drains=())
    account = dataclasses.replace(
        story.account, n_attempts=1, wall_s=14400.0, queued_s=10800.0, productive_s=3312.0, lost_to_replay_s=0.0,
        restart_s=288.0, ettr_measured=0.23, measured=False,
    )  # fmt: skip
    page = " ".join(render(dataclasses.replace(alone, account=account)).split())
    assert "not seen; 3 h of its 4 h in the queue)" in page
    little = dataclasses.replace(account, queued_s=3600.0)
    assert "in the queue" not in render(dataclasses.replace(alone, account=little))
    brief = dataclasses.replace(account, queued_s=14397.0, productive_s=0.0, ettr_measured=0.0)
    assert "ETTR" not in render(dataclasses.replace(alone, account=brief))


def test_a_run_without_any_step_has_the_ettr_of_one_that_trained(story: rows.ReportRows) -> None:
    """Without a probe nobody knows that it trained; a run of CPUs alone shows none, unless a step of it is on record."""
    assert story.account is not None
    account = dataclasses.replace(story.account, measured=False)

    def page(n_gpus: int | None, has_steps: bool | None) -> str:
        given = dataclasses.replace(account, n_gpus=n_gpus)
        found = dataclasses.replace(story, account=given, has_steps=has_steps)
        return " ".join(render(found).split())

    unproven = "if it trained: no step of it is on record, checkpoints and start-up are assumed"
    assumed = "checkpoints and start-up assumed where not seen"
    for n_gpus in (16, None):
        assert [w in page(n_gpus, False) for w in (unproven, assumed)] == [True, False]
    for n_gpus, has_steps in ((16, True), (16, None), (0, True), (0, None)):
        assert [w in page(n_gpus, has_steps) for w in (unproven, assumed)] == [False, True]
    assert "ETTR" not in page(0, False)
    measured = dataclasses.replace(
        story, account=dataclasses.replace(account, measured=True), has_steps=False
    )
    assert "measured" in render(measured)


def test_a_log_that_stood_still_shows_that_a_run_trained(story: rows.ReportRows) -> None:
    """Its steps are on record, although no probe saw one."""
    verdict = story.verdicts[0]
    end_at = next(a.end_at for a in story.attempts if a.submit_at == verdict.submit_at)
    assert end_at is not None
    hung = dataclasses.replace(verdict, stalled_at=end_at - timedelta(minutes=1))
    for verdicts, has_steps in (((verdict,), False), ((hung,), True)):
        found = dataclasses.replace(story, verdicts=verdicts, has_steps=False)
        assert model.build(job_ref.parse("4242"), found, now=NOW).has_steps is has_steps


def test_two_attempts_that_lost_everything_are_drawn_as_lost(story: rows.ReportRows) -> None:
    """An ETTR of 0 beside bars of nothing but `# ran` contradicted itself; what no bar shows the legend leaves out."""
    assert story.account is not None
    first = dataclasses.replace(story.attempts[0], submit_at=example.at("14:02:11"), state="FAILED")
    second = dataclasses.replace(
        first,
        attempt=2,
        submit_at=first.end_at,
        start_at=first.end_at + timedelta(hours=1),
        end_at=first.end_at + timedelta(hours=2),
    )
    account = dataclasses.replace(
        story.account,
        n_attempts=2,
        productive_s=0.0,
        lost_to_replay_s=7200.0,
        ettr_measured=0.0,
        end_at=second.end_at,
    )
    page = render(dataclasses.replace(story, attempts=(first, second), account=account, run_jobs=(4242,)))
    bars = [line for line in page.splitlines() if line.startswith("  attempt ")]
    assert len(bars) == 2
    assert not any("#" in line for line in bars)
    legend = next(line for line in page.splitlines() if line.startswith("  bar "))
    assumed = "" if account.measured else " (assumed)"
    assert legend.endswith(f": - lost{assumed}, . waited, x died")


@pytest.mark.parametrize("state", ["CANCELLED", "PREEMPTED"])
def test_what_somebody_ended_did_not_die(story: rows.ReportRows, state: str) -> None:
    """Neither the heading nor the legend speaks of a death."""
    ended = dataclasses.replace(story.attempts[1], state=state)
    page = render(dataclasses.replace(story, attempts=(ended,)))
    assert f"Why attempt 1 was {state.lower()}" in page
    assert "x ended" in " ".join(page.split())
    assert "died" not in page


def test_starts_that_were_refused_are_one_story(story: rows.ReportRows) -> None:
    """Three refusals and a start: one section, a line for each with its node, and nothing 'died'."""
    attempts, verdicts = [], []
    for n in (1, 2, 3):
        at = example.at(f"14:0{n}:00")
        attempts.append(
            example.attempt(n, submit_at=at, start_at=at, end_at=at, state="REQUEUED", nodes=(f"n{n}",))
        )
        verdicts.append(
            dataclasses.replace(
                story.verdicts[0],
                attempt=n,
                submit_at=at,
                cause="node_refused",
                node=f"n{n}",
                evidence=(),
                domain=records.Domain.UNKNOWN,
                summary=f"n{n} was refused before the job began (xid 79 gpu0).",
                next_step=f"Nothing for the job. Repair n{n}.",
                ruled_out=(),
            )
        )
    attempts.append(
        example.attempt(4, submit_at=example.at("14:05:00"), start_at=example.at("14:05:01"), state="RUNNING")
    )
    page = render(rows.ReportRows(attempts=tuple(attempts), verdicts=tuple(verdicts)))
    assert page.count("did not begin") == 1
    assert "Why attempts 1 to 3 did not begin" in page
    assert all(f"attempt {n}  n{n} was refused" in page for n in (1, 2, 3))
    assert "died\n" not in page.replace("x died", "")
    alone = render(rows.ReportRows(attempts=(attempts[0],), verdicts=(verdicts[0],)))
    assert "Why attempt 1 did not begin" in alone


def test_a_log_is_shown_with_its_path_or_why_it_was_not_read(story: rows.ReportRows) -> None:
    """Its last lines under the attempt that died; what was not read says so; a hostile line stays text."""
    at = min(a.start_at for a in story.attempts if a.start_at)
    read = rows.JobLog(
        node="n1", at=at, path="/w/out", tail=("step 1", "\x1b[31mboom"), note="only its last 9 bytes"
    )
    long = dataclasses.replace(
        read, tail=(f"{'/deep' * 12}/slurm_script: 4: nosuch: not found", "  File x, line 3")
    )
    missing = rows.JobLog(node="n1", at=at, stream="stderr", path="/w/%A.err", why="there is no such file")
    found = dataclasses.replace(story, logs=(read, missing))
    shown = render(found, width=100)
    assert "stdout /w/out on n1 (only its last 9 bytes)" in shown
    assert "    | step 1" in shown
    assert "stderr /w/%A.err: log not read: there is no such file" in shown
    assert "\x1b" not in shown
    assert shown.count("Log of attempt") == 1
    folded = render(dataclasses.replace(story, logs=(long,)), width=60)
    assert "not found" in folded, "the end of a long line is its point"
    assert "    |   File x, line 3" in folded
    assert all(len(line) <= 60 for line in folded.splitlines() if line.startswith("    |"))


def test_the_line_of_the_first_cause_is_shown_with_its_place(story: rows.ReportRows) -> None:
    """A large log's last lines may not hold it. Where they do, it is not shown twice; a line that only tells of trouble gives way to it."""
    at = min(a.start_at for a in story.attempts if a.start_at)
    assert at is not None
    tail = ("error: while cleaning up", *(f"cleanup {n}" for n in range(9)))
    stored = {"path": "/w/out", "tail": list(tail), "error": "KeyError: 'lr'", "error_place": "byte 48123456"}

    def shown(log: dict[str, object]) -> tuple[str, str, object]:
        logs = rows.from_json({"logs": [{"node": "n1", "at": at.isoformat(), "logs": [log]}]}).logs
        report = model.build(job_ref.parse("4242"), dataclasses.replace(story, logs=logs), now=NOW)
        (found,) = (a["logs"][0] for a in json_out.document(report)["attempts"] if a["logs"])
        return text.render(report), page.render(report), found["error"]

    plain, drawn, found = shown(stored)
    assert "    | byte 48123456: KeyError: 'lr'\n    | …\n    | cleanup 4\n" in plain
    assert "byte 48123456: KeyError: &#39;lr&#39;\n…\nerror: while cleaning up\ncleanup 0\n" in drawn
    assert found == {"line": "KeyError: 'lr'", "place": "byte 48123456"}
    plain, drawn, _ = shown({**stored, "tail": [*tail[1:], "KeyError: 'lr'"]})
    assert plain.count("KeyError: 'lr'") == 1
    assert "byte 48123456" not in plain + drawn
    plain, _, found = shown({"path": "/w/out", "tail": list(tail)})
    assert "    | error: while cleaning up\n    | …\n" in plain
    assert found is None


def test_a_report_from_before_its_log_was_read_says_so(story: rows.ReportRows) -> None:
    """The verdict was made before the first node's agent reported the output: for some minutes it is one so far."""
    _, first = story.attempts
    assert first.end_at

    def at(minutes: float, *, log_read: bool | None) -> str:
        verdicts = tuple(dataclasses.replace(v, log_read=log_read) for v in story.verdicts)
        early = rows.ReportRows(attempts=(first,), verdicts=verdicts)
        when = first.end_at + timedelta(minutes=minutes)
        report = model.build(job_ref.parse("4242"), early, now=when)
        document = json_out.document(report)["attempts"][0]
        assert (document["log_awaited"], document["verdict"]["log_read"]) == (
            log_read is False and minutes < 5,
            log_read,
        )
        return " ".join(text.render(report).split())

    assert "certain so far" in at(1, log_read=False)
    assert "Ask again in a minute: this verdict was made before its output was read" in at(1, log_read=False)
    for minutes, log_read in ((6, False), (1, True), (1, None)):
        shown = at(minutes, log_read=log_read)
        assert "so far" not in shown
        assert "Ask again" not in shown


@pytest.mark.parametrize(
    ("state", "confidence", "source", "so_far"),
    [
        ("NODE_FAIL", records.Confidence.CERTAIN, "control", False),
        ("NODE_FAIL", records.Confidence.LIKELY, "control", True),
        ("NODE_FAIL", records.Confidence.CERTAIN, "joblog", True),
        ("FAILED", records.Confidence.CERTAIN, "control", True),
    ],
)
def test_no_output_changes_a_certain_loss_of_a_node(
    story: rows.ReportRows, state: str, confidence: records.Confidence, source: str, *, so_far: bool
) -> None:
    """Accounting and the node's own events show it; where the output is shown below, it was read after the verdict."""
    first = dataclasses.replace(story.attempts[1], state=state)
    assert first.end_at
    verdicts = tuple(dataclasses.replace(v, log_read=False, confidence=confidence) for v in story.verdicts)
    evidence = tuple(dataclasses.replace(e, source=source) for e in story.evidence)
    log = rows.JobLog(node="n1", at=first.end_at, path="/w/out", tail=("step 6",))
    early = rows.ReportRows(attempts=(first,), verdicts=verdicts, evidence=evidence, logs=(log,))
    report = model.build(job_ref.parse("4242"), early, now=first.end_at + timedelta(minutes=1))
    shown = " ".join(text.render(report).split())
    assert "step 6" in shown
    assert "was not read" not in shown
    assert ("may change it" in shown) is ("so far" in shown) is so_far


def test_other_faults_on_its_nodes_are_named_once_the_gravest_first(story: rows.ReportRows) -> None:
    """The verdict is about one node: what another reported meanwhile is not dropped, nor is it a list without end."""
    low = {"node": "n1", "source": "sysfs", "severity": records.Severity.LOW}
    others = [
        example.event(uuid.UUID(int=900 + i), example.at(f"14:10:0{i}"), kind=f"ib_{i}", message="m", **low)
        for i in range(7)
    ]
    twice = [
        example.event(uuid.UUID(int=920 + i), example.at("14:12:00"), code="48", node="n1") for i in (0, 1)
    ]
    lines = render(dataclasses.replace(story, others=(*others, *twice))).splitlines()
    at = lines.index("  9 other events on its nodes during the attempt (--json lists all), the most severe:")
    assert ["Xid 48" in line for line in lines[at + 1 : at + 3]] == [True, False]
    assert sum("ib_" in line for line in lines) == 4


def test_an_error_that_no_table_lists_is_named_among_them_behind_the_known_ones(
    story: rows.ReportRows,
) -> None:
    """Its severity is info because nobody knows better."""
    low = {"node": "n1", "source": "sysfs", "severity": records.Severity.LOW}
    link = example.event(uuid.UUID(int=900), example.at("14:10:00"), kind="ib_link", code="rate", **low)
    unlisted = example.event(
        uuid.UUID(int=901), example.at("14:10:05"), code="999", node="n1", severity=records.Severity.INFO
    )
    lines = render(dataclasses.replace(story, others=(link, unlisted))).splitlines()
    at = lines.index("  2 other events on its nodes during the attempt (--json lists all), the most severe:")
    assert ["Xid 999" in line for line in lines[at + 1 : at + 3]] == [False, True]


def test_a_check_of_the_part_in_the_evidence_is_no_other_fault(story: rows.ReportRows) -> None:
    """The check that fails on the very GPU that was lost says nothing new; one of another GPU does."""
    lost = model.build(job_ref.parse("4242"), story, now=NOW).attempts[0].evidence[0]
    check = {"node": lost.node, "source": "check", "kind": "check", "code": "gpu_xid"}
    nameless = {"pci_bus_id": None, "gpu_uuid": None}
    same, other = (
        example.event(uuid.UUID(int=940 + i), example.at("14:10:00"), device=device, **check, **nameless)
        for i, device in enumerate((lost.device, "gpu7"))
    )
    assert "other event" not in render(dataclasses.replace(story, others=(same,)))
    assert "  1 other event on its nodes during the attempt" in render(
        dataclasses.replace(story, others=(same, other))
    )


def test_a_job_that_failed_is_not_called_completed(story: rows.ReportRows) -> None:
    """A step's code is a doubt about COMPLETED only."""
    latest = max(story.attempts, key=lambda a: a.submit_at)
    last = dataclasses.replace(latest, state="FAILED", exit_code=1, attempt=1, derived_exit_code=3)
    report = model.build(job_ref.parse("4242"), dataclasses.replace(story, attempts=(last,)), now=NOW)
    assert "COMPLETED because" not in " ".join(text.render(report).split())
    assert json_out.document(report)["attempts"][-1]["completed_but"] is None


def test_a_file_of_a_later_component_that_was_read_is_shown(story: rows.ReportRows) -> None:
    """A step of it may write a file of its own (srun --output)."""
    latest = max(story.attempts, key=lambda a: a.submit_at)
    part = dataclasses.replace(latest, state="FAILED", exit_code=1, job_id=81, het_job_id=80, het_offset=1)
    log = rows.JobLog(
        node="n1", at=example.at("14:21:40"), path="/home/alice/step.out", tail=("mesh is empty",)
    )
    found = dataclasses.replace(story, attempts=(part,), verdicts=(), evidence=(), drains=(), logs=(log,))
    plain = " ".join(render(found).split())
    assert "| mesh is empty" in plain
    assert "/home/alice/step.out" in plain
    assert "component 0" not in plain


def test_an_error_of_an_earlier_start_is_none_of_the_one_that_completed(story: rows.ReportRows) -> None:
    """Both starts write one file: the time tells them apart."""
    early = example.event(
        uuid.UUID(int=9), example.at("14:02:20"), node="n1", kind="python_exception", source="joblog", job_id=4242,
        message="KeyError: 'lr'",
    )  # fmt: skip
    report = model.build(job_ref.parse("4242"), dataclasses.replace(story, own_errors=(early,)), now=NOW)
    assert [v.own_errors for v in report.attempts] == [(), ()]
