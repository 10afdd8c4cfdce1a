"""Every query of every Grafana dashboard runs on the real schema, as the dashboards' own role, and shows a bad day."""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import fakes
import psycopg
import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.registry import Collector

from probing_cluster.control_plane import context, journal
from probing_cluster.control_plane.cli import main
from probing_cluster.control_plane.cli.site import dashboards_commands
from probing_cluster.control_plane.service import metrics
from probing_cluster.core import records
from probing_cluster.db import bulk, delivery, roles
from probing_cluster.db.server import embedded

FILES = sorted(dashboards_commands.DIRECTORY.glob("*.json"))
BOARDS: dict[str, dict[str, Any]] = {
    path.stem: json.loads(path.read_text(encoding="utf-8")) for path in FILES
}
PANELS = [(name, panel) for name, board in BOARDS.items() for panel in board["panels"]]
SQL = [
    (f"{name}: {panel['title']}", target["rawSql"])
    for name, panel in PANELS
    for target in panel["targets"]
    if "rawSql" in target
]
VARIABLES = [
    (f"{name}: ${variable['name']}", variable["query"])
    for name, board in BOARDS.items()
    for variable in board["templating"]["list"]
    if variable["type"] == "query"
]
PROMQL = [t["expr"] for _, panel in PANELS for t in panel["targets"] if "expr" in t]


def as_grafana_sends(sql: str, node: str = "n2", job: str = "7") -> str:
    """What Grafana makes of a query: its macros and variables, with the last 30 days."""
    span = ("(now() - interval '30 days')", "(now() + interval '1 hour')")
    sql = re.sub(r"\$__timeFilter\((\w+)\)", rf"\1 BETWEEN {span[0]} AND {span[1]}", sql)
    sql = sql.replace("$__timeFrom()", span[0]).replace("$__timeTo()", span[1])
    for name, value in (("node", node), ("job", job)):
        sql = sql.replace(f"${{{name}:sqlstring}}", "'" + value.replace("'", "''") + "'")
    assert "$" not in sql, f"a macro nobody expands: {sql}"
    return sql


@pytest.fixture
def grafana(service: context.Context) -> Iterator[str]:
    """The database after a bad day, as Grafana's login: a reader of cluster c."""
    store, now = service.store, fakes.NOW
    day = now.replace(hour=0, minute=0, second=0, microsecond=0)
    event = records.HealthEvent(
        event_id=uuid.uuid4(), cluster="c", node="n2", at=now - timedelta(minutes=61), observed_at=now, kind="xid",
        code="79", severity=records.Severity.HIGH, device="gpu3", source="kernel", message="off the bus",
    )  # fmt: skip
    fakes.deliver(store, "n2", event)
    check = records.CheckResult(
        cluster="c",
        node="n2",
        name="gpu",
        outcome=records.Outcome.FAIL,
        severity=records.Severity.HIGH,
        at=now,
    )
    delivery.Delivery(store.connection_uri(), "c", "n2").deliver(
        checks=[check],
        heartbeat=records.AgentHeartbeat(
            cluster="c", node="n2", at=now, sources={"kernel": {"state": "ok"}}, jobs=(7,), faults={"xid:gpu3": {"severity": "high"}}
        ),
    )  # fmt: skip
    attempt = records.JobAttempt(
        cluster="c", job_id=7, submit_at=now - timedelta(hours=3), start_at=now - timedelta(hours=2),
        end_at=now - timedelta(hours=1), state="FAILED", nodes=("n2",), n_gpus=8, user="alice", account="lab", run_key="7",
    )  # fmt: skip
    store.upsert_attempts([attempt])
    store.save_verdicts(
        [
            records.Verdict(
                cluster="c", job_id=7, submit_at=attempt.submit_at, cause="gpu_lost", domain=records.Domain.HARDWARE,
                confidence=records.Confidence.CERTAIN, summary="GPU 3 of n2", node="n2", device="gpu3", rules_version="1",
                incident_id=uuid.uuid4(), onset_at=event.at, made_at=now,
            )
        ]
    )  # fmt: skip
    for state, name in (("done", "n2"), ("denied", "n4")):
        store.save_drain(
            records.Drain(drain_id=uuid.uuid4(), cluster="c", node=name, at=now, action="drain", reason="probing: x", owner="probing", state=state)
        )  # fmt: skip
    store.save_lemon_scores(
        [records.LemonScore(cluster="c", node="n2", day=day, score=0.9, verdict="lemon", made_at=now)]
    )
    bulk.load_run_accounts(store.connection_uri(),
        [records.RunAccount(cluster="c", run_key="7", user="alice", start_at=now, end_at=now, wall_s=1.0, n_gpus=8, lost_to_replay_s=9.0, made_at=now)]
    )  # fmt: skip
    store.request("n2", "recheck", cluster="c")
    roles.add_login(store.connection_uri(), "t_grafana", "probing_reader", scopes=[("cluster", "c")])
    yield store.connection_uri().replace(f"{embedded.OWNER}@", "t_grafana@")
    roles.remove(store.connection_uri(), "t_grafana")


def test_every_query_runs_as_grafanas_role(grafana: str) -> None:
    """Loaded from the JSON as it ships, each query answers, and on a bad day has something to show."""
    assert len(SQL) >= 20
    empty = []
    with psycopg.connect(grafana, autocommit=True) as connection:
        for where, sql in [*SQL, *VARIABLES]:
            rows = connection.execute(as_grafana_sends(sql)).fetchall()
            if not rows:
                empty.append(where)
    assert [where for where in empty if "silent" not in where] == []


def test_a_viewer_cannot_break_out_through_a_variable(grafana: str) -> None:
    """What somebody types into a variable stays a value; the role reads, and only reads."""
    with psycopg.connect(grafana, autocommit=True) as connection:
        for where, sql in SQL:
            if "${" in sql:
                hostile = as_grafana_sends(sql, node="x'; DELETE FROM probing.drain; --", job="7")
                assert connection.execute(hostile).fetchall() == [] or "node" not in where
        for statement in (
            "DELETE FROM probing.drain",
            "SELECT * FROM probing.reader_scope",
            "SET ROLE probing_operator",
        ):
            with pytest.raises(psycopg.Error):
                connection.execute(statement)  # type: ignore[arg-type]


def test_queries_use_the_stable_views_only() -> None:
    """Dashboards stand on schema ops, never on tables that may change."""
    assert [where for where, sql in [*SQL, *VARIABLES] if "probing." in sql or "ops." not in sql] == []


def test_every_metric_asked_for_is_exported(service: context.Context) -> None:
    """No panel and no alarm of the manual waits for a metric that nobody serves."""
    fakes.deliver(service.store, "n1")
    journal.one_pass(service.journal, "actions", lambda: "", service.clock)
    registry = CollectorRegistry()
    collector: Collector = metrics.ServiceCollector(service)
    registry.register(collector)
    exported = {f"{m.name}{'_total' if m.type == 'counter' else ''}" for m in registry.collect()}
    assert len(PROMQL) >= 15
    page = (Path(__file__).resolve().parents[2] / "docs" / "operate.md").read_text(encoding="utf-8")
    alarms = re.findall(r"^\| `(.*?)`", page.split("## What to alert on")[1].split("\n## ")[0], re.MULTILINE)
    assert len(alarms) >= 5
    calls = {name for expr in [*PROMQL, *alarms] for name in re.findall(r"\bprobing_\w+", expr)}
    assert calls - exported == set()


def test_every_panel_says_what_it_shows() -> None:
    """A title and a sentence each; unique ids; nothing laid over another; no data source named by a site's own id."""
    assert len({board["uid"] for board in BOARDS.values()}) == len(BOARDS) == 4
    for name, board in BOARDS.items():
        assert board["uid"] == f"probing-{name}"
        ids = [p["id"] for p in board["panels"]]
        assert len(ids) == len(set(ids))
        taken: set[tuple[int, int]] = set()
        for panel in board["panels"]:
            assert panel["title"]
            assert panel["description"].endswith("."), panel["title"]
            assert panel["datasource"]["uid"] in {"${postgres}", "${prometheus}"}
            at = panel["gridPos"]
            cells = {
                (x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])
            }
            assert at["x"] + at["w"] <= 24
            assert not taken & cells, panel["title"]
            taken |= cells


def test_every_query_asks_a_data_source_that_its_viewer_chooses() -> None:
    """Each panel, query and variable names a `datasource` variable of its own dashboard, of the type that variable offers."""
    for name, board in BOARDS.items():
        chosen = {v["name"]: v["query"] for v in board["templating"]["list"] if v["type"] == "datasource"}
        calls = [panel["datasource"] for panel in board["panels"]]
        calls += [target["datasource"] for panel in board["panels"] for target in panel["targets"]]
        calls += [v["datasource"] for v in board["templating"]["list"] if v["type"] == "query"]
        assert calls, name
        for source in calls:
            assert chosen[source["uid"].removeprefix("${").removesuffix("}")] == source["type"], name
        for panel in board["panels"]:
            for target in panel["targets"]:
                assert ("rawSql" in target) != ("expr" in target), panel["title"]
        assert board.get("__inputs", []) == [], "a site's own id is asked for at import"


def test_links_lead_to_dashboards_that_are_there() -> None:
    """A node or a job in a table opens its own dashboard."""
    text = "".join(path.read_text(encoding="utf-8") for path in FILES)
    links = set(re.findall(r"/d/(probing-\w+)\?var-(\w+)=", text))
    assert links == {("probing-node", "node"), ("probing-job", "job")}
    for uid, variable in links:
        assert variable in [v["name"] for v in BOARDS[uid.removeprefix("probing-")]["templating"]["list"]]


def test_the_command_writes_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Into a directory that need not be there yet; a second time over the first."""
    for _ in range(2):
        assert main.main(["dashboards", str(tmp_path / "a" / "b")]) == 0
    assert sorted(p.name for p in (tmp_path / "a" / "b").iterdir()) == [f"probing-{p.name}" for p in FILES]
    assert capsys.readouterr().out.count(".json\n") == 2 * len(FILES)
    (tmp_path / "file").write_text("")
    assert main.main(["dashboards", str(tmp_path / "file")]) == 2
