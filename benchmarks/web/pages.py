"""The web under load: first pages over a year of 2,000 nodes, the heat map of 16,000 ranks, 200 open live pages.

`python -m benchmarks.web.pages [--attempts N]` prints one JSON object: server times in ms, bytes, share of a core.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import resource
import statistics
import tempfile
import threading
import time
import uuid
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx2
import sqlalchemy as sa
from sqlalchemy.dialects import postgresql as pg

from benchmarks.control_plane import node_door
from probing_cluster.control_plane import context
from probing_cluster.control_plane.door import web_keys
from probing_cluster.control_plane.gangs import rank_rows
from probing_cluster.core import errors, records, settings
from probing_cluster.db import rows, tables
from probing_cluster.db import store as db_store
from probing_cluster.db.server import embedded
from probing_cluster.web import app, scoped_rows, serve
from probing_cluster.web.access import viewers
from probing_cluster.web.live import broadcast, rank_history
from probing_cluster.web.pages import routes

N_NODES, N_RANKS, N_CLIENTS = 2000, 16_000, 200
PAGES = (
    "/", "/jobs", "/jobs/1000", "/nodes", "/nodes/gpu0001", "/repairs", "/lemons", "/sql", "/search?q=gpu000", "/search?q=user7", "/search?q=79",
    "/jobs?user=user7", "/jobs?user=games", "/jobs?cause=link_down", "/jobs?state=NODE_FAIL", "/jobs?node=gpu0001", "/jobs?running=true",
    "/jobs?account=acct7", "/jobs?account=none", "/jobs?partition=none", "/api/v1/jobs?limit=50", "/api/v1/events?code=79", "/api/v1/events?kind=none", "/fleet",
)  # fmt: skip
USERS_PAGES = ("/", "/jobs", "/jobs?state=FAILED", "/jobs?cause=gpu_lost", "/search?q=1000", "/sql")
SEVERAL, NONE = "games", "nobody"
"""Accounts that every Debian has: one with a job in five thousand, and one that never had any."""
FILL = """
INSERT INTO probing.job_attempt (cluster, job_id, submit_at, attempt, eligible_at, start_at, end_at, suspended_s, state, nodes, n_gpus, "user", account,
    partition, qos, name, reason, run_key, judged_at)
SELECT 'c', n, at - interval '10 minutes', 1, at - interval '10 minutes', at, at + interval '3 hours', 0,
    CASE WHEN n % 5 = 0 THEN 'FAILED' ELSE 'COMPLETED' END, ARRAY['gpu' || lpad((n % 2000)::text, 4, '0')], 8, CASE WHEN n % 5000 = 1 THEN 'games' ELSE 'user' || n % 400 END, 'acct' || n % 40,
    'gpu', '', 'train', '', n::text, at
FROM (SELECT n, now() - interval '3 hours' - interval '365 days' * (n::float / :n) AS at FROM generate_series(1, :n) n) x
"""
JUDGE = """
INSERT INTO probing.verdict (cluster, job_id, submit_at, attempt, cause, domain, node, confidence, summary, evidence, ruled_out, next_step, author, rules_version, made_at)
SELECT a.cluster, a.job_id, a.submit_at, 1, 'gpu_lost', 'hardware', a.nodes[1], 'likely', 'GPU 3 of ' || a.nodes[1] || ' fell off the bus.', '{}', '{}',
    'Resubmit; the node is drained.', 'rules', '1', a.end_at
FROM probing.job_attempt a WHERE a.state = 'FAILED'
"""
EVENTS = """
INSERT INTO probing.health_event (event_id, cluster, node, at, observed_at, kind, severity, source, message, code, device, job_id, count, detail)
SELECT gen_random_uuid(), 'c', 'gpu' || lpad((n % 2000)::text, 4, '0'), x.at, x.at,
    CASE WHEN n % 3 = 0 THEN 'xid' ELSE 'link_flap' END, CASE WHEN n % 30 = 0 THEN 'high' ELSE 'low' END, 'kernel', 'NVRM: Xid', '79', 'gpu3',
    NULL, 1, '{}'
FROM (SELECT n, now() - interval '365 days' * (n::float / :n) AS at FROM generate_series(1, :n) n) x
"""
MONTHS = "SELECT probing.make_month(m::date) FROM generate_series(now() - interval '365 days', now() + interval '1 month', '1 month') m"


class NoSlurm:
    """Slurm is not what is measured."""

    def __getattr__(self, name: str) -> Any:
        def away(*_: object) -> Any:
            raise errors.SlurmUnavailable("no Slurm in a benchmark")

        return away


def no_slurm(*_: object, **__: object) -> bytes:
    """Nor is accounting."""
    raise errors.SlurmUnavailable("no Slurm in a benchmark")


def fill(store: db_store.Store, n_attempts: int) -> None:
    """A year of attempts, a fifth of them failed and judged, and a heartbeat of every node."""
    rng = random.Random(5)
    now = datetime.now(UTC)
    beats = []
    for n in range(N_NODES):
        faults = {}
        if rng.random() < 0.01:
            fault = {
                "severity": "high",
                "since": now.isoformat(),
                "code": "79",
                "message": "GPU has fallen off the bus.",
            }
            faults = {"xid:gpu3": fault}
        beats.append(
            rows.to_row(
                records.AgentHeartbeat(cluster="c", node=f"gpu{n:04}", at=now, faults=faults, jobs=(n,))
            )
        )
    with store.engine.begin() as connection:
        connection.execute(sa.text(FILL), {"n": n_attempts})
        connection.execute(sa.text(JUDGE))
        connection.execute(sa.text(MONTHS))
        connection.execute(sa.text(EVENTS), {"n": n_attempts})
        connection.execute(pg.insert(tables.agent_heartbeat), beats)
    with store.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.execute(sa.text("ANALYZE"))
    store.remember("accounting.until c", now.isoformat())


def pages(made: Any, key: str, paths: Sequence[str]) -> dict[str, Any]:
    """Median time of five of each page at the server, ms, the slowest of them, and its bytes."""

    async def measure() -> dict[str, Any]:
        found = {}
        headers = {"host": "127.0.0.1:8780", "cookie": f"{viewers.COOKIE}={key}", "accept": "text/html"}
        transport = httpx2.ASGITransport(made)
        async with httpx2.AsyncClient(
            transport=transport, base_url="http://127.0.0.1:8780", headers=headers
        ) as client:
            for path in paths:
                took = []
                for _ in range(5):
                    began = time.perf_counter()
                    answer = await client.get(path)
                    took.append(1000 * (time.perf_counter() - began))
                    assert answer.status_code in (200, 303), (path, answer.status_code)
                found[path] = {
                    "median_ms": round(statistics.median(took), 1), "most_ms": round(max(took), 1), "bytes": len(answer.content),
                }  # fmt: skip
        return found

    return asyncio.run(measure())


def heat() -> dict[str, Any]:
    """A whole history of 16,000 ranks as bytes at the server, ms; what the browser takes to draw it is not measured here."""
    history = rank_history.History()
    ranks = [
        rank_rows.RankNow(job_id=1, rank=n, node="n", pid=1, alive=True, step_age_s=n % 60 / 7)
        for n in range(N_RANKS)
    ]
    for look in range(rank_history.LOOKS):
        history.look(float(look), ranks)
    began = time.perf_counter()
    picture = history.picture("still")
    return {
        "ms": round(1000 * (time.perf_counter() - began), 1),
        "bytes": len(picture.cells),
        "ranks": picture.n_ranks,
    }


def streams(
    site: Any, viewer: web_keys.Viewer, seconds: float, changes_per_s: float, postmaster: int
) -> dict[str, Any]:
    """The shares of a core that 200 open pages cost this process, all of it included, and the database."""

    async def run() -> dict[str, Any]:
        live = broadcast.Broadcast(site)
        many = []
        for n in range(N_CLIENTS):
            someone = web_keys.Viewer(user=f"user{n // 4}", operator=n % 4 == 0, proof=viewer.proof)
            many.append(live.stream(someone, routes.markup_of, lambda: True))
        n_received = [0]

        async def listen(stream: Any) -> None:
            async for _ in stream:
                n_received[0] += 1

        tasks = [asyncio.create_task(listen(stream)) for stream in many]
        await asyncio.sleep(3)
        before, began = resource.getrusage(resource.RUSAGE_SELF), time.monotonic()
        database_before_s = node_door.cpu_s(postmaster)
        while time.monotonic() - began < seconds:
            await asyncio.sleep(1 / changes_per_s)
            await asyncio.to_thread(touch, site.service.store)
        after, took = resource.getrusage(resource.RUSAGE_SELF), time.monotonic() - began
        for task in tasks:
            task.cancel()
        cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        return {
            "clients": N_CLIENTS,
            "core_frac": round(cpu_s / took, 3),
            "database_core_frac": round((node_door.cpu_s(postmaster) - database_before_s) / took, 3),
            "messages": n_received[0],
            "seconds": round(took, 1),
        }

    return asyncio.run(run())


def touch(store: db_store.Store) -> None:
    """Something happens that the page shows."""
    now = datetime.now(UTC)
    store.add_drain(
        records.Drain(
            drain_id=uuid.uuid4(), cluster="c", node=f"gpu{now.microsecond % N_NODES:04}", at=now, action="drain",
            reason="probing: xid 79", owner="probing", state="done",
        )
    )  # fmt: skip


def main() -> None:
    """Prints the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--attempts", type=int, default=1_000_000)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--changes-per-s", type=float, default=0.2)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="probing-webbench-") as text:
        Path(text).chmod(0o755)
        url = embedded.ensure(Path(text) / "pg")
        try:
            with db_store.Store.open(url, upgrade=True) as store:
                fill(store, args.attempts)
                config = settings.Settings(
                    cluster=settings.ClusterSettings(name="c"), web=settings.WebSettings(requests_per_s=1e6),
                    database=settings.DatabaseSettings(url=store.connection_uri()),
                )  # fmt: skip
                service = context.Context(
                    config=config,
                    store=store,
                    run_slurm=no_slurm,
                    slurm=NoSlurm(),
                    stopping=threading.Event(),
                    in_children=True,
                    aside=serve.aside,
                )
                site = app.make_site(
                    service,
                    scoped_rows.made_login(url, url.replace(embedded.OWNER, scoped_rows.LOGIN, 1)),
                )
                postmaster = int((Path(text) / "pg/data/postmaster.pid").read_text().split()[0])
                viewer = web_keys.Viewer(user="root", operator=True, acts=True)
                key = site.keys.issue(viewer, "session", 3600.0)
                made = app.make(site)
                of_users = {
                    user: pages(
                        made, site.keys.issue(web_keys.Viewer(user=user), "session", 3600.0), USERS_PAGES
                    )
                    for user in (SEVERAL, NONE)
                }
                found = {
                    "attempts": args.attempts, "nodes": N_NODES,
                    "pages": pages(made, key, PAGES), "of_users": of_users, "heat": heat(),
                    "live": streams(site, site.keys.find(web_keys.proof_of(key)), args.seconds, args.changes_per_s, postmaster),
                }  # fmt: skip
                site.reader.close()
                print(json.dumps(found, indent=2))
        finally:
            embedded.stop(Path(text) / "pg")


if __name__ == "__main__":
    main()
