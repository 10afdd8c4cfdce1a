"""What Slurm is asked for the mail about a running job, and what an answer that shows nothing means."""

from __future__ import annotations

from typing import Any

import fakes
import mail_server
import psycopg
import pytest
from psycopg.types.json import Jsonb

from probing_cluster.control_plane import context, delivery
from probing_cluster.control_plane.owners import handover, missing
from probing_cluster.control_plane.service.tasks.people import owners
from probing_cluster.slurm_plugins.live import job_texts
from tests.control_plane.owners.test_answers import attempt, box, judge, later, mailing

__all__ = ["box", "mailing"]

RUNNING = "JobId=7 JobName=x UserId=alice(1) JobState=RUNNING Reason=None MailUser=alice@site MailType=END \n"


@pytest.fixture
def alarmed(mailing: context.Context) -> context.Context:
    """Job 7 runs and printed an alarm word."""
    attempt(mailing, end_at=None, state="RUNNING", nodes=("n1",))
    fakes.deliver(mailing.store, "n1")
    word = {"CUDA error": {"at": fakes.NOW.isoformat(), "line": "rank 0: CUDA error"}}
    with psycopg.connect(mailing.store.connection_uri()) as connection:
        connection.execute(
            "update probing.agent_heartbeat set sources = %s",
            (Jsonb({"alarm_words": {"jobs": {"7": word}}}),),
        )
    return mailing


def calls_of(service: context.Context, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, ...]]:
    """Slurm's commands from now on, but for its release."""
    calls: list[tuple[str, ...]] = []
    inner: Any = service.run_slurm

    def slurm(program: str, *arguments: str, environment: object = None) -> bytes:
        if program in ("squeue", "scontrol") and arguments != ("--version",):
            calls.append((program, *arguments))
        answer: bytes = inner(program, *arguments, environment=environment)
        return answer

    monkeypatch.setattr(service, "run_slurm", slurm)
    return calls


def minute(service: context.Context) -> None:
    owners.run(service)
    later(service, 61)
    delivery.flush(service.config, service.clock.now())


def test_one_job_is_asked_for_alone(
    alarmed: context.Context, box: mail_server.Box, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A listing of a large cluster is many megabytes."""
    alarmed.run_slurm.listing = RUNNING  # type: ignore[attr-defined]
    calls = calls_of(alarmed, monkeypatch)
    minute(alarmed)
    assert [(call[0], *call[-2:]) for call in calls] == [("scontrol", "job", "7")]
    assert len(box.mails) == 1


def test_a_job_whose_answer_is_doubtful_is_asked_for_again(
    alarmed: context.Context, box: mail_server.Box, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Jobs came or went while Slurm answered: that nobody asked for mail is not known."""
    alarmed.run_slurm.listing = RUNNING  # type: ignore[attr-defined]
    with monkeypatch.context() as patch:
        doubtful = job_texts.JobTexts(
            texts={}, forged=frozenset({7}), neighbours=frozenset(), moving=frozenset()
        )
        patch.setattr(job_texts, "of_jobs", lambda *_: doubtful)
        patch.setattr(job_texts, "listed", lambda *_: doubtful)
        minute(alarmed)
    assert box.mails == []
    minute(alarmed)
    minute(alarmed)
    assert len(box.mails) == 1


@pytest.mark.parametrize(
    "listing",
    ["", RUNNING.replace(" MailUser=alice@site MailType=END", ""), RUNNING.replace("\n", RUNNING[6:])],
)
def test_a_job_that_asked_for_no_mail_is_looked_at_once(
    alarmed: context.Context, box: mail_server.Box, monkeypatch: pytest.MonkeyPatch, listing: str
) -> None:
    """So is one that Slurm no longer has, and one that wrote a second request into its own text."""
    alarmed.run_slurm.listing = listing  # type: ignore[attr-defined]
    calls = calls_of(alarmed, monkeypatch)
    minute(alarmed)
    minute(alarmed)
    assert len(calls) == 1
    assert box.mails == []


def test_ends_of_arrays_tasks_are_not_asked_about(
    mailing: context.Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    """None of their mails is ours: a thousand tasks would be a thousand commands."""
    mailing.run_slurm.release, mailing.run_slurm.listing = "slurm 22.05.8", RUNNING  # type: ignore[attr-defined]
    calls = calls_of(mailing, monkeypatch)
    judge(mailing, attempt(mailing, array_job_id=6, array_task_id=1))
    missing.run(mailing)
    assert calls == []


@pytest.mark.parametrize(("n_doubtful", "n_questions", "n_owed"), [(0, 1, 1), (3, 4, 1), (1000, 10, 0)])
def test_an_end_whose_job_is_in_doubt_is_looked_at_again(
    mailing: context.Context, monkeypatch: pytest.MonkeyPatch, n_doubtful: int, n_questions: int, n_owed: int
) -> None:
    """Slurm before 23.02 sends no mail about it; a job that stays in doubt is not asked about for ever."""
    mailing.run_slurm.release = "slurm 22.05.8"  # type: ignore[attr-defined]
    mailing.run_slurm.listing = RUNNING.replace("RUNNING", "FAILED")  # type: ignore[attr-defined]
    attempt(mailing)
    inner, questions = job_texts.of_jobs, list[object]()

    def of_jobs(run: Any, wanted: Any) -> job_texts.JobTexts:
        questions.append(wanted)
        if len(questions) > n_doubtful:
            return inner(run, wanted)
        return job_texts.JobTexts(texts={}, forged=frozenset(), neighbours=frozenset({7}), moving=frozenset())

    monkeypatch.setattr(job_texts, "of_jobs", of_jobs)
    for _ in range(20):
        missing.run(mailing)
        later(mailing, 3)
    assert questions == [{7}] * n_questions
    assert len(handover.box(mailing.config).pending()) == n_owed
