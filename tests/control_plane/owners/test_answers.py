"""Owed mails, from MailProg's request to the mail in somebody's box, on a real database and a real SMTP server."""

from __future__ import annotations

import contextlib
import dataclasses
import uuid
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import fakes
import mail_server
import pytest

from probing_cluster.control_plane import context, delivery
from probing_cluster.control_plane.outbox import queue
from probing_cluster.control_plane.owners import answers, corrections, handover, job_facts
from probing_cluster.control_plane.policy import view
from probing_cluster.control_plane.service.tasks.people import owners
from probing_cluster.core import errors, records, settings, vocabulary
from probing_cluster.db import bulk

SUBJECT = "Slurm Job_id=7 Name=train Failed, Run time 00:10:00, FAILED, ExitCode 1"


@pytest.fixture
def box() -> Iterator[mail_server.Box]:
    made = mail_server.Box()
    with mail_server.running(made) as port:
        made.port = port  # type: ignore[attr-defined]
        yield made


@pytest.fixture
def mailing(service: context.Context, box: mail_server.Box, tmp_path: Path) -> context.Context:
    """The service with a mail server; Slurm is 24.11, which sends all that it is asked for."""
    mail = settings.MailSettings(
        host="localhost", port=box.port, security="none", spool_directory=str(tmp_path / "mail"),  # type: ignore[attr-defined]
        report_url="https://probing.site/{job_id}",
    )  # fmt: skip
    service.config = dataclasses.replace(service.config, mail=mail)
    service.run_slurm = Slurm(service.run_slurm)
    return service


class Slurm:
    """A release, and a controller's listing, in front of the fake sacct."""

    def __init__(self, inner: object, release: str = "slurm 24.11.5", listing: str = "") -> None:
        self.inner, self.release, self.listing = inner, release, listing

    def jobs(self) -> dict[str, str]:
        """Each job's text by its id; a name's second lines begin with none of Slurm's (`|`)."""
        texts = (line.replace("|", "\n") for line in self.listing.splitlines(keepends=True))
        return {text[6 : text.index(" ")]: text for text in texts}

    def __call__(self, program: str, *arguments: str, environment: object = None) -> bytes:
        if arguments == ("--version",):
            return self.release.encode()
        if program == "squeue":
            return "".join(f"{job_id}\n" for job_id in self.jobs()).encode()
        if program == "scontrol" and arguments[-2] == "job":
            return self.jobs().get(arguments[-1], "").encode()
        if program == "scontrol" and "jobs" in arguments:
            return "".join(self.jobs().values()).encode()
        return self.inner(program, *arguments)  # type: ignore[operator]


def request(**changes: object) -> dict[str, object]:
    environment = {
        "SLURM_JOB_ID": 7, "SLURM_JOB_RESTART_COUNT": 0, "SLURM_CLUSTER_NAME": "c", "SLURM_JOB_MAIL_TYPE": "Failed",
        "SLURM_JOB_STATE": "FAILED", "SLURM_JOB_USER": "alice",
    }  # fmt: skip
    made: dict[str, object] = {"v": 1, "op": "mail", "subject": SUBJECT, "recipient": "alice@site"}
    return {**made, "environment": environment} | changes


def owe(service: context.Context, **changes: object) -> None:
    assert handover.put(service.config, handover.read(request(**changes), "c", service.clock.now()))


def attempt(service: context.Context, **changes: object) -> records.JobAttempt:
    now = service.clock.now()
    values: dict[str, object] = {
        "cluster": "c", "job_id": 7, "submit_at": now - timedelta(minutes=11), "eligible_at": now - timedelta(minutes=11),
        "start_at": now - timedelta(minutes=10), "end_at": now, "state": "FAILED", "exit_code": 1, "nodes": ("n1", "n2"), "n_gpus": 16,
        "user": "alice", "name": "train", "run_key": "7", "attempt": 1,
    }  # fmt: skip
    made = records.JobAttempt(**(values | changes))
    service.store.upsert_attempts([made])
    return made


def judge(service: context.Context, of: records.JobAttempt, **changes: object) -> None:
    values: dict[str, object] = {
        "cluster": "c", "job_id": of.job_id, "submit_at": of.submit_at, "attempt": of.attempt, "cause": "gpu_off_bus",
        "domain": records.Domain.HARDWARE, "node": "n2", "device": "gpu3", "confidence": records.Confidence.CERTAIN,
        "summary": "GPU 3 of n2 fell off the bus.", "next_step": "Reseat GPU 3", "rules_version": "1",
        "made_at": service.clock.now(),
    }  # fmt: skip
    service.store.save_verdicts([records.Verdict(**(values | changes))])
    bulk.load_run_accounts(service.store.connection_uri(),
        [
            records.RunAccount(
                cluster="c", run_key="7", user="alice", start_at=of.submit_at, end_at=service.clock.now(), n_gpus=16, n_attempts=1,
                wall_s=660.0, lost_to_replay_s=450.0, made_at=service.clock.now(),
            )
        ]
    )  # fmt: skip


def pending(service: context.Context) -> list[queue.QueuedMessage]:
    """What waits for its mail, or for a correction."""
    return [*handover.box(service.config).pending(), *corrections.box(service.config).pending()]


def restart(service: context.Context, of: records.JobAttempt, **changes: object) -> uuid.UUID:
    """What was decided about bringing an attempt back; its row's id."""
    drain_id = uuid.uuid4()
    values: dict[str, object] = {
        "drain_id": drain_id, "cluster": "c", "node": "n2", "at": service.clock.now(), "action": "restart",
        "reason": "probing: gpu_off_bus n2 gpu3", "owner": "probing", "state": "done", "job_id": of.job_id, "submit_at": of.submit_at,
        "detail": {"leader": of.job_id, "components": [of.job_id]},
    }  # fmt: skip
    service.store.save_drain(records.Drain(**(values | changes)))
    return drain_id


def later(service: context.Context, seconds: float) -> None:
    service.clock.at += timedelta(seconds=seconds)  # type: ignore[attr-defined]


def text_of(box: mail_server.Box, n: int = -1) -> str:
    part = box.message(n).get_body(("plain",))
    assert part is not None
    return str(part.get_content())


def test_the_mail_waits_for_the_verdict_and_has_it(mailing: context.Context, box: mail_server.Box) -> None:
    """Cause, how sure, cost and what to do, once, in text and HTML, under Slurm's own subject."""
    owe(mailing)
    owners.run(mailing)
    assert box.mails == []
    made = attempt(mailing)
    owners.run(mailing)
    judge(mailing, made)
    assert owners.run(mailing) == "1 mails"
    assert owners.run(mailing) == ""
    (recipients, _), *more = box.mails
    assert (recipients, more) == (["alice@site"], [])
    mail = box.message()
    assert mail["Subject"] == f"{SUBJECT}: job 7 died: GPU 3 of n2 fell off the bus"
    text, html = text_of(box), str(mail.get_body(("html",)).get_content())  # type: ignore[union-attr]
    for words in (
        "GPU 3 of n2 fell off the bus",
        "hardware, certain",
        "submit it again with --exclude=n2",
        "For the operators: Reseat GPU 3",
        "2.0 GPU-hours",
        "probing-report 7",
        "https://probing.site/7",
    ):
        assert words in " ".join(text.split()), words
        assert words in html, words
    assert text.index("submit it again") < text.index("For the operators")


def test_the_mail_about_a_refused_node_tells_its_owner_that_there_is_nothing_to_do(
    mailing: context.Context, box: mail_server.Box
) -> None:
    """The repair is the operators', and stands behind the mark; what the owner does not."""
    made = attempt(mailing)
    step = "Nothing for the job. Repair n2: it was refused before the job began."
    judge(mailing, made, cause="node_refused", next_step=step)
    owe(mailing)
    owners.run(mailing)
    text = " ".join(text_of(box).split())
    assert "Nothing for the job." in text
    assert "For the operators: Repair n2: it was refused before the job began." in text
    assert text.index("Nothing for the job.") < text.index("For the operators")


def test_the_mail_names_the_directory_that_slurm_could_not_enter(
    mailing: context.Context, box: mail_server.Box
) -> None:
    """The owner looks for the reason, and for the files, where the job did not run."""
    made = attempt(mailing)
    assert made.end_at is not None
    moved = records.HealthEvent(
        event_id=uuid.uuid4(), cluster="c", node="n2", at=made.end_at, observed_at=made.end_at, kind="directory_replaced",
        severity=records.Severity.INFO, source="joblog", message="couldn't chdir", job_id=7,
        detail={"directory": "/work/nowhere", "why": "No such file or directory"},
    )  # fmt: skip
    fakes.deliver(mailing.store, "n2", moved)
    judge(mailing, made)
    owe(mailing)
    owners.run(mailing)
    words = "could not enter its working directory /work/nowhere (no such file or directory) and ran it in /tmp of n2"
    assert words in " ".join(text_of(box).split())


def test_without_a_verdict_it_follows_and_then_it_does(
    mailing: context.Context, box: mail_server.Box
) -> None:
    """At the latest mail_wait_s after the end; the second mail answers the first, and then nothing is owed."""
    owe(mailing)
    later(mailing, mailing.config.service.mail_wait_s - 1)
    owners.run(mailing)
    assert box.mails == []
    later(mailing, 2)
    owners.run(mailing)
    owners.run(mailing)
    assert len(box.mails) == 1
    assert box.message()["Subject"] == SUBJECT
    assert "The verdict follows" in text_of(box)
    later(mailing, 600)
    judge(mailing, attempt(mailing))
    owners.run(mailing)
    owners.run(mailing)
    assert len(box.mails) == 2
    assert "fell off the bus" in text_of(box)
    assert box.message(0)["References"] == box.message(1)["References"]
    later(mailing, 3600)
    owners.run(mailing)
    assert pending(mailing) == []
    assert len(box.mails) == 2


def test_it_follows_also_while_the_database_is_away(mailing: context.Context, box: mail_server.Box) -> None:
    """The clock does not wait for Postgres."""

    class Away:
        def __getattr__(self, name: str) -> object:
            raise errors.DatabaseUnavailable("away")

    owe(mailing)
    later(mailing, 120)
    mailing.store, store = Away(), mailing.store  # type: ignore[assignment]
    with pytest.raises(errors.DatabaseUnavailable):
        owners.run(mailing)
    assert "The verdict follows" in text_of(box)
    mailing.store = store
    judge(mailing, attempt(mailing))
    owners.run(mailing)
    assert len(box.mails) == 2


def test_a_verdict_that_never_comes_is_said_in_the_end(
    mailing: context.Context, box: mail_server.Box
) -> None:
    """After a day the promise is taken back."""
    owe(mailing)
    later(mailing, 100)
    owners.run(mailing)
    later(mailing, 90000)
    owners.run(mailing)
    assert "No verdict could be made" in text_of(box)
    owners.run(mailing)
    assert len(box.mails) == 2


def test_a_lost_node_is_mailed_once_its_agent_or_a_persons_note_decides(
    mailing: context.Context, box: mail_server.Box
) -> None:
    """Slurm's word alone waits, at most mail_wait_s: a person may have set the node DOWN, or only its slurmd died."""
    owe(mailing)
    made = attempt(mailing, state="NODE_FAIL")
    judge(mailing, made, cause="node_lost", summary="Slurm gave up n2.")
    later(mailing, 20)
    owners.run(mailing)
    assert box.mails == []
    judge(mailing, made, cause="node_set_down", domain=records.Domain.UNKNOWN,
          summary="n2 was set DOWN by root: PSU swap.", evidence=(node_saw(mailing),))  # fmt: skip
    owners.run(mailing)
    assert "n2 was set DOWN by root: PSU swap" in text_of(box)


def test_a_lost_node_that_nothing_decides_is_mailed_in_time(
    mailing: context.Context, box: mail_server.Box
) -> None:
    """A node without an agent has nobody to decide it."""
    owe(mailing)
    judge(mailing, attempt(mailing, state="NODE_FAIL"), cause="node_lost", summary="Slurm gave up n2.")
    later(mailing, mailing.config.service.mail_wait_s + 1)
    owners.run(mailing)
    assert "Slurm gave up n2" in text_of(box)


def node_saw(service: context.Context) -> uuid.UUID:
    """A kernel line of the node, stored."""
    found = records.HealthEvent(
        event_id=uuid.uuid4(), cluster="c", node="n2", at=service.clock.now(), observed_at=service.clock.now(), kind="xid", code="79",
        severity=records.Severity.HIGH, source="kernel", message="GPU has fallen off the bus.",
    )  # fmt: skip
    fakes.deliver(service.store, "n2", found)
    return found.event_id


def test_a_mail_waits_until_it_is_known_whether_the_job_comes_back(
    mailing: context.Context, box: mail_server.Box
) -> None:
    """Else its owner would read that they should submit it again, while we requeue it."""
    owe(mailing)
    made = attempt(mailing)
    judge(mailing, made, evidence=(node_saw(mailing),))
    owners.run(mailing)
    begun = restart(mailing, made, state="failed", why_state=view.BEGUN)
    owners.run(mailing)
    assert box.mails == []
    mailing.store.update_drain(begun, state="done", why_state="")
    owners.run(mailing)
    text = " ".join(text_of(box).split())
    assert "The job is requeued under the same id and waits to start again" in text
    assert "submit it again" not in text


def test_a_mail_waits_for_that_no_longer_than_for_the_verdict(
    mailing: context.Context, box: mail_server.Box
) -> None:
    """Its nodes may be long in coming free; what is known goes out, and once."""
    owe(mailing)
    judge(mailing, attempt(mailing), evidence=(node_saw(mailing),))
    owners.run(mailing)
    assert box.mails == []
    later(mailing, mailing.config.service.mail_wait_s)
    owners.run(mailing)
    owners.run(mailing)
    assert len(box.mails) == 1
    assert "fell off the bus" in text_of(box)


def test_a_job_left_where_it_is_says_why(mailing: context.Context, box: mail_server.Box) -> None:
    """A loop above all: its owner is told that it is the program."""
    owe(mailing)
    made = attempt(mailing, attempt=3, restart_count=0)
    judge(mailing, made, summary="KeyError.", cause="user_error", domain=records.Domain.USER_PROGRAM)
    owners.run(mailing)
    assert box.mails == []
    words = "three starts in a row died at step 4120 with the same KeyError: it is the program"
    restart(mailing, made, state="skipped", why_state=words)
    owners.run(mailing)
    assert words in " ".join(text_of(box).split())


def test_no_mail_waits_for_lines_in_accounting(mailing: context.Context, box: mail_server.Box) -> None:
    """Each is a command of a third of a second: of an incident of a hundred jobs they took half a minute."""
    config = mailing.config
    mailing.config = dataclasses.replace(
        config, service=dataclasses.replace(config.service, write_back="Comment")
    )
    calls: list[str] = []
    inner = mailing.run_slurm

    def slurm(program: str, *arguments: str, environment: object = None) -> bytes:
        calls.append(program)
        return inner(program, *arguments, environment=environment)  # type: ignore[call-arg]

    mailing.run_slurm = slurm  # type: ignore[assignment]
    owe(mailing)
    judge(mailing, attempt(mailing))
    assert owners.run(mailing) == "1 mails"
    assert "sacctmgr" not in calls


def test_a_mail_asks_accounting_and_the_judge_out_of_turn(
    mailing: context.Context, box: mail_server.Box
) -> None:
    """With polls of half a minute its verdict would come a minute after the end."""
    sacct = mailing.run_slurm.inner  # type: ignore[attr-defined]
    end = mailing.clock.now() - timedelta(seconds=6)
    times = {
        "Start": f"{end - timedelta(minutes=9):%s}",
        "End": f"{end:%s}",
        "Submit": f"{end - timedelta(minutes=10):%s}",
    }
    sacct.rows = [fakes.row(7, State="FAILED", ExitCode="1:0", Cluster="c", **times)]
    owe(mailing)
    assert owners.run(mailing) == "1 mails"
    assert [argument for calls in sacct.calls for argument in calls if argument == "-j"] == ["-j"]
    assert "job 7" in box.message()["Subject"]


def test_a_mail_is_about_its_own_attempt(mailing: context.Context, box: mail_server.Box) -> None:
    """The first start's verdict does not answer for the second, and the other way round."""
    first = attempt(mailing, state="REQUEUED", restart_count=0)
    later(mailing, 100)
    second = attempt(
        mailing, submit_at=mailing.clock.now(), end_at=None, state="RUNNING", attempt=2, restart_count=1
    )
    judge(mailing, first)
    owe(mailing, environment={**request()["environment"], "SLURM_JOB_RESTART_COUNT": 1})  # type: ignore[dict-item]
    owners.run(mailing)
    assert box.mails == []
    second = attempt(mailing, submit_at=second.submit_at, attempt=2, restart_count=1)
    judge(mailing, second, summary="The program raised KeyError.", domain=records.Domain.USER_PROGRAM)
    owners.run(mailing)
    assert "attempt 2, died: The program raised KeyError" in box.message()["Subject"]
    assert "submit it again" not in text_of(box)


@pytest.mark.parametrize(
    ("restart_count", "after_s", "followed", "subjects"),
    [
        (0, 1, False, ["Requeued"]),
        (0, 1, True, ["Failed", "Failed"]),
        (1, 1, False, ["Failed", "Requeued"]),
        (0, 300, False, ["Failed", "Requeued"]),
    ],
    ids=["at once", "the first was begun", "of another start", "requeued later"],
)
def test_the_end_and_the_requeue_of_one_start_are_one_mail(
    mailing: context.Context,
    box: mail_server.Box,
    restart_count: int,
    after_s: float,
    followed: bool,
    subjects: list[str],
) -> None:
    """Slurm mails about both; a requeue by hand, minutes later, is news."""
    owe(mailing)
    if followed:
        later(mailing, mailing.config.service.mail_wait_s + 1)
        owners.run(mailing)
        assert "Job 7 has ended." in text_of(box)
    later(mailing, after_s - (mailing.config.service.mail_wait_s + 1 if followed else 0))
    environment = {
        **request()["environment"],
        "SLURM_JOB_MAIL_TYPE": "Requeued",
        "SLURM_JOB_RESTART_COUNT": restart_count,
    }  # type: ignore[dict-item]
    owe(mailing, subject=SUBJECT.replace("Failed", "Requeued"), environment=environment)
    first = attempt(mailing, state="REQUEUED", restart_count=0)
    second = attempt(mailing, state="FAILED", restart_count=1, attempt=2, submit_at=mailing.clock.now())
    for made in (first, second):
        judge(mailing, made)
    owners.run(mailing)
    owners.run(mailing)
    found = [box.message(n)["Subject"] for n in range(len(box.mails))]
    assert [next(w for w in ("Requeued", "Failed") if f" {w}," in s) for s in found] == subjects
    assert handover.box(mailing.config).pending() == []


def test_a_mail_about_a_requeue_does_not_say_that_the_job_has_ended(
    mailing: context.Context, box: mail_server.Box
) -> None:
    environment = {**request()["environment"], "SLURM_JOB_MAIL_TYPE": "Requeued"}  # type: ignore[dict-item]
    owe(mailing, environment=environment)
    later(mailing, mailing.config.service.mail_wait_s + 1)
    owners.run(mailing)
    assert "Job 7 was requeued." in text_of(box)


@pytest.mark.parametrize("requeued", [True, False])
def test_a_mail_about_a_requeue_tells_nobody_to_submit_the_job_again(
    mailing: context.Context, box: mail_server.Box, *, requeued: bool
) -> None:
    """Accounting calls the start NODE_FAIL and shows no other yet; Slurm's own mail says that the job comes back."""
    environment = {**request()["environment"], "SLURM_JOB_MAIL_TYPE": "Requeued" if requeued else "Failed"}  # type: ignore[dict-item]
    owe(mailing, environment=environment)
    step = "Submit the job again, or wait for Slurm's requeue: n2 was taken out on purpose."
    made = attempt(mailing, state="NODE_FAIL", restart_count=0)
    judge(mailing, made, domain=records.Domain.UNKNOWN, cause="node_set_down", next_step=step)
    owners.run(mailing)
    text = " ".join(text_of(box).split())
    assert ("Submit the job again" in text) is not requeued
    assert ("Nothing for the job: n2 was taken out on purpose." in text) is requeued


def test_an_array_gets_one_summary_with_its_causes(mailing: context.Context, box: mail_server.Box) -> None:
    """Slurm sends one mail for an array; ours counts what its tasks died of."""
    for task in range(3):
        made = attempt(
            mailing,
            job_id=7 + task,
            array_job_id=7,
            array_task_id=task,
            state="COMPLETED" if task == 2 else "FAILED",
        )
        if task < 2:
            judge(mailing, made)
    environment = {**request()["environment"], "SLURM_ARRAY_JOB_ID": 7}  # type: ignore[dict-item]
    owe(mailing, subject="Slurm Array Summary Job_id=7_* (7) Name=x Failed", environment=environment)
    later(mailing, mailing.config.service.accounting_poll_s + mailing.config.service.settle_s)
    owners.run(mailing)
    assert "array 7: 2 of 3 tasks did not complete (2 gpu off bus)" in box.message()["Subject"]
    assert "7_0" in text_of(box)


def test_an_arrays_summary_counts_the_tasks_that_it_leaves_out(
    mailing: context.Context, box: mail_server.Box
) -> None:
    for task in range(15):
        judge(mailing, attempt(mailing, job_id=7 + task, array_job_id=7, array_task_id=task))
    owe_summary(mailing)
    later(mailing, mailing.config.service.accounting_poll_s + mailing.config.service.settle_s)
    owners.run(mailing)
    text = " ".join(text_of(box).split())
    assert "7_11 " in text
    assert "7_12 " not in text
    assert "and 3 more 3 FAILED" in text


def owe_summary(service: context.Context) -> None:
    environment = {**request()["environment"], "SLURM_ARRAY_JOB_ID": 7}  # type: ignore[dict-item]
    owe(service, subject="Slurm Array Summary Job_id=7_* (7) Name=x Failed", environment=environment)


def test_an_arrays_summary_waits_for_tasks_that_are_not_on_record_yet(
    mailing: context.Context, box: mail_server.Box
) -> None:
    """One is read and judged long before the last ones end; accounting is asked for all of the array."""
    judge(mailing, attempt(mailing, job_id=8, array_job_id=7, array_task_id=1))
    owe_summary(mailing)
    owners.run(mailing)
    assert box.mails == []
    end = mailing.clock.now()
    times = {
        "Start": f"{end - timedelta(minutes=9):%s}",
        "End": f"{end:%s}",
        "Submit": f"{end - timedelta(minutes=10):%s}",
    }
    ended = {"State": "FAILED", "ExitCode": "1:0", **times}
    mailing.run_slurm.inner.rows = [  # type: ignore[attr-defined]
        fakes.row(9, JobID="7_2", **ended),
        fakes.row(7, JobID="7_3", **ended),
    ]
    later(mailing, mailing.config.service.settle_s)
    owners.run(mailing)
    later(mailing, mailing.config.service.mail_wait_s)
    owners.run(mailing)
    (words,) = [box.message(n)["Subject"].partition("array 7: ")[2] for n in range(len(box.mails))]
    assert words == "3 of 3 tasks did not complete (3 user error)"


@pytest.mark.parametrize(
    ("subject", "agrees"),
    [("Failed, Mixed, ExitCode [0-3]", False), ("Failed, FAILED, ExitCode [3-3]", False), ("Ended, Mixed, MaxSignal [9]", False), ("Failed, Mixed, MaxExitCode [3], with requeued tasks", False), ("Ended, COMPLETED, ExitCode [0-0]", True), ("Failed", True)],
)  # fmt: skip
def test_an_arrays_summary_waits_until_it_agrees_with_slurms_subject(
    mailing: context.Context, box: mail_server.Box, subject: str, agrees: bool
) -> None:
    """Of three tasks the first is on record, and completed: "all 1 tasks completed" below "Failed, Mixed" would be false."""
    attempt(mailing, job_id=8, array_job_id=7, array_task_id=1, state="COMPLETED")
    environment = {**request()["environment"], "SLURM_ARRAY_JOB_ID": 7}  # type: ignore[dict-item]
    owe(mailing, subject=f"Slurm Array Summary Job_id=7_* (7) Name=Mixed {subject}", environment=environment)
    later(mailing, mailing.config.service.accounting_poll_s + mailing.config.service.settle_s)
    owners.run(mailing)
    assert bool(box.mails) is agrees
    if not agrees and "requeued" in subject:
        later(mailing, 601)
        owners.run(mailing)
        assert "7: 1 task on record, all completed" in box.message(len(box.mails) - 1)["Subject"]
    elif not agrees:
        judge(mailing, attempt(mailing, job_id=9, array_job_id=7, array_task_id=2))
        owners.run(mailing)
        words = "array 7: 1 of 2 tasks did not complete (1 gpu off bus)"
        assert words in box.message()["Subject"]


def test_of_an_array_that_ended_in_several_ways_one_task_is_not_all(
    mailing: context.Context, box: mail_server.Box
) -> None:
    """The one on record failed, as the subject says; the others' ends are not read yet."""
    judge(mailing, attempt(mailing, job_id=8, array_job_id=7, array_task_id=1))
    environment = {**request()["environment"], "SLURM_ARRAY_JOB_ID": 7}  # type: ignore[dict-item]
    owe(mailing, subject="Slurm Array Summary Job_id=7_* (7) Name=x Failed, Mixed, ExitCode [0-3]", environment=environment)  # fmt: skip
    later(mailing, mailing.config.service.accounting_poll_s + mailing.config.service.settle_s)
    owners.run(mailing)
    assert box.mails == []


def test_an_arrays_summary_counts_no_task_without_its_cause(
    mailing: context.Context, box: mail_server.Box, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A task that is read after it was found that all have their verdicts."""
    judge(mailing, attempt(mailing, job_id=8, array_job_id=7, array_task_id=1))
    owe_summary(mailing)
    later(mailing, mailing.config.service.accounting_poll_s + mailing.config.service.settle_s)
    read, late = job_facts.read, []

    def reading(*arguments: Any) -> Any:
        found = read(*arguments)
        late.append(
            attempt(mailing, job_id=7, array_job_id=7, array_task_id=2, submit_at=mailing.clock.now())
        )
        return found

    monkeypatch.setattr(job_facts, "read", reading)
    answers.run(mailing, mailing.clock.now())
    monkeypatch.undo()
    assert handover.box(mailing.config).pending()
    judge(mailing, late[0])
    owners.run(mailing)
    assert "array 7: 2 of 2 tasks did not complete (2 gpu off bus)" in box.message()["Subject"]
    assert len(box.mails) == 1


def test_the_mail_about_a_job_that_never_started_says_why_at_once(
    mailing: context.Context, box: mail_server.Box
) -> None:
    """There is no verdict to wait for: accounting, asked out of turn, has its end, and the queue's look the job that it waited for."""
    now = f"{mailing.clock.now():%s}"
    ended = {"Submit": f"{mailing.clock.now() - timedelta(minutes=20):%s}", "End": now}
    sacct = mailing.run_slurm.inner  # type: ignore[attr-defined]
    sacct.rows = [
        fakes.row_never_started(7, State="CANCELLED", Reason="Dependency", **ended),
        fakes.row_never_started(8, State="DEADLINE", **ended),
        fakes.row_never_started(20, JobID="9_[1-3]", JobIDRaw="9", **ended),
    ]
    before = mailing.clock.now() - timedelta(minutes=10)
    mailing.store.save_dependencies(
        [records.JobDependency(cluster="c", job_id=7, on_job_id=6, user="alice", at=before)]
    )
    attempt(mailing, job_id=6, run_key="6", account="lab")
    environment = request()["environment"]
    assert isinstance(environment, dict)
    owe(mailing)
    owe(mailing, environment={**environment, "SLURM_JOB_ID": 8})
    array = {"SLURM_JOB_ID": 9, "SLURM_ARRAY_JOB_ID": 9}
    owe(
        mailing,
        subject="Slurm Array Summary Job_id=9_* (9) Name=x Ended",
        environment={**environment, **array},
    )
    owners.run(mailing)
    owners.run(mailing)
    assert len(box.mails) == 2  # what job 6 died of is not known yet
    later(mailing, mailing.config.service.settle_s)
    owners.run(mailing)
    texts = sorted(" ".join(text_of(box, n).split()) for n in range(len(box.mails)))
    assert len(texts) == 3
    assert "Job 7 never started: it was cancelled at " in texts[0]
    assert "Slurm's reason: Dependency: " in texts[0]
    assert (
        "It waited for job 6, which ended FAILED: user_error, possible: The program exited with code 1"
        in texts[0]
    )
    assert "Job 8 never started: it ended DEADLINE at " in texts[1]
    assert "Job 9_[1-3] never started: it was cancelled by its owner alice at " in texts[2]
    assert pending(mailing) == []


def test_a_requeued_job_that_ended_while_it_waited_again_says_so(
    mailing: context.Context, box: mail_server.Box
) -> None:
    """Its first start's verdict is not this mail's, and an earlier job's end under the same number neither."""
    first = attempt(mailing, state="REQUEUED", restart_count=0)
    judge(mailing, first)
    environment = {**request()["environment"], "SLURM_JOB_RESTART_COUNT": 1}  # type: ignore[dict-item]
    owe(mailing, environment=environment)
    owners.run(mailing)
    assert box.mails == []
    later(mailing, 5)
    now = f"{mailing.clock.now():%s}"
    mailing.run_slurm.inner.rows = [fakes.row_never_started(7, Submit=now, End=now)]  # type: ignore[attr-defined]
    owners.run(mailing)
    assert "Job 7, attempt 2, never started: it was cancelled by its owner alice" in " ".join(
        text_of(box).split()
    )


@pytest.mark.parametrize(
    ("before", "node", "n_mails"),
    [(timedelta(days=2), "", 0), (timedelta(minutes=30), "", 1), (timedelta(minutes=30), "n1", 0)],
)
def test_only_accountings_word_on_this_job_is_an_answer(
    mailing: context.Context, box: mail_server.Box, before: timedelta, node: str, n_mails: int
) -> None:
    """Slurm uses a number again, and an agent may write any event of its node. An end may be read before Slurm asks for the mail."""
    earlier = mailing.clock.now() - before
    event = records.HealthEvent(
        event_id=uuid.uuid4(), cluster="c", node=node, at=earlier, observed_at=earlier, kind=vocabulary.NEVER_STARTED,
        severity=records.Severity.INFO, job_id=7, source=vocabulary.ACCOUNTING, message="",
        detail={"job": "7", "state": "CANCELLED", "reason": "DependencyNeverSatisfied", "user": "alice", "account": ""},
    )  # fmt: skip
    bulk.load_events(mailing.store.connection_uri(), [event])
    owe(mailing)
    owners.run(mailing)
    assert len(box.mails) == n_mails


def end_while_waiting(service: context.Context, on_job_id: int) -> None:
    """Accounting's word that job 7 ended while it waited, and the look at the queue that showed for what."""
    now = service.clock.now()
    event = records.HealthEvent(
        event_id=uuid.uuid4(), cluster="c", node="", at=now, observed_at=now, kind=vocabulary.NEVER_STARTED,
        severity=records.Severity.INFO, job_id=7, source=vocabulary.ACCOUNTING, message="",
        detail={"job": "7", "state": "CANCELLED", "reason": "DependencyNeverSatisfied", "user": "alice", "account": ""},
    )  # fmt: skip
    bulk.load_events(service.store.connection_uri(), [event])
    dependency = records.JobDependency(cluster="c", job_id=7, on_job_id=on_job_id, user="alice", at=now)
    service.store.save_dependencies([dependency])


@pytest.mark.parametrize("is_known", [False, True])
def test_only_an_end_that_is_not_on_record_is_looked_for_in_accounting(
    mailing: context.Context, is_known: bool
) -> None:
    """A job that ended while it waited may still wait for the verdict on another."""
    if is_known:
        end_while_waiting(mailing, 6)
    attempt(mailing, job_id=6, run_key="6")
    owe(mailing)
    waits = answers.waits_for(mailing, mailing.clock.now())
    assert (waits.ends_of, waits.verdicts) == (frozenset() if is_known else {7}, is_known)


@pytest.mark.parametrize(
    ("on_job_id", "changes"),
    [
        (6, {}),
        (6, {"job_id": 8, "array_job_id": 6, "array_task_id": 1}),
        (6, {"job_id": 8, "het_job_id": 6, "het_offset": 1}),
        (0, {}),
    ],
)
def test_a_job_that_waited_for_an_array_waits_for_no_other_verdict(
    mailing: context.Context, on_job_id: int, changes: dict[str, Any]
) -> None:
    """The verdict on one of its tasks or components is enough; a dependency that names no job (singleton) has none."""
    end_while_waiting(mailing, on_job_id)
    judge(mailing, attempt(mailing, **{"job_id": 6, "run_key": "6"} | changes))
    owe(mailing)
    assert answers.waits_for(mailing, mailing.clock.now()) == answers.Waits()


def test_foreign_words_stay_words(mailing: context.Context, box: mail_server.Box) -> None:
    """No header from a subject or a summary, no markup from either."""
    owe(mailing, subject="Slurm Job_id=7 Name=x\r\nBcc: all@site\r\n\r\n<b>hi")
    judge(
        mailing,
        attempt(mailing, name="<img src=x>"),
        summary="<script>alert(1)</script> \x1b[31m died.\r\nBcc: a@b",
    )
    owners.run(mailing)
    mail = box.message()
    assert mail["Bcc"] is None
    assert box.mails[0][0] == ["alice@site"]
    html = str(mail.get_body(("html",)).get_content())  # type: ignore[union-attr]
    assert "<script>" not in html
    assert "&lt;script&gt;" in html
    assert "\x1b" not in text_of(box)


@pytest.mark.parametrize(
    "name", ["=?utf-8?q?a=0d=0aBcc:_all@site=0d=0a=0d=0aforged?=", "x\u2028Bcc: all@site", "x\u2029y"]
)
def test_a_jobs_name_makes_no_header(mailing: context.Context, box: mail_server.Box, name: str) -> None:
    """Neither a word that a header would decode, nor a break that only some call one."""
    owe(mailing, subject=f"Slurm Job_id=7 Name={name} Failed")
    judge(mailing, attempt(mailing))
    owners.run(mailing)
    mail = box.message()
    assert mail["Bcc"] is None
    assert "Job_id=7" in mail["Subject"]
    assert mail["To"] == "alice@site"


def test_one_mail_that_cannot_be_made_keeps_nobody_elses_back(
    mailing: context.Context, box: mail_server.Box
) -> None:
    """The recipient is of a service that took any: Python's own reader of addresses breaks on it."""
    bad = handover.read(request(), "c", mailing.clock.now())
    assert handover.put(mailing.config, dataclasses.replace(bad, recipient=".:"))
    owe(mailing)
    judge(mailing, attempt(mailing))
    owners.run(mailing)
    assert [to for to, *_ in box.mails] == [["alice@site"]]
    later(mailing, 25 * 3600)
    owners.run(mailing)
    assert not handover.box(mailing.config).pending()


@pytest.mark.parametrize(
    "recipient",
    ["", "-oQ/tmp", "a@b\nBcc: c@d", "a b@c", "a@b,c@d", "x" * 400, None, "ä@b", "<a@b>",
     ".:", "%'$/#@", "a@b@c", "=?us-ascii?q?=0d=0aBcc:x@y?=", "a@=?utf-8?b?DQo=?="]
)  # fmt: skip
def test_a_recipient_that_is_no_plain_address_is_left_to_the_site(recipient: object) -> None:
    """Then the site's program is called, with Slurm's own arguments."""
    with pytest.raises(errors.UsageError):
        handover.read(request(recipient=recipient), "c", fakes.NOW)


@pytest.mark.parametrize(
    "changes",
    [{"environment": None}, {"environment": {}}, {"environment": {"SLURM_JOB_ID": "x"}}, {"subject": 3}, {"subject": "x" * 2000},
     {"environment": {"SLURM_JOB_ID": 1, "SLURM_CLUSTER_NAME": "other"}}],
)  # fmt: skip
def test_a_request_that_is_none_is_refused(changes: dict[str, object]) -> None:
    """Nothing of it is kept."""
    with pytest.raises(errors.UsageError):
        handover.read(request(**changes), "c", fakes.NOW)


class Kill:
    """Dies after so many calls."""

    def __init__(self, after: int) -> None:
        self.left = after

    def before(self, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*given: object, **named: object) -> object:
            self.left -= 1
            if self.left < 0:
                raise KeyboardInterrupt
            return real(*given, **named)

        return call


def test_a_kill_anywhere_neither_loses_nor_doubles(
    mailing: context.Context, box: mail_server.Box, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Dying at every write of the pass in turn, one mail of each mark arrives."""
    owe(mailing)
    judge(mailing, attempt(mailing))
    for step in range(8):
        with monkeypatch.context() as patch:
            kill = Kill(step)
            for name in ("put", "_write"):
                patch.setattr(queue.Outbox, name, kill.before(getattr(queue.Outbox, name)))
            with contextlib.suppress(KeyboardInterrupt):
                owners.run(mailing)
    owners.run(mailing)
    delivery.flush(mailing.config, mailing.clock.now())
    marks = [box.message(n)["Message-ID"] for n in range(len(box.mails))]
    assert len(set(marks)) == 1
    later(mailing, 3600)
    owners.run(mailing)
    assert pending(mailing) == queue.of(mailing.config).pending() == []


LISTING = (
    "JobId=7 JobName=x UserId=alice(1) JobState=FAILED Reason=None MailUser=alice@site MailType=END \n"
    "JobId=8 JobName=x MailUser=boss@site MailType=END JobState=FAILED MailUser=alice@site MailType=END \n"
    "JobId=9 JobName=x JobState=FAILED Reason=None MailUser=alice@site MailType=END,FAIL \n"
)


def test_up_to_22_05_the_end_of_a_failure_is_mailed_by_us(
    mailing: context.Context, box: mail_server.Box
) -> None:
    """Once, to whoever asked for END and not for FAIL; a job that wrote itself a second line is left out."""
    mailing.run_slurm.release, mailing.run_slurm.listing = "slurm 22.05.8", LISTING  # type: ignore[attr-defined]
    for job_id in (7, 8, 9):
        judge(mailing, attempt(mailing, job_id=job_id))
    owners.run(mailing)
    later(mailing, 15)
    owners.run(mailing)
    assert [recipients for recipients, _ in box.mails] == [["alice@site"]]
    assert "Job_id=7" in box.message()["Subject"]


@pytest.mark.parametrize("forger", [3, 9])
@pytest.mark.parametrize("purged", [False, True])
def test_nobody_says_where_anothers_mail_goes(
    mailing: context.Context, box: mail_server.Box, forger: int, purged: bool
) -> None:
    """A job's name may hold the victim's line, before or after the real one, also once the controller has forgotten the victim."""
    real = "JobId=7 JobName=x UserId=alice(1) JobState=FAILED Reason=None MailUser=alice@site MailType=END \n"
    forged = (
        f"JobId={forger} JobName=x|JobId=7 JobState=FAILED MailUser=mallory@evil MailType=END q|JobId=999999 z "
        "UserId=mallory(2) JobState=PENDING Reason=JobHeldUser \n"
    )
    mailing.run_slurm.release = "slurm 22.05.8"  # type: ignore[attr-defined]
    lines = [forged] if purged else [real, forged]
    mailing.run_slurm.listing = "".join(sorted(lines))  # type: ignore[attr-defined]
    judge(mailing, attempt(mailing))
    owners.run(mailing)
    later(mailing, 15)
    owners.run(mailing)
    assert [recipients for recipients, _ in box.mails] == ([] if purged else [["alice@site"]])


def test_later_releases_send_it_themselves(mailing: context.Context, box: mail_server.Box) -> None:
    """From 23.02 on nothing of ours is added."""
    mailing.run_slurm.listing = LISTING  # type: ignore[attr-defined]
    judge(mailing, attempt(mailing))
    owners.run(mailing)
    owners.run(mailing)
    assert box.mails == []


@pytest.mark.parametrize(
    ("release", "action", "state", "n_mails"),
    [
        ("25.11.4", "restart", "done", 1),
        ("25.11.2", "restart", "done", 0),
        ("25.11.4", "restart", "skipped", 0),
        ("25.11.4", "requeue", "done", 0),
    ],
)
def test_from_25_11_3_our_requeue_of_an_ended_job_is_mailed_by_us(
    mailing: context.Context, box: mail_server.Box, release: str, action: str, state: str, n_mails: int
) -> None:
    """The requeue of a running job is Slurm's to mail, and so is every one before that release."""
    mailing.run_slurm.release = f"slurm {release}"  # type: ignore[attr-defined]
    mailing.run_slurm.listing = LISTING.replace("MailType=END", "MailType=REQUEUE").replace(
        "FAILED", "PENDING"
    )  # type: ignore[attr-defined]
    made = attempt(mailing)
    judge(mailing, made)
    later(mailing, 5)
    restart(mailing, made, action=action, state=state)
    owners.run(mailing)
    owners.run(mailing)
    assert [recipients for recipients, _ in box.mails] == [["alice@site"]] * n_mails
    assert all("Requeued" in box.message(n)["Subject"] for n in range(n_mails))


def test_the_owner_of_an_idle_job_is_told_once(mailing: context.Context, box: mail_server.Box) -> None:
    """Where they asked Slurm for mail; another stretch of idleness is another mail."""
    import psycopg
    from psycopg.types.json import Jsonb

    mailing.run_slurm.listing = LISTING.replace("FAILED", "RUNNING")  # type: ignore[attr-defined]
    for job_id in (7, 10):
        task = {"array_job_id": 6, "array_task_id": job_id}
        attempt(mailing, job_id=job_id, end_at=None, state="RUNNING", nodes=("n1",), **task)
    fakes.deliver(mailing.store, "n1")
    idle = {"since": (fakes.NOW - timedelta(hours=2)).isoformat(), "why": "no_load"}
    with psycopg.connect(mailing.store.connection_uri()) as connection:
        connection.execute(
            "update probing.agent_heartbeat set sources = %s",
            (Jsonb({"held": {"jobs": {"7": idle, "10": idle}}}),),
        )
    for _ in range(3):
        owners.run(mailing)
        later(mailing, 61)
    delivery.flush(mailing.config, mailing.clock.now())
    assert [recipients for recipients, _ in box.mails] == [["alice@site"]]
    assert box.message()["Subject"] == "Job_id=6_7 holds GPUs idle", "a task of an array has its owner's name"
    assert "scancel 6_7" in text_of(box)
    assert "puts no load on its GPUs" in text_of(box)


def test_the_owner_is_told_of_a_word_of_alarm_once(mailing: context.Context, box: mail_server.Box) -> None:
    """What is new of one look is one mail; a word told once is told no more, another is."""
    import psycopg
    from psycopg.types.json import Jsonb

    mailing.run_slurm.listing = LISTING.replace("FAILED", "RUNNING")  # type: ignore[attr-defined]
    for job_id in (7, 10):
        attempt(mailing, job_id=job_id, end_at=None, state="RUNNING", nodes=("n1",))
    fakes.deliver(mailing.store, "n1")
    words = {w: {"at": fakes.NOW.isoformat(), "line": f"rank 0: {w}"} for w in ("CUDA error", "loss is nan")}

    def alarm(**alarms: object) -> None:
        with psycopg.connect(mailing.store.connection_uri()) as connection:
            jobs = {"7": alarms, "10": alarms}
            connection.execute(
                "update probing.agent_heartbeat set sources = %s", (Jsonb({"alarm_words": {"jobs": jobs}}),)
            )
        for _ in range(3):
            owners.run(mailing)
            later(mailing, 61)
        delivery.flush(mailing.config, mailing.clock.now())

    alarm(**words)
    assert [recipients for recipients, _ in box.mails] == [["alice@site"]]
    assert box.message()["Subject"] == "Job_id=7 printed an alarm word"
    for word in words:
        assert f"rank 0: {word}" in text_of(box)
    alarm(**words, NaN={"at": fakes.NOW.isoformat(), "line": "NaN"})
    assert len(box.mails) == 2
    assert "CUDA error" not in text_of(box)
