"""An incremental pass over one day: nine days of attempts and events in a real Postgres, the last day's ends unjudged.

The pass is the service's own: what ended is read, judged and its verdicts are written. Agents' heartbeats are there, every
second attempt has a time limit, and eight days lie before it.
"""

from __future__ import annotations

import os
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
from probing_cluster.attribution.passes import attribute
from probing_cluster.core import records
from probing_cluster.db import migrate, rows, store, tables
from probing_cluster.db.server import embedded
from probing_cluster.db.store import base as store_base

DAYS = 9
_DAY = datetime(2025, 6, 15, tzinfo=UTC)


class _Settled:
    """A clock that stands when the day has settled."""

    def now(self) -> datetime:
        return _DAY + timedelta(days=1, minutes=10)

    def monotonic_s(self) -> float:
        return time.monotonic()


def measure(directory: Path, rounds: int) -> dict[str, Any]:
    """Load DAYS days from the middle of the year, then judge the last of them, `rounds` times over."""
    attribute.seldom_collected()  # as the service does
    home = Path(tempfile.mkdtemp(prefix="probing-bench-pg-"))
    home.chmod(0o755)
    try:
        url = embedded.ensure(home)
        migrate.upgrade(url)
        loaded = _load(directory, url, _DAY - timedelta(days=DAYS - 1), _DAY + timedelta(days=1))
        with store.Store.open(url) as opened:
            _beat(opened)
            new = [_timed(opened, home, again=False) for _ in range(rounds + 1)]
            again = [_timed(opened, home, again=True) for _ in range(rounds)]
        return {
            **loaded,
            "attempts_judged": new[0]["attempts"],
            "first": new[0],
            "new": _middle(new[1:]),
            "again": _middle(again),
        }
    finally:
        embedded.stop(home)
        shutil.rmtree(home, ignore_errors=True)


def _timed(opened: store.Store, home: Path, *, again: bool) -> dict[str, Any]:
    """One pass over the day: as if it had just ended, or (again) a second time with nothing changed."""
    if not again:
        _forget(opened.url)
    span = {"since": _DAY, "until": _DAY + timedelta(days=1)} if again else {}
    wall, own, server = time.perf_counter(), time.process_time(), _server_ticks(home)
    done = attribute.attribute(opened, at=_Settled(), **span)
    return {
        "attempts": done.n_attempts,
        "changed": len(done.changed),
        "s": round(time.perf_counter() - wall, 3),
        "cpu_s": round(time.process_time() - own, 3),
        "server_cpu_s": round(_since(server, _server_ticks(home)), 2),
    }


def _middle(rounds: list[dict[str, Any]]) -> dict[str, Any]:
    return {k: statistics.median(r[k] for r in rounds) for k in rounds[0]}


def _server_ticks(home: Path) -> dict[str, int]:
    """Processor ticks of each of the server's processes that are there now."""
    ticks = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            if (stat.parent / "cwd").readlink().is_relative_to(home):
                ticks[stat.parent.name] = sum(map(int, stat.read_text().rpartition(")")[2].split()[11:13]))
        except OSError:  # it has ended meanwhile
            continue
    return ticks


def _since(before: dict[str, int], after: dict[str, int]) -> float:
    """Processor seconds used between; what ended meanwhile (the connection that tidied up before) is left out."""
    return sum(n - before.get(pid, 0) for pid, n in after.items()) / os.sysconf("SC_CLK_TCK")


def _beat(opened: store.Store) -> None:
    """Every node's agent was alive at the end of the day; what ended before it is judged."""
    with psycopg.connect(opened.url, autocommit=True) as connection:
        nodes = connection.execute("SELECT DISTINCT unnest(nodes) FROM probing.job_attempt").fetchall()
        beats = [records.AgentHeartbeat(cluster="c", node=n, at=_DAY + timedelta(days=1)) for (n,) in nodes]
        with opened.engine.begin() as writing:
            writing.execute(store_base.upsert(tables.agent_heartbeat), [rows.to_row(beat) for beat in beats])
        connection.execute("UPDATE probing.job_attempt SET judged_at = end_at WHERE end_at < %s", (_DAY,))


def _forget(url: str) -> None:
    """The day's verdicts are gone, and the database is as tidy as autovacuum would keep it."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("TRUNCATE probing.verdict")
        connection.execute(
            "UPDATE probing.job_attempt SET judged_at = NULL WHERE end_at >= %s AND judged_at IS NOT NULL",
            (_DAY,),
        )
        connection.execute("VACUUM ANALYZE probing.job_attempt")
        connection.execute("CHECKPOINT")


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
    with psycopg.connect(url, autocommit=True) as connection:
        # As autovacuum keeps it: without, no page is summarized in an index of ranges, and all are read for each question.
        connection.execute("VACUUM ANALYZE")
    return {"attempts": attempts.num_rows, "events": events.num_rows}


def _at(us: int) -> datetime:
    return datetime.fromtimestamp(us / 1e6, UTC)


def _copy_attempts(connection: psycopg.Connection[Any], rows: list[dict[str, Any]]) -> None:
    names = 'cluster, job_id, submit_at, attempt, eligible_at, start_at, end_at, suspended_s, state, exit_code, nodes, n_gpus, "user", account, partition, qos, name, reason, run_key, time_limit_s'
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
                    86_400.0 * 7 if r["job_id"] % 2 else None,
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
