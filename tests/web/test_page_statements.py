"""A page, a report and an answer of the API cost as many statements for sixteen nodes, jobs and runs as for four: no query in a loop."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import fakes
import gang_rows
import pytest
import sqlalchemy as sa
import web_world
from sqlalchemy.dialects import postgresql as pg
from web_world import OPERATOR, OWNER, World

from probing_cluster.core import records
from probing_cluster.db import bulk, rows, tables
from probing_cluster.db import store as db_store
from probing_cluster.lemon import nightly
from probing_cluster.web.api import openapi, register
from probing_cluster.web.live import broadcast, now, rank_history
from probing_cluster.web.pages import routes
from tests import statement_count

FEW, MANY = 4, 16
BIG = 12
"""A running job on every node; its ranks have told what they do."""
ROUND = uuid.UUID(int=7)
AGO = fakes.NOW - timedelta(hours=1)
FILLED = (
    tables.job_attempt, tables.job_allocation, tables.verdict, tables.run_account, tables.health_event, tables.event_key, tables.agent_heartbeat, tables.drain,
    tables.check_result, tables.operator_note, tables.lemon_score, tables.gang_verdict, tables.repair_incident, tables.diagnostic_result, tables.node_request,
)  # fmt: skip

ADDRESSES = {
    "/": "/", "/jobs": "/jobs", "/jobs/{job}": "/jobs/7", "/nodes": "/nodes", "/nodes/{node}": "/nodes/n1", "/repairs": "/repairs", "/fleet": "/fleet",
    "/lemons": "/lemons", "/search": "/search?q=n", "/sql": "/sql",
    "/api/v1/me": "/api/v1/me", "/api/v1/health": "/api/v1/health", "/api/v1/search": "/api/v1/search?q=n", "/api/v1/jobs": "/api/v1/jobs",
    "/api/v1/jobs/{job}": "/api/v1/jobs/7", "/api/v1/jobs/{job}/attempts": "/api/v1/jobs/7/attempts", "/api/v1/jobs/{job}/verdicts": "/api/v1/jobs/7/verdicts",
    "/api/v1/jobs/{job}/account": "/api/v1/jobs/7/account", "/api/v1/jobs/{job}/ranks": f"/api/v1/jobs/{BIG}/ranks",
    "/api/v1/jobs/{job}/stacks": f"/api/v1/jobs/{BIG}/stacks", "/api/v1/jobs/{job}/heat": f"/api/v1/jobs/{BIG}/heat",
    "/api/v1/jobs/{job}/mesh": f"/api/v1/jobs/{BIG}/mesh", "/api/v1/nodes": "/api/v1/nodes", "/api/v1/nodes/{node}": "/api/v1/nodes/n1",
    "/api/v1/nodes/{node}/timeline": "/api/v1/nodes/n1/timeline", "/api/v1/nodes/{node}/repair": "/api/v1/nodes/n1/repair", "/api/v1/events": "/api/v1/events",
    "/api/v1/incidents": "/api/v1/incidents", "/api/v1/drains": "/api/v1/drains", "/api/v1/diagnostics": "/api/v1/diagnostics",
    "/api/v1/rounds/{round}": f"/api/v1/rounds/{ROUND}", "/api/v1/repairs": "/api/v1/repairs", "/api/v1/lemons": "/api/v1/lemons", "/api/v1/fleet": "/api/v1/fleet",
}  # fmt: skip
"""What answers a GET, and the address asked here."""
FURTHER = {
    "a running job": f"/jobs/{BIG}",
    "an array": "/jobs/5000",
    "a search for an Xid": "/search?q=xid79",
}
UNCOUNTED = {
    "/api/v1/fleet/{figure}": "computed by a process of its own: the figures are counted in tests/control_plane/test_statements.py",
    "/api/v1/stream": "no end; what it sends is gathered once for everybody, counted below",
    "/live": "the same stream for the page",
    "/jobs/{job}/tables": "asks the job's nodes, not the database",
    "/login": "one link, one session",
    "/static/{name}": "files",
}
"""What is not asked here, and why."""


@pytest.fixture
def statements(monkeypatch: pytest.MonkeyPatch) -> statement_count.Statements:
    return statement_count.Statements(monkeypatch)


def nodes(n: int) -> list[str]:
    return [f"n{i}" for i in range(1, n + 1)]


_SPAN = timedelta(minutes=75)
"""Between the first and the last start of one job, few or many: attempts are judged a day of ends at a time, and more days are more statements."""


def history(store: db_store.Store, n: int) -> None:
    """`n` nodes, each with a fault, a drain, a repair and tests; `n` dead jobs, starts of job 7 and tasks of an array; a job on all nodes."""
    with store.engine.begin() as connection:
        connection.execute(sa.text(f"TRUNCATE {', '.join(str(table) for table in FILLED)}"))
    dead = [web_world.attempt(100 + i, nodes=(node,)) for i, node in enumerate(nodes(n))]
    starts = [
        web_world.attempt(7, attempt=i + 1, submit_at=at, start_at=at, end_at=at + timedelta(minutes=3), nodes=tuple(nodes(n)))
        for i, at in enumerate(AGO - i * _SPAN / (n - 1) for i in range(n))
    ]  # fmt: skip
    tasks = [
        web_world.attempt(5000 + i, array_job_id=5000, array_task_id=i, nodes=(f"n{i + 1}",))
        for i in range(n)
    ]
    ended = [*dead, *starts, *tasks]
    store.upsert_attempts([*ended, gang_rows.attempt(BIG, *nodes(n), user=OWNER)])
    events = [_event(node, "xid", code="79", device="gpu3") for node in nodes(n)]
    event_ids = [e.event_id for e in events]
    store.save_verdicts(
        [web_world.verdict(a, node=f"n{i % n + 1}", evidence=tuple(event_ids), incident_id=uuid.UUID(int=i % n + 1),
                           onset_at=a.end_at) for i, a in enumerate(ended)]
    )  # fmt: skip
    bulk.load_events(store.connection_uri(), [*events, *_snapshots(n)])
    for table, made in _others(n, event_ids).items():
        with store.engine.begin() as connection:
            connection.execute(pg.insert(table), [rows.to_row(row) for row in made])


def _event(node: str, kind: str, **over: Any) -> records.HealthEvent:
    values: dict[str, Any] = {
        "event_id": uuid.uuid4(), "cluster": "c", "node": node, "at": fakes.NOW - timedelta(minutes=20), "observed_at": fakes.NOW, "kind": kind,
        "severity": records.Severity.HIGH, "source": "kernel", "message": "x",
    }  # fmt: skip
    return records.HealthEvent(**values | over)


def _snapshots(n: int) -> Iterator[records.HealthEvent]:
    """The first node's rank loops, the others wait for it."""
    for rank, node in enumerate(nodes(n)):
        entry = gang_rows.entry(rank, gang_rows.REDUCE if rank else gang_rows.LOOP)
        common = {"source": "probe", "severity": records.Severity.INFO, "job_id": BIG, "at": fakes.NOW}
        yield _event(node, "rank_snapshot", detail={"ranks": [entry], "world_size": n}, **common)
        yield _event(node, "rank_stall", **common)


def _others(n: int, event_ids: list[uuid.UUID]) -> dict[sa.Table, list[Any]]:
    day = nightly.day_of(fakes.NOW) - nightly.DAY
    fault = {"xid:gpu3": {"severity": "high", "since": AGO.isoformat(), "code": "79", "device": "gpu3"}}
    return {
        tables.agent_heartbeat: [
            records.AgentHeartbeat(
                cluster="c", node=node, at=fakes.NOW, boot_id="b", jobs=(BIG,), faults=fault,
                ranks={f"{BIG}:{rank}": gang_rows.row(rank, stalled=True, world_size=n)},
            )
            for rank, node in enumerate(nodes(n))
        ],
        tables.job_allocation: [
            records.JobAllocation(cluster="c", node=node, job_id=job, at=AGO, gpu_uuids=(f"GPU-{node}",),
                                  detail={"logs": [{"stream": "stdout", "path": "/x", "tail": "y"}]})
            for node in nodes(n) for job in (7, BIG)
        ],
        tables.check_result: [
            records.CheckResult(cluster="c", node=node, name=name, outcome=records.Outcome.FAIL, severity=records.Severity.LOW, at=AGO, message="x")
            for node in nodes(n) for name in ("memory", "mounts")
        ],
        tables.drain: [
            records.Drain(drain_id=uuid.UUID(int=1 + 3 * i + k), cluster="c", node=node, at=AGO, action=action, reason="probing: x", owner="probing",
                          state=state, event_ids=(event_ids[i],), job_id=7 if action == "requeue" else None)
            for i, node in enumerate(nodes(n)) for k, (action, state) in enumerate((("drain", "done"), ("drain", "denied"), ("requeue", "done")))
        ],
        tables.operator_note: [
            records.OperatorNote(note_id=uuid.uuid4(), cluster="c", at=AGO, author="op", subject=f"node:{node}", action="confirm") for node in nodes(n)
        ],
        tables.lemon_score: [
            records.LemonScore(cluster="c", node=node, day=day, score=0.9, verdict="lemon", made_at=fakes.NOW) for node in nodes(n)
        ],
        tables.run_account: [
            records.RunAccount(cluster="c", run_key=str(key), user=OWNER, start_at=AGO, end_at=fakes.NOW, wall_s=3600.0, made_at=fakes.NOW)
            for key in (7, *range(100, 100 + n))
        ],
        tables.gang_verdict: [
            records.GangVerdict(gang_id=uuid.UUID(int=i + 1), cluster="c", job_id=job, submit_at=AGO, kind="python_loop", domain=records.Domain.USER_PROGRAM,
                                confidence=records.Confidence.LIKELY, summary="x", onset_at=AGO, made_at=fakes.NOW)
            for i, job in enumerate((*(7 for _ in range(n)), *(BIG for _ in range(n)), *range(100, 100 + n)))
        ],
        tables.repair_incident: [
            records.RepairIncident(incident_id=uuid.UUID(int=i + 1), cluster="c", node=node, drain_id=uuid.UUID(int=1 + 3 * i), reason="x", cause="gpu", state="ticket",
                                   why="memory failed", opened_at=AGO, changed_at=fakes.NOW)
            for i, node in enumerate(nodes(n))
        ],
        tables.diagnostic_result: [
            records.DiagnosticResult(result_id=uuid.uuid4(), cluster="c", round_id=ROUND, node=node, test="gemm", outcome=records.Outcome.FAIL, at=AGO)
            for node in nodes(n)
        ],
    }  # fmt: skip


def test_no_page_asks_once_for_each(
    world: World, statements: statement_count.Statements, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As many statements and connections for four times the nodes, jobs and runs, of every page and every answer."""
    operator, owner = world.as_user(OPERATOR), world.as_user(OWNER)
    monkeypatch.setattr(world.site.service, "aside", lambda work: None)  # the fleet's figures
    for age in ("LOOK_S", "WHOLE_S"):
        monkeypatch.setattr(broadcast, age, 0.0)  # what is kept for seconds depends on the machine's speed
    requests = [(operator, path) for path in (*ADDRESSES.values(), *FURTHER.values())]
    requests += [(owner, path) for path in ("/", "/jobs", "/jobs/7", f"/jobs/{BIG}", "/jobs/5000")]
    sent: dict[tuple[bool, str], list[int]] = {}
    for n in (FEW, FEW, FEW, MANY, MANY):  # the first time opens connections
        history(world.store, n)
        rank_history.HISTORIES = rank_history.Histories()
        for browser, path in requests:
            answers: list[Any] = []
            counted = statements.of(lambda b=browser, p=path, into=answers: into.append(b.get(p)))
            assert answers[0].status_code in (200, 303), (path, answers[0].text[-800:])
            sent.setdefault((browser is operator, path), []).append(counted)
        gathered = statements.of(lambda: now.gather(world.site))
        sent.setdefault((True, "what is bad now"), []).append(gathered)
    grown = {about: counts[1:] for about, counts in sent.items() if min(counts[3:]) > max(counts[1:3])}
    assert not grown
    assert all(counts[3] > 0 for (_, path), counts in sent.items() if path != "/api/v1/fleet")


def test_every_address_is_counted_or_says_why_not() -> None:
    pages = {route.path for route in routes.routes() if "GET" in (route.methods or {"GET"})}
    answers = {openapi.BASE + op.path for op in register.OPERATIONS if op.method == "GET"}
    assert ADDRESSES.keys().isdisjoint(UNCOUNTED)
    assert pages | answers == ADDRESSES.keys() | UNCOUNTED.keys()
