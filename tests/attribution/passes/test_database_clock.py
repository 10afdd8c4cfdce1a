"""The database's clock jumps: every agent then seems to be off, one heartbeat after the other, and none of them is."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest

from probing_cluster.attribution.passes import fetch, node_clocks
from probing_cluster.attribution.verdict import case as cases
from probing_cluster.db import delivery

BEAT_S = 10.0
NODES = tuple(f"n{i}" for i in range(1, 9))
APART_S = BEAT_S / len(NODES)
"""Agents that were started at different times: each sends its heartbeat so long after the one before."""


class JumpedClock:
    """A database whose clock is `ahead_s` seconds ahead of the clocks of all nodes, which are right."""

    def __init__(self, connection: psycopg.Connection[Any], ahead_s: float) -> None:
        self._connection, self.ahead = connection, timedelta(seconds=ahead_s)

    @property
    def true_now(self) -> datetime:
        return datetime.now(UTC) - self.ahead

    def beat(self, node: str, started_s: float = 3600.0) -> None:
        """Delivers the heartbeat of an agent that started so long ago."""
        at = self.true_now
        beat = {
            "at": at.isoformat(),
            "started_at": (at - timedelta(seconds=started_s)).isoformat(),
            "boot_id": "b",
        }
        self._connection.execute(
            "SELECT probing.deliver(p_cluster => 'c', p_node => %s, p_heartbeat => %s)",
            [node, json.dumps(beat)],
        )

    def pass_time(self, by_s: float) -> None:
        """Makes all that the database has dated older."""
        tables = {
            "node_clock": ("from_at", "to_at"),
            "agent_heartbeat": ("at", "received_at", "started_at"),
            "event_key": ("received_at",),
        }
        for table, columns in tables.items():
            moved = ", ".join(f"{c} = {c} - make_interval(secs => {by_s})" for c in columns)
            self._connection.execute(f"UPDATE probing.{table} SET {moved}")

    def rounds(self, n_rounds: int) -> Iterator[str]:
        """Heartbeats of all nodes, round after round; yields after each of them."""
        for _ in range(n_rounds):
            for node in NODES:
                self.beat(node)
                yield node
                self.pass_time(APART_S)


@pytest.fixture
def jumped(postgres_url: str) -> Iterator[Callable[[float], JumpedClock]]:
    """Makes a database with a clock so far ahead."""
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        yield lambda ahead_s: JumpedClock(connection, ahead_s)


@pytest.mark.parametrize("ahead_s", [400.0, -400.0])
def test_a_jump_of_the_databases_clock_moves_no_event(store, make, jumped, ahead_s):
    """Ahead by 400 s, the agents that were heard first counted as behind before the others did, and their events were moved for good."""
    here = jumped(0.0)
    list(here.rounds(1))
    here.ahead = timedelta(seconds=ahead_s)
    xid = make.xid(79, at=here.true_now, node="n1")
    delivery.Delivery(store.url, "c", "n1").deliver(events=[xid])
    for beat, _ in enumerate(here.rounds(8)):
        assert node_clocks.correct(store) == 0, beat
    assert store.events() == [xid]
    assert node_clocks.read(store, "c").spans == {}


@pytest.mark.parametrize("ahead_s", [400.0, -400.0])
def test_agents_that_are_off_for_good_have_no_part_in_it(store, jumped, ahead_s):
    """Nodes that were switched off long ago are more than half of all, as where Slurm starts nodes only when jobs need them."""
    here = jumped(0.0)
    for i in range(20):
        here.beat(f"cold{i}")
    here.pass_time(3600)
    here.ahead = timedelta(seconds=ahead_s)
    list(here.rounds(8))
    assert node_clocks.read(store, "c").spans == {}


@pytest.mark.parametrize("ahead_s", [0.0, 400.0, -400.0])
def test_a_gap_in_watching_is_where_the_right_clocks_have_it(store, jumped, ahead_s):
    """n2's agent was away for three minutes; the database's clock would have put that 400 s from where it was.

    Agents that are off for good have no part in it.
    """
    here = jumped(0.0)
    for i in range(20):
        here.beat(f"cold{i}")
    here.pass_time(3600)
    here.ahead = timedelta(seconds=ahead_s)
    list(here.rounds(8))
    away_from = here.true_now
    here.beat("n2")
    here.pass_time(180.0)
    for node in NODES[2:]:
        here.beat(node)
    here.beat("n2", started_s=20.0)
    with psycopg.connect(store.url) as connection:
        ((spans,),) = connection.execute(
            "SELECT unwatched FROM probing.agent_heartbeat WHERE node = 'n2'"
        ).fetchall()
    gap = spans[-1]
    assert (gap.lower - away_from).total_seconds() == pytest.approx(-180, abs=6)
    assert (gap.upper - away_from).total_seconds() == pytest.approx(-20, abs=6)


@pytest.mark.parametrize("ahead_s", [0.0, 400.0, -400.0])
def test_a_node_was_watched_until_its_last_heartbeat_by_its_own_clock(store, jumped, ahead_s):
    """Where the nodes' clocks are right, that is the time by which Slurm dates the job's end, too."""
    here = jumped(ahead_s)
    list(here.rounds(8))
    at = here.true_now
    here.beat("n2")
    watched = fetch.Fetcher(store, cases.WindowPolicy()).watched("c", ["n2"], at, at)
    assert (watched["n2"].last - at).total_seconds() == pytest.approx(0, abs=5)
