"""The way through service and agents: the same rows as on the node, tables only, and a name for every node that is silent."""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
import time
import zlib
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import hypothesis
import hypothesis.strategies as st
import pytest

from probing_cluster.control_plane.gangs import mailbox
from probing_cluster.core import errors, records, settings
from probing_cluster.db import delivery
from probing_cluster.db import store as db_store
from probing_cluster.live import packing
from probing_cluster.live.session import session
from probing_cluster.live.table import Scan
from probing_cluster.live.ways import agents, choosing, patience
from probing_cluster.probe_agent import children, identity
from probing_cluster.probe_agent.faults import faults
from probing_cluster.probe_agent.hooks import fitness, questions, requests
from probing_cluster.probe_agent.jobs import jobs, page_directories
from probing_cluster.probe_agent.spool import delivery_loop, intake, spool
from probing_cluster.reports import source

JOB = 7
STATEMENTS = (
    "SELECT rank, alive, step, inside, inside_seq FROM cluster.ranks ORDER BY rank",
    "SELECT rank, count(*) AS n, max(step) AS most FROM torch.steps WHERE step > 10 GROUP BY rank ORDER BY rank",
    "SELECT r.rank, c.op, c.bytes FROM cluster.ranks r JOIN torch.collectives c ON c.rank = r.rank WHERE c.done ORDER BY 1, c.seq LIMIT 5",
    "SELECT rank, value FROM process.envs WHERE name = 'OF_THE_JOB' ORDER BY rank",
)


class Agent:
    """Delivery, requests and questions of a node's agent, in a thread, on a real database."""

    def __init__(self, directory: Path, job_directory: Path, url: str) -> None:
        self._stop = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._live(directory, job_directory, url)))
        self._thread.start()

    async def _live(self, directory: Path, job_directory: Path, url: str) -> None:
        # Here, since the spool's database belongs to one thread.
        kept = spool.Spool(directory / "spool", max_bytes=10_000_000)
        book = jobs.JobBook("b")
        job = book.start(
            jobs.NodeJob(job_id=JOB, started_at=datetime.now(UTC), uid=os.getuid(), gid=os.getgid())
        )
        here = identity.Identity(cluster="c", node="n1", root=directory)
        taken = intake.Intake(identity=here, spool=kept, faults=faults.Faults("b"))
        taken.store([job.item(here)])
        loop = delivery_loop.DeliveryLoop(
            door=lambda: delivery.Delivery(url, "c", "n1", keep_open=True),
            spool=kept,
            intake=taken,
            heartbeat=lambda: records.AgentHeartbeat(
                cluster="c", node="n1", at=datetime.now(UTC), jobs=(JOB,)
            ),
            beat_s=lambda: 0.3,
            on_request=lambda request: handled.handle(request),
        )
        outside: Any = None
        tasks: set[asyncio.Task[None]] = set()
        handled = requests.Requests(
            outside=outside,
            book=book,
            permissions=fitness.Permissions(),
            acknowledge=loop.acknowledge,
            forget=loop.forget,
            spawn=lambda work: tasks.add(asyncio.get_running_loop().create_task(work)),
            questions=questions.Questions(
                children=children.Children(),
                book=book,
                pages=page_directories.PageDirectories(job_directory),
                node="n1",
                answer=loop.answer,
            ),
        )
        await loop.once(beat=True)
        running = asyncio.create_task(loop.run())
        while not self._stop.is_set():  # noqa: ASYNC110 - set from another thread
            await asyncio.sleep(0.05)
        running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await running
        loop.close()
        kept.close()

    def stop(self) -> None:
        """Ends it."""
        self._stop.set()
        self._thread.join()


@pytest.fixture
def config(job: Any, postgres_url: str) -> settings.Settings:
    """The asker's settings: the database is its own to open."""
    return settings.parse(
        f'[cluster]\nname = "c"\n[database]\nurl = "{postgres_url}"\n[service]\nsocket = "/nonexistent/s"\n'
        f'[agent]\nnode = "n1"\njob_directory = "{job.directory.parent}"\n'
    )


@pytest.fixture
def agent(job: Any, tmp_path: Path, postgres_url: str) -> Iterator[Agent]:
    """The agent of the node where the job runs."""
    made = Agent(tmp_path, job.directory.parent, postgres_url)
    yield made
    made.stop()


def by_agents(config: settings.Settings, timeout_s: float = 20.0) -> session.Session:
    nodes = choosing.open_nodes(config, str(JOB), "agents", lambda: mailbox.JobMailbox(config, str(JOB)))
    assert nodes.way == "agents"
    return session.Session(nodes, timeout_s=timeout_s)


def wait_for_beat(url: str, node: str) -> None:
    """An agent that reports the job once and is silent from then on."""
    beat = records.AgentHeartbeat(cluster="c", node=node, at=datetime.now(UTC), jobs=(JOB,))
    delivery.Delivery(url, "c", node).deliver(heartbeat=beat)


def wait_for(url: str) -> None:
    """Until the agent has been heard."""
    with db_store.Store.open(url) as store:
        end_s = time.monotonic() + 60
        while not store.heartbeats(job_id=JOB):
            assert time.monotonic() < end_s
            time.sleep(0.05)


def test_the_rows_are_those_of_the_node_itself(
    agent: Agent, config: settings.Settings, asking: session.Session, postgres_url: str
) -> None:
    """Every statement, with conditions, joins and limits, gives by the agents what it gives on the node."""
    wait_for(postgres_url)
    calls = by_agents(config)
    for statement in STATEMENTS:
        result, local = calls.sql(statement), asking.sql(statement)
        assert result.missing == ()
        assert result.rows.to_pylist() == local.rows.to_pylist()
        assert result.rows.num_rows > 0
    assert calls.sql("SELECT table_name FROM information_schema.tables").rows.num_rows > 20


def test_an_expression_is_refused_before_it_travels(
    agent: Agent, config: settings.Settings, postgres_url: str
) -> None:
    """Here, at the service's door, and by the database when it would be handed over; the agent's own: test_questions."""
    wait_for(postgres_url)
    with pytest.raises(errors.NotPermitted, match="only the job's owner may evaluate"):
        by_agents(config).sql("SELECT * FROM python.`1 + 1`")
    box = mailbox.JobMailbox(config, str(JOB))
    with pytest.raises(errors.NotPermitted, match="only the job's owner may evaluate"):
        box.post('[{"table": "python.1 + 1"}]', 1.0)
    with db_store.Store.open(postgres_url) as store:
        calls = store.request(
            "n2", "ask", JOB, 60.0, {"scans": [{"table": "python.1 + 1"}], "deadline_s": 1}, "c"
        )
        handed = delivery.Delivery(postgres_url, "c", "n2").deliver().requests
        assert handed == ()
        assert store.request_states([calls]) == {calls: "open"}


def test_a_node_without_an_answer_is_named_in_time(
    agent: Agent, config: settings.Settings, postgres_url: str
) -> None:
    """One agent has died since: the other's rows are there, and the silent one is a row of cluster.missing."""
    wait_for(postgres_url)
    wait_for_beat(postgres_url, "n2")
    calls = by_agents(config, 3.0)
    for _ in range(20):  # the first one in time: a busy machine may need more than the first
        result = calls.sql("SELECT rank FROM cluster.ranks")
        if result.rows.num_rows:
            break
    assert result.rows.num_rows == 4
    assert [(m.node, m.reason) for m in result.missing] == [("n2", "its agent brought no answer in 3 s")]


class ScriptedMailbox:
    """Agents of n1 and n2: each question is answered at once by `answering`, and by `late` when it is looked at again."""

    def __init__(self) -> None:
        self.answering, self.late = {"n1"}, set[str]()
        self.posted: list[str] = []

    def nodes(self) -> tuple[str, ...]:
        return ("n1", "n2")

    def post(self, scans: str, deadline_s: float) -> agents.PostedQuestion:
        self.posted.append(f"question {len(self.posted)}")
        return agents.PostedQuestion(question=self.posted[-1], nodes=self.nodes())

    def take(self, question: str, mark: str | None) -> agents.TakenAnswers:
        came = self.answering if question == self.posted[-1] else self.late
        return agents.TakenAnswers(answers=dict.fromkeys(came, b"F" + EMPTY), mark="later")


EMPTY = packing.bundle([], 1 << 20) or b""
SCAN = [Scan(table="cluster.ranks")]


def test_a_silent_agent_is_waited_for_once_and_again_when_it_has_answered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """`--watch` goes on at the speed of the agents that answer; the silent one is named each time."""
    monkeypatch.setattr(agents, "POLL_S", 0.001)
    box = ScriptedMailbox()
    calls = agents.AgentNodes(box)
    first = calls.ask(SCAN, 0.01)
    assert [(m.node, m.reason) for m in first.missing] == [("n2", "its agent brought no answer in 0.01 s")]
    calls._patience.remember({"n2"}, set(), 3600.0)
    for _ in range(3):
        reply = calls.ask(SCAN, 3600.0)  # with the agent waited for, it would take the hour
        assert reply.answered == {"n1"}
        assert [m.node for m in reply.missing] == ["n2"]
        assert reply.missing[0].reason.endswith("in 3600 s; not waited for again before it answers")
    box.answering = box.late = {"n1", "n2"}  # the earlier question, too, has its answer by now
    assert calls._back() == {"n1", "n2"}
    assert calls.ask(SCAN, 3600.0).answered == {"n1", "n2"}
    assert calls.ask(SCAN, 3600.0).missing == []


def test_a_silent_agent_is_waited_for_where_more_time_is_given_or_nobody_else_is_left() -> None:
    patient = patience.Patience()
    patient.remember({"n2"}, set(), 1.0)
    assert patient.lost({"n1", "n2"}, set(), 1.0) == {"n2"}
    assert patient.lost({"n1", "n2"}, set(), 2.0) == set()
    assert patient.lost({"n2"}, set(), 1.0) == set()
    patient.remember({"n2"}, {"n2"}, 0.5)
    assert patient.lost({"n1", "n2"}, set(), 1.0) == {"n2"}


def test_whom_the_service_refuses_finds_the_answers_where_the_question_is(
    config: settings.Settings, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The service refuses the question and has no answers for that account; the database took it under the asker's own role."""

    def ask(*_: object, op: str, **__: object) -> dict[str, object]:
        if op == "answers":
            return {"answers": {}, "mark": None}
        raise errors.NotPermitted("another user's")

    monkeypatch.setattr(source, "_service", lambda _: ask)
    wait_for_beat(postgres_url, "n1")
    allocation = records.JobAllocation(cluster="c", node="n1", job_id=JOB, at=datetime.now(UTC), uid=7)
    delivery.Delivery(postgres_url, "c", "n1").deliver(allocations=[allocation])
    box = mailbox.JobMailbox(config, str(JOB))
    posted = box.post('[{"table": "cluster.ranks"}]', 5.0)
    agent = delivery.Delivery(postgres_url, "c", "n1")
    (request,) = agent.deliver().requests
    agent.deliver(answers=[(request.request_id, b"Frows")])
    assert box.take(posted.question, None).answers == {"n1": b"Frows"}


def test_a_job_that_nobody_reports_is_not_found(config: settings.Settings) -> None:
    with pytest.raises(errors.NotFound, match="not known"):
        by_agents(config)


def test_long_conditions_stay_behind_and_too_long_statements_are_refused() -> None:
    """The asker filters again, so a condition may be dropped on the way; columns too; then it is an error."""
    scan = Scan(
        table="cluster.ranks",
        columns=("rank",),
        condition={"op": "=", "column": "rank", "value": "x" * 5000},
        limit=4,
    )
    sent = agents.written([scan])
    assert "xxx" not in sent
    assert '"limit":null' in sent  # a limit without its condition would lose rows
    assert '["rank"]' in sent
    wide = Scan(table="cluster.ranks", columns=tuple(f"column{n}" for n in range(500)))
    assert '"columns":null' in agents.written([wide])
    with pytest.raises(errors.UsageError):
        agents.written([Scan(table=f"cluster.{'t' * 150}{n}") for n in range(16)])
    with pytest.raises(errors.UsageError):
        agents.written([scan] * 17)


@hypothesis.given(st.binary(max_size=400))
@hypothesis.example(zlib.compress(b"\x05\x00\x00\x00ab"))
@hypothesis.example(zlib.compress(b"\xff\xff\xff\xff"))
@hypothesis.example(zlib.compress(b"\x01\x00\x00\x00a") + b"more")
def test_a_hostile_answer_is_damaged_not_a_crash(body: bytes) -> None:
    for raw in (body, zlib.compress(body)):
        try:
            found = packing.frames_of(raw, 1 << 16)
        except errors.MalformedInput:
            continue
        assert sum(map(len, found)) <= len(body)


def test_an_answer_that_unpacks_to_more_than_it_may_is_refused() -> None:
    """A few kilobytes that would become gigabytes."""
    bomb = packing.bundle([bytes(50_000_000)], 1 << 20)
    assert bomb is not None
    with pytest.raises(errors.MalformedInput, match="unpacks to more"):
        packing.frames_of(bomb, 1 << 20)


@pytest.mark.parametrize("frames", [[], [b""], [b"a", b"", b"bc" * 1000]])
def test_a_bundle_comes_back_as_it_was(frames: list[bytes]) -> None:
    body = packing.bundle(frames, 1 << 20)
    assert body is not None
    assert packing.frames_of(body, 1 << 20) == frames
    assert packing.bundle([os.urandom(3000)], 2000) is None
