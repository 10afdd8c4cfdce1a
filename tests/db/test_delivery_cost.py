"""What a delivery reads does not grow with the tables: a Prolog and an Epilog find their job's rows by index."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import psycopg
import pytest

from probing_cluster.core import records
from probing_cluster.db import store as db_store

N_ROWS = 5_000
"""Enough that to read them all shows; a delivery of one row reads a few."""


def copies(connection: psycopg.Connection[Any], table: str, **over: str) -> None:
    """Adds many copies of a table's one row; `over`: what differs in the copy of number g."""
    names = [
        name
        for (name,) in connection.execute(
            "SELECT column_name FROM information_schema.columns WHERE table_schema = 'probing'"
            " AND table_name = %s AND is_generated = 'NEVER'",
            [table],
        )
    ]
    quoted = ", ".join(f'"{n}"' for n in names)
    values = ", ".join(over.get(n, f'x."{n}"') for n in names)
    connection.execute(
        f"INSERT INTO probing.{table} ({quoted})"
        f" SELECT {values} FROM probing.{table} x, generate_series(1, {N_ROWS}) AS g"
    )
    connection.execute(f"ANALYZE probing.{table}")


def rows_read(connection: psycopg.Connection[Any], table: str) -> int:
    """The rows of a table that the open transaction has read, by scans and by indexes."""
    ((n_rows,),) = connection.execute(
        "SELECT coalesce(seq_tup_read, 0) + coalesce(idx_tup_fetch, 0) FROM pg_stat_xact_user_tables WHERE relname = %s",
        [table],
    ).fetchall()
    return int(n_rows)


@pytest.mark.parametrize("hook", ["prolog", "epilog"])
def test_a_hooks_report_reads_its_own_jobs_attempts(
    store: db_store.Store, make_attempt: Callable[..., records.JobAttempt], hook: str
) -> None:
    """Each read every attempt ever recorded, half a second of a million, at every start and end of a job on every node."""
    attempt = make_attempt(job_id=1)
    store.upsert_attempts([attempt])
    first = {"job_id": 1, "at": str(attempt.start_at)}
    last = {**first, "released_at": str(attempt.end_at)}
    deliver = "SELECT probing.deliver(p_cluster => 'c', p_node => 'n1', p_allocations => %s)"
    with psycopg.connect(store.url, autocommit=True) as connection:
        connection.execute("UPDATE probing.job_attempt SET judged_at = now()")
        connection.execute(deliver, [json.dumps([first])])
        copies(connection, "job_attempt", job_id="g + 1", run_key="g::text")
        copies(connection, "job_allocation", job_id="g + 1")
        connection.execute("TRUNCATE probing.arrival")
        if hook == "prolog":
            connection.execute("DELETE FROM probing.job_allocation WHERE job_id = 1")
        with connection.transaction():
            connection.execute(deliver, [json.dumps([last])])
            read = {table: rows_read(connection, table) for table in ("job_attempt", "job_allocation")}
        assert connection.execute("SELECT count(*) FROM probing.arrival").fetchone() == (1,)
    assert all(n_rows < 20 for n_rows in read.values()), read
