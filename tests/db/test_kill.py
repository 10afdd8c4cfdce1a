"""Killing the server at random moments under load loses no event and stores none twice.

`PROBING_KILL_ROUNDS=200 pytest tests/db/test_kill.py` runs the long version.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import psutil
import psycopg
import pytest

from probing_cluster.core import errors, records
from probing_cluster.db import delivery, migrate
from probing_cluster.db.server import embedded

ROUNDS = int(os.environ.get("PROBING_KILL_ROUNDS", "3"))
_THREADS = 3
_BATCH = 40


@pytest.fixture
def killable() -> Iterator[Path]:
    """A server of its own, to kill."""
    directory = Path(tempfile.mkdtemp(prefix="probing-pg-"))
    directory.chmod(0o755)
    migrate.upgrade(embedded.ensure(directory))
    yield directory
    embedded.stop(directory)
    shutil.rmtree(directory)


class Agent(threading.Thread):
    """Delivers batch after batch, the same again whenever it hears nothing good; every third batch overlaps its last."""

    def __init__(self, url: str, number: int, make_event: Callable[..., records.HealthEvent]) -> None:
        super().__init__()
        self.url, self.node, self.make_event = url, f"n{number}", make_event
        self.acknowledged: list[records.HealthEvent] = []
        self.failures: list[BaseException] = []
        self.n_unavailable = 0
        self.enough = threading.Event()

    def run(self) -> None:
        try:
            with delivery.Delivery(self.url, "c", self.node, call_timeout_s=20, keep_open=True) as door:
                while not self.enough.is_set():
                    self._batch(door)
        except BaseException as exc:  # noqa: BLE001 - handed to the test's own thread
            self.failures.append(exc)

    def _batch(self, door: delivery.Delivery) -> None:
        n = len(self.acknowledged)
        fresh = [
            self.make_event(node=self.node, at=self.make_event().at - timedelta(minutes=n + i))
            for i in range(_BATCH)
        ]
        batch = [*self.acknowledged[-_BATCH // 2 :], *fresh] if n % 3 == 0 else fresh
        beat = records.AgentHeartbeat(cluster="c", node=self.node, at=fresh[0].at, spool_depth=n)
        while True:
            try:
                ack = door.deliver(events=batch, heartbeat=beat)
            except errors.DatabaseUnavailable:
                self.n_unavailable += 1
                time.sleep(0.02)
                continue
            assert ack.accepted + ack.duplicates == len(batch)
            self.acknowledged += fresh
            return


def _kill(directory: Path, rng: random.Random) -> None:
    """End the whole server, or one backend, which makes the server restart itself from its log."""
    postmaster = psutil.Process(int((directory / "data/postmaster.pid").read_text().split("\n")[0]))
    if rng.random() < 0.5:
        embedded.kill(directory)
        return
    backends = [p for p in postmaster.children() if "probing_owner" in " ".join(p.cmdline())]
    if backends:
        os.kill(rng.choice(backends).pid, signal.SIGKILL)


@pytest.mark.longer
def test_rows_equal_distinct_events(killable: Path, make_event: Callable[..., Any]) -> None:
    """After every round of SIGKILL, each acknowledged event is there exactly once, and its key too."""
    rng = random.Random(79)
    agents = [Agent(embedded.url(killable), number, make_event) for number in range(_THREADS)]
    for agent in agents:
        agent.start()
    for _ in range(ROUNDS):
        time.sleep(rng.uniform(0.02, 0.4))
        _kill(killable, rng)
        embedded.ensure(killable)
    for agent in agents:
        agent.enough.set()
        agent.join(timeout=120)
    assert [f for agent in agents for f in agent.failures] == []
    assert sum(agent.n_unavailable for agent in agents) > 0
    with psycopg.connect(embedded.ensure(killable)) as connection:
        rows = [row[0] for row in connection.execute("SELECT event_id FROM probing.health_event ORDER BY 1")]
        keys = [row[0] for row in connection.execute("SELECT event_id FROM probing.event_key ORDER BY 1")]
    assert rows == keys == sorted(e.event_id for agent in agents for e in agent.acknowledged)
    print(f"{ROUNDS} kills, {len(rows)} events, {sum(a.n_unavailable for a in agents)} deliveries repeated")
