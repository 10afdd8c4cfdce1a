"""Idle jobs as agents tell them, and who hears of it."""

from __future__ import annotations

from datetime import timedelta

import fakes
import psycopg
import pytest
from psycopg.types.json import Jsonb

from probing_cluster.control_plane import context, held_jobs
from probing_cluster.core import records

HOUR = timedelta(hours=1)


def deliver(service: context.Context, node: str, jobs: object) -> None:
    fakes.deliver(service.store, node)
    with psycopg.connect(service.store.connection_uri()) as connection:
        connection.execute(
            "update probing.agent_heartbeat set sources = %s where node = %s",
            (Jsonb({"held": {"state": "ok", "jobs": jobs}}), node),
        )


def run(service: context.Context, job_id: int = 7, nodes: tuple[str, ...] = ("n1", "n2")) -> None:
    service.store.upsert_attempts(
        [
            records.JobAttempt(
                cluster="c", job_id=job_id, submit_at=fakes.NOW - 3 * HOUR, start_at=fakes.NOW - 3 * HOUR, state="RUNNING",
                nodes=nodes, user="alice", partition="gpu", n_gpus=16,
            )
        ]
    )  # fmt: skip


def ago(hours: float, why: str = "no_process") -> dict[str, str]:
    return {"since": (fakes.NOW - hours * HOUR).isoformat(), "why": why}


def test_idle_everywhere_and_for_long_enough(service: context.Context) -> None:
    """Since the last of its nodes became idle; what is true of all of them is said."""
    run(service)
    deliver(service, "n1", {"7": ago(2, "no_program")})
    deliver(service, "n2", {"7": ago(1)})
    (held,) = held_jobs.read(service.store, "c", 1800.0, fakes.NOW)
    assert (held.job_id, held.user, held.partition, held.nodes) == (7, "alice", "gpu", ("n1", "n2"))
    assert held.since == fakes.NOW - HOUR
    assert held.words.startswith("has no process on its GPUs on n[1-2] since ")
    assert held_jobs.read(service.store, "c", 2 * 3600.0 + 1, fakes.NOW) == []
    assert held_jobs.read(service.store, "c", 0.0, fakes.NOW) == []


def test_an_array_task_is_called_what_squeue_calls_it(service: context.Context) -> None:
    """In every list: nobody knows the raw id of task 2 of array 11."""
    at = fakes.NOW - 3 * HOUR
    service.store.upsert_attempts(
        [
            records.JobAttempt(
                cluster="c", job_id=17, array_job_id=11, array_task_id=2, submit_at=at, start_at=at, state="RUNNING",
                nodes=("n1",), user="alice", partition="gpu", n_gpus=8,
            ),
            records.JobAttempt(cluster="c", job_id=18, het_job_id=11, het_offset=1, submit_at=at, state="PENDING"),
        ]
    )  # fmt: skip
    deliver(service, "n1", {"17": ago(2, "no_program")})
    (held,) = held_jobs.read(service.store, "c", 1800.0, fakes.NOW)
    assert (held.job_id, held.ref) == (17, "11_2")
    found = {
        r["job_id"]: r["ref"] for r in service.store.rows("SELECT job_id, ref FROM ops.attempt_verdicts", {})
    }
    assert found == {17: "11_2", 18: "11+1"}
    assert found == {a.job_id: a.ref for a in service.store.attempts(job_ids=[17, 18])}, "one rule, twice"


def test_a_node_that_is_none_of_the_jobs_calls_it_idle_nowhere(service: context.Context) -> None:
    """Its owner would be told to end it, on the word of whoever holds another node's certificate."""
    run(service)
    deliver(service, "n9", {"7": ago(2, "no_program"), "9" * 20: ago(2)})
    assert held_jobs.read(service.store, "c", 1800.0, fakes.NOW) == []


def test_one_idle_node_of_two_is_said_to_be_that(service: context.Context) -> None:
    """The other node works."""
    run(service)
    deliver(service, "n1", {"7": ago(2, "no_load")})
    (held,) = held_jobs.read(service.store, "c", 1800.0, fakes.NOW)
    assert "on n1 (1 of its 2 nodes)" in held.words


@pytest.mark.parametrize(
    "jobs",
    ["x", [], {"7": "x"}, {"7": {"since": "never", "why": "no_load"}}, {"7": {"since": "2026-01-01T00:00:00", "why": "no_load"}},
     {"7": {"since": "2026-01-01T00:00:00Z", "why": "<b>"}}, {"7": {"since": "2026-01-01T00:00:00Z", "why": []}}, {"²": ago(2)}, {"-7": ago(2)}, {"8": ago(2)}],
)  # fmt: skip
def test_what_an_agent_says_wrongly_is_left_out(service: context.Context, jobs: object) -> None:
    """A hostile or broken row costs nobody's pass, and a job that does not run is held by nobody."""
    run(service)
    deliver(service, "n1", jobs)
    assert held_jobs.read(service.store, "c", 1800.0, fakes.NOW) == []
