"""Bringing a database to this version is safe to repeat, to race, and to look at first."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import alembic.command
import psycopg
import pytest

from probing_cluster.core import errors
from probing_cluster.db import delivery, migrate, partitions, roles
from probing_cluster.db import store as store_module
from probing_cluster.db.server import embedded


@pytest.fixture
def empty_url(postgres_directory: Path) -> str:
    """A database without any schema."""
    with psycopg.connect(embedded.url(postgres_directory), autocommit=True) as connection:
        connection.execute("DROP DATABASE IF EXISTS probing_test_empty WITH (FORCE)")
        connection.execute("CREATE DATABASE probing_test_empty")
    return embedded.url(postgres_directory, database="probing_test_empty")


def test_status_before_and_after(empty_url: str) -> None:
    """Status says what upgrade would do and changes nothing; upgrade does it once."""
    before = migrate.status(empty_url)
    assert (before.current, before.up_to_date) == (None, False)
    with psycopg.connect(empty_url) as connection:
        assert connection.execute("SELECT to_regnamespace('probing')").fetchone() == (None,)
    assert migrate.upgrade(empty_url).up_to_date
    assert migrate.status(empty_url) == migrate.upgrade(empty_url)


@pytest.mark.parametrize(
    ("of", "words"),
    [("DATABASE probing_test_empty", "set for the database"), ("ROLE CURRENT_USER", "set for the user")],
)
def test_status_says_that_nothing_can_be_written(empty_url: str, of: str, words: str) -> None:
    """By the database or for the login of a service; nothing is said while both can write."""
    assert not migrate.upgrade(empty_url).read_only
    with psycopg.connect(empty_url, autocommit=True) as connection:
        connection.execute(f"ALTER {of} SET default_transaction_read_only = on")
        try:
            found = migrate.status(empty_url)
        finally:
            connection.execute(f"ALTER {of} RESET default_transaction_read_only")
    assert (found.up_to_date, words in found.read_only) == (True, True)
    assert not migrate.status(empty_url).read_only


def test_six_upgrades_at_once(empty_url: str) -> None:
    """Services and agents' hosts that all upgrade at start do not fail each other."""
    results: list[object] = []

    def work() -> None:
        try:
            results.append(migrate.upgrade(empty_url).up_to_date)
        except BaseException as exc:  # noqa: BLE001 - handed to the test's own thread
            results.append(exc)

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [True] * 6


def test_nobody_else_holds_an_upgrade_up(empty_url: str) -> None:
    """Of two upgrades one waits for the other; whoever holds the advisory lock that upgrades once took, keeps nobody."""
    with psycopg.connect(empty_url, autocommit=True) as connection:
        connection.execute("COMMENT ON DATABASE probing_test_empty IS 'the site''s own words'")
        connection.execute(
            "ALTER DATABASE probing_test_empty SET lock_timeout = '20s'"
        )  # instead of for ever
        connection.execute("SELECT pg_advisory_lock(%s)", [0x70726F62])
        assert migrate.upgrade(empty_url).up_to_date
        words = (
            "SELECT shobj_description(oid, 'pg_database') FROM pg_database WHERE datname = current_database()"
        )
        assert connection.execute(words).fetchone() == ("the site's own words",)


def test_changed_sql_is_applied_again(postgres_url: str) -> None:
    """A release that changes a function or view without a migration is not up to date until it is applied."""
    with psycopg.connect(postgres_url) as connection:
        connection.execute("""UPDATE probing.state SET value = '"older"' WHERE key = 'repeatable'""")
        connection.execute("DROP VIEW ops.lemons")
    assert not migrate.status(postgres_url).up_to_date
    assert migrate.upgrade(postgres_url).up_to_date
    with psycopg.connect(postgres_url) as connection:
        assert connection.execute("SELECT count(*) FROM ops.lemons").fetchone() == (0,)


def test_stored_verdicts_lose_the_preemptors_name_and_owner(
    postgres_url: str, store: store_module.Store
) -> None:
    """Whatever a user put into the name of a job; other verdicts stay."""
    begins = "A job of higher priority took its place; the next to start there was job 289"
    before = {
        1: ("preempted", f"{begins} (bob's (secret) project, which had to start again, bob)."),
        2: ("preempted", f"{begins} (a, b), which had to start again because of gpu_lost on n2."),
        3: ("preempted", f"{begins}, which had to start again because of gpu_lost on n2."),
        4: ("user_error", f"The program failed by itself: {begins} (a, b)."),
    }
    with store.engine.begin() as connection:
        alembic.command.downgrade(migrate.config(connection), "log_read")
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        for job_id, (cause, summary) in before.items():
            connection.execute(
                "INSERT INTO probing.verdict (cluster, job_id, submit_at, attempt, cause, domain, confidence, summary, evidence, ruled_out,"
                " next_step, author, rules_version, made_at) VALUES ('c', %s, now(), 1, %s, 'unknown', 'likely', %s, '{}', '{}', '', 'rules', '1', now())",
                (job_id, cause, summary),
            )
    migrate.upgrade(postgres_url)
    with psycopg.connect(postgres_url) as connection:
        after: dict[int, str] = dict(
            connection.execute("SELECT job_id, summary FROM probing.verdict").fetchall()
        )
    assert after == {1: f"{begins}.", 2: f"{begins}.", 3: before[3][1], 4: before[4][1]}


def test_a_server_too_old_is_refused(empty_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server older than the oldest we know is named and left alone."""
    monkeypatch.setattr(migrate, "OLDEST_SERVER", 990000)
    with pytest.raises(errors.DatabaseUnavailable, match="is Postgres 18; 15 or newer is needed"):
        migrate.upgrade(empty_url)


def test_a_failed_upgrade_leaves_nothing(
    empty_url: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """When a step fails the database is as it was, and the cause is shown."""
    broken = tmp_path / "broken.sql"
    broken.write_text("SELECT 1 / 0")
    monkeypatch.setattr(migrate, "REPEATABLE", (*migrate.REPEATABLE, str(broken)))
    with pytest.raises(psycopg.Error, match="division by zero"):
        migrate.upgrade(empty_url)
    with psycopg.connect(empty_url) as connection:
        assert connection.execute("SELECT to_regnamespace('probing')").fetchone() == (None,)


def test_an_older_functions_callers_are_served(postgres_url: str) -> None:
    """After an upgrade that changed the delivery function's arguments, there is one function and calls by name reach it."""
    with psycopg.connect(postgres_url) as connection:
        connection.execute(
            "CREATE FUNCTION probing.deliver(p_cluster text, p_node text, p_gone int DEFAULT 0) RETURNS jsonb"
            " LANGUAGE sql AS $$ SELECT '{}'::jsonb $$"
        )
        connection.execute("""UPDATE probing.state SET value = '"older"' WHERE key = 'repeatable'""")
    migrate.upgrade(postgres_url)
    with psycopg.connect(postgres_url) as connection:
        row = connection.execute(
            "SELECT probing.deliver(p_cluster => 'c', p_node => 'n1') ->> 'accepted'"
        ).fetchone()
        assert row == ("0",)


def test_an_owner_that_is_no_superuser(debian_server: Any) -> None:
    """On a site's server the database's owner needs no more than CREATEROLE to make the schema and an agent's role."""
    with psycopg.connect(debian_server.owner_url, autocommit=True) as connection:
        connection.execute("CREATE ROLE t_owner LOGIN CREATEROLE")
        connection.execute("CREATE DATABASE t_site OWNER t_owner")
    url = debian_server.url_as("t_owner").replace("/probing?", "/t_site?")
    try:
        assert migrate.upgrade(url).up_to_date
        name = roles.add_agent(url, "c", "n9")
        assert delivery.Delivery(url.replace("t_owner@", f"{name}@"), "c", "n9").deliver().rejected == 0
        partitions.maintain(url, retention_days=10)
        roles.remove(url, name)
    finally:
        with psycopg.connect(debian_server.owner_url, autocommit=True) as connection:
            connection.execute("DROP DATABASE t_site WITH (FORCE)")
            connection.execute("DROP ROLE t_owner")
