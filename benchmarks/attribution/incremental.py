"""An incremental pass over one day: attempts and events of some days in a real Postgres, one day of ends unjudged."""

from __future__ import annotations

import shutil
import statistics
import tempfile
import time
import uuid
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg
import pyarrow.dataset as ds

from benchmarks.attribution import generate
from probing_cluster.attribution import attribute
from probing_cluster.db import embedded, migrate, store

DAYS = 3


def measure(directory: Path, rounds: int) -> dict[str, Any]:
    """Load DAYS days around the middle of the year, then judge the last of them, `rounds` times over."""
    home = Path(tempfile.mkdtemp(prefix="probing-bench-pg-"))
    home.chmod(0o755)
    try:
        url = embedded.ensure(home)
        migrate.upgrade(url)
        day = datetime(2025, 6, 15, tzinfo=UTC)
        loaded = _load(directory, url, day - timedelta(days=DAYS - 1), day + timedelta(days=1))
        with store.Store.open(url) as opened:
            took = [_once(opened, day) for _ in range(rounds)]
        first = took[0]
        return {
            **loaded,
            "attempts_judged": first[1],
            "first_s": round(first[0], 3),
            "again_s": round(statistics.median(t for t, _ in took[1:] or took), 3),
        }
    finally:
        embedded.stop(home)
        shutil.rmtree(home, ignore_errors=True)


def _once(opened: store.Store, day: datetime) -> tuple[float, int]:
    begin = time.perf_counter()
    done = attribute.attribute(opened, since=day, until=day + timedelta(days=1))
    return time.perf_counter() - begin, done.n_attempts


def _load(directory: Path, url: str, since: datetime, until: datetime) -> dict[str, Any]:
    low, high = round(since.timestamp() * 1e6), round(until.timestamp() * 1e6)
    inside = (ds.field("end_us") >= low) & (ds.field("end_us") < high)
    attempts = ds.dataset(directory / "attempts", partitioning="hive").to_table(
        columns=["job_id", "state", "start_us", "end_us", "nodes", "n_gpus", "exit_code", "user"],
        filter=inside,
    )
    near = (ds.field("at_us") >= low) & (ds.field("at_us") < high)
    events = ds.dataset(directory / "events", partitioning="hive").to_table(
        columns=["row", "node_idx", "at_us", "sort_idx", "device"], filter=near
    )
    with psycopg.connect(url) as connection:
        _copy_attempts(connection, attempts.to_pylist())
        _copy_events(connection, events.to_pylist())
        connection.execute("ANALYZE")
    return {"attempts": attempts.num_rows, "events": events.num_rows}


def _at(us: int) -> datetime:
    return datetime.fromtimestamp(us / 1e6, UTC)


def _copy_attempts(connection: psycopg.Connection[Any], rows: list[dict[str, Any]]) -> None:
    names = 'cluster, job_id, submit_at, attempt, eligible_at, start_at, end_at, suspended_s, state, exit_code, nodes, n_gpus, "user", account, partition, qos, name, reason, run_key'
    with connection.cursor() as cursor, cursor.copy(f"COPY probing.job_attempt ({names}) FROM STDIN") as out:
        for r in rows:
            start = _at(r["start_us"])
            submit = start - timedelta(seconds=60)
            key = str(r["job_id"])
            out.write_row(
                (
                    "c",
                    r["job_id"],
                    submit,
                    1,
                    submit,
                    start,
                    _at(r["end_us"]),
                    0.0,
                    r["state"],
                    r["exit_code"],
                    r["nodes"],
                    r["n_gpus"],
                    r["user"],
                    "a",
                    "gpu",
                    "",
                    "",
                    "",
                    key,
                )
            )


def _copy_events(connection: psycopg.Connection[Any], rows: list[dict[str, Any]]) -> None:
    names = "event_id, cluster, node, at, observed_at, kind, code, severity, device, count, source, message, detail"
    with connection.cursor() as cursor, cursor.copy(f"COPY probing.health_event ({names}) FROM STDIN") as out:
        for r in rows:
            kind, code, severity, source, _, _ = generate.SORTS[r["sort_idx"]]
            at = _at(r["at_us"])
            out.write_row(
                (
                    uuid.UUID(int=r["row"] + 1),
                    "c",
                    f"n{r['node_idx']:04d}",
                    at,
                    at,
                    kind,
                    code,
                    severity,
                    r["device"],
                    1,
                    source,
                    "",
                    "{}",
                )
            )
