"""What imported accounting shows, and what not: jobs without an end, ids used again, resized jobs, arrays cancelled while they waited."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import psycopg
import pytest

from probing_cluster.attribution.passes import attribute
from probing_cluster.attribution.reliability import accounts
from probing_cluster.control_plane.imports import load
from probing_cluster.core import errors, records, settings, vocabulary
from probing_cluster.db import delivery
from probing_cluster.db import store as db_store
from probing_cluster.reports import job_ref, json_out, model, query, rows, text

NOW = datetime(2026, 11, 27, tzinfo=UTC)
HEAD = "JobIDRaw|JobID|JobName|User|State|Submit|Start|End|Elapsed|Suspended|NodeList|AllocTRES"


def at(clock: str, day: int = 24) -> datetime:
    return datetime.fromisoformat(f"2026-11-{day}T{clock}+00:00")


def row(job: str, state: str, end: str = "11:00:00", **changes: str) -> str:
    """One row of an export; times are of 24 November unless they name their day."""
    values = {
        "raw": job, "name": "train", "user": "ann", "submit": "10:00:00", "start": "10:00:00",
        "elapsed": "01:00:00", "suspended": "00:00:00", "nodes": "n1",
    } | changes  # fmt: skip
    times = [t if "T" in t or t == "Unknown" else f"2026-11-24T{t}" for t in (values["submit"], values["start"], end)]  # fmt: skip
    return "|".join(
        (values["raw"], job, values["name"], values["user"], state, *times, values["elapsed"], values["suspended"],
         values["nodes"], "gres/gpu=8")
    )  # fmt: skip


def imported(store: db_store.Store, tmp_path: Path, *lines: str, now: datetime = NOW) -> load.Loaded:
    """An import of these rows, with the run accounts that `attribute` makes of them."""
    (tmp_path / "sacct").write_text("\n".join((HEAD, *lines)) + "\n")
    order = load.LoadOrder(sacct=[tmp_path / "sacct"], cluster="c", now=now, timezone="UTC")
    done = load.load(store, order)
    accounts.update(store, settings.AttributionSettings(), since=datetime(2020, 1, 1, tzinfo=UTC))
    return done


def found(store: db_store.Store, job: str) -> rows.ReportRows:
    """The rows of a report."""
    with psycopg.connect(store.connection_uri(), options="-c TimeZone=UTC") as link:
        return rows.from_json(query.fetch(link, "c", job_ref.parse(job)))


def report(store: db_store.Store, job: str) -> model.ReportModel:
    """The report as it is now, days after the export."""
    return model.build(job_ref.parse(job), found(store, job), now=NOW)


def words(store: db_store.Store, job: str) -> str:
    """The report's text, its line breaks gone."""
    return " ".join(text.render(report(store, job)).split())


DONE = row("1", "COMPLETED", "12:00:00", elapsed="02:00:00")


@pytest.mark.parametrize(
    ("state", "elapsed", "suspended", "until", "expected"),
    [
        (
            "RUNNING",
            "00:00:00",
            "00:00:00",
            "12:00:00",
            "still running when the imported accounting ends, at",
        ),
        (
            "RUNNING",
            "04:00:00",
            "00:00:00",
            "14:00:00",
            "still running when the imported accounting ends, at",
        ),
        (
            "SUSPENDED",
            "04:00:00",
            "01:00:00",
            "15:00:00",
            "still suspended when the imported accounting ends, at",
        ),
        (
            "FAILED",
            "00:00:00",
            "00:00:00",
            "12:00:00",
            "its end is not in the imported accounting, which ends at",
        ),
    ],
)
def test_a_job_without_an_end_is_known_until_the_export(
    store: db_store.Store, tmp_path: Path, state: str, elapsed: str, suspended: str, until: str, expected: str
) -> None:
    """Nothing is drawn or counted of the days since: the newest row tells when the file was made, or Elapsed does."""
    imported(store, tmp_path, DONE, row("7", state, "Unknown", elapsed=elapsed, suspended=suspended))
    made = report(store, "7")
    assert (made.drawn_until, store.exported_until()) == (at(until), at(until))
    assert f"{expected} {until}Z" in words(store, "7")
    assert "no agent has ever reported" not in words(store, "7")
    assert made.run is not None
    assert made.run.end_at == at(until)
    assert json_out.document(made)["exported_until"] == f"2026-11-24T{until}Z"


def test_a_service_that_reads_accounting_knows_more_than_an_export(
    store: db_store.Store, tmp_path: Path
) -> None:
    """Then the job still runs, and an older export changes nothing of what a newer one shows."""
    imported(store, tmp_path, DONE, row("7", "RUNNING", "Unknown", elapsed="00:00:00"))
    imported(store, tmp_path, row("2", "COMPLETED", "11:00:00"))
    assert store.exported_until() == at("12:00:00")
    store.remember(f"{vocabulary.ACCOUNTING_READ} c", "2026-11-27T00:00:00Z")
    assert store.exported_until() is None
    assert report(store, "7").drawn_until == NOW
    assert "still running according to accounting" in words(store, "7")


def test_a_start_in_the_future_is_not_when_the_file_was_made(store: db_store.Store, tmp_path: Path) -> None:
    """A clock that was wrong once would stretch every job to it."""
    late = row(
        "9", "FAILED", "2099-11-24T11:00:00", start="2099-11-24T10:00:00", submit="2099-11-24T10:00:00"
    )
    imported(store, tmp_path, DONE, late)
    assert store.exported_until() == at("12:00:00")


REUSED = (
    row("5", "FAILED", user="ann"),
    row("5", "FAILED", "2026-11-12T11:00:00", user="ben", submit="2026-11-12T10:00:00", start="2026-11-12T10:00:00"),
)  # fmt: skip


def test_a_job_id_that_was_used_again_is_two_jobs(store: db_store.Store, tmp_path: Path) -> None:
    """The report shows the newest, says that there was another, and how to ask for it."""
    imported(store, tmp_path, *REUSED)
    newest, oldest = report(store, "5"), report(store, "5@2026-11-12")
    assert (newest.user, newest.headline, len(newest.attempts)) == ("ann", "FAILED", 1)
    assert (oldest.user, oldest.headline, oldest.submit_at) == ("ben", "FAILED", at("10:00:00", 12))
    assert "used this id before, for a job submitted 2026-11-12 10:00:00Z: probing-report 5@2026-11-12" in words(store, "5")  # fmt: skip
    assert "probing-report 5@2026-11-24" in words(store, "5@2026-11-12")
    assert "ben" not in words(store, "5"), "whose it was is not everybody's to know"
    assert json_out.document(newest)["other_submits_at"] == ["2026-11-12T10:00:00Z"]
    with pytest.raises(errors.NotFound):
        found(store, "5@2026-11-11")


def test_the_same_owners_other_job_of_an_id_has_another_name(store: db_store.Store, tmp_path: Path) -> None:
    """The run's account is of both then, so none of its figures is shown of one."""
    imported(store, tmp_path, REUSED[0], REUSED[1].replace("ben", "ann").replace("train", "eval"))
    assert [v.attempt.name for v in report(store, "5").attempts] == ["train"]
    assert report(store, "5").run is None


def test_a_requeued_job_stays_one_job(store: db_store.Store, tmp_path: Path) -> None:
    """Owner and name are the same; a row without a name, from another export, is of it too."""
    first, again = (
        row("5", "NODE_FAIL"),
        row("5", "COMPLETED", "13:00:00", submit="11:00:00", start="12:00:00"),
    )
    imported(store, tmp_path, first, again)
    whole = report(store, "5")
    assert (whole.headline, [v.attempt.attempt for v in whole.attempts]) == (
        "COMPLETED after 1 requeue",
        [1, 2],
    )
    assert whole.other_submits == ()
    store.upsert_attempts([dataclasses.replace(whole.attempts[0].attempt, submit_at=at("09:00:00"), name="")])
    assert len(report(store, "5").attempts) == 3


@pytest.mark.parametrize(("zone", "hours"), [("Europe/Berlin", "1 h"), ("Asia/Kolkata", "5.5 h")])
def test_an_export_that_is_stored_as_of_another_zone_is_refused(
    store: db_store.Store, tmp_path: Path, zone: str, hours: str
) -> None:
    """Who reads the note that times were taken for UTC imports again with the zone: every job would have been requeued once."""
    path = tmp_path / "sacct"
    path.write_text("\n".join((HEAD, DONE, row("5", "NODE_FAIL"), row("5", "FAILED", "13:00:00", submit="11:00:00", start="12:00:00"))))  # fmt: skip
    order = load.LoadOrder(sacct=[path], cluster="c", now=NOW)
    load.load(store, order)
    load.load(store, order)
    stored = store.attempts()
    assert len(stored) == 3
    with pytest.raises(errors.MalformedInput, match=f"with all its times {hours} later: .*--timezone"):
        load.load(store, dataclasses.replace(order, timezone=zone))
    assert store.attempts() == stored


def test_a_job_requeued_at_each_limit_is_of_no_other_zone(store: db_store.Store, tmp_path: Path) -> None:
    """It may wait and run for the same seconds twice; the day's other jobs are stored as they are."""
    again = row("5", "TIMEOUT", "12:00:00", submit="11:00:00", start="11:00:00")
    imported(store, tmp_path, row("5", "TIMEOUT"), row("6", "COMPLETED"))
    imported(store, tmp_path, again, row("6", "COMPLETED"))
    assert [(a.job_id, a.attempt) for a in store.attempts(job_ids=[5])] == [(5, 1), (5, 2)]


@pytest.mark.parametrize(
    ("first", "second"), [(range(24), range(14)), (range(24), [9]), ([23], range(14))], ids=str
)
def test_the_runs_of_scrontab_are_of_no_other_zone(
    store: db_store.Store, tmp_path: Path, first: Sequence[int], second: Sequence[int]
) -> None:
    """They have one number, and each begins whole hours after the last; of the next day's other jobs none is known."""

    def runs(day: int, hours: Sequence[int]) -> list[str]:
        times = [f"2026-11-{day}T{hour:02}:00" for hour in hours]
        return [row("5", "COMPLETED", f"{at}:09", submit=f"{at}:03", start=f"{at}:04") for at in times]

    imported(store, tmp_path, *runs(24, first), row("6", "COMPLETED"))
    imported(store, tmp_path, *runs(25, second), row("7", "COMPLETED"))
    assert len(store.attempts(job_ids=[5])) == len(first) + len(second)


@pytest.mark.parametrize("days", ["in order", "backwards", "at once"])
def test_the_exports_of_two_days_count_a_jobs_starts_together(
    store: db_store.Store, tmp_path: Path, days: str
) -> None:
    """Each file shows one start of the requeued job; what was judged under the other number is judged again."""
    first = row("5", "NODE_FAIL")
    again = row("5", "FAILED", "13:00:00", submit="11:00:00", start="12:00:00")
    if days == "at once":
        paths = [tmp_path / "monday", tmp_path / "tuesday"]
        for path, line in zip(paths, (first, again), strict=True):
            path.write_text(f"{HEAD}\n{line}\n")
        load.load(store, load.LoadOrder(sacct=paths, cluster="c", now=NOW, timezone="UTC"))
    else:
        for line in (first, again) if days == "in order" else (again, first):
            imported(store, tmp_path, line)
            attribute.attribute(store)
    assert [(a.state, a.attempt) for a in store.attempts()] == [("NODE_FAIL", 1), ("FAILED", 2)]
    attribute.attribute(store)
    assert [v.attempt for v in sorted(store.verdicts(), key=lambda v: v.submit_at)] == [1, 2]


def test_the_logs_of_another_job_of_the_id_are_not_shown(store: db_store.Store, tmp_path: Path) -> None:
    """What is stored under the id alone belongs to the job that had it then."""
    imported(store, tmp_path, *REUSED)
    allocations = [
        records.JobAllocation(
            cluster="c", node="n1", job_id=5, restart_count=n, at=at("10:00:00", day),
            detail={"logs": [{"stream": "stdout", "path": f"/{day}", "tail": ["x"]}]},
        )
        for n, day in enumerate((12, 24))
    ]  # fmt: skip
    delivery.Delivery(store.connection_uri(), "c", "n1").deliver(allocations=allocations)
    assert [log.path for log in found(store, "5").logs] == ["/24"]
    assert [log.path for log in found(store, "5@2026-11-12").logs] == ["/12"]


@pytest.mark.parametrize("second_submit", ["10:00:00", "12:00:00"])
def test_a_resized_job_is_one_attempt_from_its_first_start(
    store: db_store.Store, tmp_path: Path, second_submit: str
) -> None:
    """Some exports give the first submit time on both rows, some the resize."""
    done = imported(
        store,
        tmp_path,
        row("6", "RESIZING", "12:00:00", elapsed="02:00:00"),
        row("6", "FAILED", "14:00:00", submit=second_submit, start="12:00:00", nodes="n[1-2]"),
    )
    (attempt,) = (v.attempt for v in report(store, "6").attempts)
    assert (attempt.start_at, attempt.end_at, attempt.nodes) == (at("10:00:00"), at("14:00:00"), ("n1", "n2"))
    assert "left out: 1 resized row merged" in done.lines[0]


def array_row(task: str, state: str, raw: str, **changes: str) -> str:
    return row(f"11_{task}", state, raw=raw, **changes)


def test_the_tasks_of_an_array_that_were_cancelled_while_they_waited(
    store: db_store.Store, tmp_path: Path
) -> None:
    """Accounting gives them one row, with or without an end; the array's report lists it, a task's names it."""
    rest = array_row("[5-8%2]", "CANCELLED by 1004", "15", start="Unknown", nodes="None assigned").replace(
        "2026-11-24T11:00:00", "Unknown"
    )
    imported(store, tmp_path, array_row("1", "FAILED", "12"), array_row("2", "COMPLETED", "13"), rest)
    whole = found(store, "11")
    assert model.is_overview(job_ref.parse("11"), whole)
    page = " ".join(text.render_overview("11", whole, now=NOW).split())
    assert "11_[5-8%2] CANCELLED never started; ended by 1004 while waiting" in page
    assert "squeue" not in page, "there is no Slurm to ask"
    assert json_out.overview("11", whole, NOW)["never_started"][0]["job"] == "11_[5-8%2]"
    with psycopg.connect(store.connection_uri(), options="-c TimeZone=UTC") as link:
        task = query.never_started(link, "c", job_ref.parse("11_5"))
    assert task is not None
    assert task.words == "job 11_5 never started: it was cancelled by 1004, while it waited"


def test_suspended_time_and_a_failed_launch_are_named(store: db_store.Store, tmp_path: Path) -> None:
    """Of a launch that failed accounting shows no cause: the report says where it is found, and judges nothing."""
    imported(store, tmp_path, row("8", "FAILED", suspended="00:20:00"), row("9", "LAUNCH_FAILED"))
    assert "ended 11:00:00Z suspended for 20 min" in words(store, "8")
    assert "Attempt 1 ended LAUNCH_FAILED Slurm could not start its batch script" in words(store, "9")


@pytest.mark.parametrize(
    ("written", "until"),
    [
        ("5@2026-11-12", datetime(2026, 11, 13, tzinfo=UTC) - timedelta(microseconds=1)),
        ("5@2026-11-12T10:00:00Z", at("10:00:00", 12)),
        ("5_3@2026-11-12T10:00:00.000000Z", at("10:00:00", 12)),
    ],
)
def test_a_job_may_be_named_with_its_day(written: str, until: datetime) -> None:
    """Its text is read again as the same."""
    ref = job_ref.parse(written)
    assert ref.until == until
    assert job_ref.parse(str(ref)) == ref


@pytest.mark.parametrize("written", ["5@", "5@2026-13-40", "5@yesterday", "5@2026-11-12T10:00"])
def test_a_day_that_is_none_is_refused(written: str) -> None:
    """As any other slip in a job's name."""
    with pytest.raises(errors.UsageError):
        job_ref.parse(written)


def test_output_may_be_given_for_an_older_job_of_an_id(store: db_store.Store, tmp_path: Path) -> None:
    """--joblog 5@2026-11-12=FILE is of the job that had the id then."""
    (tmp_path / "out").write_text(
        'Traceback (most recent call last):\n  File "t.py", line 1\nValueError: bad\n'
    )
    imported(store, tmp_path, *REUSED)
    order = load.LoadOrder(joblog=[("5@2026-11-12", tmp_path / "out")], cluster="c", now=NOW)
    load.load(store, order)
    (event,) = store.events()
    assert (event.at, event.severity) == (at("11:00:00", 12), records.Severity.INFO)
