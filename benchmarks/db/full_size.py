"""How long the store and the ops views take on a full-size database.

    .venv/bin/python -m benchmarks.db.full_size [--attempts 4000000] [--events 20000000] [--keep DIRECTORY] [--fleet [FIGURE …]]

Eleven months of a 2,000-node cluster, made inside the server by full_size.sql, every table that a view reads. Asked are every
view, every query of the cookbook, every panel of the dashboards as their own role, and the service's own questions of
every few seconds. Prints milliseconds, the median of five, and the plan's cost; a question that reads a big table whole is marked.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import re
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, LiteralString, cast

import psycopg
import sqlalchemy as sa

from probing_cluster.attribution.passes import pending
from probing_cluster.attribution.reliability import accounts
from probing_cluster.control_plane.cli.history import fleet_commands
from probing_cluster.control_plane.cli.site import dashboards_commands
from probing_cluster.control_plane.service import metrics
from probing_cluster.core import clock, settings
from probing_cluster.db import migrate, partitions, roles
from probing_cluster.db import store as store_module
from probing_cluster.db.server import embedded
from probing_cluster.db.store import attempts as store_attempts
from probing_cluster.reports.fleet import fleet_page

ROWS = Path(__file__).with_name("full_size.sql")
_STEP = 500_000
_BIG_TABLE_ROWS = 100_000
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
    "SELECT * FROM ops.rejections WHERE day >= now() - interval '30 days'",
)
ARRIVALS = {
    "of 1,000 nodes": "SELECT 'bench', 'n' || n, now() - interval '1 minute', now(), 1 FROM generate_series(0, 999) AS n",
    "of 1,000 nodes, one of them away for 300 days": "SELECT 'bench', 'n' || n, now() - CASE n WHEN 0 THEN interval '300 days' ELSE interval '1 minute' END, "
    "now(), 0 FROM generate_series(0, 999) AS n",
    "of 1,000 nodes that were all away for 10 days": "SELECT 'bench', 'n' || n, now() - interval '10 days', now(), 0 FROM generate_series(0, 999) AS n",
    "a start on a node without an agent": "SELECT 'bench', 'n7', now(), now(), 0",
    "of a node without an agent": "SELECT 'bench', 'n7', now() - interval '1 hour', now(), 1",
    "of no node": "SELECT 'bench', '', now(), now(), 1",
}
"""Deliveries not yet held against the verdicts given, by what they are."""
COOKBOOK = Path(__file__).resolve().parents[2] / "docs" / "sql.md"
RECIPES = tuple(re.findall(r"```sql\n(.*?);\n```", COOKBOOK.read_text(encoding="utf-8"), re.DOTALL))
"""The cookbook's queries, as they stand there."""


def sections() -> dict[str, str]:
    """The statements of full_size.sql by their name."""
    text = ROWS.read_text(encoding="utf-8")
    found = re.findall(r"^-- ([a-z ]+)\n(.*?)(?=^-- [a-z ]+\n|\Z)", text, re.DOTALL | re.MULTILINE)
    return dict(found)


def panels() -> Iterator[tuple[str, str]]:
    """Every dashboard's queries as Grafana sends them for the last 30 days."""
    span = ("(now() - interval '30 days')", "(now() + interval '1 hour')")
    for path in sorted(dashboards_commands.DIRECTORY.glob("*.json")):
        for panel in json.loads(path.read_text(encoding="utf-8"))["panels"]:
            for target in panel["targets"]:
                sql = re.sub(
                    r"\$__timeFilter\((\w+)\)",
                    rf"\1 BETWEEN {span[0]} AND {span[1]}",
                    target.get("rawSql", ""),
                )
                sql = sql.replace("$__timeFrom()", span[0]).replace("$__timeTo()", span[1])
                for name, value in (("node", "n97"), ("job", "1234568")):
                    sql = sql.replace(f"${{{name}:sqlstring}}", f"'{value}'")
                if sql:
                    yield f"{path.stem}: {panel['title']}", sql


@contextlib.contextmanager
def without_triggers(connection: psycopg.Connection[Any]) -> Iterator[None]:
    """What the service wants to be told of at each new row is of no use to rows that were made whole; with no index yet it reads everything."""
    tables = connection.execute(
        "SELECT DISTINCT tgrelid::regclass::text FROM pg_trigger t JOIN pg_class c ON c.oid = t.tgrelid "
        "WHERE NOT t.tgisinternal AND c.relnamespace = 'probing'::regnamespace"
    ).fetchall()
    for (table,) in tables:
        _run(connection, f"ALTER TABLE {table} DISABLE TRIGGER USER")
    yield
    for (table,) in tables:
        _run(connection, f"ALTER TABLE {table} ENABLE TRIGGER USER")


@contextlib.contextmanager
def without_indexes(connection: psycopg.Connection[Any]) -> Iterator[None]:
    """Rows first, indexes after: a fifth of the time."""
    keys = connection.execute(
        "SELECT conrelid::regclass::text, conname, pg_get_constraintdef(oid) FROM pg_constraint "
        "WHERE connamespace = 'probing'::regnamespace AND contype = 'p' AND conparentid = 0"
    ).fetchall()
    indexes = connection.execute(
        "SELECT i.indexrelid::regclass::text, replace(pg_get_indexdef(i.indexrelid), ' ON ONLY ', ' ON ') "
        "FROM pg_index i JOIN pg_class c ON c.oid = i.indrelid "
        "WHERE c.relnamespace = 'probing'::regnamespace AND NOT c.relispartition AND NOT i.indisprimary "
        "AND NOT EXISTS (SELECT FROM pg_constraint k WHERE k.conindid = i.indexrelid)"
    ).fetchall()
    for name, _ in indexes:
        _run(connection, f"DROP INDEX {name}")
    for table, name, _ in keys:
        _run(connection, f"ALTER TABLE {table} DROP CONSTRAINT {name}")
    yield
    for table, name, definition in keys:
        _run(connection, f"ALTER TABLE {table} ADD CONSTRAINT {name} {definition}")
    for _, definition in indexes:
        _run(connection, definition)


def fill(
    url: str,
    n_attempts: int,
    n_events: int,
    *,
    n_nodes: int = 2000,
    n_days: int = 330,
    only: Collection[str] = (),
    show: bool = True,
) -> None:
    """Make the rows, in steps that show progress; `only` these sections of full_size.sql, or all."""
    now = datetime.now(UTC)
    for month in range(12):
        with psycopg.connect(url) as connection:
            connection.execute("SELECT probing.make_month(%s)", [(now - timedelta(days=30 * month)).date()])
    partitions.maintain(url, retention_days=400)
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("SET maintenance_work_mem = '1GB'")
        connection.execute("SET work_mem = '256MB'")
        # What a crash would lose is made again.
        connection.execute("SET synchronous_commit = off")
        with without_triggers(connection), without_indexes(connection):
            for name, statement in sections().items():
                if only and name not in only:
                    continue
                began = time.perf_counter()
                count = n_events if name == "events" else n_attempts
                for low in range(1, count + 1, _STEP) if ":low" in statement else [1]:
                    given = {
                        "low": low,
                        "high": min(low + _STEP - 1, count),
                        "attempts": n_attempts,
                        "events": n_events,
                        "nodes": n_nodes,
                        "days": n_days,
                    }
                    text = statement
                    for word, value in given.items():
                        text = re.sub(rf"(?<!:):{word}\b", str(value), text)
                    _run(connection, text)
                if show:
                    print(f"{time.perf_counter() - began:9.1f} s    {name}", flush=True)
            began = time.perf_counter()
        indexed = time.perf_counter()
        connection.execute("VACUUM ANALYZE")
        if show:
            print(f"{indexed - began:9.1f} s    indexes", flush=True)
            print(f"{time.perf_counter() - indexed:9.1f} s    VACUUM ANALYZE", flush=True)


def _run(connection: psycopg.Connection[Any], text: str) -> psycopg.Cursor[Any]:
    return connection.execute(cast("LiteralString", text))


def timed(work: Callable[[], Any]) -> float:
    """Median milliseconds of five runs."""
    taken = []
    for _ in range(5):
        began = time.perf_counter()
        work()
        taken.append((time.perf_counter() - began) * 1000)
    return statistics.median(taken)


def _scans(plan: Any) -> Iterator[tuple[str, str]]:
    """Relation and filter of every sequential scan of a plan."""
    if isinstance(plan, dict):
        if plan.get("Node Type") == "Seq Scan":
            yield plan["Relation Name"], plan.get("Filter", "")
        for value in plan.values():
            yield from _scans(value)
    elif isinstance(plan, list):
        for value in plan:
            yield from _scans(value)


def ask(connection: psycopg.Connection[Any], questions: Iterable[tuple[str, str]], big: set[str]) -> None:
    """Print every question with its time, its cost, its rows, and what it reads whole."""
    for label, query in questions:
        plan = _run(connection, f"EXPLAIN (FORMAT JSON) {query}").fetchall()[0][0]
        whole = sorted({name for name, _ in _scans(plan) if name in big})
        n_rows = len(_run(connection, query).fetchall())
        took = timed(lambda query=query: _run(connection, query).fetchall())  # type: ignore[misc]
        print(
            f"{took:9.1f} ms   cost {plan[0]['Plan']['Total Cost']:12,.0f}   {n_rows:7,} rows   {label}"
            f"{'   READS WHOLE ' + ', '.join(whole) if whole else ''}",
            flush=True,
        )


def report(url: str) -> None:
    """Print every question with its time and cost."""
    roles.add_login(url, "bench_cluster", "probing_reader", scopes=[("cluster", "bench")])
    roles.add_login(url, "bench_account", "probing_reader", scopes=[("account", "a7")])
    with psycopg.connect(url, autocommit=True) as connection:
        sizes = connection.execute(
            "SELECT c.relname, c.reltuples::bigint, pg_total_relation_size(c.oid) FROM pg_class c "
            "WHERE c.relnamespace = 'probing'::regnamespace AND c.relkind = 'r' AND c.reltuples > 0 ORDER BY 2 DESC"
        ).fetchall()
        for name, n_rows, n_bytes in sizes:
            print(f"{n_rows:12,} rows   {n_bytes / 2**20:9,.0f} MiB   {name}")
        big = {name for name, n_rows, _ in sizes if n_rows >= _BIG_TABLE_ROWS}
        recipes = [" ".join(recipe.split()) for recipe in RECIPES]
        print("\nviews and cookbook, as the owner")
        ask(connection, [(q, q) for q in (*QUESTIONS, *recipes)], big)
    for role in ("bench_cluster", "bench_account"):
        print(f"\nviews, cookbook and dashboards, as a reader: {role}")
        allowed = [(q, q) for q in (*QUESTIONS, *recipes) if "ops.rejections" not in q]
        with psycopg.connect(url.replace(f"{embedded.OWNER}@", f"{role}@"), autocommit=True) as connection:
            ask(connection, [*allowed, *panels()], big)
    with store_module.Store.open(url) as store:
        _ask_store(store)


def _ask_store(store: store_module.Store) -> None:
    now = datetime.now(UTC)
    with store.engine.connect() as connection:
        ids = list(connection.scalars(sa.text("SELECT event_id FROM probing.event_key LIMIT 5000")))[::1000]

    def executed(statement: sa.TextClause, **given: object) -> Callable[[], Any]:
        def work() -> None:
            with store.engine.connect() as connection:
                connection.execute(statement, given).fetchall()

        return work

    print("\nthe service")
    since = now - timedelta(days=7)
    for name, work in {
        "attempts(job_ids=[x])": lambda: store.attempts(job_ids=[1_000_000]),
        "attempts(run_key=x)": lambda: store.attempts(run_key="1000000"),
        "attempts(user=x, since=1 day ago)": lambda: store.attempts(user="u7", since=now - timedelta(days=1)),
        "events(9 nodes, 1 h)": lambda: store.events(
            nodes=[f"n{n}" for n in range(9)], since=now - timedelta(hours=1), until=now
        ),
        "events(high, 5 min)": lambda: store.events(since=now - timedelta(minutes=5), min_severity="high"),
        "events_by_id(5)": lambda: store.events_by_id(ids),
        "verdicts(since=1 day ago)": lambda: store.verdicts(since=now - timedelta(days=1)),
    }.items():
        print(f"{timed(work):9.1f} ms   Store.{name}")
    for name, arrivals in ARRIVALS.items():
        print(f"{timed(lambda arrivals=arrivals: _reopen(store, arrivals)):9.1f} ms   late evidence, {name}")
    for name, work in {
        "attempts to judge (100)": lambda: pending.read(store, clock.EPOCH, now, 100, unjudged=True),
        "a scrape: waiting.sql": executed(metrics.WAITING, cluster="bench"),
        "a scrape: verdicts_since.sql": executed(
            metrics.VERDICTS, cluster="bench", since=now - timedelta(days=1)
        ),
        "run accounts, a pass": lambda: accounts.update(store, settings.AttributionSettings(), since=since),
    }.items():
        print(f"{timed(work):9.1f} ms   {name}")


def _reopen(store: store_module.Store, arrivals: str) -> None:
    """Hold deliveries against the verdicts, where n7 has no agent; nothing of it stays."""
    with store.engine.connect() as connection:
        connection.execute(sa.text("DELETE FROM probing.agent_heartbeat WHERE node = 'n7'"))
        columns = "cluster, node, first_at, last_at, n_events"
        made = f"INSERT INTO probing.arrival ({columns}) {arrivals} RETURNING arrival_id"
        connection.execute(store_attempts.REOPEN, {"arrivals": list(connection.scalars(sa.text(made)))})
        connection.rollback()


def _fleet_span() -> tuple[settings.Settings, dict[str, Any]]:
    """The settings and the span of every figure: all that is stored."""
    now = datetime.now(UTC)
    about = {"since": now - timedelta(days=400), "until": now, "partition": None, "users": None}
    return settings.Settings(cluster=settings.ClusterSettings(name="bench")), about


def alone(url: str, names: Iterable[str]) -> None:
    """Print what each of these figures takes when it is asked for alone, its reading included."""
    config, about = _fleet_span()
    with store_module.Store.open(url) as store:
        for name in names:
            began = time.perf_counter()
            fleet_commands.compute(name, store, config, about, {})
            print(f"{time.perf_counter() - began:9.2f} s    {name}, alone", flush=True)


def fleet(url: str) -> None:
    """Print what each figure of the fleet page takes over all that is stored, read once for all of them, and the page itself."""
    config, about = _fleet_span()
    print("\nthe fleet page, over everything")
    began = (time.perf_counter(), time.process_time())
    found = {}
    with store_module.Store.open(url) as store:
        source = fleet_commands.read_once(store)
        for name in fleet_commands.FIGURES:
            at = time.perf_counter()
            found[name] = fleet_commands.compute(name, store, config, about, {}, source).to_json()
            print(f"{time.perf_counter() - at:9.2f} s    {name}", flush=True)
    page = fleet_page.render("bench", found, fleet_commands.FIGURES, made_at=about["until"])
    wall, own = time.perf_counter() - began[0], time.process_time() - began[1]
    print(f"{wall:9.2f} s    all, drawn ({len(page):,} characters); {own:.1f} s of it the asker's processor")


def main() -> None:
    """Fill a database, ask, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--attempts", type=int, default=4_000_000)
    parser.add_argument("--events", type=int, default=20_000_000)
    parser.add_argument("--keep", type=Path, help="use (and keep) this directory; filled only when empty")
    parser.add_argument(
        "--fleet",
        nargs="*",
        metavar="FIGURE",
        help="ask for the fleet page only, or for these figures, each alone",
    )
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
        if wanted.fleet is None:
            report(url)
        if wanted.fleet:
            alone(url, wanted.fleet)
        else:
            fleet(url)
    finally:
        embedded.stop(directory)
        if not wanted.keep:
            shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    main()
