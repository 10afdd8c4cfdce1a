"""What a login role can change of its own limits, and what it cannot: the service ends what lasts too long or is in its way."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator

import psycopg
import pytest

from probing_cluster.db import migrate, roles
from probing_cluster.db.server import embedded

LOGINS = {"s_reader": "probing_reader", "s_operator": "probing_operator", "s_service": "probing_service"}
END = "SELECT role_name, group_name, why FROM probing.end_long_work(%s, %s, %s, %s) ORDER BY 1"
NEVER = 1e6


@pytest.fixture(scope="module")
def urls(request: pytest.FixtureRequest) -> Iterator[dict[str, str]]:
    """A database migrated itself, as its owner and as each login."""
    directory = request.getfixturevalue("postgres_directory")
    name = "probing_test_sessions"
    with psycopg.connect(embedded.url(directory), autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")
    url = embedded.url(directory, database=name)
    migrate.upgrade(url)
    agent = roles.add_agent(url, "c", "sessions")
    for login, group in LOGINS.items():
        roles.add_login(url, login, group, scopes=[("cluster", "*")] if group == "probing_reader" else [])
    named = {"s_agent": agent, **{login: login for login in LOGINS}}
    yield {"owner": url, **{k: url.replace(f"{embedded.OWNER}@", f"{v}@") for k, v in named.items()}}
    for login in named.values():
        roles.remove(url, login)
    with psycopg.connect(embedded.url(directory), autocommit=True) as connection:
        connection.execute(f"DROP DATABASE {name} WITH (FORCE)")


@pytest.mark.parametrize("login", ["s_agent", "s_reader", "s_operator"])
def test_what_lasts_too_long_is_ended(login: str, urls: dict[str, str]) -> None:
    """Its own timeouts lifted, a transaction left open and a statement that runs end all the same; the service's does not."""
    group = {"s_agent": "probing_agent", "s_reader": "probing_reader", "s_operator": "probing_operator"}[
        login
    ]
    limits = [0.0 if g == group else NEVER for g in ("probing_agent", "probing_reader", "probing_operator")]
    with psycopg.connect(urls["s_service"], autocommit=True) as service, psycopg.connect(urls[login]) as idle:
        for timeout in ("statement_timeout", "idle_in_transaction_session_timeout"):
            idle.execute(f"SET {timeout} = 0")
        assert service.execute(END, [NEVER] * 4).fetchall() == []
        (ended,) = service.execute(END, [*limits, NEVER]).fetchall()
        assert (ended[0].removeprefix("agent-c-"), *ended[1:]) in {
            ("sessions", group, "too long"),
            (login, group, "too long"),
        }
        with pytest.raises(psycopg.OperationalError):
            idle.execute("SELECT 1")


def test_whoever_keeps_the_service_waiting_is_ended(urls: dict[str, str]) -> None:
    """An operator may lock rows of verdicts; the service waits for them no longer than it wants to."""
    with psycopg.connect(urls["owner"], autocommit=True) as owner:
        owner.execute(
            "INSERT INTO probing.job_attempt SELECT r.* FROM jsonb_populate_record(NULL::probing.job_attempt, '{"
            '"cluster": "c", "job_id": 1, "submit_at": "2026-01-01", "attempt": 1, "suspended_s": 0, "state": "FAILED", "nodes": [],'
            '"user": "", "account": "", "partition": "", "qos": "", "name": "", "reason": "", "run_key": ""}\') AS r'
        )
    with (
        contextlib.closing(psycopg.connect(urls["s_operator"])) as operator,
        psycopg.connect(urls["s_service"], autocommit=True) as waiting,
        psycopg.connect(urls["s_service"], autocommit=True) as service,
    ):
        operator.execute("SELECT job_id FROM probing.job_attempt FOR UPDATE")
        assert service.execute(END, [NEVER, NEVER, NEVER, 0.0]).fetchall() == []  # in nobody's way
        changed: list[int] = []
        update = "UPDATE probing.job_attempt SET judged_at = now()"
        thread = threading.Thread(target=lambda: changed.append(waiting.execute(update).rowcount))
        thread.start()
        ended: list[object] = []
        while not ended:
            time.sleep(0.05)
            ended = service.execute(END, [NEVER, NEVER, NEVER, 0.0]).fetchall()
        assert ended == [("s_operator", "probing_operator", "in the way")]
        thread.join()
        assert changed == [1]


@pytest.mark.parametrize("login", ["s_agent", "s_reader", "s_operator"])
def test_limits_that_a_role_cannot_lift(login: str, urls: dict[str, str]) -> None:
    """Temporary files and connections; advisory locks, which would fill the server's table of locks, and messages into the log of writes."""
    limits = {"s_agent": ("512MB", 4), "s_reader": ("4GB", 20), "s_operator": ("16GB", 10)}
    with (
        psycopg.connect(urls[login], autocommit=True) as connection,
        psycopg.connect(urls["s_service"]) as victim,
    ):
        victim.execute("SELECT 1")
        connection.execute("SET default_transaction_read_only = off")
        assert connection.execute("SHOW temp_file_limit").fetchone() == (limits[login][0],)
        most = "SELECT rolconnlimit FROM pg_roles WHERE rolname = session_user"
        assert connection.execute(most).fetchone() == (limits[login][1],)
        for forbidden in (
            "SET temp_file_limit = -1",
            "ALTER ROLE CURRENT_USER SET temp_file_limit = -1",
            "ALTER ROLE CURRENT_USER CONNECTION LIMIT 100",
            "SELECT pg_advisory_lock(n) FROM generate_series(1, 100000) AS n",
            "SELECT pg_try_advisory_lock_shared(1)",
            "SELECT pg_advisory_xact_lock(1, 2)",
            "SELECT pg_logical_emit_message(false, 'x', repeat('x', 1000000))",
            "SELECT * FROM probing.end_long_work(0, 0, 0, 0)",
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 's_service'",
        ):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                connection.execute(forbidden)


def test_sorts_stop_at_the_limit(urls: dict[str, str]) -> None:
    """A sort larger than its role's temporary files is refused, not the disk filled."""
    with psycopg.connect(urls["owner"], autocommit=True) as owner:
        owner.execute("ALTER ROLE s_reader SET temp_file_limit = '1MB'")
    with psycopg.connect(urls["s_reader"], autocommit=True) as connection:
        connection.execute("SET work_mem = '64kB'")
        with pytest.raises(psycopg.errors.ConfigurationLimitExceeded):
            connection.execute(
                "SELECT n::text FROM generate_series(1, 1000000) AS n ORDER BY 1 DESC LIMIT 900000"
            ).fetchall()
