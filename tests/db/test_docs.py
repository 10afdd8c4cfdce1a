"""The manual names what there is."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest

from probing_cluster.core import records
from probing_cluster.db import delivery, migrate, roles, tables
from probing_cluster.db.server import embedded

MANUAL = (Path(__file__).resolve().parents[2] / "docs" / "database.md").read_text(encoding="utf-8")


def test_every_table_and_group_is_in_the_manual() -> None:
    """Each table and each group of roles has its row, and no row names what is not there."""
    rows = set(re.findall(r"^\| `(\w+)` \|", MANUAL, re.MULTILINE))
    there = {table.name for table in tables.metadata.tables.values()} | set(roles.GROUPS)
    assert there == {name for name in rows if "/" not in name and name != "lock"}


@pytest.fixture
def home() -> Iterator[Path]:
    """A directory with the settings of an embedded server, which is stopped and removed afterwards."""
    directory = Path(tempfile.mkdtemp(prefix="probing-pg-"))
    directory.chmod(0o755)
    (directory / "site.toml").write_text(f'[database]\ndirectory = "{directory / "db"}"\n')
    ctl = Path(sys.executable).with_name("probing-ctl")
    (directory / "probing-ctl").write_text(f'#!/bin/sh\nexec {ctl} "$@" --config {directory / "site.toml"}\n')
    (directory / "probing-ctl").chmod(0o755)
    yield directory
    embedded.stop(directory / "db")
    shutil.rmtree(directory)


def _kept(home: Path) -> list[object]:
    with psycopg.connect(embedded.url(home / "db")) as connection:
        every = [
            connection.execute(f"SELECT count(*) FROM probing.{table}").fetchone()
            for table in ("health_event", "event_key", "state", "alembic_version")
        ]
        members = "SELECT pg_has_role('probing_agent_n1', 'probing_agent', 'MEMBER')"
        return [*every, connection.execute(members).fetchone()]


def test_upgrading_the_embedded_server_as_written_keeps_everything(
    home: Path, make_event: Callable[..., records.HealthEvent]
) -> None:
    """The manual's own commands: events in their months, keys, state and the agents' roles come over."""
    migrate.upgrade(embedded.ensure(home / "db"))
    with psycopg.connect(embedded.url(home / "db")) as connection:
        connection.execute("SELECT probing.make_month(date_trunc('month', now())::date)")
        connection.execute("CREATE ROLE probing_agent_n1 LOGIN IN ROLE probing_agent")
        connection.execute("INSERT INTO probing.state VALUES ('mark', '{}')")
    delivery.Delivery(embedded.url(home / "db"), "c", "n1").deliver(events=[make_event()])
    before = _kept(home)
    section = MANUAL[MANUAL.index("### Upgrading the embedded server") :]
    old, new, *_ = re.findall(r"```sh\n(.*?)```", section, re.DOTALL)
    path = f"{home}:{Path(sys.executable).parent}:{os.environ['PATH']}"
    for words in (old, f"mv db/data db/old\n{new}"):
        done = subprocess.run(
            ["sh", "-euc", words],
            cwd=home,
            env={**os.environ, "PATH": path},
            capture_output=True,
            text=True,
            timeout=200,
            check=False,
        )
        assert done.returncode == 0, done.stderr[-2000:]
    assert _kept(home) == before
    assert before[0] == (1,)
