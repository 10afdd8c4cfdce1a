"""The operators' views answer, explain themselves, are documented, and stay cheap on a big database."""

from __future__ import annotations

import dataclasses
import json
import re
import uuid
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest
import sqlalchemy as sa

from benchmarks.db import full_size
from probing_cluster.attribution.reliability import accounts
from probing_cluster.control_plane.service import metrics
from probing_cluster.core import clock, records, vocabulary
from probing_cluster.db import bulk, delivery, migrate
from probing_cluster.db import store as store_module
from probing_cluster.db.server import embedded
from probing_cluster.db.store import actions as store_actions
from probing_cluster.probe_agent import self_watch
from probing_cluster.reports import node_state
from probing_cluster.slurm_plugins.acts import node_events
from tests import two_clusters

Make = Callable[..., Any]
COOKBOOK = Path(__file__).resolve().parents[2] / "docs" / "sql.md"
QUERIES = re.findall(r"```sql\n(.*?)```", COOKBOOK.read_text(encoding="utf-8"), re.DOTALL)
NOW = datetime.now(UTC)


def _rows(url: str, query: str) -> list[dict[str, Any]]:
    with psycopg.connect(url, row_factory=psycopg.rows.dict_row) as connection:
        return connection.execute(query).fetchall()


@pytest.fixture
def story(
    store: store_module.Store, make_attempt: Make, make_verdict: Make, make_event: Make
) -> store_module.Store:
    """One bad day: n2's GPU dies under a job, n3's agent falls silent, n4 is well."""
    event = make_event(node="n2", device="gpu3", at=NOW - timedelta(minutes=61))
    attempt = make_attempt(
        end_at=NOW - timedelta(hours=1), start_at=NOW - timedelta(hours=2), nodes=("n2", "n4")
    )
    store.upsert_attempts(
        [
            attempt,
            make_attempt(job_id=2, state="COMPLETED", nodes=("n9",)),
            make_attempt(job_id=3, state="CANCELLED", nodes=("n9",)),
        ]
    )
    store.save_places("c", ["leaf"], [("n7", "leaf", "l1")], NOW)
    store.save_verdicts(
        [
            make_verdict(
                attempt,
                device="gpu3",
                incident_id=uuid.uuid4(),
                onset_at=event.at,
                evidence=(event.event_id,),
                log_read=False,
            )
        ]
    )
    watch = self_watch.SelfWatch()
    watch.read("kernel", NOW)
    for node, faults in (("n2", {"xid:gpu3": {"severity": "high"}}), ("n3", {}), ("n4", {})):
        beat = records.AgentHeartbeat(
            cluster="c", node=node, at=NOW, beat_s=60.0, faults=faults, jobs=(7,),
            sources=watch.rows(),
        )  # fmt: skip
        check = records.CheckResult(
            cluster="c",
            node=node,
            name="gpu",
            outcome="fail" if faults else "ok",
            severity="high",
            at=NOW,
            message="m",
        )
        door = delivery.Delivery(store.url, "c", node)
        door.deliver(
            events=[event] if node == "n2" else [make_event(node="n9")], checks=[check], heartbeat=beat
        )
    drain = records.Drain(
        drain_id=uuid.uuid4(), cluster="c", node="n2", at=NOW - timedelta(minutes=60), action="drain",
        reason="probing: xid 79 gpu3", owner="probing", state="done", event_ids=(event.event_id,),
    )  # fmt: skip
    store.save_drain(drain)
    store.save_drain(
        dataclasses.replace(drain, drain_id=uuid.uuid4(), node="n4", state="denied", why_state="budget")
    )
    day = NOW.replace(hour=0, minute=0, second=0, microsecond=0)
    store.save_lemon_scores(
        [records.LemonScore(cluster="c", node=n, day=day, score=s, verdict=v, made_at=NOW) for n, s, v in (("n2", 0.9, "lemon"), ("n4", 0.0, "ok"))]
    )  # fmt: skip
    store.add_note(
        records.OperatorNote(note_id=uuid.uuid4(), cluster="c", at=NOW, author="eve", subject="node:n2", action="ticket", note="RMA")
    )  # fmt: skip
    bulk.load_run_accounts(store.connection_uri(),
        [records.RunAccount(cluster="c", run_key="1", start_at=NOW, end_at=NOW, wall_s=1.0, n_gpus=16, lost_to_replay_s=900.0, made_at=NOW)]
    )  # fmt: skip
    store.request("n2", "recheck", cluster="c")
    with psycopg.connect(store.url) as connection:
        connection.execute(
            "UPDATE probing.agent_heartbeat SET received_at = now() - interval '121 s' WHERE node = 'n3'"
        )
        connection.execute(
            "UPDATE probing.agent_heartbeat SET received_at = now() - interval '60 s' WHERE node = 'n4'"
        )
    return store


def test_node_now(story: store_module.Store) -> None:
    """A faulty, a silent and a good node are told apart; two missed beats make silence."""
    found = {row["node"]: row for row in _rows(story.url, "SELECT * FROM ops.node_now")}
    assert {node: row["state"] for node, row in found.items()} == {"n2": "faulty", "n3": "silent", "n4": "ok"}
    n2 = found["n2"]
    assert (n2["n_faults"], n2["n_failing"], n2["failing"], n2["n_jobs"]) == (1, 1, ["gpu"], 1)
    assert (n2["drained"], n2["drain_reason"], n2["lemon_verdict"]) == (True, "probing: xid 79 gpu3", "lemon")
    assert found["n4"]["drained"] is False


def test_a_drain_that_only_slurm_knows_is_one(story: store_module.Store) -> None:
    """A person's scontrol drains as well as ours; ours keeps its own words, and both end when Slurm shows it."""
    by_hand = store_actions.SlurmDrain("n4", "DRAIN+IDLE", "fan swap, ask Bob", NOW)
    ours = store_actions.SlurmDrain("n2", "DRAIN+IDLE", "probing: xid 79 gpu3", NOW)
    story.save_slurm_drains("c", [by_hand, ours], [])
    story.save_slurm_drains("d", [by_hand], [])
    assert story.slurm_drains("c") == [by_hand, ours]

    def now(node: str) -> list[Any]:
        columns = "state, drained, drain_reason, drained_by"
        (row,) = _rows(story.url, f"SELECT {columns} FROM ops.node_now WHERE node = '{node}'")
        return list(row.values())

    assert now("n4") == ["drained", True, "fan swap, ask Bob", "another"]
    assert now("n2") == ["faulty", True, "probing: xid 79 gpu3", "us"]
    (row,) = story.drains(node="n2", open_only=True)
    by_command = dataclasses.replace(row, owner="root", reason="probing: a look (root)")
    story.save_drain(by_command)
    assert now("n2")[2:] == ["probing: a look (root)", "another"], "root drained it with our command"
    for words in (*node_events.SLURMS_OWN, "bob: Kill task failed"):
        story.save_slurm_drains("c", [by_hand._replace(states="DOWN", reason=f"{words}5")], [])
        assert now("n4")[3] == ("slurm" if node_events.is_mishap(words) else "another")
    story.save_slurm_drains("c", [by_hand._replace(reason="fan swapped")], ["n2"])
    assert now("n4")[2] == "fan swapped"
    story.save_slurm_drains("c", [], ["n4"])
    assert now("n4") == ["ok", False, None, None]
    assert story.slurm_drains("d") == [by_hand]


def test_failures(story: store_module.Store) -> None:
    """The failed attempt is there once with its cause and price; completed and cancelled ones are not."""
    row, = _rows(story.url, "SELECT * FROM ops.failures_24h")  # fmt: skip
    assert (row["job_id"], row["cause"], row["device"], row["n_gpus"]) == (1, "gpu_lost", "gpu3", 16)
    assert row["gpu_hours"] == pytest.approx(16.0)
    day, = _rows(story.url, "SELECT * FROM ops.causes_daily")  # fmt: skip
    assert (day["cause"], day["n_attempts"], day["n_jobs"]) == ("gpu_lost", 1, 1)
    assert day["gpu_hours"] == pytest.approx(16.0)


def test_the_recipe_of_the_sources_names_their_last_reading(story: store_module.Store) -> None:
    """By the words that the agent writes into its heartbeat."""
    (recipe,) = (q for q in QUERIES if "jsonb_each(sources)" in q)
    rows = _rows(story.url, recipe)
    assert {(r["source"], r["last_read"]) for r in rows} == {("kernel", clock.iso_z(NOW))}


def test_an_incident_is_all_its_victims(store: store_module.Store) -> None:
    """Named by its first victim and found by its onset, it is what grouping every current verdict gives; one evident victim is none."""
    with psycopg.connect(store.url, autocommit=True) as connection:
        connection.execute("SELECT setseed(0.5)")
        connection.execute(
            """
            INSERT INTO probing.verdict (cluster, job_id, submit_at, attempt, cause, domain, node, confidence, summary, evidence,
                ruled_out, next_step, incident_id, onset_at, author, rules_version, made_at, superseded_at)
            SELECT 'c' || n % 2, n, now(), 1, 'cause' || n % 3, 'hardware', nullif('n' || n % 4, 'n0'), 'certain', 's' || n % 5,
                CASE WHEN n % 7 < 4 THEN ARRAY[incident] ELSE '{}' END, '{}', '', CASE WHEN n % 11 > 0 THEN incident END,
                CASE WHEN random() < 0.8 THEN now() - interval '1 hour' * floor(random() * 50) END, 'rules', '1', now(),
                CASE WHEN random() < 0.2 THEN now() END
            FROM generate_series(1, 400) AS n, LATERAL (SELECT md5((n / 2 % 90)::text)::uuid AS incident) AS i"""
        )
    grouped = """
        SELECT v.cluster, v.incident_id, min(v.onset_at) AS onset_at, min(v.cause) AS cause, min(v.domain) AS domain,
            count(*) AS n_attempts, count(DISTINCT v.job_id) AS n_jobs,
            array_remove(array_agg(DISTINCT v.node), NULL) AS nodes, min(v.summary) AS summary, max(v.place) AS place
        FROM probing.verdict v WHERE v.incident_id IS NOT NULL AND v.superseded_at IS NULL
        GROUP BY v.cluster, v.incident_id HAVING count(*) > 1 OR bool_or(v.incident_id <> ALL (v.evidence))"""
    order = " ORDER BY cluster, incident_id"
    wanted = _rows(store.url, grouped + order)
    assert 50 < len(wanted) < 180
    assert _rows(store.url, "SELECT * FROM ops.incidents" + order) == wanted
    span = "SELECT * FROM {} AS i WHERE onset_at >= now() - interval '10 hours'" + order
    assert _rows(store.url, span.format("ops.incidents")) == _rows(store.url, span.format(f"({grouped})"))


def test_the_timeline_tells_the_story_in_order(story: store_module.Store) -> None:
    """A node's timeline holds event, attempt, drain, check and note, and nothing of other nodes."""
    what = [row["what"] for row in _rows(story.url, "SELECT * FROM ops.node_timeline('n2')")]
    assert what == [
        "attempt starts",
        "event xid 79",
        "attempt ends FAILED",
        "drain done",
        "check gpu fail",
        "ticket by eve",
    ]
    assert [r["what"] for r in _rows(story.url, "SELECT * FROM ops.node_timeline('n8')")] == []


def test_only_what_stands_or_ended_has_lasted(store: store_module.Store) -> None:
    """A requeue is over at once, and what was not done never began."""
    begun = datetime.now(UTC) - timedelta(hours=2)
    for n, (action, state, ended_at) in enumerate(
        (
            ("drain", "done", None),
            ("drain", "resumed", begun + timedelta(hours=1)),
            ("drain", "skipped", None),
            ("requeue", "done", None),
            ("restart", "denied", None),
        )
    ):
        store.save_drain(
            records.Drain(
                drain_id=uuid.UUID(int=n), cluster="c", node=f"n{n}", at=begun, action=action, reason="probing: x", owner="probing",
                state=state, ended_at=ended_at,
            )
        )  # fmt: skip
    rows = _rows(
        store.connection_uri(), "SELECT node, round(duration_s / 3600) AS h FROM ops.drains ORDER BY node"
    )
    assert [row["h"] for row in rows] == [2, 1, None, None, None]


def test_what_was_begun_a_moment_ago_is_under_way(store: store_module.Store) -> None:
    """It has not failed; what was begun long ago and has no outcome has, as far as anybody knows."""
    now = datetime.now(UTC)
    begun, away = vocabulary.BEGUN, f"{vocabulary.BEGUN}: Slurm did not answer"
    given = ((3, begun), (3, away), (400, begun), (3, "no such node"))
    for n, (age_s, why) in enumerate(given):
        store.save_drain(
            records.Drain(
                drain_id=uuid.UUID(int=n), cluster="c", node=f"n{n}", at=now - timedelta(seconds=age_s), action="drain",
                reason="probing: x", owner="probing", state="failed", why_state=why,
            )
        )  # fmt: skip
    rows = _rows(store.connection_uri(), "SELECT state, why_state FROM ops.drains ORDER BY node")
    assert [tuple(row.values()) for row in rows] == [
        ("under way", ""),
        ("under way", "Slurm did not answer"),
        ("failed", begun),
        ("failed", "no such node"),
    ]
    timeline = [_rows(store.connection_uri(), f"SELECT what FROM ops.node_timeline('n{n}')")[0]["what"] for n in (0, 3)]  # fmt: skip
    assert timeline == ["drain under way", "drain failed"]
    # Reports and commands say the same of the rows themselves.
    shown = node_state.as_shown(sorted(store.drains(), key=lambda d: d.node), now)
    assert [(d.state, d.why_state) for d in shown] == [tuple(row.values()) for row in rows]


def test_every_recipe_of_the_cookbook_runs(story: store_module.Store) -> None:
    """Each query of docs/sql.md runs as written, and on a bad day nearly all have something to show."""
    assert len(QUERIES) >= 15
    found = {query: len(_rows(story.url, query)) for query in QUERIES}
    assert [
        query
        for query, n_rows in found.items()
        if n_rows == 0 and "4242" not in query and "IS NULL" not in query
    ] == []


def test_every_view_is_in_the_cookbook(store: store_module.Store) -> None:
    """Each view and function of schema ops has its heading and a query that uses it."""
    text = COOKBOOK.read_text(encoding="utf-8")
    views = _rows(
        store.url,
        "SELECT relname AS name FROM pg_class WHERE relnamespace = 'ops'::regnamespace AND relkind = 'v'",
    )
    functions = _rows(
        store.url, "SELECT proname AS name FROM pg_proc WHERE pronamespace = 'ops'::regnamespace"
    )
    assert len(views) >= 12
    for name in [row["name"] for row in [*views, *functions]]:
        assert re.search(rf"^## ops\.{name}\b", text, re.MULTILINE), name
        assert any(re.search(rf"\bops\.{name}\b", query) for query in QUERIES), name


def test_every_recipe_is_priced_on_a_full_size_database() -> None:
    """benchmarks/db/full_size.py asks every recipe, so every view, and the cookbook says what it costs."""
    assert [recipe.strip() for recipe in full_size.RECIPES] == [q.strip().removesuffix(";") for q in QUERIES]
    costs = COOKBOOK.read_text(encoding="utf-8").split("## What they cost")[1]
    assert {"node_now", "causes_daily", "failures_24h", "lemons"} <= set(re.findall(r"`ops\.(\w+)", costs))


def test_every_table_and_column_explains_itself(store: store_module.Store) -> None:
    """The same for the tables: what a row is, what a column means, with its unit."""
    bare = """
        SELECT c.relname, a.attname FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
        WHERE c.relnamespace = 'probing'::regnamespace AND c.relkind IN ('r', 'p') AND NOT c.relispartition
          AND c.relname <> 'alembic_version' AND (obj_description(c.oid) IS NULL OR col_description(c.oid, a.attnum) IS NULL)"""
    assert _rows(store.url, bare) == []


def test_every_view_and_column_explains_itself(store: store_module.Store) -> None:
    """psql's \\d+ has a sentence for every view and every column of it."""
    bare = """
        SELECT c.relname, a.attname FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0
        WHERE c.relnamespace = 'ops'::regnamespace AND c.relkind = 'v'
          AND (obj_description(c.oid) IS NULL OR col_description(c.oid, a.attnum) IS NULL)"""
    assert _rows(store.url, bare) == []


BIG = 20_000
BIG_TABLES = frozenset({"job_attempt", "verdict", "run_account", "node_request", "rejection", "lemon_score"})


@pytest.fixture(scope="module")
def big_url(postgres_directory: Path, postgres_template: str) -> Iterator[str]:
    """A database large enough that the planner prefers indexes: a year of attempts and events."""
    name = "probing_test_big"
    with psycopg.connect(embedded.url(postgres_directory), autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name} TEMPLATE {postgres_template} STRATEGY FILE_COPY")
    url = embedded.url(postgres_directory, database=name)
    step = timedelta(days=365) / BIG
    attempts = (
        records.JobAttempt(
            cluster="c", job_id=n, submit_at=NOW - n * step, start_at=NOW - n * step, end_at=NOW - n * step + step,
            state="FAILED" if n % 4 == 0 else "COMPLETED", nodes=(f"n{n % 500}", f"n{n % 499}"), n_gpus=16, user=f"u{n % 50}",
        )
        for n in range(BIG)
    )  # fmt: skip
    events = (
        records.HealthEvent(
            event_id=uuid.UUID(int=n + 1), cluster="c", node=f"n{n % 500}", at=NOW - n * step, observed_at=NOW, kind="xid",
            severity="high" if n % 20 == 0 else "info", source="kernel", message="m" * 80,
        )
        for n in range(BIG)
    )  # fmt: skip
    bulk.load_attempts(url, attempts)
    bulk.load_events(url, events)
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(
            """
            INSERT INTO probing.verdict (cluster, job_id, submit_at, attempt, cause, domain, confidence, summary, evidence,
                ruled_out, next_step, incident_id, onset_at, author, rules_version, made_at)
            SELECT cluster, job_id, submit_at, 1, 'gpu_lost', 'hardware', 'certain', repeat('s', 200), '{}', '{}', '',
                md5((job_id / 40)::text)::uuid, end_at, 'rules', '1', end_at
            FROM probing.job_attempt WHERE state = 'FAILED'"""
        )
        connection.execute(
            """
            INSERT INTO probing.run_account (cluster, run_key, "user", start_at, end_at, n_attempts, wall_s, queued_s, productive_s,
                lost_to_replay_s, restart_s, checkpoint_s, suspended_s, idle_s, measured, made_at)
            SELECT cluster, job_id::text, "user", start_at, end_at, 1, 60, 0, 60, 0, 0, 0, 0, 0, false, end_at FROM probing.job_attempt"""
        )
        connection.execute(
            """
            INSERT INTO probing.node_request (request_id, cluster, node, verb, made_at, expires_at, acknowledged_at)
            SELECT md5(job_id::text)::uuid, cluster, nodes[1], 'collect', end_at, end_at, CASE WHEN job_id % 50 > 0 THEN end_at END
            FROM probing.job_attempt"""
        )
        connection.execute(
            """
            INSERT INTO probing.rejection (role_name, node, reason, day, n_rows, last_at, sample)
            SELECT 'r', nodes[1], 'x', date_trunc('day', end_at, 'UTC'), 1, end_at, repeat('s', 200) FROM probing.job_attempt
            ON CONFLICT DO NOTHING"""
        )
        connection.execute(
            """
            INSERT INTO probing.lemon_score (cluster, node, day, excl_jobid_count, xid_cnt, tickets, out_count, multi_node_node_fails,
                single_node_node_fails, score, reasons, verdict, signals, made_at)
            SELECT 'c', 'n' || n, date_trunc('day', now(), 'UTC') - interval '1 day' * d, 0, 0, 0, 0, 0, 0, 0.1, '{}',
                CASE WHEN n = 7 THEN 'lemon' ELSE 'ok' END, '{}', now() FROM generate_series(0, 499) AS n, generate_series(0, 39) AS d"""
        )
        connection.execute(
            (Path(migrate.__file__).parent / "planner.sql").read_text()
        )  # a copy has not its template's
        connection.execute("VACUUM ANALYZE")
    yield url
    with psycopg.connect(embedded.url(postgres_directory), autocommit=True) as connection:
        connection.execute(f"DROP DATABASE {name} WITH (FORCE)")


@pytest.mark.parametrize(
    "query",
    [
        "SELECT * FROM ops.failures_24h",
        "SELECT * FROM ops.attempt_verdicts WHERE job_id = 4242",
        "SELECT * FROM ops.attempt_verdicts WHERE end_at >= now() - interval '1 day'",
        "SELECT * FROM ops.high_events_24h",
        "SELECT * FROM ops.causes_daily WHERE day >= now() - interval '14 days'",
        "SELECT * FROM ops.node_timeline('n7')",
        "SELECT * FROM probing.health_event WHERE node = 'n7' AND at >= now() - interval '1 day'",
        "SELECT * FROM ops.attempt_verdicts WHERE state = 'BOOT_FAIL' ORDER BY start_at DESC LIMIT 51",
        "SELECT * FROM ops.attempt_verdicts WHERE partition = 'none' ORDER BY start_at DESC LIMIT 51",
        "SELECT * FROM probing.job_attempt WHERE run_key = '7'",
        "SELECT * FROM probing.job_attempt WHERE nodes @> ARRAY['n7'] AND end_at >= now() - interval '7 days'",
        "SELECT * FROM probing.job_attempt WHERE \"user\" = 'u7' AND end_at >= now() - interval '1 day'",
        "SELECT * FROM probing.job_attempt WHERE judged_at IS NULL AND end_at IS NOT NULL AND state <> 'COMPLETED' ORDER BY end_at LIMIT 100",
    ],
)
def test_views_read_no_big_table_whole(query: str, big_url: str) -> None:
    """Everyday questions are answered from indexes, whatever the size of attempts and events."""
    plan = json.dumps(_rows(big_url, f"EXPLAIN (FORMAT JSON) {query}")[0])
    scans = re.findall(r'"Node Type": "Seq Scan".{0,200}?"Relation Name": "(\w+)"', plan)
    assert not {s for s in scans if s in BIG_TABLES or s.startswith("health_event")}, plan


@pytest.mark.parametrize("query", QUERIES, ids=lambda q: re.search(r"FROM (ops\.\w+)", q)[1])
def test_no_recipe_of_the_cookbook_reads_a_big_table_whole(query: str, big_url: str) -> None:
    """As they stand in docs/sql.md, each is answered from indexes; but one that counts a month's verdicts goes through them."""
    plan = json.dumps(_rows(big_url, f"EXPLAIN (FORMAT JSON) {query}")[0])
    scans = re.findall(r'"Node Type": "Seq Scan".{0,200}?"Relation Name": "(\w+)"', plan)
    months = {"verdict"} if "interval '28 days' AND domain = 'hardware'" in query else set()
    big = {s for s in scans if s in BIG_TABLES or s.startswith("health_event")}
    assert not big - months, plan


def test_a_scrape_reads_no_big_table_whole(big_url: str) -> None:
    """What Prometheus asks for every few seconds, of requests and rejections too."""
    query = re.sub(r":cluster\b", "'c'", str(metrics.WAITING))
    plan = json.dumps(_rows(big_url, f"EXPLAIN (FORMAT JSON) {query}")[0])
    scans = re.findall(r'"Node Type": "Seq Scan".{0,200}?"Relation Name": "(\w+)"', plan)
    assert not {s for s in scans if s in BIG_TABLES or s.startswith("health_event")}, plan


def test_looking_for_stale_runs_reads_a_weeks_accounts_only(big_url: str) -> None:
    """The service looks every few seconds: it must not cost more with every month that is kept."""
    query = accounts.STALE
    for name, value in (("$1", "now() - interval '7 days'"), ("$2", "now()"), ("$3", "now()")):
        query = query.replace(name, value)
    plan = json.dumps(_rows(big_url, f"EXPLAIN (FORMAT JSON) {query}")[0])
    scans = re.findall(r'"Node Type": "Seq Scan".{0,200}?"Relation Name": "(\w+)"', plan)
    assert not set(scans) & BIG_TABLES, plan


def test_the_store_reads_a_days_verdicts_from_indexes(big_url: str) -> None:
    """What the metrics and the service ask for all day does not read every verdict ever given."""
    with store_module.Store.open(big_url) as store:
        statements: list[str] = []
        sa.event.listen(store.engine, "before_cursor_execute", lambda *a: statements.append((a[2], a[3])))  # type: ignore[arg-type]
        found = store.verdicts(since=NOW - timedelta(days=1))
    assert 5 <= len(found) <= 30
    statement, given = next(s for s in statements if "probing.verdict" in s[0])  # type: ignore[misc]
    with psycopg.connect(big_url) as connection:
        plan = json.dumps(connection.execute(f"EXPLAIN (FORMAT JSON) {statement}", given).fetchone())  # type: ignore[arg-type]
    assert "Seq Scan" not in plan


def test_the_planner_is_told_and_every_new_connection_hears_it(postgres_directory: Path) -> None:
    """`db upgrade` leaves the settings with the database."""
    with psycopg.connect(embedded.url(postgres_directory), autocommit=True) as connection:
        connection.execute("CREATE DATABASE probing_test_planner")
    url = embedded.url(postgres_directory, database="probing_test_planner")
    try:
        migrate.upgrade(url)
        assert _rows(url, "SHOW random_page_cost") == [{"random_page_cost": "1.1"}]
        assert _rows(url, "SHOW jit") == [{"jit": "off"}]
    finally:
        with psycopg.connect(embedded.url(postgres_directory), autocommit=True) as connection:
            connection.execute("DROP DATABASE probing_test_planner WITH (FORCE)")


def test_the_timeline_of_a_name_says_the_cluster(store: store_module.Store) -> None:
    """Two clusters have a node n1: each line bears its cluster, and one cluster's can be asked for."""
    two_clusters.fill(store)
    every = _rows(store.url, "SELECT * FROM ops.node_timeline('n1')")
    mine = _rows(store.url, "SELECT * FROM ops.node_timeline('n1', of_cluster => 'c')")
    assert {row["cluster"] for row in every} == {"c", "zeta"}
    assert sorted(map(repr, mine)) == sorted(repr(row) for row in every if row["cluster"] == "c")
    assert {row["what"].split()[0] for row in mine} == {"event", "check", "attempt", "drain", "ack"}


def test_an_attempt_that_cannot_run_any_more(
    store: store_module.Store, postgres_url: str, make_attempt: Make
) -> None:
    """Its limit and OverTimeLimit are over and no agent names it; who may run on, or has no limit, is not counted as over."""
    now, day = datetime.now(UTC), 86400.0
    begin = now - timedelta(days=3)

    def running(number: int, **over: Any) -> records.JobAttempt:
        times = {
            "submit_at": begin,
            "start_at": begin,
            "end_at": None,
            "state": "RUNNING",
            "time_limit_s": day,
        }
        return make_attempt(job_id=number, **{"nodes": ("n1", "n2"), **times, **over})

    store.upsert_attempts([
        running(1),
        running(2, nodes=("n1", "named")),
        running(3, time_limit_s=None),
        running(4, time_limit_s=4 * day),
        running(5, state="SUSPENDED"),
        running(6, suspended_s=day / 2),
        running(7, start_at=None, state="PENDING"),
        running(8, end_at=now, state="FAILED"),
        running(9, nodes=("n1", "silent")),
        running(10, cluster="other"),
        running(11, cluster="lenient"),
        running(12, cluster="endless"),
    ])  # fmt: skip
    for cluster, over_s in (("lenient", 3600.0), ("endless", -1.0)):
        store.remember(f"slurm.over_time_limit {cluster}", over_s)
    for node, jobs in (("named", (2, 99)), ("silent", (9,)), ("n1", (99,))):
        beat = records.AgentHeartbeat(cluster="c", node=node, at=now, jobs=jobs)
        delivery.Delivery(postgres_url, "c", node).deliver(events=[], heartbeat=beat)
    with psycopg.connect(postgres_url) as connection:
        last = now - timedelta(days=1)
        connection.execute(
            "UPDATE probing.agent_heartbeat SET received_at = %s WHERE node = 'silent'", [last]
        )
    found = _rows(postgres_url, "SELECT a.job_id, probing.ran_until(a) AS at FROM probing.job_attempt a")
    limit_at = begin + timedelta(days=1)
    assert {row["job_id"]: row["at"] for row in found if row["at"]} == {
        1: limit_at,
        6: limit_at + timedelta(hours=12),
        9: last,
        10: limit_at,
        11: limit_at + timedelta(hours=1),
    }
