"""How long the store and the ops views take on a full-size database.

    .venv/bin/python -m benchmarks.db_full_size [--attempts 4000000] [--events 20000000] [--keep DIRECTORY]

Eleven months of a 2,000-node cluster, made inside the server: a quarter of the attempts failed and have a verdict, one
event in fifty is of high severity, everything in order of time. Prints milliseconds, the median of five, and the plan's
cost; a question of everyday use that reads a big table whole is marked.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg

from probing_cluster.db import embedded, migrate, partitions
from probing_cluster.db import store as store_module

ATTEMPTS = """
INSERT INTO probing.job_attempt (cluster, job_id, submit_at, attempt, start_at, end_at, suspended_s, state, exit_code,
    nodes, n_gpus, "user", account, partition, qos, name, reason, run_key, judged_at)
SELECT 'bench', n, t, 1, t, t + interval '40 minutes', 0, CASE WHEN n % 4 = 0 THEN 'FAILED' ELSE 'COMPLETED' END, n % 4,
    ARRAY(SELECT 'n' || (n * 7 + i * 13) % 2000 FROM generate_series(1, 1 + n % 9) AS i), 8 * (1 + n % 9), 'u' || n % 300,
    'a' || n % 20, 'gpu', 'normal', 'train', '', n::text, t + interval '41 minutes'
FROM (SELECT n, now() - interval '330 days' * (1 - n::float / %(count)s) AS t FROM generate_series(%(low)s, %(high)s) AS n) AS made
"""
VERDICTS = """
INSERT INTO probing.verdict (cluster, job_id, submit_at, attempt, cause, domain, component, node, device, confidence, summary,
    evidence, ruled_out, next_step, onset_at, window_start_at, window_end_at, author, rules_version, made_at)
SELECT 'bench', job_id, submit_at, 1, 'gpu_lost', 'hardware', 'gpu', nodes[1], 'gpu3', 'certain', 'GPU 3 fell off the bus',
    '{}', '{}', 'Reseat it', end_at, end_at - interval '10 minutes', end_at + interval '5 minutes', 'rules', '1', end_at
FROM probing.job_attempt WHERE state = 'FAILED' AND job_id BETWEEN %(low)s AND %(high)s
"""
EVENTS = """
WITH made AS (
    INSERT INTO probing.health_event (event_id, cluster, node, at, observed_at, kind, code, severity, device, job_id, count,
        source, message, detail)
    SELECT md5(n::text)::uuid, 'bench', 'n' || n * 7919 %% 2000, t, t, 'xid', '79', CASE WHEN n %% 50 = 0 THEN 'high' ELSE 'info' END,
        'gpu' || n %% 8, CASE WHEN n %% 100 = 0 THEN n / 5 END, 1, 'kernel',
        'NVRM: Xid (PCI:0000:5e:00): 79, pid=4242, name=python3, GPU has fallen off the bus.', '{"sequence": 1}'
    FROM (SELECT n, now() - interval '330 days' * (1 - n::float / %(count)s) AS t FROM generate_series(%(low)s::bigint, %(high)s) AS n) AS times
    RETURNING event_id, at
)
INSERT INTO probing.event_key (event_id, at, received_at) SELECT event_id, at, at FROM made
"""
OTHERS = """
INSERT INTO probing.agent_heartbeat SELECT r.* FROM generate_series(0, 1999) AS n, LATERAL jsonb_populate_record(
    NULL::probing.agent_heartbeat,
    '{"cluster": "bench", "boot_id": "", "version": "1", "beat_s": 10, "spool_depth": 0, "spool_bytes": 0, "lag_s": 0, "dropped_total": 0,
      "coalesced_total": 0, "rejected_total": 0, "hung_children": 0, "rss_bytes": 0, "cpu_s": 0, "sources": {}, "faults": {}, "jobs": [], "ranks": {}}'
    || jsonb_build_object('node', 'n' || n, 'at', now(), 'received_at', now())) AS r;
INSERT INTO probing.check_now SELECT r.* FROM generate_series(0, 1999) AS n, generate_series(1, 15) AS c, LATERAL jsonb_populate_record(
    NULL::probing.check_now,
    '{"cluster": "bench", "outcome": "ok", "severity": "low", "message": "", "duration_s": 0, "timed_out": false, "version": "1", "detail": {}}'
    || jsonb_build_object('node', 'n' || n, 'name', 'check' || c, 'at', now())) AS r;
INSERT INTO probing.lemon_score (cluster, node, day, excl_jobid_count, xid_cnt, tickets, out_count, multi_node_node_fails,
    single_node_node_fails, score, reasons, verdict, signals, made_at)
SELECT 'bench', 'n' || n, date_trunc('day', now()) - d * interval '1 day', 0, 0, 0, 0, 0, 0, 0.1, '{}',
    CASE WHEN n < 20 THEN 'lemon' ELSE 'ok' END, '{}', now() FROM generate_series(0, 1999) AS n, generate_series(0, 30) AS d;
"""
QUESTIONS = (
    "SELECT * FROM ops.node_now",
    "SELECT * FROM ops.agent_health WHERE silent",
    "SELECT * FROM ops.check_now WHERE outcome <> 'ok'",
    "SELECT * FROM ops.failures_24h",
    "SELECT * FROM ops.attempt_verdicts WHERE job_id = 1234568",
    "SELECT * FROM ops.causes_daily WHERE day >= now() - interval '14 days'",
    "SELECT * FROM ops.node_timeline('n7')",
    "SELECT * FROM ops.high_events_24h",
    "SELECT * FROM ops.lemons",
    "SELECT * FROM ops.drains WHERE open",
    "SELECT * FROM ops.incidents WHERE onset_at >= now() - interval '28 days'",
    "SELECT * FROM ops.runs WHERE end_at >= now() - interval '7 days'",
    "SELECT * FROM ops.requests WHERE made_at >= now() - interval '1 day'",
    "SELECT * FROM ops.rejections",
)
COOKBOOK = Path(__file__).resolve().parents[1] / "docs" / "sql.md"
RECIPES = tuple(re.findall(r"```sql\n(.*?);\n```", COOKBOOK.read_text(encoding="utf-8"), re.DOTALL))
"""The cookbook's queries, as they stand there."""


def fill(url: str, n_attempts: int, n_events: int) -> None:
    """Make the rows, in steps that show progress."""
    now = datetime.now(UTC)
    for month in range(12):
        with psycopg.connect(url) as connection:
            connection.execute("SELECT probing.make_month(%s)", [(now - timedelta(days=30 * month)).date()])
    partitions.maintain(url, retention_days=400)
    with psycopg.connect(url, autocommit=True) as connection:
        for statement, count in ((ATTEMPTS, n_attempts), (VERDICTS, n_attempts), (EVENTS, n_events)):
            text = statement if "%%" in statement else statement.replace(" % ", " %% ")
            for low in range(1, count + 1, 500_000):
                high = min(low + 499_999, count)
                given = {"low": low, "high": high, "count": count}
                connection.execute(text, {k: v for k, v in given.items() if f"%({k})s" in text})
                print(
                    f"\r{statement.split()[2 if statement is not EVENTS else 5]} {high:,}", end="", flush=True
                )
            print()
        connection.execute(OTHERS)
        connection.execute("VACUUM ANALYZE")


def timed(work: Callable[[], Any]) -> float:
    """Median milliseconds of five runs."""
    taken = []
    for _ in range(5):
        began = time.perf_counter()
        work()
        taken.append((time.perf_counter() - began) * 1000)
    return statistics.median(taken)


def report(url: str) -> None:
    """Print every question with its time and cost."""
    with psycopg.connect(url, autocommit=True) as connection, store_module.Store.open(url) as store:
        for query in (*QUESTIONS, *(" ".join(recipe.split()) for recipe in RECIPES)):
            plan = connection.execute(f"EXPLAIN (FORMAT JSON) {query}").fetchone()[0]  # type: ignore[index]
            scans = re.findall(
                r'"Seq Scan".{0,200}?"Relation Name": "(\w+)".{0,200}?"Plan Rows": (\d+)', json.dumps(plan)
            )
            big = ("job_attempt", "verdict", "health_event")
            whole = [name for name, n_rows in scans if name.startswith(big) and int(n_rows) > 10_000]
            cost = plan[0]["Plan"]["Total Cost"]
            took = timed(lambda query=query: connection.execute(query).fetchall())  # type: ignore[misc]
            print(
                f"{took:9.1f} ms   cost {cost:12,.0f}   {query}{'   READS WHOLE ' + str(set(whole)) if whole else ''}"
            )
        now = datetime.now(UTC)
        ids = [row[0] for row in connection.execute("SELECT event_id FROM probing.event_key LIMIT 5000")][
            ::1000
        ]
        for name, work in {
            "attempts(job_ids=[x])": lambda: store.attempts(job_ids=[1_000_000]),
            "attempts(run_key=x)": lambda: store.attempts(run_key="1000000"),
            "attempts(user=x, since=1 day ago)": lambda: store.attempts(
                user="u7", since=now - timedelta(days=1)
            ),
            "events(9 nodes, 1 h)": lambda: store.events(
                nodes=[f"n{n}" for n in range(9)], since=now - timedelta(hours=1), until=now
            ),
            "events(high, 5 min)": lambda: store.events(
                since=now - timedelta(minutes=5), min_severity="high"
            ),
            "events_by_id(5)": lambda: store.events_by_id(ids),
            "verdicts(since=1 day ago)": lambda: store.verdicts(since=now - timedelta(days=1)),
            "unattributed(100)": lambda: store.unattributed(100),
        }.items():
            print(f"{timed(work):9.1f} ms   Store.{name}")


def main() -> None:
    """Fill a database, ask, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--attempts", type=int, default=4_000_000)
    parser.add_argument("--events", type=int, default=20_000_000)
    parser.add_argument("--keep", type=Path, help="use (and keep) this directory; filled only when empty")
    wanted = parser.parse_args()
    directory = wanted.keep or Path(tempfile.mkdtemp(prefix="probing-pg-"))
    directory.mkdir(exist_ok=True)
    directory.chmod(0o755)
    try:
        url = embedded.ensure(directory)
        migrate.upgrade(url)
        with psycopg.connect(url) as connection:
            filled = connection.execute("SELECT EXISTS (SELECT FROM probing.job_attempt)").fetchone() == (
                True,
            )
        if not filled:
            fill(url, wanted.attempts, wanted.events)
        report(url)
    finally:
        embedded.stop(directory)
        if not wanted.keep:
            shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    main()
