"""Owed mails as they lie on disk: what another release, to which a site goes back or from which it comes, makes of them."""

from __future__ import annotations

import dataclasses
import json
import logging
from pathlib import Path

import fakes
import mail_server
import pytest

from probing_cluster.control_plane import context
from probing_cluster.control_plane.outbox import queue
from probing_cluster.control_plane.owners import corrections, handover
from probing_cluster.control_plane.service.tasks.people import mail, owners
from probing_cluster.reports import job_ref
from tests.control_plane.owners.test_answers import attempt, box, judge, later, mailing, owe, request, text_of

__all__ = ["box", "mailing"]

RELEASED = frozenset(
    {"job_id", "restart_count", "recipient", "subject", "event", "state", "user", "array", "at", "followed"}
)
"""The fields that the release before reads; any other is a TypeError in its every pass (`git show 90518833:control_plane/owners/handover.py`)."""


def owed_fields(service: context.Context) -> list[frozenset[str]]:
    """Of every file in the directory that the release before reads."""
    return [frozenset(json.loads(kept.body)) for kept in handover.box(service.config).messages() if kept.body]


def test_the_release_before_reads_what_waits_at_every_stage(
    mailing: context.Context, box: mail_server.Box
) -> None:
    """A mail that was sent and may be corrected lies elsewhere: nothing of that release's looks there."""
    owe(mailing)
    assert owed_fields(mailing) == [RELEASED]
    later(mailing, 61)
    owners.run(mailing)
    assert "The verdict follows" in text_of(box)
    assert owed_fields(mailing) == [RELEASED]
    judge(mailing, attempt(mailing))
    owners.run(mailing)
    assert len(box.mails) == 2
    assert handover.box(mailing.config).pending() == []
    assert owed_fields(mailing) == []
    (mailed,) = corrections.box(mailing.config).pending()
    assert corrections.from_message(mailed).cause == "gpu_off_bus"
    assert {path.name for path in Path(mailing.config.mail.spool_directory).iterdir() if path.is_dir()} == {
        "owed",
        "mailed",
        "sent",
    }


def test_what_is_kept_is_what_was_owed() -> None:
    """Through the file and back."""
    owed = handover.read(request(), "c", fakes.NOW)
    assert handover.from_message(handover.message(owed)) == owed
    mailed = corrections.MailedVerdict(owed=owed, cause="user_error", domain="user_program")
    assert corrections.from_message(corrections.message(mailed)) == mailed


def test_fields_of_another_release_are_ignored_with_a_line_in_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """One line, however often the file is read."""
    caplog.set_level(logging.INFO, "probing.other_release")
    owed = handover.read(request(), "c", fakes.NOW)

    def with_new(kept: queue.QueuedMessage, name: str) -> queue.QueuedMessage:
        return dataclasses.replace(kept, body=json.dumps(json.loads(kept.body) | {name: 1}).encode())

    for _ in range(2):
        assert handover.from_message(with_new(handover.message(owed), "of_2031")) == owed
    mailed = corrections.MailedVerdict(owed=owed, cause="user_error", domain="user_program")
    assert corrections.from_message(with_new(corrections.message(mailed), "of_2032")) == mailed
    assert [vars(record)["fields"]["names"] for record in caplog.records] == ["of_2031", "of_2032"]


def test_a_mail_that_was_sent_before_the_directories_were_parted_is_not_sent_again(
    mailing: context.Context, box: mail_server.Box
) -> None:
    """A service of the time between kept it among those that wait, with what it had named."""
    owe(mailing)
    (kept,) = handover.box(mailing.config).pending()
    judge(mailing, attempt(mailing))
    owners.run(mailing)
    row = json.loads(kept.body) | {"mailed_cause": "gpu_off_bus", "mailed_domain": "hardware"}
    handover.box(mailing.config).update(dataclasses.replace(kept, body=json.dumps(row).encode()))
    owners.run(mailing)
    owners.run(mailing)
    assert len(box.mails) == 1
    assert handover.box(mailing.config).pending() == []


@pytest.mark.parametrize(
    ("subject", "job_id", "ref"),
    [
        ("Slurm Array Task Job_id=7_3 (12) Name=x Failed, Run time 00:00:01, FAILED", 12, "7_3"),
        ("Slurm Array Task Job_id=7_9 (7) Name=x Failed", 7, "7_9"),
        ("Slurm Array Summary Job_id=7_* (7) Name=x Failed", 7, "7"),
        ("Slurm Job_id=12 Name=x Failed", 12, "12"),
        ("Slurm Job_id=12 Name=Slurm Array Task Job_id=7_3 (12) Failed", 12, "12"),
        ("Slurm Array Task Job_id=7_3 (13) Name=x Failed", 12, "12"),
    ],
)
def test_the_subject_names_a_task_of_an_array(subject: str, job_id: int, ref: str) -> None:
    """A job's name stands behind it and changes nothing."""
    environment = request()["environment"]
    assert isinstance(environment, dict)
    made = request(subject=subject, environment={**environment, "SLURM_JOB_ID": job_id})
    assert handover.read(made, "c", fakes.NOW).ref == job_ref.parse(ref)


@pytest.mark.parametrize(
    ("subject", "is_summary"),
    [
        ("Slurm Array Summary Job_id=7_* (12) Name=x Ended, Mixed, ExitCode [0-1]", True),
        ("Slurm Array Task Job_id=7_3 (12) Name=Slurm Array Summary Job_id=7_* (12) Failed", False),
        ("Slurm Array Task Job_id=7_3 (12) Name=Array Summary Failed", False),
    ],
)
def test_only_slurms_own_words_make_a_summary(subject: str, is_summary: bool) -> None:
    """A task whose job's name holds the same words is mailed as that task."""
    environment = request()["environment"]
    assert isinstance(environment, dict)
    of_array = {**environment, "SLURM_JOB_ID": 12, "SLURM_ARRAY_JOB_ID": 7}
    owed = handover.read(request(subject=subject, environment=of_array), "c", fakes.NOW)
    assert (owed.array, owed.job_id) == ((True, 7) if is_summary else (False, 12))


def test_names_of_mails_sent_long_ago_are_forgotten(mailing: context.Context, box: mail_server.Box) -> None:
    """In all three directories: a large site's owners get thousands a day."""
    owe(mailing)
    judge(mailing, attempt(mailing))
    owners.run(mailing)
    later(mailing, 3600)
    owners.run(mailing)
    boxes = (queue.of(mailing.config), handover.box(mailing.config), corrections.box(mailing.config))
    assert [len(one.messages()) for one in boxes] == [1, 1, 1]
    later(mailing, 31 * 86400)
    mail.run(mailing)
    assert [len(one.messages()) for one in boxes] == [0, 0, 0]
