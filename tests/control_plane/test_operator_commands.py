"""Every write command of probing-ctl, run as an operator's own database role and as roles that may not."""

from __future__ import annotations

import argparse
import uuid
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import fakes
import psycopg
import pytest
from command_tree import commands

from probing_cluster.control_plane.cli import main
from probing_cluster.control_plane.cli.nodes import nodes_commands
from probing_cluster.core import records
from probing_cluster.db import delivery, migrate, roles
from probing_cluster.db import store as db_store
from probing_cluster.db.server import embedded

NAME = "probing_test_operators"
OPERATOR, READER, SERVICE = "t_eve", "t_screen", "t_serve"

OPERATOR_WRITES: dict[str, tuple[str, ...]] = {
    "ack": ("n1", "--note", "RMA"),
    "drain": ("n2", "--reason", "smells"),
    "resume": ("n3",),
    "set-healthy": ("n1", "--note", "new riser"),
    "verdict": ("7", "--cause", "gpu_lost", "--node", "n1", "--note", "seen on site"),
    "lemon confirm": ("n1", "--note", "again"),
    "lemon deny": ("n1",),
    "lemon repaired": ("n1",),
    "lemon tickets": ("{tickets}",),
    "stacks": ("7", "--wait", "0"),
    "repair hold": ("n3", "--note", "mine"),
    "repair release": ("n3",),
    "repair done": ("n3",),
}
"""What a person says or asks, with words that do something on the site below."""
SERVICE_WRITES = {
    "serve",
    "web serve",
    "door serve",
    "import",
    "attribute",
    "lemon report",
    "notices test",
    "places load",
}
"""They judge, score, import and send: the service's account runs them."""
OWNER_WRITES = {
    "db upgrade", "db start", "db stop", "db add-agent", "db remove-agent", "db add-login", "db remove-login",
    "db logins", "db pgbouncer-users",
}  # fmt: skip
ON_SLURM = {"diagnose"}
"""Its tests are jobs: tests/e2e/test_repair.py runs it; the rights to its rows are in tests/db/test_grants.py."""
AS_THE_OWNER = {"eval", "sql"}
"""They ask Slurm and the nodes, which know who asks (tests/e2e/test_sql.py, tests/e2e/test_own_tables.py)."""
THROUGH_THE_DOOR = {"web login", "web token", "web tokens", "web revoke", "web client"}
"""They ask the service, which knows who asks, and need no role (tests/web/access/test_gate.py)."""
READS = {
    "alerts", "classify", "completion", "dashboards", "db status", "doctor", "fleet", "lemon exclude-list", "lemon list", "lemon outbox",
    "lemon thresholds", "nodes", "notices list", "places list", "places scan", "policy show", "policy simulate", "query", "ranks", "repair list", "repair show", "swap-search", "watch",
}  # fmt: skip

Run = Callable[..., int]


@pytest.fixture(scope="module")
def url(postgres_directory: Path) -> Iterator[str]:
    """A database with its own rights (a copied template has them not), and a login of each group."""
    with psycopg.connect(embedded.url(postgres_directory), autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {NAME}")
    made = embedded.url(postgres_directory, database=NAME)
    migrate.upgrade(made)
    logins = {OPERATOR: "probing_operator", READER: "probing_reader", SERVICE: "probing_service"}
    for login, group in logins.items():
        scopes = [("cluster", "*")] if login == READER else []
        roles.add_login(made, login, group, scopes=scopes)
    yield made
    for login in logins:
        roles.remove(made, login)
    with psycopg.connect(embedded.url(postgres_directory), autocommit=True) as connection:
        connection.execute(f"DROP DATABASE {NAME} WITH (FORCE)")


@pytest.fixture
def site(url: str, slurm: fakes.FakeSlurm, monkeypatch: pytest.MonkeyPatch) -> Iterator[db_store.Store]:
    """Job 7 failed on n1 and the rules do not know why; job 9 runs on n1; n3 is drained by hand."""
    slurm.drain("n3", "probing: test (bob)")
    slurm.acts.clear()
    monkeypatch.setattr(nodes_commands, "_slurm_operations", lambda config: slurm)
    monkeypatch.setattr(nodes_commands, "caller_name", lambda: "keyboard")
    attempt = records.JobAttempt(
        cluster="c", job_id=7, submit_at=fakes.NOW - timedelta(hours=2), start_at=fakes.NOW - timedelta(hours=1),
        state="RUNNING", nodes=("n1",), n_gpus=8, user="alice",
    )  # fmt: skip
    judged = records.Verdict(
        cluster="c", job_id=7, submit_at=attempt.submit_at, cause="unknown", domain=records.Domain.UNKNOWN,
        confidence=records.Confidence.UNKNOWN, summary="?", rules_version="1", made_at=fakes.NOW,
    )  # fmt: skip
    with db_store.Store.open(url.replace(f"{embedded.OWNER}@", f"{SERVICE}@")) as service:
        service.upsert_attempts([attempt])
        service.save_verdicts([judged])
        service.save_drain(
            records.Drain(
                drain_id=uuid.UUID(int=3), cluster="c", node="n3", at=fakes.NOW, action="drain",
                reason="probing: test (bob)", owner="bob", state="done",
            )
        )  # fmt: skip
        service.open_incident(
            records.RepairIncident(
                incident_id=uuid.UUID(int=4), cluster="c", node="n3", drain_id=uuid.UUID(int=3), reason="probing: test (bob)",
                cause="other", state="queued", opened_at=fakes.NOW, changed_at=fakes.NOW,
            )
        )  # fmt: skip
    beat = records.AgentHeartbeat(cluster="c", node="n1", at=fakes.NOW, jobs=(7,))
    delivery.Delivery(url, "c", "n1").deliver(heartbeat=beat)
    with db_store.Store.open(url) as store, fakes.answering(url, "n1", jobs=(7,)):
        yield store
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(
            "TRUNCATE probing.job_attempt, probing.verdict, probing.drain, probing.operator_note,"
            " probing.node_request, probing.agent_heartbeat, probing.repair_incident"
        )


@pytest.fixture
def run(url: str, site: db_store.Store, tmp_path: Path) -> Run:
    """Runs probing-ctl as a database role."""
    tickets = tmp_path / "tickets.csv"
    tickets.write_text("node,ticket,opened\nn1,T-1,2026-11-01\n")

    def one(role: str, name: str) -> int:
        path = tmp_path / f"{role}.toml"
        there = url.replace(f"{embedded.OWNER}@", f"{role}@")
        path.write_text(
            f'[cluster]\nname = "c"\n[database]\nurl = "{there}"\n[service]\nsocket = "{tmp_path}/none"\n'
        )
        words = [word.replace("{tickets}", str(tickets)) for word in OPERATOR_WRITES[name]]
        return main.main([*name.split(), *words, "--config", str(path)])

    return one


def test_somebody_decided_of_every_command_who_may_run_it() -> None:
    """A new command of probing-ctl stands in one of the lists above, so that its rights were thought of."""
    listed = [
        *OPERATOR_WRITES,
        *SERVICE_WRITES,
        *OWNER_WRITES,
        *ON_SLURM,
        *READS,
        *THROUGH_THE_DOOR,
        *AS_THE_OWNER,
    ]
    parser: argparse.ArgumentParser = main.parser()
    assert sorted(listed) == sorted(name for name, _ in commands(parser))


@pytest.mark.parametrize("name", OPERATOR_WRITES)
def test_an_operator_may(name: str, run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    """What a person says is taken from an operator's role, with the grants that a site has."""
    code = run(OPERATOR, name)
    captured = capsys.readouterr()
    assert (code, captured.err) == (0, ""), captured.out


@pytest.mark.parametrize(("login", "may"), [(OPERATOR, True), (SERVICE, True), (READER, False)])
def test_whether_results_may_be_stored_is_known_before_nodes_are_taken(
    url: str, login: str, may: bool
) -> None:
    """`diagnose` of a dashboard's login takes no node: its job would run for nothing."""
    with db_store.Store.open(url.replace(f"{embedded.OWNER}@", f"{login}@")) as store:
        assert store.may_add_results() is may


# Resuming is Slurm's to refuse: the row only follows.
@pytest.mark.parametrize("name", sorted(OPERATOR_WRITES.keys() - {"resume"}))
def test_a_dashboard_may_not(
    name: str, run: Run, site: db_store.Store, slurm: fakes.FakeSlurm, capsys: pytest.CaptureFixture[str]
) -> None:
    """A reader's role changes nothing by any of them, not even in Slurm."""
    assert run(READER, name) != 0
    captured = capsys.readouterr()
    assert "permission denied" in captured.out + captured.err or "read-only" in captured.out + captured.err
    assert (site.notes(), slurm.acts) == ([], [])
    assert [v.author for v in site.verdicts()] == ["rules"]
    assert [d.owner for d in site.drains()] == ["bob"]


def test_what_an_operator_says_carries_their_roles_name(
    run: Run, site: db_store.Store, slurm: fakes.FakeSlurm
) -> None:
    """Whatever the account at the keyboard is called, the database knows who came in; the service speaks for its caller."""
    for name in OPERATOR_WRITES:
        assert run(OPERATOR, name) == 0
    assert {n.author for n in site.notes()} == {OPERATOR}
    assert [v.author for v in site.verdict_histories([7])] == ["rules", OPERATOR]
    assert [v.cause for v in site.verdicts(job_ids=[7])] == ["gpu_lost"]
    drained = {d.node: d for d in site.drains()}
    assert (drained["n2"].owner, drained["n2"].state, drained["n2"].why_state) == (OPERATOR, "done", "")
    assert (drained["n3"].state, drained["n3"].why_state) == ("resumed", f"resumed by {OPERATOR}")
    assert ("drain", "n2", f"probing: smells ({OPERATOR})") in slurm.acts
    assert run(SERVICE, "ack") == 0
    assert {n.author for n in site.notes()} == {OPERATOR, "keyboard"}


def test_a_drain_that_slurm_refused_is_on_record(
    run: Run, site: db_store.Store, slurm: fakes.FakeSlurm
) -> None:
    """The row is written before Slurm is asked, and says what became of it."""
    slurm.down = True
    assert run(OPERATOR, "drain") == 1
    row, = (d for d in site.drains() if d.node == "n2")  # fmt: skip
    assert (row.state, row.ended_at) == ("failed", None)
    assert "slurmctld is away" in row.why_state


def test_who_lifted_a_drain_is_kept_though_the_service_saw_it_first(
    run: Run, site: db_store.Store, slurm: fakes.FakeSlurm, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between Slurm's resume and our row the service's own pass may close it: the person's name is the last word."""
    drain, = site.drains(node="n3")  # fmt: skip
    plain = slurm.resume

    def resume(name: str) -> object:
        outcome = plain(name)
        site.update_drain(
            drain.drain_id, state="resumed", ended_at=datetime.now(UTC), why_state="lifted by another"
        )
        return outcome

    monkeypatch.setattr(slurm, "resume", resume)
    assert run(OPERATOR, "resume") == 0
    assert [d.why_state for d in site.drains(node="n3")] == [f"resumed by {OPERATOR}"]


REFUSED = (
    "INSERT INTO probing.verdict SELECT cluster, job_id, submit_at FROM probing.verdict",
    "UPDATE probing.verdict SET superseded_at = NULL",
    "UPDATE probing.verdict SET author = session_user",
    "UPDATE probing.job_attempt SET judged_at = NULL",
    "UPDATE probing.job_attempt SET state = 'COMPLETED'",
    "UPDATE probing.drain SET owner = session_user",
    "UPDATE probing.drain SET state = 'failed'",
    "UPDATE probing.operator_note SET note = ''",
    "DELETE FROM probing.drain",
    "DELETE FROM probing.verdict",
    (
        "INSERT INTO probing.node_request (request_id, cluster, node, verb, expires_at)"
        " VALUES (gen_random_uuid(), 'c', 'n1', 'refusal_permission', now() + interval '1 hour')"
    ),
    (
        "INSERT INTO probing.drain (drain_id, cluster, node, at, action, reason, owner, state, why_state, severity, event_ids)"
        " VALUES (gen_random_uuid(), 'c', 'n1', now(), 'drain', 'x', 'probing', 'done', '', 'high', '{}')"
    ),
    "INSERT INTO probing.health_event SELECT * FROM probing.health_event",
)


@pytest.mark.parametrize("statement", REFUSED)
def test_an_operator_may_no_more_than_that(statement: str, url: str, site: db_store.Store) -> None:
    """No other's words, no rewriting of history, no permission to refuse jobs, nothing in an agent's or the policy's name."""
    with (
        psycopg.connect(url.replace(f"{embedded.OWNER}@", f"{OPERATOR}@"), autocommit=True) as connection,
        pytest.raises(psycopg.errors.InsufficientPrivilege),
    ):
        connection.execute(statement)
