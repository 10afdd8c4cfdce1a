"""`probing-ctl db add-agent` and its kin against a real Postgres."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import fakes
import psycopg
import pytest

from probing_cluster.control_plane.cli import main
from probing_cluster.core import errors, records
from probing_cluster.db import delivery, migrate, roles
from probing_cluster.db.server import embedded

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def url(postgres_directory: Path) -> Iterator[str]:
    """A database that was migrated itself (a copied template has not its own rights), free of roles afterwards."""
    with psycopg.connect(embedded.url(postgres_directory), autocommit=True) as connection:
        connection.execute("CREATE DATABASE probing_test_commands")
    made = embedded.url(postgres_directory, database="probing_test_commands")
    migrate.upgrade(made)
    before = {login.name for login in roles.logins(made)}
    yield made
    for login in roles.logins(made):
        if login.name not in before:
            roles.remove(made, login.name)
    with psycopg.connect(embedded.url(postgres_directory), autocommit=True) as connection:
        connection.execute("DROP DATABASE probing_test_commands WITH (FORCE)")


@pytest.fixture
def run(url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs probing-ctl as the database's owner."""
    path = tmp_path / "probing.toml"
    path.write_text(f'[cluster]\nname = "c"\n[database]\nurl = "{url}"\n')

    def one(*words: str) -> tuple[int, str, str]:
        code = main.main([*words, "--config", str(path)])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return one


def event(node: str) -> records.HealthEvent:
    return records.HealthEvent(
        event_id=uuid.uuid4(), cluster="c", node=node, at=fakes.NOW, observed_at=fakes.NOW, kind="xid",
        severity=records.Severity.HIGH, source="kernel", message="m",
    )  # fmt: skip


def as_role(url: str, role: str) -> str:
    return url.replace(f"{embedded.OWNER}@", f"{role}@")


def test_an_agent_added_delivers_and_one_removed_does_not(run: Run, url: str) -> None:
    """add-agent prints node and role (the CN); the role works, is renewed by saying it again, and ends with remove-agent."""
    code, out, _ = run("db", "add-agent", "t[1-2]", "--rows-per-hour", "7")
    assert (code, out) == (0, "t1\tagent-c-t1\nt2\tagent-c-t2\n")
    assert run("db", "add-agent", "t1")[:2] == (0, "t1\tagent-c-t1\n")
    door = delivery.Delivery(as_role(url, "agent-c-t1"), "c", "t1", keep_open=True)
    beat = records.AgentHeartbeat(cluster="c", node="t1", at=fakes.NOW)
    assert door.deliver(events=[event("t1")], heartbeat=beat).accepted == 1
    listed = run("db", "logins", "--group", "agent")[1]
    assert [line.split() for line in listed.splitlines() if " t1 " in line] == [
        ["agent-c-t1", "agent", "t1", "1", "7", "-"]
    ]
    assert '"agent-c-t1" ""' in run("db", "pgbouncer-users")[1]
    assert run("db", "remove-agent", "t1")[:2] == (0, "t1\tagent-c-t1 removed\n")
    with pytest.raises(errors.DatabaseUnavailable):
        door.deliver(events=[event("t1")])  # not even over the connection it still has
    door.close()
    with psycopg.connect(url) as connection:
        assert connection.execute("SELECT node FROM ops.agent_health").fetchall() == []  # not silent for ever
        assert connection.execute("SELECT node FROM ops.high_events_24h").fetchall() == [("t1",)]
    assert "agent-c-t1" not in run("db", "logins")[1]
    assert run("db", "remove-agent", "t1")[0] == 3


def test_a_node_that_was_heard_without_a_role_of_its_own_is_forgotten(run: Run, url: str) -> None:
    """An agent that delivered as the owner, on a node that is no more: nobody misses it any longer."""
    beat = records.AgentHeartbeat(cluster="c", node="vm", at=fakes.NOW)
    delivery.Delivery(url, "c", "vm").deliver(heartbeat=beat)
    assert run("db", "remove-agent", "vm")[:2] == (0, "vm\tforgotten; it had no role\n")
    with psycopg.connect(url) as connection:
        assert connection.execute("SELECT node FROM ops.agent_health").fetchall() == []
    assert run("db", "remove-agent", "vm")[0] == 3


def test_logins_of_people_and_dashboards(run: Run, url: str, tmp_path: Path) -> None:
    """A reader gets its scopes, a password comes from a private file only, and nobody gets a group by another name."""
    secret = tmp_path / "secret"
    secret.write_text("hunter2\n")
    secret.chmod(0o644)
    code, _, err = run("db", "add-login", "t_board", "reader", "--password-file", str(secret))
    assert (code, "0600 is needed" in err) == (2, True)
    secret.chmod(0o600)
    scopes = ("--scope", "account=nlp", "--scope", "user=*")
    assert run("db", "add-login", "t_board", "reader", *scopes, "--password-file", str(secret))[0] == 0
    with psycopg.connect(url) as connection:
        stored: Any = connection.execute(
            "SELECT rolpassword FROM pg_authid WHERE rolname = 't_board'"
        ).fetchone()
    assert stored[0].startswith("SCRAM-SHA-256$")
    board, = [x for x in run("db", "logins", "--group", "reader")[1].splitlines() if x.startswith("t_board")]  # fmt: skip
    assert board.split() == ["t_board", "reader", "-", "0", "-", "account=nlp", "user=*"]
    for words in (("--scope", "nlp"), ("--scope", "account="), ("--scope", "root=x")):
        assert run("db", "add-login", "t_x", "reader", *words)[0] == 2
    assert run("db", "add-login", "t_x", "operator", "--scope", "user=*")[0] == 2
    assert run("db", "remove-login", "t_board")[0] == 0
    assert run("db", "remove-login", "t_board")[0] == 3
    assert run("db", "remove-login", embedded.OWNER)[0] == 5


def test_a_quota_of_nothing_is_a_mistake(run: Run) -> None:
    """Nobody makes an agent that may deliver nothing."""
    assert run("db", "add-agent", "t9", "--rows-per-hour", "0")[0] == 2
