"""How deliveries are gathered, and whom a refused one keeps apart; the database is played."""

from __future__ import annotations

import asyncio
import json
import threading
from typing import Any

import psycopg
import pytest

from probing_cluster.control_plane.node_door import batches
from probing_cluster.db import plain, roles

STORED = '{"accepted": 1, "duplicates": 0, "rejected": 0, "requests": []}'


class PlayedDatabase:
    """Answers batches as it is set to; notes who came together."""

    def __init__(self) -> None:
        self.together: list[list[str]] = []
        self.answers: dict[str, str] = {}

    def __call__(self, batch: list[batches.Waiting]) -> list[str]:
        self.together.append([item.role for item in batch])
        return [self.answers.get(item.role, STORED) for item in batch]


@pytest.fixture
def database(monkeypatch: pytest.MonkeyPatch) -> PlayedDatabase:
    """The database behind every connection of the batches."""
    played = PlayedDatabase()
    monkeypatch.setattr(batches._Connection, "call", lambda _, batch: played(batch))
    return played


def send(gathered: batches.DeliveryBatches, *names: str, load: bytes = b"{}") -> list[Any]:
    """The answers to one delivery of each role, handed in together."""
    answers: list[Any] = []
    for role in names:
        gathered.put(role, load, lambda body: answers.append(json.loads(body)))
    return answers


async def all_answered(answers: list[Any], n: int) -> None:
    """Waits for the answers to so many deliveries."""
    async with asyncio.timeout(60):
        while len(answers) < n:  # noqa: ASYNC110 - the batches call back, they set no event
            await asyncio.sleep(0.01)


def test_a_refused_node_is_kept_apart_and_the_others_stay_together(database: PlayedDatabase) -> None:
    """Whichever field of the refusal comes first: the sender is told, counted, and goes alone for a while."""

    async def delivered() -> tuple[list[Any], int]:
        gathered = batches.DeliveryBatches("", connections=1, gather_s=0.01)
        database.answers = {
            "n1": '{"sqlstate": "22P02", "error": "no JSON"}',
            "n2": '{"error": "too many", "sqlstate": "53400"}',
        }
        answers = send(gathered, "n1", "n2", "n3")
        await all_answered(answers, 3)
        database.answers = {}
        send(gathered, "n3", "n1", "n4", "n2")
        await gathered.finish()
        return answers, gathered.failed_total

    answers, failed = asyncio.run(delivered())
    assert [a.get("sqlstate") for a in answers] == ["22P02", "53400", None]
    assert failed == 2
    assert database.together == [["n1", "n2", "n3"], ["n3"], ["n1"], ["n4"], ["n2"]]


def test_a_session_that_may_not_write_is_not_used_again(postgres_url: str) -> None:
    """The door's few sessions outlive an outage: a read-only one is given back, nobody is kept apart, and the next batch is stored."""
    name = postgres_url.partition("@/")[2].partition("?")[0]
    role = roles.add_agent(postgres_url, "c", "n1")

    load = plain.dumps({"refused": [{"reason": "events: 22003", "n_rows": 1, "sample": ""}]}).encode()

    async def outage() -> tuple[list[Any], dict[str, float]]:
        gathered = batches.DeliveryBatches(postgres_url, connections=1, gather_s=0.01)
        answers = send(gathered, role, load=load)
        await all_answered(answers, 1)
        during = list(answers)
        owner.execute(f"ALTER DATABASE {name} RESET default_transaction_read_only")
        answers = send(gathered, role, load=load)
        await all_answered(answers, 1)
        await gathered.finish()
        return during + answers, gathered._alone

    with psycopg.connect(postgres_url, autocommit=True) as owner:
        owner.execute(f"ALTER DATABASE {name} SET default_transaction_read_only = on")
        try:
            answers, alone = asyncio.run(outage())
        finally:
            roles.remove(postgres_url, role)
    assert [a.get("sqlstate") for a in answers] == ["25006", None]
    assert not alone


def test_an_event_that_quotes_a_refusal_keeps_nobody_apart(database: PlayedDatabase) -> None:
    """Requests hold words of operators; only the answer's own field counts."""

    async def delivered() -> int:
        gathered = batches.DeliveryBatches("", connections=1, gather_s=0.01)
        quoting = {"accepted": 1, "requests": [{"detail": {"note": 'see "sqlstate" 53400'}}]}
        database.answers = {"n1": json.dumps(quoting)}
        await all_answered(send(gathered, "n1", "n2"), 2)
        send(gathered, "n1", "n2")
        await gathered.finish()
        return gathered.failed_total

    assert asyncio.run(delivered()) == 0
    assert database.together == [["n1", "n2"]] * 2


def test_a_node_has_one_delivery_under_way(database: PlayedDatabase, monkeypatch: pytest.MonkeyPatch) -> None:
    """A node whose rows are slow comes again and again: it takes one connection, and the others deliver."""
    let_go = threading.Event()

    def call(_: object, batch: list[batches.Waiting]) -> list[str]:
        if any(item.role == "n1" for item in batch):
            let_go.wait(60)
        return database(batch)

    monkeypatch.setattr(batches._Connection, "call", call)

    async def delivered() -> list[Any]:
        gathered = batches.DeliveryBatches("", connections=2, gather_s=0)
        slow = [send(gathered, "n1") for _ in range(5)]
        await all_answered(send(gathered, "n2"), 1)
        refused = [answer for answers in slow for answer in answers]
        let_go.set()
        await gathered.finish()
        assert slow[0][0]["accepted"] == 1
        return refused

    assert [a["sqlstate"] for a in asyncio.run(delivered())] == ["53300"] * 4
