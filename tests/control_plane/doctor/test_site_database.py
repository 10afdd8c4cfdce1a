"""What the doctor finds in and about the database, each kept and broken."""

from __future__ import annotations

import dataclasses
import datetime as dt
import os
from importlib import metadata
from pathlib import Path
from typing import Any

import psycopg
import pytest

from probing_cluster.control_plane.cli import main
from probing_cluster.control_plane.doctor import site_certificates, site_database
from probing_cluster.core import errors, records, settings, vocabulary
from probing_cluster.db import store as db_store
from probing_cluster.reports.asking import door

NOW = dt.datetime(2026, 1, 31, 14, 0, tzinfo=dt.UTC)
FACTS: dict[str, Any] = {
    "version": 160004,
    "superuser": False,
    "service": True,
    "encrypted": True,
    "over_network": True,
    "now": NOW,
    "name": "probing",
    "groups": 5,
}


def levels(**changed: Any) -> dict[str, str]:
    """Finding to level, those in order left out; every one that is not in order says why and what to do."""
    found = list(site_database.judge_server(FACTS | changed, NOW, own=True))
    assert len(found) == 4
    assert all(f.why and f.fix for f in found if f.level != "ok")
    return {f.name: f.level for f in found if f.level != "ok"}


@pytest.mark.parametrize(
    ("changed", "wanted"),
    [
        ({}, {}),
        ({"version": 140011}, {"postgres": "fail"}),
        ({"groups": 4}, {"roles": "fail"}),
        ({"superuser": True}, {"roles": "warn"}),
        ({"service": False}, {"roles": "note"}),
        ({"encrypted": False}, {"tls": "fail"}),
        ({"encrypted": False, "over_network": False}, {}),
        ({"now": NOW + dt.timedelta(seconds=5)}, {"clock": "fail"}),
        ({"now": NOW - dt.timedelta(seconds=5)}, {"clock": "fail"}),
        ({"now": NOW + dt.timedelta(seconds=1)}, {}),
    ],
)
def test_server(changed: dict[str, Any], wanted: dict[str, str]) -> None:
    """One fact changed gives one finding."""
    assert levels(**changed) == wanted


def test_the_embedded_server_is_asked_like_any_other(store: db_store.Store) -> None:
    """The question itself is answered by a real server, by whose owner nothing is amiss but that it is one."""
    config = dataclasses.replace(
        settings.Settings(), database=settings.DatabaseSettings(url=store.connection_uri())
    )
    found = {f.name: f.level for f in site_database.server(config)}
    assert found == {"postgres": "ok", "roles": "warn", "tls": "ok", "clock": "ok"}
    assert [f.level for f in site_database.schema(config)] == ["ok"]


def test_a_database_that_takes_no_writing_is_no_healthy_one(
    store: db_store.Store, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """It answers, and nothing is stored: doctor and `db status` say by what."""
    config = dataclasses.replace(
        settings.Settings(), database=settings.DatabaseSettings(url=store.connection_uri())
    )
    path = tmp_path / "probing.toml"
    path.write_text(f'[database]\nurl = "{store.connection_uri()}"\n')
    name = store.connection_uri().partition("@/")[2].partition("?")[0]
    with psycopg.connect(store.connection_uri(), autocommit=True) as owner:
        owner.execute(f"ALTER DATABASE {name} SET default_transaction_read_only = on")
    found = [f for f in site_database.schema(config) if f.level == "fail"]
    assert [(f.name, "read-only" in f.found, "database" in f.found) for f in found] == [
        ("database_writes", True, True)
    ]
    assert "RECONNECT" in found[0].fix, "what PgBouncer keeps to Postgres stays read-only"
    assert main.main(["db", "status", "--config", str(path)]) == 1
    assert "read-only" in capsys.readouterr().out


def beat(node: str = "n1", **fields: Any) -> records.AgentHeartbeat:
    values = {"at": NOW - dt.timedelta(seconds=3), "version": metadata.version("probing-cluster"), **fields}
    return records.AgentHeartbeat(cluster="c", node=node, **values)


def found(*beats: records.AgentHeartbeat, **ages: float) -> dict[str, str]:
    ages = {b.node: 3.0 for b in beats} | ages
    findings = list(site_database.judge_agents(list(beats), ages, ages, NOW))
    assert all(f.why and f.fix for f in findings if f.level != "ok")
    return {f.name: f.level for f in findings}


def test_agents_in_order() -> None:
    """Heard, of our version, on time, losing nothing."""
    assert found(beat(), beat("n2", sources={"nvml": {"state": "ok"}, "ipmi": {"state": "absent"}})) == {
        "agents": "ok"
    }


@pytest.mark.parametrize(
    ("fields", "name", "level"),
    [
        ({"version": "0.0.9"}, "agent_version", "note"),
        ({"at": NOW + dt.timedelta(seconds=60)}, "agent_clock", "warn"),
        ({"at": NOW - dt.timedelta(seconds=60)}, "agent_clock", "warn"),
        ({"dropped_total": 7}, "agent_losses", "warn"),
        ({"lag_s": 900.0}, "agent_lag", "warn"),
        ({"sources": {"nvml": {"state": "hung"}}}, "agent_sources", "warn"),
        ({"hung_children": 1}, "agent_hung", "warn"),
    ],
)
def test_an_agent_that_is_not(fields: dict[str, Any], name: str, level: str) -> None:
    """One thing amiss is one finding beside `agents`, and names the node."""
    assert found(beat(), beat("n2", **fields)) == {"agents": "ok", name: level}
    findings = site_database.judge_agents([beat("n2", **fields)], {"n2": 3.0}, {"n2": 3.0}, NOW)
    assert any("n2" in f.found for f in findings if f.name == name)


def test_silent_agents() -> None:
    """Three beats without a word are silence, whatever the last word was; none at all is a failure."""
    assert found(beat(), beat("n2", dropped_total=1), n2=31.0) == {"agents": "warn"}
    assert found() == {"agents": "fail"}


def silent(*argv: str) -> bytes:
    """A Slurm that answers nothing."""
    raise errors.SlurmUnavailable(argv[0])


def test_asking_starts_no_database(tmp_path: Path) -> None:
    """Where no server runs that is said, once, and none is made."""
    where = settings.DatabaseSettings(directory=str(tmp_path / "postgres"))
    config = dataclasses.replace(settings.Settings(), database=where)
    finding, = site_database.everything(config, silent)  # fmt: skip
    assert (finding.name, finding.level) == ("database", "fail")
    assert "probing-ctl db upgrade" in finding.fix
    assert list(tmp_path.iterdir()) == []


def test_a_database_that_only_its_owner_may_look_into_is_not_called_down(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An ordinary user cannot see whether its server runs; of one that is stopped the way out is `db start`."""
    (tmp_path / "data").mkdir(mode=0o700)
    (tmp_path / "data" / "PG_VERSION").touch()
    where = settings.DatabaseSettings(directory=str(tmp_path))
    config = dataclasses.replace(settings.Settings(), database=where)
    finding, = site_database.everything(config, silent)  # fmt: skip
    assert "probing-ctl db start starts it" in finding.fix
    monkeypatch.setattr(os, "access", lambda *_: False)
    finding, = site_database.everything(config, silent)  # fmt: skip
    assert (finding.found, "sudo -u probing" in finding.fix) == (
        f"{tmp_path} is closed to this account",
        True,
    )


def test_a_server_that_refuses_the_login_is_not_to_be_started(monkeypatch: pytest.MonkeyPatch) -> None:
    """It answers: an ordinary user was told to start it."""

    def refused(_: settings.Settings) -> None:
        raise errors.DatabaseUnavailable(
            "the database does not let you in: Peer authentication failed for user nina"
        )

    monkeypatch.setattr(site_database, "schema", refused)
    config = dataclasses.replace(
        settings.Settings(), database=settings.DatabaseSettings(url="postgresql:///x")
    )
    finding, = site_database.everything(config, silent)  # fmt: skip
    assert (finding.found, "sudo -u probing" in finding.fix) == ("does not let us in", True)


def test_the_embedded_server_shows_no_certificate() -> None:
    """It has a socket only, and libpq's own default place is none of ours."""
    assert list(site_certificates.database(settings.Settings())) == []


@pytest.mark.parametrize(
    ("change", "found"),
    [
        (("/probing_test", "/nobody_made_it"), "does not let us in"),
        (("port=5432", "port=5433"), "does not answer"),
    ],
)
def test_a_server_that_is_away_is_told_from_one_that_refuses(
    store: db_store.Store, change: tuple[str, str], found: str
) -> None:
    """At three in the morning: start the server, or look for the right to get in."""
    url = store.connection_uri().replace(*change)
    assert url != store.connection_uri()
    config = settings.Settings(database=settings.DatabaseSettings(url=url))
    finding, = site_database.everything(config, silent)  # fmt: skip
    assert (finding.name, finding.level, finding.found) == ("database", "fail", found)
    assert ("sudo -u probing" in finding.fix) is (found == "does not let us in")
    assert change[1].lstrip("/").partition("=")[2] in finding.why
    assert "probing-ctl doctor says" not in finding.why


def test_a_server_in_order_is_asked_for_everything(store: db_store.Store) -> None:
    """Schema, server and agents each have their finding; Slurm's silence is said elsewhere."""
    where = settings.DatabaseSettings(url=store.connection_uri())
    config = dataclasses.replace(settings.Settings(), database=where)
    assert {f.name for f in site_database.everything(config, silent)} == {
        "database", "postgres", "roles", "tls", "clock", "agents", "service",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("serves", "age_s", "level", "words"),
    [
        (True, 5, "ok", "read accounting at"),
        (True, 100, "fail", "though probing-ctl serve runs"),
        (None, 100, "ok", "read accounting at"),
        (False, 5, "fail", "does not answer on"),
    ],
)
def test_a_service_that_answers_runs(
    store: db_store.Store,
    monkeypatch: pytest.MonkeyPatch,
    serves: bool | None,
    age_s: float,
    level: str,
    words: str,
) -> None:
    """Then something keeps it waiting, which is said early; one that does not answer is frozen or dead, whatever it read last."""
    monkeypatch.setattr(door, "serves", lambda _: serves)
    config = dataclasses.replace(
        settings.Settings(), database=settings.DatabaseSettings(url=store.connection_uri())
    )
    read_at = dt.datetime.now(dt.UTC) - dt.timedelta(seconds=age_s)
    store.remember(f"{vocabulary.ACCOUNTING_READ} cluster", read_at.isoformat())
    found = site_database.service(config)
    assert (found.level, words in found.found) == (level, True)
    assert "may not run" not in found.found


def test_a_service_that_does_not_run_is_a_fault(store: db_store.Store) -> None:
    """Agents report, and nothing is decided: it reads accounting every few seconds. One that never ran is only to be started."""
    where = settings.DatabaseSettings(url=store.connection_uri())
    config = dataclasses.replace(settings.Settings(), database=where)
    assert site_database.service(config).level == "warn"
    for age_s, level in ((5, "ok"), (600, "fail")):
        store.remember(
            f"{vocabulary.ACCOUNTING_READ} cluster",
            (dt.datetime.now(dt.UTC) - dt.timedelta(seconds=age_s)).isoformat(),
        )
        found = site_database.service(config)
        assert (found.name, found.level) == ("service", level)
    assert "probing-ctl serve may not run" in found.found
    seldom = dataclasses.replace(config, service=settings.ServiceSettings(accounting_poll_s=300.0))
    assert site_database.service(seldom).level == "ok", "a site may poll every five minutes"
    assert "probing-serve" in found.fix


def test_jobs_that_accounting_shows_running_for_ever_are_named(store: db_store.Store) -> None:
    """The doctor counts and names them, by the names that their owners know; a job within its limit is none."""
    url = store.engine.url.render_as_string(hide_password=False)
    made = settings.Settings(
        cluster=settings.ClusterSettings(name="c"), database=settings.DatabaseSettings(url=url)
    )
    at = dt.datetime.now(dt.UTC) - dt.timedelta(days=2)

    def away(*_: str, **__: object) -> bytes:
        raise errors.SlurmUnavailable("not asked here")

    def running(number: int, limit_s: float, **over: int) -> records.JobAttempt:
        times = {"submit_at": at, "start_at": at, "time_limit_s": limit_s}
        return records.JobAttempt(
            cluster="c", job_id=number, state="RUNNING", nodes=("n1",), user="a", **times, **over
        )

    def findings() -> list[tuple[str, str]]:
        return [(f.level, f.found) for f in site_database.agents(made, away) if f.name == "runaway_jobs"]

    store.upsert_attempts([running(7, 1e6)])
    assert findings() == []
    store.upsert_attempts([running(8, 3600.0), running(9, 3600.0, array_job_id=6, array_task_id=3)])
    ((level, found),) = findings()
    assert level == "warn"
    assert found == "2 run in accounting beyond their limit, and no agent names them: 8, 6_3"
