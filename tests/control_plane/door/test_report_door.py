from __future__ import annotations

import concurrent.futures
import contextlib
import dataclasses
import json
import os
import pwd
import socket
import subprocess
import tempfile
import textwrap
import uuid
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import fakes
import pytest

from probing_cluster.control_plane import context
from probing_cluster.control_plane.door import callers, places, report_door
from probing_cluster.control_plane.owners import waiting
from probing_cluster.control_plane.repair import workflow
from probing_cluster.control_plane.service.tasks.jobs import accounting
from probing_cluster.core import errors, records, settings, vocabulary
from probing_cluster.db import delivery
from probing_cluster.reports import job_ref
from probing_cluster.reports.asking import door
from probing_cluster.slurm_plugins import commands

ALICE = callers.Caller(uid=2001, name="alice")
BOB = callers.Caller(uid=2002, name="bob", groups=frozenset({"users"}))
ASK = {"v": 1, "op": "report", "job": "7"}


def answer(service: context.Context, caller: callers.Caller, request: dict[str, object]) -> dict[str, object]:
    """The door's answer to a caller who has been identified."""
    return report_door.answer(service, callers.Callers(service), caller, request)


@pytest.fixture
def knowing(service: context.Context) -> context.Context:
    """A service that knows alice's job 7."""
    assert isinstance(service.run_slurm, fakes.Sacct)
    service.run_slurm.rows = [fakes.row(7)]
    accounting.run(service)
    return service


def test_the_owner_is_answered_and_nobody_else(knowing: context.Context) -> None:
    """alice reads her job; bob is told that it is another's, and gets no row of it."""
    mine = answer(knowing, ALICE, ASK)
    assert mine["ok"]
    assert mine["rows"]["attempts"][0]["job_id"] == 7
    theirs = answer(knowing, BOB, ASK)
    assert (theirs["ok"], theirs["error"]) == (False, "not_permitted")
    assert "rows" not in theirs


@pytest.mark.parametrize(
    ("waiting", "words"),
    [
        (
            "PENDING|alice|lab|ReqNodeNotAvail, UnavailableNodes:n4\n",
            "waits (ReqNodeNotAvail, UnavailableNodes:n4)",
        ),
        (
            "PENDING|alice|lab|ReqNodeNotAvail, UnavailableNodes:n[4-5]\n",
            "waits (ReqNodeNotAvail, UnavailableNodes:n[4-5]): nodes that it needs are down, drained or reserved; n4 is drained by us (probing: xid 79 gpu3)",
        ),
        (
            "PENDING|alice|lab|ReqNodeNotAvail, UnavailableNodes:n[4-\n",
            "waits (ReqNodeNotAvail, UnavailableNodes:n[4-): nodes that it needs are down, drained or reserved",
        ),
        (
            "PENDING|alice|lab|Nodes_required_for_job_are_DOWN,_DRAINED_or_reserved\n",
            "waits (Nodes_required_for_job_are_DOWN,_DRAINED_or_reserved): nodes that it needs are down, drained or reserved; n4 is drained by us (probing: xid 79 gpu3); n9 is",
        ),
        (
            "PENDING|alice|lab|DependencyNeverSatisfied\n",
            "will never start as it is (DependencyNeverSatisfied): ",
        ),
        (
            "PENDING|alice|lab|PartitionNodeLimit\n",
            "will never start as it is (PartitionNodeLimit): it asks for more nodes than its partition has or allows",
        ),
        (
            "PENDING|alice|lab|JobHeldUser\n",
            "waits (JobHeldUser): held by its owner; scontrol release 15 lets it start",
        ),
        (
            "PENDING|alice|lab|Whatever\n",
            "waits (Whatever): it has not started yet, there is nothing to report of it",
        ),
        (
            "RUNNING|alice|lab|None\n",
            "is RUNNING by Slurm, and the accounting read so far has no start of it: it is read every ",
        ),
        (
            "FAILED|alice|lab|NonZeroExitCode\n",
            "is FAILED by Slurm, and the accounting read so far has no start of it",
        ),
        ("RUNNING|alice|lab|None\nPENDING|alice|lab|JobHeldUser\n", "waits (JobHeldUser): "),
        ("RUNNING|bob|lab|None\n", "is not known"),
        ("RUNNING|bob|lab|None\nPENDING|alice|lab|JobHeldUser\n", "is not known"),
        ("PENDING|bob|lab|Resources\n", "is not known"),
        ("", "is not known"),
        (None, "is not known"),
    ],
    ids=[
        "hers",
        "drained by us",
        "cut short",
        "nodes unnamed",
        "never",
        "too many nodes",
        "held",
        "a reason without a row",
        "runs",
        "has just ended",
        "a task waits",
        "another's that runs",
        "another's with a line in its account",
        "another's",
        "not waiting",
        "never heard of",
    ],
)
def test_a_job_without_a_start_on_record_is_told_to_whom_it_belongs(
    knowing: context.Context, waiting: str | None, words: str
) -> None:
    """Accounting has no start of it, Slurm knows it; of another's nothing is told, not even that it waits."""
    assert isinstance(knowing.run_slurm, fakes.Sacct)
    knowing.run_slurm.waiting = waiting
    for node in ("n4", "n4", "n9"):  # n4 was drained again before its first drain was lifted
        knowing.store.save_drain(
            records.Drain(
                drain_id=uuid.uuid4(), cluster="c", node=node, at=fakes.NOW, action="drain", state="done",
                reason="probing: xid 79 gpu3", owner="probing", event_ids=(),
            )
        )  # fmt: skip
    found = answer(knowing, ALICE, ASK | {"job": "15"})
    assert (found["ok"], found["error"]) == (False, "not_found")
    assert str(found["message"]).startswith(f"job 15 {words}")


@pytest.mark.parametrize(("age_s", "late"), [(600, True), (5, False)])
def test_an_accounting_that_is_not_read_is_not_promised(
    service: context.Context, age_s: float, late: bool
) -> None:
    """slurmdbd is away: of a job without a start on record it is said since when nothing is read."""
    assert isinstance(service.run_slurm, fakes.Sacct)
    service.run_slurm.waiting = "FAILED|alice|lab|None\n"
    read_at = service.clock.now() - timedelta(seconds=age_s)
    service.store.remember("accounting.until c", read_at.isoformat())
    message = str(answer(service, ALICE, ASK | {"job": "15"})["message"])
    assert (f"it was last read at {read_at:%H:%M:%S}Z" in message) is late
    assert ("it is read every" in message) is not late
    unknown = str(waiting.unknown_job(service, job_ref.parse("15")))
    assert ("last read at" in unknown) is late


@pytest.mark.parametrize(("age_s", "late"), [(15.0, False), (300.0, True)])
def test_a_job_that_slurm_has_forgotten_is_not_to_be_asked_for_again_while_nobody_reads(
    service: context.Context, age_s: float, late: bool
) -> None:
    """The controller forgets ended jobs after minutes: with slurmdbd away, half a minute of waiting brings nothing."""
    read_at = service.clock.now() - timedelta(seconds=age_s)
    service.store.remember("accounting.until c", read_at.isoformat())
    message = str(answer(service, ALICE, ASK | {"job": "15"})["message"])
    assert ("ask again in half a minute" in message) is not late
    assert (f"it was last read at {read_at:%H:%M:%S}Z" in message and "sacct -j 15" in message) is late


def test_of_a_task_that_an_array_has_not_its_owner_reads_which_it_has(service: context.Context) -> None:
    """Another's array is not known, and neither is a task of an array without a start."""
    assert isinstance(service.run_slurm, fakes.Sacct)
    service.run_slurm.rows = [fakes.row(25 + n, JobID=f"25_{n}") for n in (1, 2, 5)]
    accounting.run(service)
    mine = str(answer(service, ALICE, ASK | {"job": "25_77"})["message"])
    assert "of array 25 3 tasks of 1 to 5 started, and none with the number 77" in mine
    assert "half a minute" not in mine
    assert "half a minute" in str(answer(service, BOB, ASK | {"job": "25_77"})["message"])
    assert "half a minute" in str(answer(service, ALICE, ASK | {"job": "24_77"})["message"])


def test_nobody_is_sent_to_ask_again_for_what_never_comes(service: context.Context) -> None:
    """A component that the job has not, a day on which nobody had the id, and tests of nodes; a user's name for a job is no test."""
    slurm = service.run_slurm
    assert isinstance(slurm, fakes.Sacct)
    slurm.waiting = "RUNNING|alice|lab|None\n"
    slurm.listed_as = "15+0"
    assert str(answer(service, ALICE, ASK | {"job": "15+2"})["message"]).startswith("job 15+2 is not known")
    assert "ask again then" in str(answer(service, ALICE, ASK | {"job": "15+0"})["message"])
    of_day = str(answer(service, ALICE, ASK | {"job": "15@2020-01-02"})["message"])
    assert "that was submitted by then is on record; probing-report 15 shows its latest" in of_day
    repair = records.RepairIncident(
        incident_id=uuid.uuid4(), cluster="c", node="n4", drain_id=uuid.uuid4(), reason="probing: xid 79 gpu3", cause="gpu",
        state="testing", opened_at=fakes.NOW, changed_at=fakes.NOW,
    )  # fmt: skip
    service.store.open_incident(repair)
    slurm.listed_as = "15"
    for name, tests in (
        (workflow.reservation_of(repair), True),
        ("probing-diagnose-0a1b2c3d", True),
        (f"{vocabulary.RESERVATION_PREFIX}mine", False),
    ):
        slurm.job_name = name
        message = str(answer(service, ALICE, ASK | {"job": "15"})["message"])
        assert ("such jobs have no report" in message) is tests
        assert ("ask again then" in message) is not tests


def test_what_a_requeued_job_waits_for_is_in_its_report(
    knowing: context.Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not of one that has ended for good, that is another's by now, or where Slurm does not answer."""
    assert isinstance(knowing.run_slurm, fakes.Sacct)
    knowing.run_slurm.waiting = "PENDING|alice|lab|ReqNodeNotAvail, UnavailableNodes:n4\n"
    assert "waits" not in answer(knowing, ALICE, ASK)["rows"]  # type: ignore[operator]
    (attempt,) = knowing.store.attempts(job_ids=[7])
    end_at = attempt.end_at or fakes.NOW
    knowing.store.upsert_attempts([dataclasses.replace(attempt, state="REQUEUED", end_at=end_at)])
    rows = answer(knowing, ALICE, ASK)["rows"]
    words = "job 7 waits (ReqNodeNotAvail, UnavailableNodes:n4): nodes that it needs are down, drained or reserved"
    assert rows["waits"] == words  # type: ignore[index]
    by_slurm = {"why_state": "it is PENDING: it has not ended", "state": "skipped"}
    for state, skip, waits in (("FAILED", {}, False), ("FAILED", {"why_state": "it is interactive"}, False), ("NODE_FAIL", {}, True), ("FAILED", by_slurm, True)):  # fmt: skip
        knowing.store.upsert_attempts([dataclasses.replace(attempt, state=state, end_at=end_at)])
        knowing.store.add_drain(
            records.Drain(
                drain_id=uuid.uuid4(), cluster=attempt.cluster, node="n1", at=end_at, action="restart", reason="probing: x", owner="probing",
                job_id=7, submit_at=attempt.submit_at, **{"state": "skipped", **skip},
            )
        )  # fmt: skip
        rows = answer(knowing, ALICE, ASK)["rows"]
        assert ("waits" in rows) is waits  # type: ignore[operator]
    for other in ("RUNNING|alice|lab|None\n", "PENDING|bob|lab|Priority\n", None):
        knowing.run_slurm.waiting = other
        assert "waits" not in answer(knowing, ALICE, ASK)["rows"]  # type: ignore[operator]

    def away(*_: object, **__: object) -> bytes:
        raise commands.SlurmAway("squeue did not end within 1 s")

    monkeypatch.setattr(knowing.run_slurm, "__class__", type("Away", (fakes.Sacct,), {"__call__": away}))
    assert answer(knowing, ALICE, ASK)["ok"]


@pytest.mark.parametrize(
    ("required", "excluded", "ours", "words"),
    [
        ("(null)", "(null)", (), ""),
        ("n4", "(null)", (), "; it asks for n4 (--nodelist): scontrol update JobId=15 ReqNodeList= lets it start elsewhere"),
        ("(null)", "n[1-3]", (), "; it excludes n[1-3] (--exclude): scontrol update JobId=15 ExcNodeList= lets it start there"),
        ("(null)", "n[1-3]", ("n2",), "; it excludes n[1,3] (--exclude): scontrol update JobId=15 ExcNodeList=n2 lets it start there"),
        ("(null)", "n2", ("n2",), ""),
        ("(null)", "n[1-", (), ""),
        ("n4", "n1", (), "; it asks for n4 (--nodelist): scontrol update JobId=15 ReqNodeList= lets it start elsewhere; it excludes n1 (--exclude): scontrol update JobId=15 ExcNodeList= lets it start there"),
    ],
)  # fmt: skip
def test_the_way_out_of_the_queue_is_that_of_the_nodes_a_job_names(
    knowing: context.Context, required: str, excluded: str, ours: tuple[str, ...], words: str
) -> None:
    """A job that excludes the sound nodes itself gains nothing from an empty --nodelist; a node that we left out stays out."""
    slurm = knowing.run_slurm
    assert isinstance(slurm, fakes.Sacct)
    slurm.required, slurm.excluded = required, excluded
    for node in ours:
        knowing.store.add_drain(
            records.Drain(
                drain_id=uuid.uuid4(), cluster="c", node=node, at=fakes.NOW, action="exclude", state="done",
                reason="probing: xid 79 gpu3", owner="probing", job_id=15,
            )
        )  # fmt: skip
    message = {}
    for reason in ("ReqNodeNotAvail, UnavailableNodes:n4", "Priority"):
        slurm.waiting = f"PENDING|alice|lab|{reason}\n"
        message[reason[:3]] = str(answer(knowing, ALICE, ASK | {"job": "15"})["message"])
    assert message["Req"].partition("down, drained or reserved")[2] == words
    assert "NodeList=" not in message["Pri"]


def test_the_job_that_one_waits_for_is_named(knowing: context.Context) -> None:
    """A dependency on a job that failed, or that Slurm never had."""
    assert isinstance(knowing.run_slurm, fakes.Sacct)
    knowing.run_slurm.dependency = "afterok:14(failed)"
    for reason, named in (("DependencyNeverSatisfied", True), ("Resources", False)):
        knowing.run_slurm.waiting = f"PENDING|alice|lab|{reason}\n"
        message = str(answer(knowing, ALICE, ASK | {"job": "15"})["message"])
        assert (f"({reason}, afterok:14(failed)): " in message) is named


def test_a_slurm_that_hangs_is_not_waited_for_longer_than_the_caller_waits(
    knowing: context.Context, opened: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the database has is told; of a job that it does not have it is said that Slurm could not be asked."""
    squeue = tmp_path / "squeue"
    squeue.write_text("#!/bin/sh\nexec sleep 600\n")
    squeue.chmod(0o755)
    sacctmgr = tmp_path / "sacctmgr"
    sacctmgr.write_text("#!/bin/sh\n")
    sacctmgr.chmod(0o755)
    knowing.run_slurm = commands.SlurmCommands(settings=settings.SlurmSettings(bin_directory=str(tmp_path)))
    monkeypatch.setattr(waiting, "DEADLINE_S", 0.3)
    with pytest.raises(
        errors.NotFound, match="Slurm does not answer, so whether it waits could not be asked"
    ):
        door.ask(opened, job_ref.parse("999"))
    assert answer(knowing, ALICE, ASK)["ok"]


@pytest.mark.parametrize(
    ("job", "words"),
    [
        ("15", "job 15 never started: it was cancelled by its owner alice at "),
        (
            "16",
            "while it waited (Slurm's reason: DependencyNeverSatisfied: a job that it waited for ended in a way that its --dependency does not accept (afterok asks for success, afternotok for failure). Nobody cancelled it",
        ),
        (
            "19",
            "(Slurm's reason: Dependency: a job that it waited for ended in a way that its --dependency does not accept (afterok asks for success, afternotok for failure). Nobody cancelled it",
        ),
        ("20", "cancelled by its owner alice at 2026-"),
        ("17_6", "job 17_6 never started: it ended DEADLINE at "),
        ("18", "job 18 is not known"),
        ("21", "while it waited (Slurm's reason: JobHeldUser: held by its owner)"),
        ("17_3", "job 17_3 never started: it was cancelled by its owner alice"),
        ("41", "job 17_3 never started: it was cancelled by its owner alice"),
        ("42", "job 22+1 never started: it was cancelled by its owner alice"),
    ],
)
def test_a_job_that_never_started_is_told_to_whom_it_belonged(
    service: context.Context, job: str, words: str
) -> None:
    """The service reads it in accounting; another's is not known, and nobody's attempt is made of it."""
    assert isinstance(service.run_slurm, fakes.Sacct)
    service.run_slurm.rows = [
        fakes.row_never_started(15),
        fakes.row_never_started(16, State="CANCELLED", Reason="DependencyNeverSatisfied"),
        fakes.row_never_started(17, JobID="17_[5-9%2]", State="DEADLINE"),
        fakes.row_never_started(18, User="bob"),
        fakes.row_never_started(19, State="CANCELLED", Reason="Dependency"),
        fakes.row_never_started(20, Reason="Dependency"),
        fakes.row_never_started(21, Reason="JobHeldUser"),
        fakes.row_never_started(41, JobID="17_3"),
        fakes.row_never_started(42, JobID="22+1"),
    ]
    accounting.run(service)
    found = answer(service, ALICE, ASK | {"job": job})
    assert (found["ok"], found["error"]) == (False, "not_found")
    assert words in str(found["message"])
    assert ("Nobody cancelled it" in str(found["message"])) is (job in {"16", "19"})
    assert ("A later --deadline or a shorter --time" in str(found["message"])) is (job == "17_6")
    theirs = str(answer(service, BOB, ASK | {"job": job})["message"])
    assert theirs.startswith(f"job {job} " + ("never started" if job == "18" else "is not known"))
    carol = callers.Caller(uid=2003, name="carol")  # coordinates the account
    assert "never started" in str(answer(service, carol, ASK | {"job": job})["message"])


@pytest.mark.parametrize(
    ("on", "words"),
    [
        (
            (14,),
            "It waited for job 14, which ended FAILED: user_error, likely: The program exited with code 1 (probing-report 14))",
        ),
        ((14, 13), "It waited for job 14, which ended FAILED: user_error, likely: The program exited with code 1 (probing-report 14); for job 13, which ended COMPLETED (probing-report 13))"),
        ((12, 13, 14, 99), "It waited for job 12, of which 12_1 ended TIMEOUT (probing-report 12_1); for job 14, which ended FAILED: user_error, likely: The program exited with code 1 (probing-report 14); for job 99 and 1 more)"),
        ((12,), "It waited for job 12, of which 12_1 ended TIMEOUT (probing-report 12_1))"),
        ((15,), "It waited for job 15, which never started either (CANCELLED; probing-report 15 shows why))"),
        ((18,), "It waited for job 18)"),
        ((22,), "It waited for job 22)"),
        ((23,), "It waited for job 23)"),
        ((24,), "It waited for job 24)"),
        ((99,), "It waited for job 99)"),
        ((0,), "Which job that was is not on record here; `sacct -j 16 -o SubmitLine%200` shows it if the command line named it)"),
        ((), "Which job that was is not on record here; `sacct -j 16 -o SubmitLine%200` shows it if the command line named it)"),
    ],
)  # fmt: skip
def test_the_job_that_took_one_out_of_the_queue_is_named(
    service: context.Context, on: tuple[int, ...], words: str
) -> None:
    """As a look at the queue found it, with why it ended; of another user's or account's job nothing but the number that the owner wrote."""
    assert isinstance(service.run_slurm, fakes.Sacct)
    service.run_slurm.rows = [
        fakes.row(14, State="FAILED", ExitCode="1:0"),
        fakes.row(13, State="COMPLETED", ExitCode="0:0"),
        fakes.row(120, JobID="12_0", State="COMPLETED", ExitCode="0:0"),
        fakes.row(121, JobID="12_1", State="TIMEOUT", ExitCode="0:0"),
        fakes.row(18, User="bob"),
        fakes.row(22, Account="other"),
        fakes.row_never_started(23, User="bob"),
        fakes.row_never_started(24, Account="other"),
        fakes.row_never_started(15),
        fakes.row_never_started(16, State="CANCELLED", Reason="DependencyNeverSatisfied"),
    ]
    accounting.run(service)
    before = fakes.NOW - timedelta(days=1)
    waited = (records.JobDependency(cluster="c", job_id=16, on_job_id=n, user="alice", at=before) for n in on)
    service.store.save_dependencies(waited)
    failed = next(a for a in service.store.attempts(job_ids=[14, 18]) if a.job_id == 14)
    # Slurm uses numbers again.
    later = fakes.NOW + timedelta(days=1)
    service.store.upsert_attempts(
        [dataclasses.replace(failed, submit_at=later, start_at=later, end_at=None, state="RUNNING")]
    )
    service.store.save_dependencies(
        [records.JobDependency(cluster="c", job_id=16, on_job_id=77, user="alice", at=later)]
    )
    verdict = records.Verdict(
        cluster="c", job_id=14, submit_at=failed.submit_at, cause="user_error", domain=records.Domain.USER_PROGRAM,
        confidence=records.Confidence.LIKELY, summary="The program exited with code 1.", rules_version="1", made_at=fakes.NOW,
    )  # fmt: skip
    service.store.save_verdicts([verdict])
    message = str(answer(service, ALICE, ASK | {"job": "16"})["message"])
    assert message.endswith(words)
    assert "or the site's kill_invalid_depend asks. " in message


def test_a_job_that_never_started_and_that_slurm_still_has_never_started(service: context.Context) -> None:
    """Slurm keeps an ended job for some minutes; what accounting has of it says more."""
    assert isinstance(service.run_slurm, fakes.Sacct)
    service.run_slurm.rows = [fakes.row_never_started(15)]
    service.run_slurm.waiting = "CANCELLED|alice|lab|None\n"
    accounting.run(service)
    assert "never started" in str(answer(service, ALICE, ASK | {"job": "15"})["message"])


@pytest.mark.parametrize(
    ("service", "caller", "may"),
    [
        (settings.ServiceSettings(operators=("bob",)), BOB, True),
        (settings.ServiceSettings(operator_group="users"), BOB, True),
        (settings.ServiceSettings(operator_group="wheel"), BOB, False),
        (settings.ServiceSettings(), callers.Caller(uid=0, name="root"), True),
        (settings.ServiceSettings(), callers.Caller(uid=4321, name=""), False),
        (
            settings.ServiceSettings(operator_group=""),
            callers.Caller(uid=4, name="x", groups=frozenset({""})),
            False,
        ),
        (settings.ServiceSettings(), dataclasses.replace(ALICE, name="alice2"), False),
    ],
    ids=["operator", "operators' group", "another group", "root", "nameless uid", "empty group", "namesake"],
)
def test_who_may_read_every_job(service: settings.ServiceSettings, caller: callers.Caller, may: bool) -> None:
    """Operators by name or group, and root; an empty setting opens nothing."""
    assert callers.may_read(caller, frozenset({"alice"}), service) is may


def test_a_job_id_that_two_users_had_is_for_operators(knowing: context.Context) -> None:
    """After a wrapped job id nobody sees the other's attempt through their own."""
    assert not callers.may_read(ALICE, frozenset({"alice", "bob"}), knowing.config.service)


@pytest.mark.parametrize(
    "request_",
    [
        {"v": 2, "op": "report", "job": "7"},
        {"v": 1, "op": "drop", "job": "7"},
        {"v": 1, "op": "report", "job": "7;drop"},
        {},
    ],
)
def test_what_is_no_request_gets_a_plain_refusal(
    knowing: context.Context, request_: dict[str, object]
) -> None:
    """Unknown versions, operations and forms are refused in words."""
    assert answer(knowing, ALICE, request_)["error"] == "usage"


@pytest.fixture
def opened(knowing: context.Context) -> Iterator[Path]:
    """The door on a real socket."""
    with tempfile.TemporaryDirectory(prefix="probing-door-") as directory:
        Path(directory).chmod(0o755)
        path = Path(directory) / "report.sock"
        knowing.config = dataclasses.replace(
            knowing.config, service=settings.ServiceSettings(socket=str(path))
        )
        with report_door.serving(knowing):
            yield path


def test_a_service_that_runs_is_known_to(knowing: context.Context, opened: Path) -> None:
    """Whatever Slurm and the database do; one of another database is not ours."""
    assert door.serves(knowing.config) is True
    other = settings.DatabaseSettings(url="postgresql://x@elsewhere/y")
    assert door.serves(dataclasses.replace(knowing.config, database=other)) is None
    absent = settings.ServiceSettings(socket=str(opened.with_name("none")))
    assert door.serves(dataclasses.replace(knowing.config, service=absent)) is None


def test_the_question_whether_it_runs_is_answered_without_the_database(
    knowing: context.Context, opened: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With an answer of its own, and by an older service with a refusal."""
    request = {"v": door.VERSION, "op": door.ALIVE}
    assert door._over_unix(opened, request, door.ALIVE_S) == {}
    monkeypatch.setattr(door, "ALIVE", "of a later version")
    assert door.serves(knowing.config) is True


def test_the_client_gets_the_rows_or_the_services_error(opened: Path) -> None:
    """What probing-report does as root: rows of a known job, NotFound for another."""
    assert door.ask(opened, job_ref.parse("7"))["attempts"][0]["user"] == "alice"
    with pytest.raises(errors.NotFound):
        door.ask(opened, job_ref.parse("8"))


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become another user")
@pytest.mark.skipif(not Path("/usr/bin/python3").exists(), reason="needs a Python that any user may run")
def test_the_kernel_says_who_asks(opened: Path) -> None:
    """A process of another uid cannot read alice's job, whatever it writes into its request."""
    nobody = pwd.getpwnam("nobody")
    script = textwrap.dedent(
        """
        import json, socket, sys
        s = socket.socket(socket.AF_UNIX); s.connect(sys.argv[1])
        s.sendall(json.dumps({"v": 1, "op": "report", "job": "7", "uid": 0, "user": "alice"}).encode() + b"\\n")
        print(s.makefile().read())
        """
    )
    done = subprocess.run(
        ["/usr/bin/python3", "-I", "-S", "-c", script, str(opened)],
        check=False, capture_output=True, text=True, user=nobody.pw_uid, group=nobody.pw_gid, extra_groups=[], timeout=30,
    )  # fmt: skip
    assert json.loads(done.stdout)["error"] == "not_permitted", done.stderr


def test_a_busy_caller_is_held_back_and_later_served_again(
    opened: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So many connections of one uid at once; each that ends gives its place back, however fast they follow."""
    monkeypatch.setattr(places, "MOST_OF_SLURM", 16)  # our own uid is the controller's

    def connect() -> socket.socket:
        connection = socket.socket(socket.AF_UNIX)
        connection.connect(str(opened))
        connection.settimeout(10)
        return connection

    def ask(connection: socket.socket) -> bytes:
        with connection:
            connection.sendall(b'{"v": 1, "op": "nothing"}\n')
            return connection.makefile("rb").read()

    idle = [connect() for _ in range(16)]
    with contextlib.suppress(ConnectionError), connect() as one_more:  # closed without a word
        assert one_more.recv(1) == b""
    assert [b"unknown request" in ask(connection) for connection in idle] == [True] * len(idle)

    def many(_: int) -> int:
        return sum(b"unknown request" in ask(connect()) for _ in range(60))

    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        assert list(pool.map(many, range(4))) == [60] * 4


def test_the_service_never_answers_for_another_database(knowing: context.Context) -> None:
    """Somebody whose settings name another database is sent there, and gets no row of this one."""
    mine, other = door.database_id(knowing.config), door.database_id(settings.Settings())
    root = callers.Caller(uid=0, name="root")
    assert answer(knowing, root, ASK | {"database": mine})["ok"]
    reply = answer(knowing, root, ASK | {"database": f"{other}x"})
    assert (reply["ok"], reply["error"]) == (False, "other_database")
    assert "rows" not in reply


@pytest.mark.parametrize("raw", [b"\xff\xfe\n", b"[]\n", b"7\n", b"{" * 5000, b"{}" + b" " * 9000 + b"\n"])
def test_rubbish_does_not_hurt_the_door(opened: Path, raw: bytes) -> None:
    """Bad bytes, other JSON and endless lines end in silence, and the next caller is served."""
    with socket.socket(socket.AF_UNIX) as sock:
        sock.connect(str(opened))
        try:
            sock.sendall(raw)
            sock.shutdown(socket.SHUT_WR)
            sock.recv(100)
        except OSError:
            pass
    assert door.ask(opened, job_ref.parse("7"))["attempts"]


def test_a_binding_covers_the_whole_request_but_the_credential() -> None:
    """A credential for one job is none for another."""
    base = door.request_for(job_ref.parse("7"))
    assert door.binding(base) == door.binding(base | {"credential": "x"})
    assert door.binding(base) != door.binding(door.request_for(job_ref.parse("8")))


QUESTION = {"scans": '[{"table": "cluster.ranks"}]', "deadline_s": 5}


def test_tables_of_a_running_job_are_for_its_owner_and_operators(service: context.Context) -> None:
    """A question is a row in the asker's name; nobody else reads its answer; an expression goes no further than here."""
    assert isinstance(service.run_slurm, fakes.Sacct)
    service.run_slurm.rows = [fakes.row(7, State="RUNNING", End="Unknown")]
    accounting.run(service)
    for node in ("n1", "n2"):
        fakes.deliver(service.store, node, jobs=(7,))
    ask = {"v": 1, "op": "ask", "job": "7", "given": QUESTION}
    refused = answer(service, BOB, ask)
    assert (refused["ok"], refused["error"]) == (False, "not_permitted")
    assert answer(service, BOB, ask | {"op": "job_nodes"})["error"] == "not_permitted"
    posted = answer(service, ALICE, ask)["rows"]
    assert isinstance(posted, dict)
    assert posted["nodes"] == ["n1", "n2"]
    (request,) = delivery.Delivery(service.store.connection_uri(), "c", "n1").deliver().requests
    assert (request.verb, request.job_id, request.detail["by"]) == ("ask", 7, "uid 2001")
    delivery.Delivery(service.store.connection_uri(), "c", "n1").deliver(
        answers=[(request.request_id, b"Fx")]
    )
    look = {"v": 1, "op": "answers", "job": "7", "given": {"question": posted["question"], "mark": None}}
    mine, theirs = answer(service, ALICE, look)["rows"], answer(service, BOB, look)["rows"]
    assert isinstance(mine, dict)
    assert isinstance(theirs, dict)
    assert (mine["answers"], theirs["answers"]) == ({"n1": "Rng="}, {})
    for scans in ('[{"table": "python.1+1"}]', '[{"table": "python.`f()`"}]'):
        worse = answer(service, ALICE, ask | {"given": QUESTION | {"scans": scans}})
        assert (worse["ok"], worse["error"]) == (False, "not_permitted")


@pytest.mark.parametrize(
    "given",
    [None, [], {}, QUESTION | {"scans": "["}, QUESTION | {"scans": "{}"}, QUESTION | {"scans": "[]"}, QUESTION | {"deadline_s": "nan"},
     QUESTION | {"deadline_s": -1}, QUESTION | {"scans": "[" * 3000}],
)  # fmt: skip
def test_a_question_that_is_none_is_refused(service: context.Context, given: object) -> None:
    """Each with a plain word, and no row is made."""
    assert isinstance(service.run_slurm, fakes.Sacct)
    service.run_slurm.rows = [fakes.row(7, State="RUNNING", End="Unknown")]
    accounting.run(service)
    fakes.deliver(service.store, "n1", jobs=(7,))
    for op in ("ask", "answers"):
        found = answer(service, ALICE, {"v": 1, "op": op, "job": "7", "given": given})
        assert (found["ok"], found["error"]) == (False, "usage")
    assert delivery.Delivery(service.store.connection_uri(), "c", "n1").deliver().requests == ()


def test_who_asks_too_often_waits(service: context.Context, monkeypatch: pytest.MonkeyPatch) -> None:
    """One asker's share is bounded, and all askers' together; a minute later it goes on."""
    monkeypatch.setattr(report_door, "QUESTIONS_OF_ONE", 3)
    assert isinstance(service.run_slurm, fakes.Sacct)
    service.run_slurm.rows = [fakes.row(7, State="RUNNING", End="Unknown")]
    accounting.run(service)
    fakes.deliver(service.store, "n1", jobs=(7,))
    ask = {"v": 1, "op": "ask", "job": "7", "given": QUESTION}
    assert [answer(service, ALICE, ask)["ok"] for _ in range(4)] == [True, True, True, False]
    requests = service.memory(report_door.CallersRequests)
    requests.tables = [(s - 61.0, caller) for s, caller in requests.tables]
    assert answer(service, ALICE, ask)["ok"]
