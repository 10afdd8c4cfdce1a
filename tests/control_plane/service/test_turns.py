"""Turns: one service at a time, whoever else is logged in, and free again when its holder dies."""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import time
import zlib
from collections.abc import Iterator

import fakes
import psycopg
import pytest

from probing_cluster.control_plane import context, journal
from probing_cluster.control_plane.policy import actions, policy
from probing_cluster.control_plane.service import metrics, turns
from probing_cluster.control_plane.service.tasks.jobs import attribution
from probing_cluster.core import errors, records
from probing_cluster.db import roles
from probing_cluster.db import store as db_store
from probing_cluster.db.server import embedded

LOGINS = {
    "turn_service": "probing_service",
    "turn_operator": "probing_operator",
    "turn_reader": "probing_reader",
}


@pytest.fixture
def logins(postgres_url: str) -> Iterator[list[str]]:
    """The database's URL as an agent, an operator and a dashboard."""
    agent = roles.add_agent(postgres_url, "c", "turns")
    for name, group in LOGINS.items():
        roles.add_login(postgres_url, name, group)
    yield [as_role(postgres_url, name) for name in (agent, "turn_operator", "turn_reader")]
    for name in (agent, *LOGINS):
        roles.remove(postgres_url, name)


def as_role(url: str, name: str) -> str:
    return url.replace(f"{embedded.OWNER}@", f"{name}@")


FORBIDDEN = (
    "SELECT pg_try_advisory_lock(1, 2)",
    "SELECT key FROM probing.state FOR UPDATE",
    "SELECT key FROM probing.state FOR KEY SHARE",
    "LOCK TABLE probing.state IN ROW EXCLUSIVE MODE",
    "LOCK TABLE probing.state IN EXCLUSIVE MODE",
    "DELETE FROM probing.state",
    "INSERT INTO probing.state (key, value) VALUES ('turn:later', '{}')",
)


def as_advisory_keys() -> list[tuple[int, int]]:
    """The keys of the advisory locks that turns once were."""
    return [(0x70726F62, zlib.crc32(name.encode()) & 0x7FFFFFFF) for name in turns.NAMES]


def test_no_other_login_holds_a_turn(service: context.Context, postgres_url: str, logins: list[str]) -> None:
    """Agents, operators and dashboards hold what any login may hold: the service's turns come all the same."""
    with db_store.Store.open(as_role(postgres_url, "turn_service")) as store, contextlib.ExitStack() as stack:
        theirs = dataclasses.replace(service, store=store)
        # Where the owner is no superuser, advisory locks are still everybody's.
        held = stack.enter_context(psycopg.connect(postgres_url, autocommit=True))
        for keys in as_advisory_keys():
            held.execute("SELECT pg_advisory_lock(%s, %s)", keys)
        for url in logins:
            with psycopg.connect(url, autocommit=True) as thief:
                thief.execute("SET default_transaction_read_only = off")  # a default, no right
                for forbidden in FORBIDDEN:
                    with pytest.raises(psycopg.errors.InsufficientPrivilege), thief.transaction():
                        thief.execute(forbidden)
                for name in turns.NAMES:
                    with turns.take(theirs, name) as mine:
                        assert mine, (url, name)


def test_a_turn_is_anothers_until_it_ends_or_dies(service: context.Context, postgres_url: str) -> None:
    """Of two services one has the turn; a third takes it when the first ends, or its connection is cut."""
    with db_store.Store.open(postgres_url) as store:
        other = dataclasses.replace(service, store=store, journal=journal.Journal())
        with turns.take(service, "actions") as mine, turns.take(other, "actions") as theirs:
            assert (mine, theirs) == (True, False)
            with turns.take(other, "resume") as another:
                assert another
        with turns.take(other, "actions") as theirs:
            assert theirs
        with pytest.raises(errors.DatabaseUnavailable):
            cut_while_held(service, other, postgres_url)


def test_a_turn_is_of_one_cluster_but_for_work_on_all_clusters_rows(
    service: context.Context, postgres_url: str
) -> None:
    """Two clusters share a database: neither keeps the other's drains waiting, and each attempt is judged once."""
    with db_store.Store.open(postgres_url) as store:
        config = dataclasses.replace(
            service.config, cluster=dataclasses.replace(service.config.cluster, name="another")
        )
        other = dataclasses.replace(service, config=config, store=store, journal=journal.Journal())
        for name in turns.NAMES:
            with turns.take(service, name) as mine, turns.take(other, name) as theirs:
                assert (mine, theirs) == (True, name not in turns.OF_DATABASE), name


def cut_while_held(service: context.Context, other: context.Context, url: str) -> None:
    """One takes the turn and loses its connection; the other takes it at once."""
    with turns.take(service, "actions") as mine:
        assert mine
        cut(url)
        with turns.take(other, "actions") as theirs:
            assert theirs


def cut(url: str) -> None:
    """Ends every connection that holds a turn."""
    with psycopg.connect(url, autocommit=True) as owner:
        owner.execute(
            "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity"
            " WHERE datname = current_database() AND state = 'idle in transaction'"
        )


def test_who_has_lost_the_turn_does_nothing_more(
    service: context.Context, slurm: fakes.FakeSlurm, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the middle of its acts: the other one has the turn, and counts what was done in its own budget."""
    drain, decisions = slurm.drain, [a_drain("n1"), a_drain("n2"), a_drain("n3")]

    def drain_and_lose(name: str, reason: str, reservation: str) -> object:
        outcome = drain(name, reason, reservation)
        if name == "n2":
            cut(postgres_url)
        return outcome

    monkeypatch.setattr(slurm, "drain", drain_and_lose)
    with pytest.raises(errors.DatabaseUnavailable), turns.take(service, "actions"):
        actions.carry_out(decisions, service.slurm, service.store, service.config, service.clock, turns.check)
    assert [d.node for d in service.store.drains()] == ["n1", "n2"]
    assert [act[1] for act in slurm.acts] == ["n1", "n2"]
    turns.check()  # who holds no turn, as a person's command, has none to lose


def a_drain(node: str) -> policy.Decision:
    return policy.Decision(
        node=node, action="drain", reason="probing: xid 79", severity=records.Severity.HIGH, event_ids=()
    )


def test_a_lost_turn_stays_lost(service: context.Context, postgres_url: str) -> None:
    """However often it is looked at: no connection is made anew behind its holder's back."""
    with turns.take(service, "actions"):
        turns.check()
        cut(postgres_url)
        for _ in range(3):
            with pytest.raises(errors.DatabaseUnavailable):
                turns.check()


def test_no_time_limit_of_the_server_ends_a_turn(
    service: context.Context, postgres_url: str, logins: list[str]
) -> None:
    """Slurm may take minutes to answer, and a site may end idle transactions after seconds."""
    del logins
    with psycopg.connect(postgres_url, autocommit=True) as owner:
        limits = owner.execute(
            "SELECT name FROM pg_settings WHERE name IN ('idle_in_transaction_session_timeout', 'transaction_timeout')"
        ).fetchall()
        for (limit,) in limits:
            owner.execute(f"ALTER ROLE turn_service SET {limit} = '300ms'")  # type: ignore[arg-type]
    with db_store.Store.open(as_role(postgres_url, "turn_service")) as store:
        theirs = dataclasses.replace(service, store=store)
        with turns.take(theirs, "actions") as mine:
            assert mine
            time.sleep(1.0)
            turns.check()
        with store.engine.connect() as connection:
            assert connection.exec_driver_sql("SHOW idle_in_transaction_session_timeout").scalar() == "300ms"


def test_a_turn_ends_with_its_block_whatever_happens_there(service: context.Context) -> None:
    """An error within gives the turn back, and comes out as itself."""
    with pytest.raises(ZeroDivisionError), turns.take(service, "actions"):
        raise ZeroDivisionError
    with turns.take(dataclasses.replace(service, journal=journal.Journal()), "actions") as mine:
        assert mine


def test_a_turn_missed_twice_is_told_and_counted(
    service: context.Context, postgres_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Once is a coincidence; from the second pass on it is a warning, a count, and an alarm's reason."""
    with db_store.Store.open(postgres_url) as store:
        other = dataclasses.replace(service, store=store, journal=journal.Journal())
        with turns.take(other, "attribution"), caplog.at_level(logging.WARNING, "probing.tasks"):
            assert attribution.run(service) == ""
            assert (missed(service), caplog.messages) == (0, [])
            assert attribution.run(service) == ""
            assert (missed(service), caplog.messages) == (1, ["turn not taken"])
            attribution.run(service)
            assert (missed(service), caplog.messages) == (2, ["turn not taken"])
        attribution.run(service)
        assert caplog.messages == ["turn not taken", "turn taken again"]
        assert missed(service) == 2  # a counter


def missed(service: context.Context) -> float:
    """The metric."""
    (family,) = (m for m in metrics.task_metrics(service) if m.name == "probing_turns_missed")
    assert {s.labels["turn"] for s in family.samples} == set(turns.NAMES)
    return next(s.value for s in family.samples if s.labels["turn"] == "attribution")
