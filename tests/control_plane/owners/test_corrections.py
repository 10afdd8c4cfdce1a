"""A mail waits a while for the job's output to be read; it is corrected, once, if the verdict has another cause or domain within the hour."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import mail_server
import pytest

from probing_cluster.control_plane import context
from probing_cluster.control_plane.owners import answers, corrections, job_facts
from probing_cluster.control_plane.service.tasks.people import owners
from probing_cluster.core import records
from tests.control_plane.owners.test_answers import (
    SUBJECT,
    attempt,
    box,
    judge,
    later,
    mailing,
    owe,
    pending,
    request,
    text_of,
)  # fmt: skip

__all__ = ["box", "mailing"]

UNREAD: Mapping[str, Any] = {
    "cause": "user_error", "domain": records.Domain.USER_PROGRAM, "confidence": records.Confidence.LIKELY, "node": None, "device": None,
    "summary": "The program exited with code 1.", "next_step": "Look at the program's own output", "log_read": False,
}  # fmt: skip
READ: Mapping[str, Any] = {
    **UNREAD, "cause": "filesystem", "domain": records.Domain.SYSTEM_SOFTWARE, "confidence": records.Confidence.POSSIBLE,
    "summary": "/data stopped answering.", "next_step": "Look at the file server", "log_read": True,
}  # fmt: skip


def mailed_unread(service: context.Context, **changes: Any) -> records.JobAttempt:
    """An attempt whose mail went out before its output was read."""
    owe(service)
    made = attempt(service, **changes)
    judge(service, made, **UNREAD)
    later(service, service.config.service.mail_wait_s + 1)
    owners.run(service)
    return made


def test_a_mail_waits_until_the_output_is_read(mailing: context.Context, box: mail_server.Box) -> None:
    """Mostly a second or two; then one mail has all that it says."""
    owe(mailing)
    made = attempt(mailing)
    judge(mailing, made, **UNREAD)
    later(mailing, 5)
    owners.run(mailing)
    assert box.mails == []
    judge(mailing, made, **READ)
    owners.run(mailing)
    owners.run(mailing)
    assert len(box.mails) == 1
    assert "/data stopped answering" in text_of(box)
    later(mailing, 3600)
    owners.run(mailing)
    assert len(box.mails) == 1
    assert pending(mailing) == []


def test_a_node_that_is_gone_reads_no_output(mailing: context.Context, box: mail_server.Box) -> None:
    """Its owner's mail does not wait for it."""
    owe(mailing)
    judge(mailing, attempt(mailing, state="NODE_FAIL"), log_read=False)
    owners.run(mailing)
    assert len(box.mails) == 1


def test_a_mail_gives_each_sentence_once(mailing: context.Context, box: mail_server.Box) -> None:
    """Its title is the verdict's first sentence; the others follow, in the text and in the page."""
    owe(mailing)
    summary = "The program exited with code 1. Its last line: start vm"
    judge(mailing, attempt(mailing), **UNREAD | {"summary": summary, "log_read": True})
    owners.run(mailing)
    page = box.message().get_body(("html",)).get_content()
    for part in (text_of(box), page.partition("<body")[2]):
        assert part.count("exited with code 1") == part.count("Its last line: start vm") == 1


def test_a_mail_from_before_the_reading_is_corrected_once(
    mailing: context.Context, box: mail_server.Box
) -> None:
    """Short, in the same thread, with what the verdict was and is, and what to do now; no service sends it twice."""
    made = mailed_unread(mailing)
    assert "user program, likely so far" in text_of(box)
    owners.run(mailing)
    assert len(box.mails) == 1
    judge(mailing, made, **READ)
    kept = corrections.box(mailing.config).pending()
    owners.run(mailing)
    owners.run(mailing)
    assert len(box.mails) == 2
    text = " ".join(text_of(box).split())
    words = "Correction: job 7: the verdict changed from user program (user error) to system software (filesystem)"
    assert box.message()["Subject"] == f"{SUBJECT}: {words}"[:240]
    for part in (f"{words}.", "/data stopped answering.", "What now", "probing-report 7"):
        assert part in text
    assert "What it cost" not in text
    assert box.message(0)["References"] == box.message(1)["References"]
    assert pending(mailing) == []
    for one in kept:  # of a service that died between the mail and its note
        corrections.box(mailing.config).update(one)
    owners.run(mailing)
    assert len(box.mails) == 2


@pytest.mark.parametrize(
    ("after", "n_mails"),
    [
        ({**UNREAD, "confidence": records.Confidence.CERTAIN, "log_read": True}, 1),
        ({**UNREAD, "summary": "The program exited with code 1. Its last line: x", "log_read": True}, 1),
        ({**READ, "cause": "user_error"}, 2),
        ({**UNREAD, "cause": "oom_host", "log_read": True}, 2),
        ({**READ, "log_read": None, "author": "root"}, 1),
    ],
)
def test_only_another_cause_or_domain_is_corrected(
    mailing: context.Context, box: mail_server.Box, after: dict[str, Any], n_mails: int
) -> None:
    """Surer words are no news, nor is a person's verdict, who tells the owner themselves."""
    judge(mailing, mailed_unread(mailing), **after)
    owners.run(mailing)
    owners.run(mailing)
    assert len(box.mails) == n_mails


def test_what_the_output_says_after_the_mail_is_mailed_once(
    mailing: context.Context, box: mail_server.Box
) -> None:
    """Of the same cause, too, if the mail was written without it; the mail announces that, for nobody can ask it again."""
    made = mailed_unread(mailing)
    first = " ".join(text_of(box).split())
    assert "If that changes it, one more mail follows." in first
    assert "Ask again" not in first
    step = {
        "summary": "It raised JSONDecodeError.",
        "next_step": "Look at the program's own output: JSONDecodeError",
    }
    judge(mailing, made, **{**UNREAD, **step})
    later(mailing, 11)
    owners.run(mailing)
    assert len(box.mails) == 1, "the output has still not been read"
    for _ in range(2):
        judge(mailing, made, **{**UNREAD, **step, "log_read": True})
        later(mailing, 11)
        owners.run(mailing)
    assert len(box.mails) == 2
    assert "Correction: job 7: what its output says" in box.message(1)["Subject"]
    assert "JSONDecodeError" in text_of(box, 1)


def test_mails_are_held_against_verdicts_every_ten_seconds(
    mailing: context.Context, box: mail_server.Box
) -> None:
    """The tasks look every second or two, and there may be thousands of mails."""
    made = mailed_unread(mailing)
    owners.run(mailing)
    judge(mailing, made, **READ)
    numbers = []
    for _ in range(3):
        later(mailing, 4)
        owners.run(mailing)
        numbers.append(len(box.mails))
    assert numbers == [1, 1, 2]


def test_a_mail_that_went_out_hurries_nobody(mailing: context.Context, box: mail_server.Box) -> None:
    """Attribution looks for its output out of turn only until then; a correction waits for the usual passes."""
    owe(mailing)
    judge(mailing, attempt(mailing), **UNREAD)
    later(mailing, mailing.config.service.mail_wait_s + 1)
    assert answers.waits_for(mailing, mailing.clock.now()).verdicts
    owners.run(mailing)
    assert len(box.mails) == len(corrections.box(mailing.config).pending()) == 1
    assert answers.waits_for(mailing, mailing.clock.now()) == answers.Waits()


def test_nothing_is_owed_after_the_mail_with_a_persons_verdict(
    mailing: context.Context, box: mail_server.Box
) -> None:
    """No rule replaces it."""
    owe(mailing)
    judge(mailing, attempt(mailing), **READ | {"author": "root"})
    owners.run(mailing)
    assert len(box.mails) == 1
    assert corrections.box(mailing.config).pending() == []


@pytest.mark.parametrize("log_read", [True, None])
def test_a_mail_is_corrected_also_if_the_output_had_been_read(
    mailing: context.Context, box: mail_server.Box, log_read: bool | None
) -> None:
    """What stands in the output may arrive after the word that it was read, and a node's evidence after both."""
    owe(mailing)
    made = attempt(mailing)
    judge(mailing, made, **UNREAD | {"log_read": log_read})
    owners.run(mailing)
    assert len(box.mails) == 1
    later(mailing, 10)
    judge(mailing, made, **UNREAD | {"cause": "oom_gpu", "log_read": log_read})
    owners.run(mailing)
    assert "the verdict changed from user program (user error) to user program (oom gpu)" in " ".join(
        text_of(box).split()
    )
    later(mailing, 10)
    judge(mailing, made, **READ)
    owners.run(mailing)
    assert len(box.mails) == 2
    assert pending(mailing) == []


def test_a_correction_waits_for_the_output_as_a_mail_does(
    mailing: context.Context, box: mail_server.Box
) -> None:
    """There is only one: it should not be sent before what may change the verdict once more."""
    made = mailed_unread(mailing)
    later(mailing, 10)
    judge(mailing, made, **READ | {"log_read": False})
    owners.run(mailing)
    assert len(box.mails) == 1
    later(mailing, mailing.config.service.mail_wait_s)
    owners.run(mailing)
    owners.run(mailing)
    assert len(box.mails) == 2
    assert pending(mailing) == []


def test_no_correction_waits_for_output_past_the_hour(mailing: context.Context, box: mail_server.Box) -> None:
    """A verdict of the hour's last minute is sent with what is known at the hour's end."""
    made = mailed_unread(mailing)
    later(mailing, 3590 - mailing.config.service.mail_wait_s)
    judge(mailing, made, **READ | {"log_read": False})
    owners.run(mailing)
    assert len(box.mails) == 1
    later(mailing, 11)
    owners.run(mailing)
    assert len(box.mails) == 2
    assert pending(mailing) == []


@pytest.mark.parametrize("is_away", [False, True])
def test_output_that_is_read_an_hour_later_corrects_nothing(
    mailing: context.Context, box: mail_server.Box, is_away: bool
) -> None:
    """Nothing is looked for longer than that, nor by a service that was away meanwhile."""
    made = mailed_unread(mailing)
    later(mailing, 3600)
    if not is_away:
        owners.run(mailing)
        assert pending(mailing) == []
    judge(mailing, made, **READ)
    owners.run(mailing)
    assert len(box.mails) == 1
    assert pending(mailing) == []


def test_an_arrays_summary_waits_and_is_not_corrected(mailing: context.Context, box: mail_server.Box) -> None:
    """It counts its tasks; the report has the newest counts."""
    owe(mailing, subject="Slurm Array Summary Job_id=7_* (7) Name=train Ended",
        environment={**request()["environment"], "SLURM_ARRAY_JOB_ID": 7})  # type: ignore[dict-item]  # fmt: skip
    made = attempt(mailing, array_job_id=7, array_task_id=0)
    judge(mailing, made, **UNREAD)
    owners.run(mailing)
    assert box.mails == []
    later(mailing, mailing.config.service.mail_wait_s + 1)
    owners.run(mailing)
    judge(mailing, made, **READ)
    owners.run(mailing)
    assert len(box.mails) == 1
    assert pending(mailing) == []


def test_no_recipient_gets_a_storm_of_corrections(
    mailing: context.Context, box: mail_server.Box, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of what ends many jobs at once; the next hour has room again."""
    monkeypatch.setattr(corrections, "_MOST", 2)
    environment = request()["environment"]
    assert isinstance(environment, dict)
    for job in range(10, 14):
        owe(mailing, environment={**environment, "SLURM_JOB_ID": job})
    made = [attempt(mailing, job_id=job, run_key=str(job)) for job in range(10, 14)]
    for one in made:
        judge(mailing, one, **UNREAD)
    later(mailing, mailing.config.service.mail_wait_s + 1)
    owners.run(mailing)
    assert len(box.mails) == 4
    for one in made:
        judge(mailing, one, **READ)
    owners.run(mailing)
    owners.run(mailing)
    assert len(box.mails) == 6
    assert pending(mailing) == []
    later(mailing, 3600)
    made_later = mailed_unread(mailing)
    judge(mailing, made_later, **READ)
    owners.run(mailing)
    assert len(box.mails) == 8


def array_task(
    service: context.Context, raw: int, task: int, verdict: Mapping[str, Any], *, is_mailed: bool = False
) -> records.JobAttempt:
    """A task of array 7 that failed; with its mail, if its job asked for ARRAY_TASKS."""
    subject = (
        f"Slurm Array Task Job_id=7_{task} ({raw}) Name=train Failed, Run time 00:10:00, FAILED, ExitCode 1"
    )
    environment = {**request()["environment"], "SLURM_JOB_ID": raw, "SLURM_ARRAY_JOB_ID": 7}  # type: ignore[dict-item]
    if is_mailed:
        owe(service, subject=subject, environment=environment)
    submitted = service.clock.now() - timedelta(minutes=11) + timedelta(seconds=raw)
    made = attempt(
        service, job_id=raw, array_job_id=7, array_task_id=task, run_key=f"7_{task}", submit_at=submitted
    )
    judge(service, made, **verdict)
    return made


def test_no_other_task_of_the_array_corrects_a_mail(mailing: context.Context, box: mail_server.Box) -> None:
    """An array's number is the raw id of its last task, too, whose mail had its own verdict."""
    array_task(mailing, 8, 1, {**UNREAD, "cause": "oom_host", "log_read": True})
    array_task(mailing, 7, 9, {**UNREAD, "log_read": True}, is_mailed=True)
    array_task(mailing, 9, 2, READ)
    later(mailing, mailing.config.service.mail_wait_s + 1)
    owners.run(mailing)
    later(mailing, 11)
    owners.run(mailing)
    assert len(box.mails) == 1
    assert "job 7_9" in str(box.message()["Subject"])
    assert "user program" in text_of(box)
    assert len(corrections.box(mailing.config).pending()) == 1


def test_no_other_task_of_the_array_answers_a_mail(mailing: context.Context, box: mail_server.Box) -> None:
    """While accounting does not have its own."""
    array_task(mailing, 8, 1, READ)
    subject = "Slurm Array Task Job_id=7_9 (7) Name=train Failed, Run time 00:10:00, FAILED, ExitCode 1"
    environment = {**request()["environment"], "SLURM_ARRAY_JOB_ID": 7}  # type: ignore[dict-item]
    owe(mailing, subject=subject, environment=environment)
    later(mailing, mailing.config.service.mail_wait_s + 1)
    owners.run(mailing)
    assert "The verdict follows" in text_of(box)


def test_a_correction_is_held_against_what_its_owner_would_read(
    mailing: context.Context, box: mail_server.Box, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever is found out besides: never 'the verdict changed from X to X'."""
    made = mailed_unread(mailing)
    another = attempt(mailing, job_id=8, run_key="8")
    judge(mailing, another, **READ)
    monkeypatch.setattr(job_facts.JobFacts, "verdict_on", lambda _self, _of: another_verdict)
    (another_verdict,) = mailing.store.verdicts(job_ids=[8])
    owners.run(mailing)
    assert len(box.mails) == 1
    assert len(corrections.box(mailing.config).pending()) == 1
    judge(mailing, made, **{**READ, "cause": "oom_host"})
    later(mailing, 11)
    owners.run(mailing)
    assert "to system software (oom host)" in " ".join(text_of(box).split())
