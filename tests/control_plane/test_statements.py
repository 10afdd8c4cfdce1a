"""A pass costs as many statements for thirty nodes, jobs and runs as for three: no query in a loop."""

from __future__ import annotations

import dataclasses
import functools
import uuid
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import fakes
import pytest
import sqlalchemy as sa

from probing_cluster.attribution.reliability import accounts as run_accounts
from probing_cluster.control_plane import context
from probing_cluster.control_plane.cli.history import fleet_commands
from probing_cluster.control_plane.gangs import gang_board
from probing_cluster.control_plane.policy import view
from probing_cluster.control_plane.service import metrics
from probing_cluster.control_plane.service.tasks import REGISTER
from probing_cluster.control_plane.service.tasks.jobs import (
    accounting,
    accounts,
    attribution,
    exclusions,
    gangs,
    slow,
)
from probing_cluster.control_plane.service.tasks.nodes import (
    actions,
    clocks,
    drained,
    places,
    resume,
    silence,
    tested,
)
from probing_cluster.control_plane.service.tasks.people import notices
from probing_cluster.core import records
from probing_cluster.db import bulk, delivery, rows, tables
from probing_cluster.db.store import base as store_base
from probing_cluster.lemon import nightly
from tests import statement_count
from tests.control_plane.service.tasks.jobs.test_gangs_task import rank, snapshot, stall

FEW, MANY = 3, 30
AGO = fakes.NOW - timedelta(hours=1)


FILLED = (
    "job_attempt", "health_event", "event_key", "agent_heartbeat", "drain", "verdict", "run_account", "arrival", "state",
    "gang_verdict", "node_request", "lemon_score", "operator_note", "job_exclusion",
    "job_dependency", "diagnostic_result", "node_place", "slurm_drain", "job_allocation", "node_clock",
)  # fmt: skip


@pytest.fixture
def statements(monkeypatch: pytest.MonkeyPatch) -> statement_count.Statements:
    return statement_count.Statements(monkeypatch)


def attempt(number: int, **over: Any) -> records.JobAttempt:
    """A job of two nodes of its own that has died."""
    values: dict[str, Any] = {
        "cluster": "c", "job_id": number, "submit_at": AGO, "start_at": AGO, "end_at": fakes.NOW - timedelta(minutes=20),
        "state": "FAILED", "exit_code": 1, "nodes": (f"n{number}a", f"n{number}b"), "n_gpus": 16, "run_key": str(number), "user": "alice",
    }  # fmt: skip
    return records.JobAttempt(**{**values, **over})


def event(number: int, kind: str, **over: Any) -> records.HealthEvent:
    values: dict[str, Any] = {
        "event_id": uuid.uuid4(), "cluster": "c", "node": f"n{number}a", "at": fakes.NOW - timedelta(minutes=21),
        "observed_at": fakes.NOW, "kind": kind, "severity": records.Severity.HIGH, "source": "kernel", "message": "x",
    }  # fmt: skip
    return records.HealthEvent(**{**values, **over})


def nodes(n: int) -> Iterator[str]:
    return (f"n{number}{part}" for number in range(1, n + 1) for part in "ab")


def beats(service: context.Context, n: int, **over: Any) -> None:
    """The last word of every node, from long ago."""
    heartbeats = [
        records.AgentHeartbeat(cluster="c", node=node, at=AGO, started_at=AGO, boot_id="b", **over)
        for node in nodes(n)
    ]
    with service.store.engine.begin() as connection:
        connection.execute(
            store_base.upsert(tables.agent_heartbeat), [rows.to_row(beat) for beat in heartbeats]
        )
        connection.execute(
            sa.text("UPDATE probing.agent_heartbeat SET received_at = now() - interval '1 hour'")
        )


def store_events(service: context.Context, events: list[records.HealthEvent]) -> None:
    bulk.load_events(service.store.connection_uri(), events)


def dead(service: context.Context, n: int) -> None:
    """Jobs that died of their GPUs, some with a probe."""
    beats(service, n)
    service.store.upsert_attempts([attempt(i) for i in range(1, n + 1)])
    store_events(service, [event(i, "xid", code="79", device="gpu0") for i in range(1, n + 1)])
    common = {"source": "probe", "severity": records.Severity.INFO}
    store_events(service, [event(i, "first_step", job_id=i, **common) for i in range(1, n + 1)])


def stalled(service: context.Context, n: int) -> None:
    """Gangs that stand still, their nodes' snapshots there."""
    beats(service, n)
    running = {"end_at": None, "state": "RUNNING"}
    service.store.upsert_attempts([attempt(i, **running) for i in range(1, n + 1)])
    events = []
    for i in range(1, n + 1):
        events.append(stall(1000 + i, i, f"n{i}a"))
        for number, node in enumerate((f"n{i}a", f"n{i}b")):
            one = snapshot(
                2000 + 2 * i + number, node, *(rank(3 * number + r, arrived=r > 0) for r in range(3))
            )
            events.append(rows.from_row(records.HealthEvent, rows.to_row(one) | {"job_id": i}))
    store_events(service, events)


def training(service: context.Context, n: int) -> None:
    """Gangs that the service meets for the first time."""
    service.store.upsert_attempts([attempt(i, end_at=None, state="RUNNING") for i in range(1, n + 1)])
    beats(service, n)
    with service.store.engine.begin() as connection:
        for i in range(1, n + 1):
            connection.execute(
                sa.text(
                    "UPDATE probing.agent_heartbeat SET ranks = CAST(:ranks AS jsonb) WHERE node = :node"
                ),
                {"node": f"n{i}a", "ranks": f'{{"{i}:0": {{"pid": 1, "alive": true, "steps": 3}}}}'},
            )


def drained_by_us(service: context.Context, n: int) -> None:
    """Nodes of ours that are drained, each for an event of its own; none is well yet."""
    assert isinstance(service.slurm, fakes.FakeSlurm)
    beats(service, n)
    for i in range(1, n + 1):
        why = event(i, "xid", code="79")
        store_events(service, [why])
        service.store.save_drain(
            records.Drain(
                drain_id=uuid.uuid4(),
                cluster="c",
                node=f"n{i}a",
                at=AGO,
                action="drain",
                reason="probing: x",
                owner="probing",
                state="done",
                event_ids=(why.event_id,),
            )
        )
        service.slurm.state[f"n{i}a"] = view.Node(
            name=f"n{i}a", states=frozenset({"DRAIN"}), reason="probing: x"
        )


def finished(service: context.Context, n: int) -> None:
    """Jobs that sacct tells of; nodes could not name their logs."""
    assert isinstance(service.run_slurm, fakes.Sacct)
    start = fakes.NOW - timedelta(minutes=20)
    unnamed = {"logs": [{"unnamed": True, "path": "%A_%a"}]}
    allocations = [
        records.JobAllocation(cluster="c", node="n1", job_id=i, at=start, detail=unnamed)
        for i in range(1, n + 1)
    ]
    delivery.Delivery(service.store.connection_uri(), "c", "n1").deliver(allocations=allocations)
    cancelled = [fakes.row_never_started(1000 + i) for i in range(1, n + 1)]
    service.run_slurm.rows = [*(fakes.row(i) for i in range(1, n + 1)), *cancelled]


def excluding(service: context.Context, n: int) -> None:
    assert isinstance(service.slurm, fakes.FakeSlurm)
    service.slurm.held = {
        i: fakes.live_job(i, excluded_nodes=(f"n{i}a",), dependency=f"afterok:{i + 1000}")
        for i in range(1, n + 1)
    }


def drained_by_slurm(service: context.Context, n: int) -> None:
    """Nodes that Slurm shows drained."""
    assert isinstance(service.slurm, fakes.FakeSlurm)
    service.slurm.state = {
        node: view.Node(name=node, states=frozenset({"DRAIN"}), reason="by hand") for node in nodes(n)
    }


def switched(service: context.Context, n: int) -> None:
    """Nodes under a switch each."""
    assert isinstance(service.slurm, fakes.FakeSlurm)
    service.slurm.switches = [(node, "switch", f"leaf-{node}") for node in nodes(n)]


def failed_tests(service: context.Context, n: int) -> None:
    service.store.add_results(
        [
            records.DiagnosticResult(
                result_id=uuid.uuid4(), cluster="c", round_id=uuid.uuid4(), node=node, test="gemm",
                outcome=records.Outcome.FAIL, message="3 wrong results", device="gpu2", at=AGO,
            )
            for node in nodes(n)
        ]
    )  # fmt: skip


def judged_by_people(service: context.Context, n: int) -> None:
    """Nodes that people have called lemons, each with a score."""
    dead(service, n)
    day = nightly.day_of(fakes.NOW) - nightly.DAY
    service.store.save_lemon_scores(
        [
            records.LemonScore(cluster="c", node=node, day=day, score=0.5, verdict="ok", made_at=fakes.NOW)
            for node in nodes(n)
        ]
    )
    service.store.add_notes(
        [
            records.OperatorNote(
                note_id=uuid.uuid4(),
                cluster="c",
                at=AGO,
                author="op",
                subject=f"node:{node}",
                action="confirm",
            )
            for node in nodes(n)
        ]
    )


def unheard(service: context.Context, n: int) -> None:
    """Agents that fell silent while the service listened, and that it believes to be."""
    dead(service, n)
    now_s = service.clock.monotonic_s()
    listening = service.memory(silence.AgentListening)
    listening.looked_s, listening.looked_at, listening.doubted_s = now_s, service.clock.now(), now_s


def _accounts_of_import(service: context.Context) -> object:
    long_ago = datetime(2000, 1, 1, tzinfo=UTC)
    return run_accounts.update(service.store, service.config.attribution, since=long_ago, at=service.clock)


def _night(service: context.Context) -> object:
    return nightly.score(service.store, service.config, nightly.day_of(fakes.NOW) - nightly.DAY)


def _asks(service: context.Context) -> object:
    known = service.store.attempts(ended=False)
    gang = gang_board.BoardGang(ref="1", job_id=1, cluster="c", attempt=known[0], owners=(), since=AGO)
    return gang_board.ask(service.store, gang)


def with_wrong_clocks(service: context.Context, n: int) -> None:
    """Every second node's clock is an hour ahead, and each reports a fault."""
    dead(service, n)
    with service.store.engine.begin() as connection:
        connection.execute(
            sa.text(
                "INSERT INTO probing.node_clock (cluster, node, from_at, to_at, offset_s, n_beats)"
                " SELECT 'c', node, now() - interval '1 hour', now() + make_interval(secs => number), 3600, 99"
                " FROM unnest(CAST(:nodes AS text[])) WITH ORDINALITY AS n(node, number)"
            ),
            {"nodes": sorted(nodes(n))[::2]},
        )


def one_big_job(service: context.Context, n: int) -> None:
    """A running job on every node."""
    service.store.upsert_attempts([attempt(1, nodes=tuple(nodes(n)), end_at=None, state="RUNNING")])
    beats(service, n, jobs=(1,))


PASSES: dict[str, tuple[Callable[[context.Context, int], None], Callable[[context.Context], object]]] = {
    "accounting": (finished, accounting.run),
    "accounts": (dead, accounts.run),
    "accounts of an import": (dead, _accounts_of_import),
    "actions": (dead, actions.run),
    "ask for stacks": (one_big_job, _asks),
    "attribution": (dead, attribution.run),
    "clocks": (with_wrong_clocks, clocks.run),
    "drained": (drained_by_slurm, drained.run),
    "exclusions": (excluding, exclusions.run),
    "gangs": (stalled, gangs.run),
    "lemon night": (judged_by_people, _night),
    "notices": (drained_by_us, lambda service: notices._due(service, service.clock.now())),
    "metrics": (dead, lambda service: list(metrics.store_metrics(service))),
    "places": (switched, places.run),
    "resume": (drained_by_us, resume.run),
    "silence": (unheard, silence.run),
    "slow": (training, slow.run),
    "tested": (failed_tests, tested.run),
}
UNCOUNTED = {
    "export": "a query a month of history",
    "hangs": "asks a node at a time, of jobs that hang and are to be requeued",
    "lemon": "its night is counted above",
    "mail": "no query: a spool of files",
    "maintenance": "a statement a partition",
    "owners": "mails of owners, one by one",
    "repair": "acts on a node at a time, as many as the budget allows",
    "restarts": "writes each decision down before it acts, at most fifty a pass",
    "sessions": "one statement, whatever there is",
    "write_back": "a command of Slurm's for each line, of jobs just judged",
}
"""Tasks whose statements do not follow nodes, jobs or runs, or must be one each, and why."""


@pytest.mark.parametrize("name", PASSES)
def test_a_pass_does_not_ask_once_for_each(
    name: str, service: context.Context, statements: statement_count.Statements, store: Any
) -> None:
    """As many statements and connections for ten times the nodes, jobs and runs."""
    prepare, work = PASSES[name]
    sent = []
    for n in (FEW, FEW, MANY):  # the first pass opens connections
        service.store.remember(f"{accounting.REQUESTED_LOGS} {service.cluster}", [])
        with store.engine.begin() as connection:
            connection.execute(sa.text(f"TRUNCATE {', '.join(f'probing.{table}' for table in FILLED)}"))
        begun = dataclasses.replace(service)  # a service that remembers nothing of the pass before
        prepare(begun, n)
        sent.append(statements.of(functools.partial(work, begun)))
    _, few, many = sent
    assert 0 < many <= few


def test_a_page_of_figures_reads_the_attempts_once(
    service: context.Context, statements: statement_count.Statements, store: Any
) -> None:
    """Many figures of one span cost hardly more statements than one of them, and are the same."""
    dead(service, FEW)
    about = {"since": AGO - timedelta(days=1), "until": fakes.NOW, "partition": None, "users": None}
    names = ("state-breakdown", "job-sizes", "mttf-by-size", "goodput-loss", "failure-rates")

    def figures(source: Any = None) -> dict[str, Any]:
        return {
            name: fleet_commands.compute(name, store, service.config, about, {}, source).to_json()
            for name in names
        }

    alone = figures()
    shared = statements.of(lambda: figures(fleet_commands.read_once(store)))
    one = statements.of(lambda: fleet_commands.compute(names[0], store, service.config, about, {}))
    assert shared == one
    assert figures(fleet_commands.read_once(store)) == alone


def test_every_task_is_counted_or_says_why_not() -> None:
    names = {task.name for task in REGISTER}
    assert names <= PASSES.keys() | UNCOUNTED.keys()
    assert names >= UNCOUNTED.keys()


def test_a_query_in_a_loop_is_found(service: context.Context, statements: statement_count.Statements) -> None:
    """The count itself: by SQLAlchemy, by psycopg alone and by ADBC."""
    store = service.store
    assert statements.of(lambda: [store.attempts(job_ids=[i]) for i in range(MANY)]) >= MANY
    assert statements.of(lambda: [store.arrow("SELECT 1") for _ in range(MANY)]) >= MANY
    uri = store.connection_uri()
    assert (
        statements.of(lambda: [delivery.Delivery(uri, "c", f"n{i}").deliver() for i in range(MANY)]) >= MANY
    )
