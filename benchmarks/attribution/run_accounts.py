"""Accounts of every run of a history just imported: what `probing-ctl attribute` makes after its verdicts.

    python -m benchmarks.attribution.run_accounts [--runs 4000000]

One run in five was requeued once, one in fifty has components side by side, one in a hundred was watched by the probe. The
rows are made inside an embedded Postgres. Prints wall and CPU seconds of the client and of the server, and the client's
peak memory; then the same for a second pass, which finds nothing to do.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path

import psycopg

from benchmarks.attribution import processes
from probing_cluster.attribution.reliability import accounts
from probing_cluster.core import settings
from probing_cluster.db import migrate, partitions, store
from probing_cluster.db.server import embedded

_LONG_AGO = datetime(1970, 1, 2, tzinfo=UTC)
_ATTEMPTS = """
INSERT INTO probing.job_attempt (cluster, job_id, submit_at, attempt, eligible_at, start_at, end_at, suspended_s, state, nodes, n_gpus,
    n_cpus, "user", account, partition, qos, name, reason, run_key, judged_at)
SELECT 'c', n * 2 + part, at + again * interval '2 h', 1 + again, at + again * interval '2 h', at + again * interval '2 h' + interval '5 min',
    at + again * interval '2 h' + interval '95 min', 0, CASE WHEN again < more THEN 'REQUEUED' ELSE 'COMPLETED' END,
    ARRAY(SELECT 'n' || (n * 7 + i) % 2000 FROM generate_series(0, n % 8) AS i), 8 * (1 + n % 8), 96, 'u' || n % 400, 'a', 'gpu', '', '', '',
    (n * 2)::text, now()
FROM (
    SELECT n, now() - interval '330 days' * (1 - n::double precision / :runs) - interval '4 h' AS at,
        (n % 5 = 0)::int AS more, (n % 50 = 1)::int AS beside
    FROM generate_series(1, :runs) AS n
) AS run, generate_series(0, more) AS again, generate_series(0, beside) AS part
"""
_PROGRESS = """
INSERT INTO probing.health_event (event_id, cluster, node, at, observed_at, kind, severity, job_id, count, source, message, detail)
SELECT md5(job_id || kind)::uuid, 'c', nodes[1], start_at + after, start_at + after, kind, 'info', job_id, 1, 'probe', '', '{}'
FROM probing.job_attempt,
    (VALUES ('first_step', interval '3 min'), ('checkpoint', interval '50 min'), ('last_progress', interval '89 min')) AS told(kind, after)
WHERE attempt = 1 AND job_id % 200 = 0
"""


def fill(url: str, n_runs: int) -> int:
    """Make the history; how many attempts it has."""
    with psycopg.connect(url, autocommit=True) as connection:
        for month in range(13):
            connection.execute(
                "SELECT probing.make_month((now() - make_interval(days => %s))::date)", [30 * month]
            )
    partitions.maintain(url, retention_days=400)
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(_ATTEMPTS.replace(":runs", str(n_runs)).encode())
        connection.execute(_PROGRESS.encode())
        connection.execute("VACUUM ANALYZE")
        connection.execute("CHECKPOINT")
        row = connection.execute("SELECT count(*) FROM probing.job_attempt").fetchone()
        assert row is not None
        return int(row[0])


def one_pass(opened: store.Store, home: Path) -> str:
    """Make what is stale, and say what it cost."""
    wall, own, server = time.perf_counter(), time.process_time(), processes.server_cpu_s(home)
    n_made = accounts.update(opened, settings.AttributionSettings(), since=_LONG_AGO)
    took = time.perf_counter() - wall
    used = time.process_time() - own
    there = processes.server_cpu_s(home) - server
    return f"{n_made} run accounts in {took:.1f} s: {used:.1f} s CPU here, {there:.1f} of the server, {processes.peak_mb()} MB at most"


def main() -> int:
    """Fill, make all accounts, make none."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=4_000_000)
    given = parser.parse_args()
    home = Path(tempfile.mkdtemp(prefix="probing-bench-pg-"))
    home.chmod(0o755)
    try:
        url = embedded.ensure(home)
        migrate.upgrade(url)
        n_attempts = fill(url, given.runs)
        print(f"{given.runs} runs of {n_attempts} attempts; {processes.peak_mb()} MB before", flush=True)
        with store.Store.open(url) as opened:
            print(one_pass(opened, home), flush=True)
            print(one_pass(opened, home))
    finally:
        embedded.stop(home)
        shutil.rmtree(home, ignore_errors=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
