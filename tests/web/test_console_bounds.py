"""The console answers one person's question without costing the others the server, their own questions or their words."""

from __future__ import annotations

import csv
import json
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
        # Short as text, wide as the server holds it: refused before a text is made of it, at which no deadline is looked.
        "select array_agg(''::name) from generate_series(1, 60000)",
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
        "select 1; -- one",
        "select 1 ; /* one; /* two */ ; */ ; -- three;\n",
    ):
        assert calls(world, sql)[0] == 200, sql


@pytest.mark.parametrize(
    "sql",
    [
        "select ';--' as one",
        "select e'\\';--' as one; -- it's",
        "select $a$;--$a$ as one",
        "select $$;--$$ as one;",
        'select 1 as ";--"',
        "select 1 -- one; -- two",
        "select ';/*' as one /* ; */",
        "select date'2026-01-01' as one; /* '",
    ],
)
def test_only_what_ends_the_statement_is_its_end(world: World, sql: str) -> None:
    """A semicolon in a text, a name or a comment is none; the answer is the database's own to the whole statement."""
    status, body = calls(world, sql)
    if sql.endswith("/* '"):
        assert (status, "unterminated /* comment" in body) == (400, True), body
        return
    with world.store.engine.connect() as connection:
        own = connection.exec_driver_sql(sql)
        heads, rows = list(own.keys()), [[str(v) for v in row] for row in own]
    found = json.loads(body)
    assert (status, found["heads"], [[str(v) for v in row] for row in found["rows"]]) == (200, heads, rows)


@pytest.mark.parametrize(
    "sql",
    ["select 1; select 2", "select 1; -- one\nselect 2", "select 1;) as q; --", "select $a$ ; --", ";", ""],
)
def test_two_statements_are_none(world: World, sql: str) -> None:
    """However they are dressed."""
    assert calls(world, sql)[0] == 400


def test_values_are_written_as_the_manual_says(world: World) -> None:
    """Bytes and composites as psql prints them, an instant with its Z, a span as Postgres writes it; so as CSV, and in arrays."""
    sql = (
        "select '\\x00ff'::bytea, row(1, 'a'), array['\\x01'::bytea], array[row(1, null)], timestamptz '2026-11-30 23:57:58.5+00', "
        "array[timestamptz '2026-11-30 23:57:58+00'], timestamp '2026-11-30 23:57:58', interval '1 month 90 minutes', "
        "int4range(1, 3), array['a', 'b'], '{\"a\": true}'::jsonb"
    )
    (row,) = world.as_user(OWNER).post("/api/v1/sql", json={"sql": sql}).json()["rows"]
    assert row == [
        "\\x00ff", "(1,a)", ["\\x01"], ["(1,)"], "2026-11-30T23:57:58.500000Z",
        ["2026-11-30T23:57:58Z"], "2026-11-30T23:57:58", "1 mon 01:30:00",
        "[1,3)", ["a", "b"], {"a": True},
    ]  # fmt: skip
    page = world.as_user(OWNER)
    fields = {"csrf": page.headers.pop("x-probing-csrf"), "job": "", "sql": sql}
    assert "[&#34;a&#34;,&#34;b&#34;]" in page.post("/sql", data=fields).text
    found = page.post("/sql", data=fields | {"as": "csv"}).text
    assert next(csv.reader(found.splitlines()[1:])) == [
        "\\x00ff", "(1,a)", '["\\\\x01"]', '["(1,)"]', "2026-11-30T23:57:58.500000Z",
        '["2026-11-30T23:57:58Z"]', "2026-11-30T23:57:58", "1 mon 01:30:00",
        "[1,3)", '["a","b"]', '{"a":true}',
    ]  # fmt: skip


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


def test_an_answer_that_the_database_does_not_end_is_not_waited_for(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server looks at no deadline within one function; its user's turn lasts until it is done, or many would work for one person."""
    done = threading.Event()
    monkeypatch.setattr(console, "LEEWAY_S", -119.9)
    with monkeypatch.context() as patched:
        patched.setattr(
            world.site.reader,
            "question",
            lambda *_, **__: (["one"], [(1,)], False) if done.wait(30) else None,
        )
        status, body = calls(world, "select 1")
        assert (status, "no answer within 120 s" in body) == (400, True), body
        assert calls(world, "select 1")[0] == 409
    done.set()
    while OWNER in console._TURNS._asking:
        pass
    monkeypatch.undo()
    assert calls(world, "select 1")[0] == 200


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
