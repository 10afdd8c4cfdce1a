"""Failed tests become events in the database, once, and show in the report of the job that died there before."""

from __future__ import annotations

import dataclasses
import uuid
from datetime import timedelta

import fakes
import psycopg

from probing_cluster.control_plane import context
from probing_cluster.control_plane.service.tasks.nodes import tested
from probing_cluster.core import records, settings
from probing_cluster.db import store as db_store
from probing_cluster.reports import job_ref, model, query, rows, text
from tests.set_clock import SetClock


def result(at_s: float, **more: object) -> records.DiagnosticResult:
    given = {
        "test": "gemm",
        "outcome": records.Outcome.FAIL,
        "message": "3 wrong results",
        "device": "gpu2",
        **more,
    }
    return records.DiagnosticResult(
        result_id=uuid.uuid4(), cluster="c", round_id=uuid.uuid4(), node="n1",
        at=fakes.NOW + timedelta(seconds=at_s), **given,
    )  # fmt: skip


def service(
    store: db_store.Store, at: timedelta = timedelta(hours=1), round_s: float = 1200.0
) -> context.Context:
    config = settings.Settings(
        cluster=settings.ClusterSettings(name="c"), diagnostics=settings.DiagnosticsSettings(round_s=round_s)
    )
    return context.Context(
        config=config,
        store=store,
        run_slurm=fakes.Sacct(),
        slurm=fakes.FakeSlurm(),
        clock=SetClock(fakes.NOW + at),
    )


def test_a_failed_test_is_one_event_however_often_it_is_looked_at(store: db_store.Store) -> None:
    store.add_results(
        [result(10), result(20, outcome=records.Outcome.OK), result(30, test="ring", device=None)]
    )
    first = service(store)
    assert tested.run(first) == "1 failed tests of 1 nodes"
    assert tested.run(first) == ""
    assert tested.run(service(store)) == "1 failed tests of 1 nodes", "a new service looks again"
    (event,) = store.events(nodes=["n1"])
    assert (event.kind, event.source, event.device) == ("gpu_test", "diagnostic", "gpu2")
    store.add_results([result(3500)])
    assert tested.run(first)
    assert len(store.events(nodes=["n1"])) == 2


def test_a_round_of_hours_stores_its_first_result_late(store: db_store.Store) -> None:
    """`diagnostics.round_s` allows it: what failed at the round's beginning is an event once the round has ended."""
    service_of_long_rounds = service(store, round_s=3600.0)
    assert tested.run(service_of_long_rounds) == ""
    store.add_results([result(60)])
    assert tested.run(service_of_long_rounds) == "1 failed tests of 1 nodes"


def test_it_shows_in_the_report_of_the_job_that_died_there(store: db_store.Store) -> None:
    attempt = records.JobAttempt(
        cluster="c", job_id=7, submit_at=fakes.NOW - timedelta(hours=2), start_at=fakes.NOW - timedelta(hours=1),
        end_at=fakes.NOW, state="FAILED", nodes=("n1",), exit_code=1,
    )  # fmt: skip
    later = dataclasses.replace(attempt, job_id=8, nodes=("n2",))
    store.upsert_attempts([attempt, later])
    store.add_results([result(-600, message="before"), result(600), result(90_000, message="much later")])
    late = service(store, timedelta(days=2))
    tested.run(late)

    def shown(job: str) -> str:
        ref = job_ref.parse(job)
        with psycopg.connect(store.connection_uri(), autocommit=True) as link:
            link.execute("SET TimeZone = 'UTC'")
            found = rows.from_json(query.fetch(link, "c", ref))
        return " ".join(text.render(model.build(ref, found, now=late.clock.at)).split())

    page = shown("7")
    assert "Its nodes since it ended" in page
    assert "n1 failed our tests 10 min after this job ended (gemm on gpu2: 3 wrong results)" in page
    assert "much later" not in page
    assert "failed tests" not in shown("8")
