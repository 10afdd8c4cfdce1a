from __future__ import annotations

import dataclasses
import re
import uuid
from datetime import timedelta

import conftest_story as example
import pytest

from probing_cluster.attribution.verdict import findings, next_steps, taxonomy
from probing_cluster.core import records, vocabulary
from probing_cluster.probe_agent.jobs import log_parts
from probing_cluster.reports import advice, job_ref, model, phrase, rows

NOW = example.at("15:00:00")


def build(found: rows.ReportRows, ref: str = "4242") -> model.ReportModel:
    return model.build(job_ref.parse(ref), found, now=NOW)


def test_every_figure_of_the_report_follows_from_the_rows(story: rows.ReportRows) -> None:
    """Cost, shape, requeues and times are recomputed here by hand from the story's rows."""
    report = build(story)
    gpu_h = 16 / 3600
    assert report.cost is not None
    assert report.cost.replayed_gpu_h == pytest.approx(450 * gpu_h)
    # 150 s of start-up in two starts: one of them would have been paid anyway.
    assert report.cost.restarting_gpu_h == pytest.approx(75 * gpu_h)
    # 67 s in the queue, of which 3 s before the first start.
    assert report.cost.queued_gpu_h == pytest.approx(64 * gpu_h)
    assert report.cost.total_gpu_h == pytest.approx((450 + 75 + 64) * gpu_h)
    assert (report.headline, report.shape) == ("COMPLETED after 1 requeue", "2 nodes x 8 GPUs")
    assert (report.submit_at, report.start_at, report.end_at) == (
        example.at("14:02:11"), example.at("14:02:14"), example.at("14:41:09"),
    )  # fmt: skip
    assert [v.lost_s for v in report.attempts] == [450.0, None]


@pytest.mark.parametrize(
    ("changes", "jobs", "covered"),
    [
        ({}, (4242,), True),
        ({"n_attempts": 1}, (4242,), False),
        ({"end_at": example.at("14:20:36")}, (4242,), False),
        ({"end_at": example.at("14:41:12")}, (4242,), False),
        ({"end_at": example.at("14:55:00"), "n_attempts": 3}, (4242, 4243), True),
    ],
    ids=["whole", "a start less", "an end ago", "made while it seemed to run", "with a later job of the run"],
)
def test_an_account_that_does_not_cover_the_attempts_is_none(
    story: rows.ReportRows, changes: dict[str, object], jobs: tuple[int, ...], covered: bool
) -> None:
    """Accounting tells of an end some seconds before the account is made: figures of the attempts before are not the run's."""
    assert story.account is not None
    report = build(
        dataclasses.replace(story, account=dataclasses.replace(story.account, **changes), run_jobs=jobs)
    )
    assert (report.run is not None) is covered
    assert (report.cost is not None) is covered


def test_the_account_of_a_run_that_goes_on_is_told(story: rows.ReportRows) -> None:
    """Until its last attempt ends the account is one of the moment it was made; one from before an earlier end is not of this run."""
    last, first = story.attempts
    running = dataclasses.replace(last, state="RUNNING", end_at=None)
    assert build(dataclasses.replace(story, attempts=(running, first))).run is not None
    assert story.account is not None
    assert first.end_at is not None
    before = dataclasses.replace(story.account, end_at=first.end_at - timedelta(seconds=1))
    assert build(dataclasses.replace(story, attempts=(running, first), account=before)).run is None


def test_attempts_evidence_and_actions_are_told_in_order_of_time(story: rows.ReportRows) -> None:
    """Rows come in any order; the report is a story."""
    first, second = build(story).attempts
    assert (first.attempt.attempt, second.attempt.attempt) == (1, 2)
    assert [e.source for e in first.evidence] == ["kernel", "nvml"]
    assert [d.action for d in first.actions] == ["drain", "requeue"]
    assert second.actions == ()
    assert first.nodes_without_faults == ("n1",)


def test_a_node_that_the_verdict_names_beside_is_not_called_faultless(story: rows.ReportRows) -> None:
    """What shows a second fault need not be among the events that a report lists."""
    beside = tuple(
        dataclasses.replace(v, ruled_out=("less likely: node lost on n1 (by itself likely: node down)",))
        for v in story.verdicts
    )
    assert build(dataclasses.replace(story, verdicts=beside)).attempts[0].nodes_without_faults == ()


@pytest.mark.parametrize(
    ("n_gpus", "nodes", "shape"),
    [
        (8, ("n1",), "1 node x 8 GPUs"),
        (1, ("n1",), "1 node x 1 GPU"),
        (3, ("n1", "n2"), "2 nodes, 3 GPUs"),
        (None, ("n1", "n2"), "2 nodes"),
        (0, ("n1",), "1 node"),
        (None, (), "nodes not in the accounting"),
    ],
)
def test_the_shape_says_what_is_known_about_gpus(
    n_gpus: int | None, nodes: tuple[str, ...], shape: str
) -> None:
    """Even, uneven, unknown and no GPUs each have their words; unknown is never shown as none of a number."""
    found = rows.ReportRows(
        attempts=(example.attempt(1, n_gpus=n_gpus, nodes=nodes, start_at=example.at("14:03:00")),)
    )
    assert build(found).shape == shape


def test_a_clean_job_has_no_cost_and_no_advice(story: rows.ReportRows) -> None:
    """Nothing died, so nothing is blamed on a failure and nothing is asked of the owner."""
    clean = dataclasses.replace(story, attempts=story.attempts[:1], verdicts=(), evidence=(), drains=())
    report = build(clean)
    assert report.cost is None
    assert report.advice == ()
    assert [v.ended_unfinished for v in report.attempts] == [False]


@pytest.mark.parametrize("confidence", list(records.Confidence))
@pytest.mark.parametrize("domain", list(records.Domain))
def test_who_lost_a_job_to_hardware_is_told_to_submit_it_again(
    story: rows.ReportRows, domain: records.Domain, confidence: records.Confidence
) -> None:
    """Only where the verdict names hardware, and the job has not come back by itself; where that is only possible, its own output comes first."""
    (verdict,) = story.verdicts
    verdict = dataclasses.replace(verdict, domain=domain, confidence=confidence)
    only = next(a for a in story.attempts if a.submit_at == verdict.submit_at)
    ended = dataclasses.replace(only, state="FAILED")
    words = [
        s
        for s in build(dataclasses.replace(story, attempts=(ended,), verdicts=(verdict,))).advice
        if "again" in s
    ]
    named = domain is records.Domain.HARDWARE and confidence is not records.Confidence.UNKNOWN
    begins = {
        records.Confidence.CERTAIN: "The program did not cause this. If squeue -j 4242 ",
        records.Confidence.LIKELY: "The program most likely did not cause this. If squeue -j 4242 ",
        records.Confidence.POSSIBLE: "Look at the job's own output, too: ",
    }
    assert [w.startswith(begins[confidence]) and w.endswith("--exclude=n2.") for w in words] == [True] * named
    came_back = dataclasses.replace(story, verdicts=(verdict,))
    assert not any("submit it again" in s for s in build(came_back).advice)


def test_a_step_that_a_repair_has_ended_is_closed(story: rows.ReportRows) -> None:
    """Once the node came back tested after the end; the owner's own sentence stays, and a program's next step is no machine's."""
    (verdict,) = story.verdicts
    only = next(a for a in story.attempts if a.submit_at == verdict.submit_at)
    assert only.end_at is not None

    def steps(later: timedelta, *, by_hand: bool = False, **changes: object) -> tuple[str, ...]:
        assert only.end_at is not None
        back = rows.ReturnedNode(node="n2", at=only.end_at + later, by_hand=by_hand)
        made = dataclasses.replace(
            story,
            attempts=(dataclasses.replace(only, state="FAILED"),),
            verdicts=(dataclasses.replace(verdict, **changes),),  # type: ignore[arg-type]
            returned=(back,),
        )
        return build(made).advice

    closed = "n2 passed every test of its repair and came back into service at 2026-11-21 14:30:36Z."
    first, again = steps(timedelta(minutes=10))
    assert first == closed
    assert again.endswith("submit it again.")
    noted = steps(timedelta(minutes=10), by_hand=True)[0]
    assert noted == "n2 was noted as repaired at 2026-11-21 14:30:36Z."
    refused = "Nothing for the job. Repair n2: it was refused before the job began."
    assert steps(timedelta(minutes=10), next_step=refused)[:2] == ("Nothing for the job.", first)
    driver = {
        "cause": "gpu_driver",
        "domain": records.Domain.SYSTEM_SOFTWARE,
        "next_step": "Reset GPU 3 of n2.",
    }
    assert steps(timedelta(minutes=10), **driver) == (closed, again)
    before = steps(-timedelta(minutes=10))
    assert before[0].endswith("Reseat or replace GPU 3 of n2 (serial 1650123000042).")
    assert before[1].endswith("--exclude=n2.")
    own = {
        "cause": "user_error",
        "domain": records.Domain.USER_PROGRAM,
        "next_step": "Look at the program's own output: KeyError.",
    }
    assert steps(timedelta(minutes=10), **own) == ("Look at the program's own output: KeyError.",)


def test_what_now_gives_each_step_once_and_what_became_of_the_job(story: rows.ReportRows) -> None:
    """The verdict's step comes first, ends with a full stop, and the job's fate follows."""
    assert build(story).advice == (
        "For the operators: Reseat or replace GPU 3 of n2 (serial 1650123000042).",
        "The job has since completed as attempt 2; nothing to do for it.",
    )
    second, first = story.attempts
    running = dataclasses.replace(second, state="RUNNING", end_at=None)
    assert build(dataclasses.replace(story, attempts=(first, running))).advice[-1] == (
        "The job already runs again as attempt 2."
    )
    assert build(dataclasses.replace(story, attempts=(first,))).advice[-1] == (
        "The job is requeued under the same id and waits to start again."
    )


def test_older_attempts_steps_are_called_theirs_and_nothing_to_do_is_left_out(story: rows.ReportRows) -> None:
    (verdict,) = story.verdicts
    second, first = story.attempts
    died = dataclasses.replace(second, state="FAILED", exit_code=1)
    verdict = dataclasses.replace(verdict, domain=records.Domain.USER_PROGRAM)
    own = dataclasses.replace(verdict, submit_at=died.submit_at, next_step="Look at the output.")

    def steps(older: str) -> tuple[str, ...]:
        found = dataclasses.replace(verdict, next_step=older)
        return build(dataclasses.replace(story, attempts=(died, first), verdicts=(found, own))).advice[:2]

    assert steps("Replace GPU 3") == ("Look at the output.", "Attempt 1: Replace GPU 3.")
    assert "Nothing" not in " ".join(steps("Nothing: it was requeued on purpose."))
    assert "Attempt" not in " ".join(steps("Look at the output"))


def test_a_requeued_job_is_told_what_it_waits_for(story: rows.ReportRows) -> None:
    """Slurm's word about now is worth more than the age of the requeue."""
    _, first = story.attempts
    for end_at in (first.end_at, example.at("00:00:01")):
        alone = dataclasses.replace(story, attempts=(dataclasses.replace(first, end_at=end_at),))
        words = "job 4242 waits (ReqNodeNotAvail): nodes that it needs are down, drained or reserved"
        assert build(dataclasses.replace(alone, waits=words)).advice[-1] == (
            f"It was requeued under the same id; {words}."
        )
        assert "ReqNodeNotAvail" not in " ".join(build(alone).advice)


@pytest.mark.parametrize(
    ("step", "left"),
    [
        ("Submit the job again, or wait for Slurm's requeue: n2 was taken out on purpose.", "Nothing for the job: n2 was taken out on purpose."),
        ("Submit the job again: it was not at fault. Repair n2.", "Nothing for the job: it was not at fault. Repair n2."),
        ("Correct that, then submit the job again.", "Correct that, then submit the job again."),
    ],
)  # fmt: skip
def test_a_job_that_came_back_is_not_to_be_submitted_again(
    story: rows.ReportRows, step: str, left: str
) -> None:
    """It would run twice: where Slurm says that it waits, and once a later start is on record."""
    second, first = story.attempts
    (verdict,) = story.verdicts
    down = dataclasses.replace(first, state="NODE_FAIL")
    verdict = dataclasses.replace(verdict, domain=records.Domain.UNKNOWN, cause="node_set_down", next_step=step)  # fmt: skip
    alone = dataclasses.replace(story, attempts=(down,), verdicts=(verdict,), drains=())
    assert build(alone).advice[0] == step, "it may be over: nobody says that it came back"
    assert build(dataclasses.replace(alone, waits="job 4242 waits (Priority)")).advice[0] == left
    mailed = model.build(job_ref.parse("4242"), alone, now=NOW, requeued_start=down.n_restarts)
    assert mailed.advice[0] == left
    assert mailed.advice[-1].startswith("Slurm has requeued the job under the same id")
    other = model.build(job_ref.parse("4242"), alone, now=NOW, requeued_start=down.n_restarts + 1)
    assert other.advice[0] == step, "another start was requeued"
    for state in ("RUNNING", "COMPLETED", "FAILED"):
        later = dataclasses.replace(second, state=state, end_at=None if state == "RUNNING" else second.end_at)
        words = " ".join(build(dataclasses.replace(alone, attempts=(later, down))).advice)
        assert "Submit the job again" not in words


def test_a_job_requeued_days_ago_is_not_said_to_wait(story: rows.ReportRows) -> None:
    """An import of the past, or a job that was cancelled since: nothing here says that it still waits."""
    _, first = story.attempts
    found = dataclasses.replace(story, attempts=(first,))
    later = model.build(job_ref.parse("4242"), found, now=NOW + timedelta(days=5)).advice[-1]
    assert later == (
        "Slurm requeued the job under the same id 5 d ago. No later start is known here; "
        "squeue -j 4242 shows whether it still waits."
    )


@pytest.mark.parametrize(("owner", "shown"), [("probing", True), ("bob", False)])
def test_a_persons_drain_after_the_end_is_not_why_the_job_died(
    story: rows.ReportRows, owner: str, shown: bool
) -> None:
    """Twenty seconds later, for no event: it says nothing of the attempt. While it ran it may."""
    _, first = story.attempts
    dead = dataclasses.replace(first, state="FAILED", nodes=("n1", "n2"))
    assert dead.end_at is not None
    late = example.drain("drain", dead.end_at + timedelta(seconds=20), node="n1", event_ids=(), owner=owner, reason="probing: fan swap (bob)")  # fmt: skip
    during = dataclasses.replace(late, at=dead.end_at - timedelta(seconds=20))
    for act, is_listed in ((late, shown), (during, True)):
        (view,) = build(dataclasses.replace(story, attempts=(dead,), drains=(act,))).attempts
        assert (view.actions == (act,)) == is_listed


def test_what_now_says_why_the_job_was_left_where_it_is(story: rows.ReportRows) -> None:
    """Its owner can do what we must not: submit it without the node that it names."""
    _, first = story.attempts
    dead = dataclasses.replace(first, state="FAILED")
    why = "it asks for n2 by name (--nodelist) and would wait for it"
    stays = example.drain(
        "restart", example.at("14:20:40"), state="skipped", why_state=why, job_id=dead.job_id
    )
    report = build(dataclasses.replace(story, attempts=(dead,), drains=(*story.drains, stays)))
    assert f"The job was not restarted automatically: {why}." in report.advice
    assert "submit it again without --nodelist, or with a list that leaves n2 out" in report.advice[-1]
    assert "--exclude" not in report.advice[-1]
    again = dataclasses.replace(stays, why_state="its owner has submitted it again as job 4300")
    report = build(dataclasses.replace(story, attempts=(dead,), drains=(*story.drains, again)))
    assert (
        report.advice[-1]
        == "The job was not restarted automatically: its owner has submitted it again as job 4300."
    )


@pytest.mark.parametrize(
    ("why", "back"),
    [
        ("it is PENDING: it has not ended", True),
        ("it is RUNNING: it has not ended", True),
        ("it is NODE_FAIL+COMPLETING: it has not ended", False),
        ("it is interactive", False),
    ],
)
def test_a_job_that_slurm_requeued_itself_is_not_to_be_submitted_again(
    story: rows.ReportRows, why: str, back: bool
) -> None:
    """Accounting has no row of the start that waits; the restart that was not needed says so, and is no news itself."""
    _, first = story.attempts
    dead = dataclasses.replace(first, state="NODE_FAIL")
    skip = example.drain(
        "restart", example.at("14:20:40"), state="skipped", why_state=why, job_id=dead.job_id
    )
    report = build(dataclasses.replace(story, attempts=(dead,), drains=(*story.drains, skip)))
    words = " ".join(report.advice)
    assert ("Slurm has requeued the job" in words) is back
    assert ("submit it again" in words, "not restarted" in words) == (not back, not back)
    assert (skip in report.attempts[0].actions) is not back


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"tail": ()}, "Its log is empty"),
        ({"tail": ("KeyError",)}, "Look at the program's"),
        (
            {"tail": (), "why": "thrown away by the job"},
            "The job's output could not be read: /home/a/o (thrown away by the job). Use the owner's copy",
        ),
        (
            {"tail": (), "why": vocabulary.DISCARDED_OUTPUT},
            f"The job's output could not be read: /home/a/o ({vocabulary.DISCARDED_OUTPUT}). Resubmit with an --output file",
        ),
        (
            {"tail": (), "why": f"there is no such file; {vocabulary.ON_A_TERMINAL}"},
            f"The job's output could not be read: /home/a/o (there is no such file; {vocabulary.ON_A_TERMINAL}). A job of sbatch: that file was removed ",
        ),
        ({"tail": ("KeyError",), "why": "only its end was read"}, "Look at the program's"),
        (
            {"tail": ("bye",), "note": log_parts.words([log_parts.LogPart(40, b"x" * 60)], 100)},
            "The error may stand in what was not read of its log: /home/a/o (only its last 60 of 100 bytes were read). ",
        ),
        (
            {"tail": ("bye",), "note": log_parts.words([log_parts.LogPart(40, b"x" * 60)], 100, 40)},
            "Look at the program's",
        ),
    ],
)
def test_nobody_is_sent_to_an_empty_log(
    story: rows.ReportRows, changes: dict[str, object], words: str
) -> None:
    """The step of a program's own error is to read what it wrote; of one that wrote nothing, to have it write."""
    _, first = story.attempts
    (verdict,) = story.verdicts
    own = dataclasses.replace(
        verdict,
        cause="user_error",
        domain=records.Domain.USER_PROGRAM,
        next_step="Look at the program's own output.",
        evidence=(),
    )
    log = rows.JobLog(node="n1", at=first.start_at, stream="stdout", path="/home/a/o", **changes)  # type: ignore[arg-type]
    found = dataclasses.replace(story, attempts=(first,), verdicts=(own,), logs=(log,))
    assert build(found).advice[0].startswith(words)


def test_a_partly_read_log_is_no_doubt_about_an_error_that_it_showed(story: rows.ReportRows) -> None:
    """The verdict rests on a line of what was read: the step is as it would be for a whole log."""
    _, first = story.attempts
    (verdict,) = story.verdicts
    own = dataclasses.replace(
        verdict,
        cause="user_error",
        domain=records.Domain.USER_PROGRAM,
        next_step="Look at the program's own output.",
    )
    note = log_parts.words([log_parts.LogPart(40, b"x" * 60)], 100)
    log = rows.JobLog(node="n1", at=first.start_at, path="/home/a/o", tail=("bye",), note=note)  # type: ignore[arg-type]
    found = dataclasses.replace(story, attempts=(first,), verdicts=(own,), logs=(log,))
    assert verdict.evidence
    assert build(found).advice[0] == "Look at the program's own output."


def test_a_step_that_needs_no_output_stays_where_the_log_is_empty(story: rows.ReportRows) -> None:
    """timeout(1) ended the command: what to do about it is known without a word of the program."""
    _, first = story.attempts
    (verdict,) = story.verdicts
    own = dataclasses.replace(
        verdict,
        cause="user_error",
        domain=records.Domain.USER_PROGRAM,
        next_step="Give timeout(1) more time.",
        evidence=(),
    )
    log = rows.JobLog(node="n1", at=first.start_at, path="/home/a/o")  # type: ignore[arg-type]
    found = dataclasses.replace(story, attempts=(first,), verdicts=(own,), logs=(log,))
    assert build(found).advice[0] == "Give timeout(1) more time."
    assert taxonomy.cause("user_error").next_step.startswith(advice._LOOK_AT_OUTPUT)
    of_code = dataclasses.replace(own, next_step=f"{next_steps._OUTPUT_FIRST}give timeout(1) more time.")
    first_step = build(dataclasses.replace(found, verdicts=(of_code,))).advice[0]
    assert (
        first_step == "Its log is empty. If its exit code has its usual meaning, give timeout(1) more time."
    )
    wrote = dataclasses.replace(
        found, verdicts=(of_code,), logs=(dataclasses.replace(log, tail=("step 1",)),)
    )
    assert build(wrote).advice[0] == of_code.next_step


@pytest.mark.parametrize(
    ("code", "signal", "hung_up"), [(1, 0, True), (3, 0, False), (0, 9, False), (1, 9, False)]
)
def test_an_empty_log_and_code_1_may_be_a_hang_up(
    story: rows.ReportRows, code: int, signal: int, hung_up: bool
) -> None:
    """A script that SIGHUP ends returns 129, of which Slurm keeps 1 for the job; only the batch step has the signal."""
    _, first = story.attempts
    first = dataclasses.replace(first, exit_code=code, exit_signal=signal)
    (verdict,) = story.verdicts
    own = dataclasses.replace(
        verdict,
        cause="user_error",
        domain=records.Domain.USER_PROGRAM,
        next_step="Look at the program's own output.",
    )
    log = rows.JobLog(node="n1", at=first.start_at, path="/home/a/o")  # type: ignore[arg-type]
    found = dataclasses.replace(story, attempts=(first,), verdicts=(own,), logs=(log,))
    assert ("SIGHUP" in build(found).advice[0]) is hung_up


def test_a_job_whose_output_could_not_be_opened_is_sent_to_its_path(story: rows.ReportRows) -> None:
    """Slurm's 0:53: there is no output to look at, but a file that could not be opened and why."""
    _, first = story.attempts
    (verdict,) = story.verdicts
    first = dataclasses.replace(first, exit_code=0, exit_signal=53)
    own = dataclasses.replace(
        verdict,
        cause="user_error",
        domain=records.Domain.USER_PROGRAM,
        next_step="Name files that can be opened.",
    )
    log = rows.JobLog(node="n1", at=first.start_at, path="/no/o.out", why="there is no such file")  # type: ignore[arg-type]
    found = dataclasses.replace(story, attempts=(first,), verdicts=(own,), logs=(log,))
    words = "Slurm could not open /no/o.out (there is no such file). Name files that can be opened."
    assert build(found).advice[0] == words
    assert build(dataclasses.replace(found, logs=())).advice[0] == own.next_step


@pytest.mark.parametrize(("path", "named"), [("/no/proj/slurm-68.out", True), ("/no/proj/logs/o.out", False)])
def test_a_job_without_its_working_directory_is_sent_there(
    story: rows.ReportRows, path: str, named: bool
) -> None:
    """Its output has no name of its own (--chdir=/no/proj): --output is not at fault, and there never was a terminal."""
    _, first = story.attempts
    (verdict,) = story.verdicts
    first = dataclasses.replace(first, exit_code=0, exit_signal=53, work_dir="/no/proj/")
    own = {"cause": "user_error", "domain": records.Domain.USER_PROGRAM}
    verdict = dataclasses.replace(verdict, next_step="Give --output files that can be opened.", **own)  # type: ignore[arg-type]
    why = f"there is no such file; {vocabulary.ON_A_TERMINAL}"
    log = rows.JobLog(node="n1", at=first.start_at, path=path, why=why)  # type: ignore[arg-type]
    found = dataclasses.replace(story, attempts=(first,), verdicts=(verdict,), logs=(log,))
    step = build(found).advice[0]
    assert step.startswith(f"Slurm could not open {path} (there is no such file). ")
    assert ("/no/proj is the job's working directory (--chdir" in step) is named
    assert ("Give --output files" in step) is not named


@pytest.mark.parametrize("other", [True, False])
def test_a_missing_input_is_suspected_where_the_output_could_have_been_made(
    story: rows.ReportRows, other: bool
) -> None:
    """Slurm opens --input first; the output's file that it did not make is not why. One in a directory that is missing is."""
    _, first = story.attempts
    (verdict,) = story.verdicts
    first = dataclasses.replace(first, exit_code=0, exit_signal=53)
    own = dataclasses.replace(
        verdict,
        cause="user_error",
        domain=records.Domain.USER_PROGRAM,
        next_step="Name files that can be opened.",
    )
    given = {"node": "n1", "at": first.start_at, "why": "there is no such file"}
    logs = (
        rows.JobLog(path="/work/o.out", open_directory=True, **given),  # type: ignore[arg-type]
        rows.JobLog(path="/no/e.out", stream="stderr", open_directory=not other, **given),  # type: ignore[arg-type]
    )
    advice = build(dataclasses.replace(story, attempts=(first,), verdicts=(own,), logs=logs)).advice[0]
    assert ("--input" in advice) is not other
    assert ("/work/o.out" in advice) is not other
    assert advice.startswith("Slurm could not open /no/e.out (there is no such file).") is other


def test_a_running_job_was_last_seen_by_the_latest_beat_that_lists_it() -> None:
    """Only a beat of one of its nodes that names the job says that it still runs."""
    running = example.attempt(1, state="RUNNING", start_at=example.at("14:03:00"), nodes=("n1", "n2"))
    beats = [
        records.AgentHeartbeat(cluster="c", node="n1", at=example.at("14:50:00"), jobs=(4242,)),
        records.AgentHeartbeat(cluster="c", node="n2", at=example.at("14:55:00"), jobs=(7,)),
        records.AgentHeartbeat(cluster="c", node="n9", at=example.at("14:58:00"), jobs=(4242,)),
    ]
    report = build(rows.ReportRows(attempts=(running,), heartbeats=tuple(beats)))
    assert report.attempts[0].last_seen_at == example.at("14:50:00")
    assert (report.end_at, report.drawn_until) == (None, NOW)


def test_other_events_belong_to_the_attempt_they_fell_into(story: rows.ReportRows) -> None:
    """An event between two attempts, or on another node, is nobody's."""
    low = records.Severity.LOW
    others = (
        example.event(uuid.UUID(int=1), example.at("14:10:00"), severity=low),
        example.event(uuid.UUID(int=2), example.at("14:21:00"), severity=low),
        example.event(uuid.UUID(int=3), example.at("14:30:00"), severity=low, node="n3"),
        example.event(uuid.UUID(int=4), example.at("14:30:00"), severity=low, node="n2"),
    )
    first, second = build(dataclasses.replace(story, others=others)).attempts
    assert [e.event_id.int for e in first.others] == [1]
    assert [e.event_id.int for e in second.others] == [3]


def test_with_several_deaths_the_lost_work_is_not_divided(story: rows.ReportRows) -> None:
    """The run's lost seconds are its own; no attempt is given a share that nobody measured."""
    second, first = story.attempts
    both = dataclasses.replace(story, attempts=(first, dataclasses.replace(second, state="FAILED")))
    assert [v.lost_s for v in build(both).attempts] == [None, None]


def test_the_only_start_of_a_run_of_two_components_has_the_runs_loss(story: rows.ReportRows) -> None:
    """The bar of a heterogeneous job's component shows the loss that the table below it gives for the run."""
    assert story.account is not None
    first = next(a for a in story.attempts if a.state == "REQUEUED")
    one_start = dataclasses.replace(story.account, n_attempts=1)
    het = dataclasses.replace(story, attempts=(first,), account=one_start, run_jobs=(4242, 4243))
    assert [v.lost_s for v in build(het).attempts] == [one_start.lost_to_replay_s]


def test_an_id_that_we_gave_is_not_shown(story: rows.ReportRows) -> None:
    """Accounting without JobIDRaw: the task is called what its owner calls it."""
    (one, *_) = story.attempts
    for job_id, title in ((4250, "4244_2 (4250)"), (vocabulary.STAND_IN_BASE + 1, "4244_2")):
        task = dataclasses.replace(one, job_id=job_id, array_job_id=4244, array_task_id=2)
        found = dataclasses.replace(story, attempts=(task,), verdicts=(), account=None)
        assert build(found, "4244_2").title == title


def test_a_late_drain_of_the_same_node_is_another_story(story: rows.ReportRows) -> None:
    """What happened to the node long after the end is not the attempt's."""
    late = example.drain("drain", example.at("14:20:36") + timedelta(minutes=11), event_ids=())
    requeue = dataclasses.replace(story, drains=(late,))
    assert build(requeue).attempts[0].actions == ()


def test_what_was_not_done_for_another_fault_after_the_end_is_another_story(story: rows.ReportRows) -> None:
    """A denied drain of its node concerns it only by the verdict's evidence, and then once."""
    _, first = story.attempts
    assert first.end_at is not None
    other, end_at = uuid.UUID(int=7), first.end_at

    def denied(n: int, event: uuid.UUID) -> records.Drain:
        at = end_at + timedelta(milliseconds=n)
        return example.drain("drain", at, event_ids=(event,), state="denied", why_state="budget")

    drains = (*(denied(n, other) for n in range(3)), *(denied(n, example.XID) for n in (4, 5, 6)))
    actions = build(dataclasses.replace(story, drains=drains)).attempts[0].actions
    assert [d.at for d in actions] == [drains[3].at]


@pytest.mark.parametrize(
    "text", ["", "abc", "1_", "1+", "1_2_3", "-1", "1 2", "1_[2-3]", "99999999999", "1;2"]
)
def test_what_is_no_job_id_is_refused(text: str) -> None:
    """Only the three forms pass, and nothing can reach the query but numbers."""
    with pytest.raises(Exception, match="not a job id"):
        job_ref.parse(text)


@pytest.mark.parametrize(
    ("text", "name"), [("123", "123"), ("123_4", "123_4"), ("123+1", "123+1"), ("7.batch", "7"), (" 8 ", "8")]
)
def test_the_three_forms_of_a_job_id(text: str, name: str) -> None:
    """Bare, array task and het component; a step suffix people paste is ignored."""
    assert str(job_ref.parse(text)) == name


def test_a_row_that_cannot_be_read_costs_nobody_the_others() -> None:
    """A verdict that a person wrote by hand, of no domain there is or at no time, ends no report."""
    good = {"job_id": 7, "state": "FAILED", "n_attempts": 1}
    bad: list[dict[str, object]] = [{**good, "no": 1, "job_id": 8}]
    verdicts = [{"domain": "no such"}, {"confidence": "sure"}, {"made_at": "infinity"}, {}]
    found = rows.from_json({"siblings": [good, *bad], "verdicts": verdicts})
    assert (found.verdicts, [s.job_id for s in found.siblings]) == ((), [7, 8])


def test_what_hung_until_its_end_is_named_in_the_cost_and_drawn(story: rows.ReportRows) -> None:
    """The account holds it as lost; the verdict says since when it hung."""
    hung = tuple(
        dataclasses.replace(v, stalled_at=story_end - timedelta(seconds=400))
        for v in story.verdicts
        for story_end in [a.end_at for a in story.attempts if a.submit_at == v.submit_at]
        if story_end is not None
    )
    report = build(dataclasses.replace(story, verdicts=hung))
    assert report.cost is not None
    gpu_h = 16 / 3600
    assert (report.cost.hung_gpu_h, report.cost.replayed_gpu_h) == pytest.approx((400 * gpu_h, 50 * gpu_h))
    assert report.cost.total_gpu_h == pytest.approx((450 + 75 + 64) * gpu_h)
    assert " hung" in report.cost.words
    several = build(dataclasses.replace(story, verdicts=hung, run_jobs=(4242, 4243)))
    assert [v.lost_s for v in several.attempts] == [400.0, None]


def test_of_much_evidence_what_the_verdict_rests_on_is_shown(story: rows.ReportRows) -> None:
    """An error at the top of a log stands behind two hundred watchdogs; shown it is where it belongs in time."""
    first = example.event(uuid.UUID(int=801), example.at("14:20:00"), kind="python_exception")
    others = [
        example.event(uuid.UUID(int=810 + i), example.at(f"14:1{i}:00"), kind="watchdog_timeout")
        for i in range(9)
    ]
    order = [first.event_id, *(e.event_id for e in others)]
    shown = model.strongest([*others, first], order, 3)
    assert [e.event_id for e in shown] == [others[0].event_id, others[1].event_id, first.event_id]


@pytest.mark.parametrize(
    ("offset", "failed", "cause", "words"),
    [
        (1, {1}, "user_error", "The task that failed is of this component; what it wrote is in the output of 35+0: probing-report 35+0 shows it."),
        (0, {1}, "user_error", "The task that failed is of another component: 35+1."),
        (0, {0}, "user_error", ""),
        (1, {0, 1}, "user_error", "The cause is at another component: 35+0 (user_error); probing-report 35+0 shows it."),
        (1, {1}, "gpu_lost", "The cause is at another component: 35+0 (gpu_lost); probing-report 35+0 shows it."),
    ],
)  # fmt: skip
def test_the_component_whose_task_failed_is_named(
    story: rows.ReportRows, offset: int, failed: set[int], cause: str, words: str
) -> None:
    """All components write to the first one's file, so its log shows the others' errors; a fault of a part comes first."""
    _, attempt = story.attempts
    part = dataclasses.replace(attempt, job_id=35 + offset, state="FAILED", het_job_id=35, het_offset=offset)
    siblings = tuple(
        rows.Sibling(job_id=35 + n, het_job_id=35, het_offset=n, state="FAILED", n_attempts=1,
                     cause="user_error" if n else cause, task_failed=n in failed)
        for n in range(2)
    )  # fmt: skip
    found = dataclasses.replace(story, attempts=(part,), siblings=siblings, verdicts=())
    assert model.build(job_ref.parse(f"35+{offset}"), found, now=NOW).cause_elsewhere == words


@pytest.mark.parametrize(
    ("mine", "others", "words"),
    [
        ("user_cancelled", "gpu_lost", "The cause is at another component: 35+0 (gpu_lost); probing-report 35+0 shows it."),
        ("user_error", "user_error", "The cause is at another component: 35+0 (user_error); probing-report 35+0 shows it."),
        ("node_lost", "user_error", ""),
        ("user_cancelled", "user_cancelled", ""),
        (None, None, ""),
    ],
)  # fmt: skip
def test_a_component_names_the_one_that_has_the_cause(
    story: rows.ReportRows, mine: str | None, others: str | None, words: str
) -> None:
    """Slurm ends every component when one fails; the batch script is the first one's."""
    _, first = story.attempts
    part = dataclasses.replace(first, job_id=36, state="FAILED", het_job_id=35, het_offset=1)
    siblings = tuple(
        rows.Sibling(job_id=35 + n, het_job_id=35, het_offset=n, state="FAILED", n_attempts=1, cause=cause)
        for n, cause in enumerate((others, mine))
    )
    found = dataclasses.replace(story, attempts=(part,), siblings=siblings, verdicts=())
    assert model.build(job_ref.parse("35+1"), found, now=NOW).cause_elsewhere == words


@pytest.mark.parametrize(
    ("step", "steps"),
    [
        (
            "Nothing for the job. Repair n2: it was refused before the job began.",
            ("Nothing for the job.", "For the operators: Repair n2: it was refused before the job began."),
        ),
        (
            "Submit the job again: it was not at fault. Repair n2.",
            ("Submit the job again: it was not at fault.", "For the operators: Repair n2."),
        ),
        ("Nothing for the job.", ("Nothing for the job.",)),
        ("Repair n2", ("For the operators: Repair n2.",)),
    ],
)
def test_the_owners_sentence_is_not_behind_the_operators_mark(
    story: rows.ReportRows, step: str, steps: tuple[str, ...]
) -> None:
    """A refused node is to be repaired by operators; the owner of the job learns that there is nothing to do."""
    verdicts = tuple(dataclasses.replace(v, cause="node_refused", next_step=step) for v in story.verdicts)
    (_, first) = story.attempts
    alone = (dataclasses.replace(first, state="FAILED"),)
    assert build(dataclasses.replace(story, attempts=alone, verdicts=verdicts)).advice[: len(steps)] == steps


@pytest.mark.parametrize(
    "step", [*(c.next_step for c in taxonomy.load().causes.values()), *taxonomy.load().variants.values()]
)
def test_no_sentence_for_an_owner_is_marked_as_the_operators(story: rows.ReportRows, step: str) -> None:
    """Of any cause, if a rule gives it the domain of a machine."""
    verdict = dataclasses.replace(story.verdicts[0], domain=records.Domain.HARDWARE, next_step=step)
    owners, operators = advice.parted(verdict)
    assert not re.search(r"Nothing for the job|Submit the job again", operators)
    assert f"{owners} {operators.removeprefix(advice.OPERATORS)}".strip() == step


@pytest.mark.parametrize(
    ("domain", "cause", "theirs"),
    [
        (records.Domain.SYSTEM_SOFTWARE, "filesystem_mount", True),
        (records.Domain.SYSTEM_SOFTWARE, "gpu_driver", True),
        (records.Domain.SYSTEM_SOFTWARE, "node_refused", False),
        (records.Domain.HARDWARE, "ib_link", True),
        (records.Domain.UNKNOWN, "filesystem_mount", False),
    ],
)
def test_what_only_operators_can_do_is_marked_as_theirs(
    story: rows.ReportRows, domain: records.Domain, cause: str, *, theirs: bool
) -> None:
    """A job's owner cannot check the file servers."""
    step = "Check the file system on n2."
    verdicts = tuple(
        dataclasses.replace(v, domain=domain, cause=cause, next_step=step) for v in story.verdicts
    )
    advice = build(dataclasses.replace(story, verdicts=verdicts)).advice
    assert advice[0] == (f"For the operators: {step}" if theirs else step)


@pytest.mark.parametrize(
    ("cause", "confidence", "last"),
    [
        ("gpu_driver", "possible", "If it shows no error of the program's own, submit the job again with --exclude=n2."),
        ("kernel_panic", "certain", "If squeue -j 4242 no longer shows the job, submit it again with --exclude=n2."),
        ("filesystem_mount", "likely", "If squeue -j 4242 no longer shows the job, submit it again once that is repaired."),
    ],
)  # fmt: skip
def test_the_owner_of_a_job_that_a_nodes_software_ended_has_a_step_too(
    story: rows.ReportRows, cause: str, confidence: str, last: str
) -> None:
    """Orders to operators alone leave the researcher with nothing to do."""
    changes = {"cause": cause, "confidence": records.Confidence(confidence), "domain": records.Domain.SYSTEM_SOFTWARE}  # fmt: skip
    (verdict,) = story.verdicts
    only = next(a for a in story.attempts if a.submit_at == verdict.submit_at)
    verdict = dataclasses.replace(verdict, next_step="Reload the GPU driver of n2, or reboot it.", **changes)  # type: ignore[arg-type]
    found = dataclasses.replace(
        story, attempts=(dataclasses.replace(only, state="FAILED"),), verdicts=(verdict,)
    )
    theirs, owners = build(found).advice
    assert theirs == "For the operators: Reload the GPU driver of n2, or reboot it."
    assert owners.endswith(last)


def test_a_check_that_ends_with_whom_to_tell_is_its_owners(story: rows.ReportRows) -> None:
    """The owner sees which libcuda the program loaded, and operators hear of it where the node is at fault."""
    step = findings.named("cuda_driver_mismatch").check.format(node="n2")
    changes = {"cause": "gpu_driver", "confidence": records.Confidence.POSSIBLE, "domain": records.Domain.SYSTEM_SOFTWARE}  # fmt: skip
    verdict = dataclasses.replace(story.verdicts[0], next_step=step, **changes)  # type: ignore[arg-type]
    only = next(a for a in story.attempts if a.submit_at == verdict.submit_at)
    found = dataclasses.replace(
        story, attempts=(dataclasses.replace(only, state="FAILED"),), verdicts=(verdict,)
    )
    assert build(found).advice == (step,)


def test_a_section_lists_events_by_time_and_then_lines_of_the_output_by_line(story: rows.ReportRows) -> None:
    """A line of the output bears the time of the job's end: it tells nothing of the order."""
    of_log = {"node": "n1", "source": "joblog", "kind": "python_exception", "job_id": 4242}
    late, early = (
        example.event(uuid.UUID(int=970 + n), example.at("14:20:00"), detail={"line": n}, **of_log)
        for n in (40, 7)
    )
    timed = example.event(uuid.UUID(int=969), example.at("14:20:30"), node="n1")
    assert phrase.in_order([late, timed, early]) == (timed, early, late)
    verdicts = tuple(
        dataclasses.replace(v, evidence=(late.event_id, early.event_id, timed.event_id))
        for v in story.verdicts
    )
    found = dataclasses.replace(story, verdicts=verdicts, evidence=(late, early, timed))
    assert model.build(job_ref.parse("4242"), found, now=NOW).attempts[0].evidence == (timed, early, late)
