"""Answers of nodes: taken once, from the node that was asked, while somebody waits; and who may ask what."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import psycopg
import pytest

from probing_cluster.core import errors
from probing_cluster.db import delivery, roles
from probing_cluster.db import store as db_store
from probing_cluster.db.server import embedded

SCANS = [{"table": "cluster.ranks"}]


def ask(
    store: db_store.Store, node: str = "n1", ttl_s: float = 60.0, **detail: Any
) -> tuple[uuid.UUID, uuid.UUID]:
    """(request, question) of an open question to a node."""
    question = uuid.uuid4()
    given = {"question": str(question), "by": "ada", "scans": SCANS, "deadline_s": 1.0} | detail
    return store.request(node, "ask", 7, ttl_s, given, "c"), question


def bodies(store: db_store.Store, question: uuid.UUID, by: str = "ada") -> list[tuple[str, bytes]]:
    return [(node, body) for node, body, _ in store.answers(question, by, None, 1 << 20)]


def test_an_answer_is_for_who_asked_and_ends_the_request(store: db_store.Store) -> None:
    """The asker finds it, by no other's name; the request is done."""
    request, question = ask(store)
    node = delivery.Delivery(store.connection_uri(), "c", "n1")
    assert [r.request_id for r in node.deliver().requests] == [request]
    node.deliver(answers=[(request, b"Fbody\0")])
    assert bodies(store, question) == [("n1", b"Fbody\0")]
    assert bodies(store, question, "bob") == []
    assert bodies(store, uuid.uuid4()) == []
    assert store.request_states([request]) == {request: "acknowledged"}
    assert node.deliver().requests == ()


def test_only_an_open_question_to_this_node_is_answered_and_once(store: db_store.Store) -> None:
    """Another node's, one of another verb, one that is over, one made up; and a second answer."""
    mine, question = ask(store)
    others, of_others = ask(store, "n2")
    over, of_over = ask(store, ttl_s=-1.0)
    recheck = store.request("n1", "recheck", cluster="c")
    node = delivery.Delivery(store.connection_uri(), "c", "n1")
    node.deliver(answers=[(i, b"F1") for i in (mine, mine, others, over, recheck, uuid.uuid4())])
    node.deliver(answers=[(mine, b"F2")])
    assert bodies(store, question) == [("n1", b"F1")]
    assert bodies(store, of_others) == bodies(store, of_over) == []
    assert store.request_states([others]) == {others: "open"}


def test_answers_are_bounded_and_go_after_ten_minutes(store: db_store.Store) -> None:
    """One of more than 4 MiB is refused alone, with what else is delivered kept; a node's answers hold 64 MiB at most."""
    node = delivery.Delivery(store.connection_uri(), "c", "n1")
    large, of_large = ask(store)
    small, of_small = ask(store)
    ack = node.deliver(answers=[(large, bytes((4 << 20) + 1)), (small, b"F")])
    assert (ack.rejected, bodies(store, of_large), bodies(store, of_small)) == (1, [], [("n1", b"F")])
    with psycopg.connect(store.connection_uri(), autocommit=True) as connection:
        connection.execute(
            "INSERT INTO probing.node_answer (request_id, cluster, node, body, made_at)"
            " SELECT gen_random_uuid(), 'c', 'n1', convert_to(repeat('x', 7000000), 'UTF8'), now() FROM generate_series(1, 10)"
        )
        request, question = ask(store)
        node.deliver(answers=[(request, b"F")])
        assert bodies(store, question) == []
        connection.execute("UPDATE probing.node_answer SET made_at = now() - interval '11 minutes'")
        request, question = ask(store)
        node.deliver(answers=[(request, b"F")])
        assert bodies(store, question) == [("n1", b"F")]
        assert connection.execute("SELECT count(*) FROM probing.node_answer").fetchone() == (1,)


def test_many_answers_come_in_parts(store: db_store.Store) -> None:
    """A look takes no more than it asks for, and the next goes on where it ended."""
    question = uuid.uuid4()
    for number in range(5):
        given = {"question": str(question), "by": "ada", "scans": SCANS, "deadline_s": 1.0}
        request = store.request(f"n{number}", "ask", 7, 60.0, given, "c")
        delivery.Delivery(store.connection_uri(), "c", f"n{number}").deliver(answers=[(request, b"x" * 100)])
    after: datetime | None = None
    found: list[str] = []
    while part := store.answers(question, "ada", after, 250):
        assert len(part) <= 3
        found += [node for node, _, _ in part]
        after = part[-1][2].astimezone(UTC)
    assert found == [f"n{n}" for n in range(5)]


def test_questions_hold_up_no_permission(store: db_store.Store) -> None:
    """However many questions wait, what the service itself asks is handed over with the next delivery."""
    for _ in range(120):
        ask(store)
    permission = store.request("n1", "refusal_permission", cluster="c")
    handed = delivery.Delivery(store.connection_uri(), "c", "n1").deliver().requests
    assert len(handed) == 100
    assert permission in {r.request_id for r in handed}


@pytest.fixture
def operator(postgres_url: str) -> Iterator[psycopg.Connection[Any]]:
    """The database as an operator."""
    roles.add_login(postgres_url, "answers_operator", "probing_operator")
    with psycopg.connect(
        postgres_url.replace(f"{embedded.OWNER}@", "answers_operator@"), autocommit=True
    ) as made:
        yield made
    roles.remove(postgres_url, "answers_operator")


INSERT = (
    "INSERT INTO probing.node_request (request_id, cluster, node, verb, job_id, expires_at, detail)"
    " VALUES (gen_random_uuid(), 'c', 'n1', 'ask', 7, now() + %s::interval, %s)"
)


@pytest.mark.parametrize(
    ("ttl", "detail"),
    [
        ("1 minute", '{"by": "uid 1000", "scans": [{"table": "cluster.ranks"}]}'),
        ("1 minute", '{"scans": [{"table": "cluster.ranks"}]}'),
        ("1 minute", '{"by": "answers_operator", "scans": [{"table": "python.1+1"}]}'),
        ("1 minute", '{"by": "answers_operator", "scans": [{"table": "a.b"}, {"table": "python.`f()`"}]}'),
        ("1 minute", '{"by": "answers_operator", "scans": []}'),
        ("1 minute", '{"by": "answers_operator", "scans": {"table": "a.b"}}'),
        ("1 minute", '{"by": "answers_operator", "scans": [null]}'),
        ("1 minute", '{"by": "answers_operator"}'),
        ("2 hours", '{"by": "answers_operator", "scans": [{"table": "cluster.ranks"}]}'),
    ],
)
def test_an_operator_asks_for_tables_under_the_own_name(
    operator: psycopg.Connection[Any], ttl: str, detail: str
) -> None:
    """Not in somebody's name, not an expression, not for hours."""
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        operator.execute(INSERT, [ttl, detail])


def test_an_operator_asks_and_reads(operator: psycopg.Connection[Any], store: db_store.Store) -> None:
    """What is refused above is refused for its fault alone."""
    question = uuid.uuid4()
    detail = f'{{"by": "answers_operator", "question": "{question}", "scans": [{{"table": "cluster.ranks"}}, {{"table": "python.*"}}]}}'
    operator.execute(INSERT, ["1 minute", detail])
    node = delivery.Delivery(store.connection_uri(), "c", "n1")
    (request,) = node.deliver().requests
    node.deliver(answers=[(request.request_id, b"Fx")])
    assert operator.execute("SELECT body FROM probing.node_answer").fetchall() == [(b"Fx",)]
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        operator.execute(
            "INSERT INTO probing.node_answer (request_id, cluster, node, body) VALUES (gen_random_uuid(), 'c', 'n1', '')"
        )


def test_a_node_that_sends_answers_without_requests_is_refused(store: db_store.Store) -> None:
    """Lists of two lengths are an error, as all others are."""
    with (
        psycopg.connect(store.connection_uri()) as connection,
        pytest.raises(psycopg.errors.ProgramLimitExceeded),
    ):
        connection.execute(
            "SELECT probing.deliver(p_cluster => 'c', p_node => 'n1', p_answered => %s, p_answers => '{}')",
            [[uuid.uuid4()]],
        )
    with pytest.raises(errors.UsageError):
        store.request("n1", "evaluate", cluster="c")
