"""The console answers one person's question without costing the others the server, their own questions or their words."""

from __future__ import annotations

import threading

import pytest
import web_world
from web_world import COORDINATOR, OPERATOR, OWNER, World

from probing_cluster.db import store as db_store
from probing_cluster.web import scoped_rows
from probing_cluster.web.api import console


def calls(world: World, sql: str, user: str = OWNER, limit: int = 10_000) -> tuple[int, str]:
    """Status and body of one question."""
    found = world.as_user(user).post("/api/v1/sql", json={"sql": sql, "limit": limit})
    return found.status_code, found.text


@pytest.mark.parametrize(
    "sql",
    [
        "select repeat('x', 100000000) from generate_series(1, 10000)",
        "select 1 as q, repeat('x', 1000000) as b",
        "select 1 as a, 2 as a, repeat('x', 1000000) as a",
        "select '1') as q union all select repeat('x', 1000000) union all select * from (select '1'",
        "select '1') as q union all select repeat('x', 1000000) --",
        "select array_agg(repeat('x', 1000)) from generate_series(1, 1000)",
        "select repeat('x', 100000) from generate_series(1, 9999)",
        "with a as (select repeat('x', 300000) as b) select * from a, generate_series(1, 5000)",
    ],
)
def test_an_answer_is_bounded_before_it_is_held(world: World, sql: str) -> None:
    """Neither one row nor all of them together grow the server, however the statement is dressed."""
    status, body = calls(world, sql)
    assert status == 400
    assert "longer than" in body or "syntax error" in body


def test_what_fits_is_answered_as_it_was_asked(world: World) -> None:
    """In its order, with columns of one name, a semicolon, a comment, a WITH; more rows than one part holds."""
    order = "select n, n as n, null as q from generate_series(1, 900) n order by n desc; "
    assert scoped_rows._AT_ONCE < 900
    found = world.as_user(OWNER).post("/api/v1/sql", json={"sql": order, "limit": 800}).json()
    assert found["heads"] == ["n", "n", "q"]
    assert [row[0] for row in found["rows"]] == list(range(900, 100, -1))
    assert found["more"] is True
    for sql in (
        "select 1 -- one",
        "with a as (select 1) select * from a",
        "values (1), (2)",
        "table node_now",
    ):
        assert calls(world, sql)[0] == 200, sql


@pytest.mark.parametrize(
    "sql",
    [
        "select pg_terminate_backend(pid, 0) from pg_locks where pid <> pg_backend_pid()",
        "select pg_cancel_backend(1)",
        "select query from pg_stat_activity",
        "select pg_stat_get_backend_activity(n) from generate_series(1, 50) n",
    ],
)
def test_nobody_reads_or_ends_what_another_asks(world: World, sql: str) -> None:
    """All viewers are one login to the database."""
    for user in (OWNER, OPERATOR):
        status, body = calls(world, sql, user)
        assert (status, "permission denied" in body) == (403, True), sql


@pytest.mark.parametrize("first", ["pg_sleep(0)::text", "set_config('statement_timeout', '0', true)"])
def test_a_question_has_one_deadline_however_many_parts(
    store: db_store.Store, world: World, first: str
) -> None:
    """Not one for each part of its rows, nor one that the question itself takes away: eleven seconds of sleep end after two."""
    made = web_world.world_on(store, sql_timeout_s=2.0)
    sql = f"select case when n = 1 then {first} when n > 64 then pg_sleep(0.02)::text end from generate_series(1, 600) n"
    status, body = calls(made, sql)
    made.site.reader.close()
    assert (status, "no answer within 2 s" in body) == (400, True), body


def test_one_person_asks_one_thing_at_a_time(world: World) -> None:
    """Slow questions of one do not take the connections of all; the next is answered as soon as the last is."""
    done: list[int] = []
    slow = threading.Thread(target=lambda: done.append(calls(world, "select pg_sleep(1)")[0]))
    slow.start()
    while OWNER not in console._TURNS._asking and slow.is_alive():
        pass
    assert calls(world, "select 1")[0] == 409
    assert calls(world, "select 1", COORDINATOR)[0] == 200
    slow.join()
    assert done == [200]
    assert calls(world, "select 1")[0] == 200


def test_not_all_connections_are_for_questions() -> None:
    """The pages keep some; a turn that ended in an error is given back."""
    turns = console.UserTurns(2)
    with turns.of("a"), turns.of("b"), pytest.raises(console.Busy), turns.of("c"):
        pass
    with pytest.raises(KeyError), turns.of("a"):
        raise KeyError
    with turns.of("a"), turns.of("c"):
        pass
