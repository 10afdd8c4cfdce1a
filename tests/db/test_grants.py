"""Who may read and write what, decided for every table, view and function there is: one added without a decision fails here.

Each role connects as itself and asks; the rows of two clusters and two users tell whether policies hold behind the grants.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
import sqlalchemy as sa

from probing_cluster.core import records
from probing_cluster.db import engines, migrate, roles, rows, tables
from probing_cluster.db.server import embedded
from tests.db import conftest

NAME = "probing_test_grants"
REFUSED = "42501"

EVERYBODY = frozenset({"owner", "service", "operator", "reader"})
"""Never agents: they call one function."""
STAFF = frozenset({"owner", "service", "operator"})

MAY_READ: dict[str, frozenset[str]] = {
    "ops.agent_health": EVERYBODY,
    "ops.attempt_verdicts": EVERYBODY,
    "ops.causes_daily": EVERYBODY,
    "ops.check_now": EVERYBODY,
    "ops.drains": EVERYBODY,
    "ops.failures_24h": EVERYBODY,
    "ops.high_events_24h": EVERYBODY,
    "ops.incidents": EVERYBODY,
    "ops.lemons": EVERYBODY,
    "ops.node_now": EVERYBODY,
    "ops.node_timeline": EVERYBODY,
    "ops.places": EVERYBODY,
    "ops.rejections": STAFF,
    "ops.requests": EVERYBODY,
    "ops.runs": EVERYBODY,
    "probing.agent_heartbeat": EVERYBODY,
    "probing.agent_role": STAFF,
    "probing.alembic_version": STAFF,
    "probing.arrival": STAFF,
    "probing.check_now": EVERYBODY,
    "probing.check_result": EVERYBODY,
    "probing.diagnostic_result": EVERYBODY,
    "probing.drain": EVERYBODY,
    "probing.event_key": STAFF,
    "probing.gang_verdict": EVERYBODY,
    "probing.health_event": EVERYBODY,
    "probing.intake": STAFF,
    "probing.job_allocation": EVERYBODY,
    "probing.job_attempt": EVERYBODY,
    "probing.job_exclusion": STAFF,
    "probing.job_dependency": STAFF,
    "probing.lemon_score": EVERYBODY,
    "probing.node_answer": STAFF,
    "probing.node_clock": STAFF,
    "probing.node_place": EVERYBODY,
    "probing.node_request": EVERYBODY,
    "probing.operator_note": EVERYBODY,
    "probing.reader_scope": STAFF,
    "probing.repair_incident": EVERYBODY,
    "probing.rejection": STAFF,
    "probing.run_account": EVERYBODY,
    "probing.slurm_drain": EVERYBODY,
    "probing.state": STAFF,
    "probing.verdict": EVERYBODY,
    "probing.web_key": frozenset({"owner", "service"}),
    "probing.web_request": frozenset({"owner", "service"}),
}

OF_A_JOB = {
    "ops.attempt_verdicts", "ops.causes_daily", "ops.failures_24h", "ops.incidents", "ops.node_timeline", "ops.runs",
    "probing.gang_verdict", "probing.job_attempt", "probing.run_account", "probing.verdict",
}  # fmt: skip
"""What a reader sees whose scope is a user: that user's jobs, wherever they ran. Everything else is of a cluster."""
OF_A_JOBS_ACCOUNT = OF_A_JOB - {"ops.runs", "probing.run_account"}
"""A run says whose it is, not on which account."""

MAY_WRITE: dict[str, dict[str, str]] = {
    "operator": {
        "drain": "INSERT UPDATE",
        "job_attempt": "UPDATE",
        "node_request": "INSERT",
        "diagnostic_result": "INSERT",
        "operator_note": "INSERT",
        "verdict": "INSERT UPDATE",
    },
    "reader": {},
    "agent": {},
}
"""Words per table; the policies bound the operator's (tests/control_plane/test_operator_commands.py)."""
SERVICE_ONLY_READS = {"agent_role", "alembic_version", "reader_scope"}

MAY_CALL = {
    "service": {
        "back_from_repair",
        "deliver",
        "drop_month",
        "end_long_work",
        "is_question",
        "right_time",
        "job_ref",
        "exported_until",
        "is_prolog_of",
        "listening",
        "over_time_limit",
        "ran_until",
        "beyond_limit",
        "make_month",
        "readable",
    },
    "operator": {
        "back_from_repair",
        "is_prolog_of",
        "is_question",
        "exported_until",
        "job_ref",
        "listening",
        "over_time_limit",
        "ran_until",
        "beyond_limit",
        "readable",
        "right_time",
    },
    "reader": {
        "exported_until",
        "is_prolog_of",
        "job_ref",
        "listening",
        "over_time_limit",
        "ran_until",
        "beyond_limit",
        "readable",
    },
    "agent": {"deliver"},
}

_CATALOGUE = """
SELECT n.nspname || '.' || c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname IN ('probing', 'ops') AND c.relkind IN ('r', 'p', 'v', 'm', 'f') AND NOT c.relispartition
UNION ALL
SELECT n.nspname || '.' || p.proname FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace WHERE n.nspname = 'ops'
"""
_LOGINS = {
    "service": ("probing_service", ()),
    "operator": ("probing_operator", ()),
    "reader": ("probing_reader", (("cluster", "c"),)),
    "elsewhere": ("probing_reader", (("cluster", "d"),)),
    "alice": ("probing_reader", (("user", "alice"),)),
    "bob": ("probing_reader", (("user", "bob"),)),
    "nlp": ("probing_reader", (("account", "nlp"),)),
    "vision": ("probing_reader", (("account", "vision"),)),
}
Connect = Callable[[str], psycopg.Connection[Any]]


@pytest.fixture(scope="module")
def url(postgres_directory: Path) -> Iterator[str]:
    """A database migrated itself (a copied template has not its rights), with logins and a row of alice's in every table."""
    with psycopg.connect(embedded.url(postgres_directory), autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {NAME}")
    made = embedded.url(postgres_directory, database=NAME)
    migrate.upgrade(made)
    agent = roles.add_agent(made, "c", "n1")
    for login, (group, scopes) in _LOGINS.items():
        roles.add_login(made, f"g_{login}", group, scopes=scopes)
    yield made
    for login in [agent, *(f"g_{login}" for login in _LOGINS)]:
        roles.remove(made, login)
    with psycopg.connect(embedded.url(postgres_directory), autocommit=True) as connection:
        connection.execute(f"DROP DATABASE {NAME} WITH (FORCE)")


@pytest.fixture(scope="module")
def connect(url: str) -> Iterator[Connect]:
    """A connection as each role, kept."""
    kept: dict[str, psycopg.Connection[Any]] = {}

    def one(role: str) -> psycopg.Connection[Any]:
        names = {"owner": embedded.OWNER, "agent": "agent-c-n1"}
        if role not in kept:
            there = url.replace(f"{embedded.OWNER}@", f"{names.get(role, f'g_{role}')}@")
            kept[role] = psycopg.connect(there, autocommit=True)
        return kept[role]

    yield one
    for connection in kept.values():
        connection.close()


@pytest.fixture(scope="module")
def filled(url: str) -> None:
    """Job 7 of alice, account nlp, failed on n1 of cluster c; a row of it, or of n1, in every record's table."""
    engine = engines.make(url)
    with engine.begin() as connection:
        for cls, table in tables.BY_RECORD.items():
            connection.execute(sa.insert(table).values(_row(cls)))
        connection.execute(sa.insert(tables.check_now).values(_row(records.CheckResult)))
        connection.execute(
            sa.text(
                "INSERT INTO probing.node_request (request_id, cluster, node, verb, expires_at)"
                " VALUES (gen_random_uuid(), 'c', 'n1', 'recheck', now() + interval '1 hour')"
            )
        )
        connection.execute(
            sa.text(
                "INSERT INTO probing.node_answer (request_id, cluster, node, body) VALUES (gen_random_uuid(), 'c', 'n1', 'F')"
            )
        )
        connection.execute(
            sa.text(
                "INSERT INTO probing.slurm_drain (cluster, node, states, reason) VALUES ('c', 'n1', '{DRAIN}', 'fan');"
                "UPDATE probing.node_place SET until_at = NULL;"
                "INSERT INTO probing.web_key (key_hash, kind, user_name, operator, accounts, acts, label, expires_at)"
                " VALUES ('h', 'session', 'alice', true, '{}', true, '', now() + interval '1 hour');"
                "INSERT INTO probing.web_request (user_name, idempotency_key, request_hash) VALUES ('alice', 'k', 'h')"
            )
        )
    engine.dispose()


def _row(cls: type[Any]) -> dict[str, Any]:
    made = conftest.built(cls)
    about: dict[str, Any] = {
        "cluster": "c", "node": "n1", "job_id": 7, "submit_at": conftest.NOW, "at": conftest.NOW, "user": "alice", "account": "nlp",
        "severity": "high", "verdict": "lemon", "state": "FAILED", "start_at": conftest.NOW, "end_at": conftest.NOW, "nodes": ("n1",),
        "subject": "node:n1",
    }  # fmt: skip
    names = {item.name for item in dataclasses.fields(cls)}
    return rows.to_row(dataclasses.replace(made, **{k: v for k, v in about.items() if k in names}))


def _ask(connection: psycopg.Connection[Any], what: str) -> str | int:
    """How many rows a role sees, or the state it is refused with."""
    source = f"{what}('n1')" if what == "ops.node_timeline" else what
    try:
        row = connection.execute(f"SELECT count(*) FROM {source}").fetchone()
    except psycopg.Error as exc:
        return exc.sqlstate or "?"
    assert row is not None
    return int(row[0])


def test_somebody_decided_of_every_table_view_and_function(connect: Connect) -> None:
    """What the catalogue has stands in MAY_READ, and nothing else does."""
    assert sorted(name for (name,) in connect("owner").execute(_CATALOGUE)) == sorted(MAY_READ)


@pytest.mark.parametrize("role", ["owner", "service", "operator", "reader", "agent"])
@pytest.mark.parametrize("what", MAY_READ)
def test_reading(what: str, role: str, connect: Connect, filled: None) -> None:
    """A role that may read sees the row that is there; one that may not is refused, not shown nothing."""
    answer = _ask(connect(role), what)
    if role not in MAY_READ[what]:
        assert answer == REFUSED
    elif what not in {
        "ops.rejections",
        "probing.event_key",
        "probing.intake",
        "probing.node_clock",
        "probing.rejection",
    }:
        assert isinstance(answer, int)
        assert answer > 0
    else:
        assert answer == 0, "only deliveries write there"


@pytest.mark.parametrize("what", sorted(name for name, roles in MAY_READ.items() if "reader" in roles))
def test_rows_of_others_are_hidden(what: str, connect: Connect, filled: None) -> None:
    """Another cluster's dashboard sees no row of anything, and one of a user or an account nothing but their jobs."""
    assert _ask(connect("elsewhere"), what) == 0
    assert _ask(connect("bob"), what) == 0
    assert _ask(connect("vision"), what) == 0
    assert (_ask(connect("alice"), what) != 0) == (what in OF_A_JOB)
    assert (_ask(connect("nlp"), what) != 0) == (what in OF_A_JOBS_ACCOUNT)


def _granted(connection: psycopg.Connection[Any], word: str) -> set[str]:
    query = (
        "SELECT relname FROM pg_class WHERE relnamespace = 'probing'::regnamespace AND relkind IN ('r', 'p')"
        " AND NOT relispartition AND {}(oid, %s)"
    )
    by_column = word in {"INSERT", "UPDATE"}
    calls = query.format("has_any_column_privilege" if by_column else "has_table_privilege")
    return {name for (name,) in connection.execute(calls, [word])}


@pytest.mark.parametrize("role", MAY_WRITE)
def test_writing(role: str, connect: Connect) -> None:
    """Nobody but owner and service writes more than what is listed, in any table there is."""
    for word in ("INSERT", "UPDATE", "DELETE", "TRUNCATE", "TRIGGER", "REFERENCES"):
        listed = {name for name, words in MAY_WRITE[role].items() if word in words.split()}
        assert _granted(connect(role), word) == listed, word


def test_what_the_service_may_not_write(connect: Connect) -> None:
    """It writes rows everywhere but where roles and versions stand, and empties or changes no table."""
    every = {name.partition(".")[2] for name in MAY_READ if name.startswith("probing.")}
    for word in ("INSERT", "UPDATE", "DELETE"):
        assert _granted(connect("service"), word) == every - SERVICE_ONLY_READS, word
    assert _granted(connect("service"), "TRUNCATE") == set()


@pytest.mark.parametrize("role", MAY_CALL)
def test_calling(role: str, connect: Connect) -> None:
    """Each role may call the functions of schema probing listed for it."""
    query = (
        "SELECT proname FROM pg_proc WHERE pronamespace = 'probing'::regnamespace"
        " AND has_function_privilege(oid, 'EXECUTE') AND has_schema_privilege('probing', 'USAGE')"
    )
    assert {name for (name,) in connect(role).execute(query)} == MAY_CALL[role]


def test_the_views_are_closed_to_agents(connect: Connect) -> None:
    """An agent's role has no way into schema ops, whatever is added there."""
    assert connect("agent").execute("SELECT has_schema_privilege('ops', 'USAGE')").fetchone() == (False,)
