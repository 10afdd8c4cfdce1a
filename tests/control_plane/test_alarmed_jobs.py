"""Words of alarm as agents tell them, and who hears of them."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import fakes
import psycopg
import pytest
from psycopg.types.json import Jsonb

from probing_cluster.control_plane import alarmed_jobs, context
from probing_cluster.control_plane.notices import picture
from probing_cluster.control_plane.notices.kinds import alarm
from probing_cluster.core import records


def deliver(service: context.Context, node: str, jobs: object) -> None:
    fakes.deliver(service.store, node)
    with psycopg.connect(service.store.connection_uri()) as connection:
        connection.execute(
            "update probing.agent_heartbeat set sources = %s where node = %s",
            (Jsonb({"alarm_words": {"state": "ok", "jobs": jobs}}), node),
        )


def runs(service: context.Context, job_id: int = 7) -> None:
    at = fakes.NOW - timedelta(hours=3)
    service.store.upsert_attempts(
        [
            records.JobAttempt(
                cluster="c", job_id=job_id, submit_at=at, start_at=at, state="RUNNING", nodes=("n1", "n2"), user="alice",
                partition="gpu", n_gpus=16,
            )
        ]
    )  # fmt: skip


def alarm_word(minutes: float = 1.0, line: str = "CUDA error: @here \x1b[31m<b>") -> dict[str, Any]:
    return {"at": (fakes.NOW - timedelta(minutes=minutes)).isoformat(), "line": line}


def test_a_word_is_one_however_many_nodes_read_it(service: context.Context) -> None:
    """The earliest counts; a job that no longer runs, and a node that is none of its own, say nothing."""
    runs(service)
    deliver(service, "n1", {"7": {"CUDA error": alarm_word(1)}, "8": {"CUDA error": alarm_word()}})
    deliver(service, "n2", {"7": {"CUDA error": alarm_word(2, "from n2")}})
    deliver(service, "n3", {"7": {"loss is nan": alarm_word()}})
    (job,) = alarmed_jobs.read(service.store, "c")
    assert (job.job_id, job.user, job.node, job.word, job.line) == (7, "alice", "n2", "CUDA error", "from n2")
    assert job.words.startswith("said 'CUDA error' at ")


def test_a_node_that_is_none_of_the_jobs_hides_no_word(service: context.Context) -> None:
    """Whoever holds a certificate says the same word of another's job, earlier; and names jobs with numbers that no column holds."""
    runs(service)
    deliver(service, "n1", {"7": {"CUDA error": alarm_word(1)}})
    deliver(service, "n9", {"7": {"CUDA error": alarm_word(60)}, "9" * 20: {"CUDA error": alarm_word()}})
    (job,) = alarmed_jobs.read(service.store, "c")
    assert job.node == "n1"


def test_operators_are_told_once_a_job_and_word_and_foreign_words_stay_words(
    service: context.Context,
) -> None:
    """A fact that no longer stands the moment it happened; a word of yesterday is no news."""
    runs(service)
    deliver(service, "n1", {"7": {"CUDA error": alarm_word(), "loss is nan": alarm_word(minutes=25 * 60)}})
    now = picture.read(service, set())
    assert len(now.alarmed) == 2
    (fact,) = alarm.find(now)
    assert (fact.severity, fact.stands, fact.partitions) == (records.Severity.INFO, False, ("gpu",))
    assert "\x1b" not in fact.line
    assert fact.fact_id == next(iter(alarm.find(picture.read(service, set())))).fact_id


@pytest.mark.parametrize(
    "jobs",
    ["x", [], {"7": "x"}, {"7": {"CUDA error": "x"}}, {"7": {"CUDA error": {"at": "never"}}}, {"²": {"CUDA error": alarm_word()}},
     {"7": {"CUDA error": {"at": "2026-01-01T00:00:00"}}}, {"-7": {"CUDA error": alarm_word()}}],
)  # fmt: skip
def test_what_an_agent_says_wrongly_is_left_out(service: context.Context, jobs: object) -> None:
    """A hostile or broken row costs nobody's pass."""
    runs(service)
    deliver(service, "n1", jobs)
    assert alarmed_jobs.read(service.store, "c") == []


def test_an_agent_tells_so_many_words_of_a_job_and_no_more(service: context.Context) -> None:
    """A forged heartbeat floods nobody."""
    runs(service)
    deliver(service, "n1", {"7": {f"word {n}": alarm_word() for n in range(1000)}})
    assert len(alarmed_jobs.read(service.store, "c")) == alarmed_jobs.MOST_WORDS
