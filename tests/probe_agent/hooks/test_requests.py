"""What the service, or whoever writes in its place, may answer: whatever it is, the agent goes on delivering."""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import Coroutine, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import hypothesis
import hypothesis.strategies as st
import psycopg
import pytest

from probing_cluster.core import records
from probing_cluster.db import delivery, roles
from probing_cluster.db.server import embedded
from probing_cluster.probe_agent import children, identity
from probing_cluster.probe_agent.faults import faults
from probing_cluster.probe_agent.hooks import fitness, questions, requests
from probing_cluster.probe_agent.jobs import jobs, page_directories
from probing_cluster.probe_agent.spool import delivery_loop, intake, spool

NOW = datetime.now(UTC)
SOON = (NOW + timedelta(hours=1)).isoformat()
_WORDS = st.one_of(
    st.none(), st.booleans(), st.integers(-(10**400), 10**400), st.floats(allow_nan=False, allow_infinity=False),
    st.sampled_from(["", "collect", "keep_log", "recheck", "refusal_permission", "ask", "infinity", "1e131000", SOON, "10000-01-01T00:00:00+00:00",
                     "2026-01-01T00:00:00", str(uuid.UUID(int=1)), "faults", "event_ids"]),
)  # fmt: skip
ANY = st.recursive(_WORDS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(
    ["faults", "event_ids", "clear", "relearn", "requests", "detail"]), inner, max_size=3), max_leaves=6)  # fmt: skip
_GOOD = {
    "request_id": str(uuid.UUID(int=1)),
    "verb": "refusal_permission",
    "job_id": 7,
    "expires_at": SOON,
    "detail": {},
}
REQUEST = (
    st.dictionaries(st.sampled_from(sorted(_GOOD)), ANY, max_size=3).map(lambda wrong: _GOOD | wrong) | ANY
)
ANSWER = ANY | st.fixed_dictionaries(
    {
        "accepted": ANY | st.just(0),
        "rejected": ANY | st.just(0),
        "duplicates": ANY | st.just(0),
        "requests": ANY | st.lists(REQUEST, max_size=4),
    }
)


def job(**changes: Any) -> jobs.NodeJob:
    """A job that runs here."""
    return jobs.NodeJob(job_id=7, started_at=NOW, **changes)


class Outside:
    """The parts of an agent that requests reach."""

    def collect_from(self, job: Any) -> None:
        """Nothing runs here."""
        raise AssertionError(job)

    async def keep_log(self, job: Any, most_bytes: int) -> None:
        """Nothing has run here."""
        raise AssertionError(job, most_bytes)

    async def recheck(self, *, clear: bool = False, relearn: bool = False) -> None:
        """Only flags arrive."""
        assert {type(clear), type(relearn)} == {bool}


class Book:
    """No job runs."""

    def get(self, job_id: int) -> None:
        assert isinstance(job_id, int)


class Agent:
    """Spool, delivery and requests of an agent on a real database."""

    def __init__(self, directory: Path, url: str) -> None:
        self.spool = spool.Spool(directory / "spool", max_bytes=10_000_000)
        self.permissions = fitness.Permissions()
        node_identity = identity.Identity(cluster="c", node="n1", root=directory)
        self.loop = delivery_loop.DeliveryLoop(
            door=lambda: delivery.Delivery(url, "c", "n1", keep_open=True),
            spool=self.spool,
            intake=intake.Intake(identity=node_identity, spool=self.spool, faults=faults.Faults("b")),
            heartbeat=lambda: records.AgentHeartbeat(cluster="c", node="n1", at=NOW),
            beat_s=lambda: 10.0,
            on_request=lambda request: self.requests.handle(request),
        )
        self.requests = requests.Requests(
            outside=Outside(),  # type: ignore[arg-type]
            book=Book(),  # type: ignore[arg-type]
            permissions=self.permissions,
            acknowledge=self.loop.acknowledge,
            forget=self.loop.forget,
            spawn=self.spawned,
            questions=questions.Questions(
                children=children.Children(),
                book=Book(),  # type: ignore[arg-type]
                pages=page_directories.PageDirectories(directory),
                node="n1",
                answer=self.loop.answer,
            ),
        )

    def spawned(self, work: Coroutine[Any, Any, None]) -> None:
        """Run it at once."""
        with pytest.raises(StopIteration):
            work.send(None)


@pytest.fixture
def answering(postgres_url: str) -> str:
    """A database whose delivery function answers what table public.answer holds."""
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        row = connection.execute(
            "SELECT oid::regprocedure::text, pg_get_function_arguments(oid) FROM pg_proc WHERE proname = 'deliver'"
        ).fetchone()
        assert row is not None
        connection.execute("CREATE TABLE public.answer (value jsonb)")
        connection.execute(f"DROP FUNCTION {row[0]}")
        connection.execute(
            f"CREATE FUNCTION probing.deliver({row[1]}) RETURNS jsonb LANGUAGE sql AS 'SELECT value FROM public.answer'"
        )
    return postgres_url


@hypothesis.settings(suppress_health_check=[hypothesis.HealthCheck.function_scoped_fixture])
@hypothesis.given(answer=ANSWER)
@hypothesis.example(answer={"requests": [_GOOD | {"expires_at": "infinity"}]})
@hypothesis.example(answer={"requests": [_GOOD | {"detail": {"faults": 5}}]})
@hypothesis.example(answer={"requests": [_GOOD | {"detail": {"x": 10**5000}}]})
@hypothesis.example(answer={"requests": [_GOOD | {"expires_at": "2026-01-01T00:00:00"}]})
def test_an_agent_survives_any_answer(
    answer: Any, answering: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Whatever comes back, delivery neither raises nor stands still, and what is unreadable permits nothing."""
    # Python reads and writes no number of so many digits by itself.
    text = json.dumps(answer if "10000000" not in repr_of(answer) else None)
    if text == "null":
        text = '{"requests": [{"expires_at": 1e131000, "x": 1e131000}]}'
    with psycopg.connect(answering, autocommit=True) as connection:
        connection.execute("TRUNCATE public.answer")
        connection.execute("INSERT INTO public.answer VALUES (%s)", [text])
    agent = Agent(tmp_path_factory.mktemp("agent"), answering)
    try:
        for _ in range(2):
            asyncio.run(agent.loop.once(beat=True))
        fault = faults.Fault(
            kind="xid", device="gpu3", severity=records.Severity.HIGH, since=NOW, confirmed_at=NOW, message="", source="kernel",
            event_ids=["e"],
        )  # fmt: skip
        held = agent.permissions.for_fault(fault, NOW)
        assert held is None or all(isinstance(held.detail.get(k, []), list) for k in ("faults", "event_ids"))
    finally:
        agent.loop.close()
        agent.spool.close()


def repr_of(answer: Any) -> str:
    """The answer in words, its longest numbers shortened."""
    try:
        return repr(answer)
    except ValueError:  # more digits than Python writes
        return "10000000"


def test_a_recheck_that_fails_is_tried_again(
    answering: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is acknowledged only when it has been done."""
    begun: list[bool] = []

    async def fail_once(_: Outside, *, clear: bool, relearn: bool) -> None:
        begun.append(clear or relearn)
        if len(begun) == 1:
            raise OSError("no more processes")

    monkeypatch.setattr(Outside, "recheck", fail_once)
    with psycopg.connect(answering, autocommit=True) as connection:
        answer = {"requests": [_GOOD | {"verb": "recheck"}]}
        connection.execute("INSERT INTO public.answer VALUES (%s)", [json.dumps(answer)])
    agent = Agent(tmp_path, answering)
    try:
        pending = []
        for _ in range(3):
            asyncio.run(agent.loop.once(beat=True))
            pending.append(set(agent.loop._to_acknowledge))
    finally:
        agent.loop.close()
        agent.spool.close()
    assert len(begun) == 2
    assert pending[:2] == [set(), {uuid.UUID(_GOOD["request_id"])}]


@pytest.fixture
def operator_url(postgres_url: str) -> Iterator[str]:
    """The database as an operator."""
    roles.add_login(postgres_url, "requests_operator", "probing_operator")
    yield postgres_url.replace(f"{embedded.OWNER}@", "requests_operator@")
    roles.remove(postgres_url, "requests_operator")


INSERT = (
    "INSERT INTO probing.node_request (request_id, cluster, node, verb, expires_at, detail)"
    " VALUES (gen_random_uuid(), 'c', 'n1', 'recheck', %s, %s)"
)


@pytest.mark.parametrize(
    ("expires_at", "detail"),
    [("infinity", "{}"), ("20000-01-01", "{}"), ("9999-12-31", "{}"), (SOON, "[1]"), (SOON, "null"), (SOON, '{"x": "' + "a1b2c3" * 50_000 + '"}')],
    ids=("infinity", "year-20000", "year-9999", "list", "null", "huge"),
)  # fmt: skip
def test_an_operator_asks_for_nothing_an_agent_cannot_read(
    expires_at: str, detail: str, postgres_url: str, operator_url: str
) -> None:
    """The database refuses such a request, and hands over none that is there already."""
    with (
        psycopg.connect(operator_url, autocommit=True) as connection,
        pytest.raises(psycopg.errors.InsufficientPrivilege),
    ):
        connection.execute(INSERT, [expires_at, detail])
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute(INSERT, [expires_at, detail])
        connection.execute(INSERT, [SOON, '{"clear": true}'])
    handed = delivery.Delivery(postgres_url, "c", "n1").deliver().requests
    assert {"clear": True} in [r.detail for r in handed]
    assert all(r.expires_at < NOW + timedelta(days=1) or expires_at == "9999-12-31" for r in handed)


@pytest.mark.parametrize(
    ("shown", "kept"),
    [
        ([None], 0),
        ([job(), job(released_at=NOW)], 1),
        ([job(), job(restart_count=1)], 0),
        ([job()] * 1000, 0),
    ],
    ids=("unknown", "ending", "started again", "runs on"),
)
def test_a_log_is_kept_once_the_epilog_has_run(
    shown: list[jobs.NodeJob | None], kept: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Accounting may tell an end before the node's Epilog: what its job still writes would be missing in the copy."""
    monkeypatch.setattr(requests, "_LOOK_S", 0.01)
    monkeypatch.setattr(requests, "RELEASE_S", 0.1)
    copied, acknowledged, begun = list[int](), list[uuid.UUID](), list[Coroutine[Any, Any, None]]()

    class Copying(Outside):
        async def keep_log(self, job: Any, most_bytes: int) -> None:
            copied.append(most_bytes)

    class Jobs:
        def get(self, job_id: int) -> jobs.NodeJob | None:
            return shown.pop(0) if len(shown) > 1 else shown[0]

    wanted = delivery.Request(
        request_id=uuid.uuid4(),
        verb="keep_log",
        job_id=7,
        detail={"most_bytes": 5},
        expires_at=NOW + timedelta(1),
    )
    made = requests.Requests(
        outside=Copying(),  # type: ignore[arg-type]
        book=Jobs(),  # type: ignore[arg-type]
        permissions=fitness.Permissions(),
        acknowledge=acknowledged.append,
        forget=acknowledged.remove,
        spawn=begun.append,
        questions=None,  # type: ignore[arg-type]
    )
    made.handle(wanted)
    asyncio.run(begun[0])
    assert (copied, acknowledged) == ([5] * kept, [wanted.request_id])
