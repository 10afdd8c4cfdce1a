"""Which mails are about jobs that ended while they waited, and when all that will be known of why is known."""

from __future__ import annotations

import uuid
from datetime import timedelta
from typing import Any

import fakes
import mail_server
import pytest

from probing_cluster.control_plane import context
from probing_cluster.control_plane.owners import ended_waiting, handover
from probing_cluster.control_plane.service.tasks.jobs import accounting
from probing_cluster.control_plane.service.tasks.people import owners
from probing_cluster.core import records, vocabulary
from probing_cluster.db import bulk
from tests.control_plane.owners.test_answers import attempt, box, judge, later, mailing, owe, request, text_of

__all__ = ["box", "mailing"]


def mail_of(
    service: context.Context, job_id: int, subject: str = "", **environment: object
) -> handover.OwedMail:
    """A mail about a job; with Slurm's subject for a task of an array, about that."""
    given = {**request()["environment"], "SLURM_JOB_ID": job_id, **environment}  # type: ignore[dict-item]
    made = request(subject=subject or f"Slurm Job_id={job_id} Name=train Failed", environment=given)
    return handover.read(made, "c", service.clock.now())


def task_mail(service: context.Context, raw: int, task: int) -> handover.OwedMail:
    subject = (
        f"Slurm Array Task Job_id=7_{task} ({raw}) Name=train Failed, Run time 00:10:00, FAILED, ExitCode 1"
    )
    return mail_of(service, raw, subject, SLURM_ARRAY_JOB_ID=7)


def summary_mail(service: context.Context) -> handover.OwedMail:
    return mail_of(service, 7, "Slurm Array Summary Job_id=7_* (7) Name=train Ended", SLURM_ARRAY_JOB_ID=7)


def not_started(service: context.Context, *rows: dict[str, str]) -> None:
    """Accounting has these jobs as ended now."""
    assert isinstance(service.run_slurm.inner, fakes.Sacct)  # type: ignore[attr-defined]
    service.run_slurm.inner.rows = list(rows)  # type: ignore[attr-defined]
    accounting.run(service)


def row(service: context.Context, raw: int, written: str = "", **changes: str) -> dict[str, str]:
    now = service.clock.now()
    times = {"Submit": f"{now - timedelta(minutes=20):%s}", "End": f"{now:%s}"}
    return fakes.row_never_started(raw, JobID=written or str(raw), **times, **changes)


@pytest.mark.parametrize(
    ("written", "covered"),
    [
        ("7_[5-8%2]", {"summary"}),
        ("7_3", {"summary", "task 3"}),
        ("7_[2-9]", {"summary", "task 3", "task 9"}),
        ("7", {"plain", "summary"}),
        ("7+0", {"plain", "summary"}),
    ],
)
def test_an_end_in_the_queue_is_of_the_job_that_accounting_names(
    mailing: context.Context, written: str, covered: set[str]
) -> None:
    """An array's tasks that waited say nothing of one that began, whose raw id is the array's number."""
    mails = {
        "plain": mail_of(mailing, 7),
        "summary": summary_mail(mailing),
        "task 3": task_mail(mailing, 12, 3),
        "task 9": task_mail(mailing, 7, 9),
    }
    not_started(mailing, row(mailing, 12 if written == "7_3" else 7, written))
    found = ended_waiting.ends(mailing, list(mails.values()))
    assert {name for name, owed in mails.items() if owed in found} == covered


def test_a_failed_task_has_not_been_cancelled_in_the_queue(
    mailing: context.Context, box: mail_server.Box
) -> None:
    """The array's other tasks were, before accounting had the failed one."""
    not_started(mailing, row(mailing, 7, "7_[5-8]"))
    assert handover.put(mailing.config, task_mail(mailing, 7, 9))
    owners.run(mailing)
    assert box.mails == []
    judge(mailing, attempt(mailing, array_job_id=7, array_task_id=9))
    owners.run(mailing)
    assert "job 7_9 died: GPU 3 of n2 fell off the bus" in str(box.message()["Subject"])


@pytest.mark.parametrize(("raw", "written"), [(12, "7_3"), (7, "7_3"), (7, "7_[2-5]")])
def test_a_task_that_never_started_finds_its_end(
    mailing: context.Context, box: mail_server.Box, raw: int, written: str
) -> None:
    """Under the array's number, beside tasks of the array that began."""
    judge(mailing, attempt(mailing, job_id=8, array_job_id=7, array_task_id=9))
    not_started(mailing, row(mailing, raw, written))
    assert handover.put(mailing.config, task_mail(mailing, raw, 3))
    owners.run(mailing)
    assert "Job 7_3 never started: it was cancelled by its owner alice at " in " ".join(text_of(box).split())


def test_a_reason_is_past_in_the_mail(mailing: context.Context, box: mail_server.Box) -> None:
    """The job waits no more."""
    not_started(mailing, row(mailing, 7, Reason="Priority"))
    owe(mailing)
    owners.run(mailing)
    assert "Slurm's reason: Priority: jobs of higher priority were ahead of it." in " ".join(
        text_of(box).split()
    )


def predecessor(service: context.Context, job_id: int, **changes: object) -> records.JobAttempt:
    before = service.clock.now() - timedelta(minutes=10)
    known = records.JobDependency(cluster="c", job_id=7, on_job_id=job_id, user="alice", at=before)
    service.store.save_dependencies([known])
    values: dict[str, Any] = {"job_id": job_id, "run_key": str(job_id), "account": "lab", **changes}
    return attempt(service, **values)


def is_explained(service: context.Context) -> bool:
    (found,) = ended_waiting.ends(service, [mail_of(service, 7)]).values()
    return found


REMOVED = {"State": "CANCELLED", "Reason": "DependencyNeverSatisfied"}


def test_the_predecessor_that_failed_explains_the_end_and_no_other(mailing: context.Context) -> None:
    """One that completed, or failed long before for a cause that is known, is not why Slurm removed the job."""
    not_started(mailing, row(mailing, 7, **REMOVED))
    assert is_explained(mailing), "nothing is on record of what it waited for"
    predecessor(mailing, 5, state="COMPLETED", exit_code=0)
    failed = predecessor(mailing, 6)
    assert not is_explained(mailing)
    judge(mailing, failed)
    assert is_explained(mailing)


def test_another_predecessors_verdict_does_not_answer_for_one_without(mailing: context.Context) -> None:
    """Both failed: the report names both."""
    not_started(mailing, row(mailing, 7, **REMOVED))
    judge(mailing, predecessor(mailing, 5))
    predecessor(mailing, 6)
    assert not is_explained(mailing)


def test_an_earlier_starts_verdict_does_not_answer_for_the_last(mailing: context.Context) -> None:
    """The predecessor was requeued, and failed then."""
    not_started(mailing, row(mailing, 7, **REMOVED))
    now = mailing.clock.now()
    judge(
        mailing,
        predecessor(
            mailing,
            6,
            state="NODE_FAIL",
            submit_at=now - timedelta(minutes=15),
            start_at=now - timedelta(minutes=14),
        ),
    )
    assert is_explained(mailing)
    predecessor(
        mailing, 6, attempt=2, submit_at=now - timedelta(minutes=5), start_at=now - timedelta(minutes=4)
    )
    assert not is_explained(mailing)


@pytest.mark.parametrize(
    ("changes", "explained"),
    [
        ({"state": "RUNNING", "end_at": None}, False),
        ({"state": "COMPLETED", "exit_code": 0}, True),
        ({"user": "bob"}, True),
        ({"account": "elsewhere"}, True),
    ],
)
def test_what_has_no_more_to_show_is_not_waited_for(
    mailing: context.Context, changes: dict[str, object], explained: bool
) -> None:
    """afternotok of a job that completed; a job that the owner may not read."""
    not_started(mailing, row(mailing, 7, **REMOVED))
    predecessor(mailing, 6, **changes)
    assert is_explained(mailing) is explained


def test_a_job_that_somebody_cancelled_waits_for_no_predecessor(mailing: context.Context) -> None:
    """Its mail says by whom; what it waited for has nothing to do with it."""
    not_started(mailing, row(mailing, 7, Reason="Dependency"))
    predecessor(mailing, 6)
    assert is_explained(mailing)


def test_a_predecessor_that_never_started_either_explains_the_end(mailing: context.Context) -> None:
    """Its own report shows why."""
    not_started(mailing, row(mailing, 7, **REMOVED), row(mailing, 6))
    before = mailing.clock.now() - timedelta(minutes=10)
    known = records.JobDependency(cluster="c", job_id=7, on_job_id=6, user="alice", at=before)
    mailing.store.save_dependencies([known])
    assert is_explained(mailing)


def test_a_dependency_on_no_job_in_particular_is_not_waited_for(mailing: context.Context) -> None:
    """Its row names no predecessor, so that no verdict will come."""
    not_started(mailing, row(mailing, 7, **REMOVED))
    before = mailing.clock.now() - timedelta(minutes=10)
    known = records.JobDependency(cluster="c", job_id=7, on_job_id=0, user="alice", at=before)
    mailing.store.save_dependencies([known])
    assert is_explained(mailing)


def test_a_dependency_that_was_read_after_the_end_is_a_later_jobs(mailing: context.Context) -> None:
    """Slurm uses a number again: what the later job of it waits for did not remove this one."""
    not_started(mailing, row(mailing, 7, **REMOVED))
    known = records.JobDependency(
        cluster="c", job_id=7, on_job_id=6, user="alice", at=mailing.clock.now() + timedelta(minutes=5)
    )
    mailing.store.save_dependencies([known])
    attempt(mailing, job_id=6, run_key="6", account="lab")
    assert is_explained(mailing)


def test_a_start_of_the_predecessor_after_the_end_did_not_cause_it(mailing: context.Context) -> None:
    """It failed, was judged, and its owner let it begin again."""
    not_started(mailing, row(mailing, 7, **REMOVED))
    judge(mailing, predecessor(mailing, 6))
    assert is_explained(mailing)
    after = mailing.clock.now() + timedelta(minutes=5)
    predecessor(mailing, 6, attempt=2, submit_at=after, start_at=after, end_at=after + timedelta(minutes=1))
    assert is_explained(mailing)


def test_a_predecessor_that_never_started_after_the_end_explains_nothing(mailing: context.Context) -> None:
    """It is a later job of the number, or was cancelled later."""
    not_started(mailing, row(mailing, 7, **REMOVED))
    before = mailing.clock.now() - timedelta(minutes=10)
    known = records.JobDependency(cluster="c", job_id=7, on_job_id=6, user="alice", at=before)
    mailing.store.save_dependencies([known])
    later(mailing, 60)
    not_started(mailing, row(mailing, 6))
    assert not is_explained(mailing)


@pytest.mark.parametrize(("node", "explained"), [("", True), ("n1", False)])
def test_only_accountings_word_on_a_predecessor_explains_the_end(
    mailing: context.Context, node: str, explained: bool
) -> None:
    """An agent may write any event of its node."""
    not_started(mailing, row(mailing, 7, **REMOVED))
    before = mailing.clock.now() - timedelta(minutes=10)
    ended = records.HealthEvent(
        event_id=uuid.uuid4(), cluster="c", node=node, at=before, observed_at=before, kind=vocabulary.NEVER_STARTED,
        severity=records.Severity.INFO, job_id=6, source=vocabulary.ACCOUNTING, message="", detail={"job": "6", "state": "CANCELLED"},
    )  # fmt: skip
    bulk.load_events(mailing.store.connection_uri(), [ended])
    known = records.JobDependency(cluster="c", job_id=7, on_job_id=6, user="alice", at=before)
    mailing.store.save_dependencies([known])
    assert is_explained(mailing) is explained


def test_an_end_of_long_before_the_mail_is_an_earlier_jobs(mailing: context.Context) -> None:
    """Slurm uses a number again; each mail is held against its own time."""
    early = mail_of(mailing, 7)
    not_started(mailing, row(mailing, 7))
    later(mailing, 2 * 3600)
    late = mail_of(mailing, 7)
    assert ended_waiting.ends(mailing, [early, late]) == {early: True}
