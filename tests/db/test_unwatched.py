"""When no agent ran on a node: kept of each death for longer than the database's memory of heartbeats."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import psycopg
import pytest

from probing_cluster.core import records
from probing_cluster.db import delivery

NOON = datetime(2026, 3, 2, 12, tzinfo=UTC)


@pytest.fixture
def unwatched(postgres_url):
    """Delivers heartbeats (minutes of at and start) and gives the spans without an agent, in minutes."""

    def spans_of(*beats: tuple[float, float | None]) -> list[tuple[float | None, float]]:
        door = delivery.Delivery(postgres_url, "c", "n1")
        for at, started in beats:
            begun = None if started is None else NOON + timedelta(minutes=started)
            door.deliver(
                heartbeat=records.AgentHeartbeat(
                    cluster="c", node="n1", at=NOON + timedelta(minutes=at), started_at=begun
                )
            )
        with psycopg.connect(postgres_url) as connection:
            (spans,) = connection.execute(
                "SELECT unwatched FROM probing.agent_heartbeat WHERE node = 'n1'"
            ).fetchone()

        def minutes(at: datetime | None) -> float | None:
            return None if at is None else (at - NOON).total_seconds() / 60

        return [(minutes(s.lower), minutes(s.upper)) for s in spans]

    return spans_of


def test_a_death_is_kept_and_a_silence_is_none(unwatched):
    """From the last word of one process to the start of the next; not where the same one speaks again or the next begins at once.

    Two missed beats (of 10 s) are a silence, here as in the service's events.
    """
    beats = [(1, 0), (2, 0), (50, 0), (60, 55), (61, 55), (62, 61.25), (63, 62.5)]
    assert unwatched(*beats) == [(None, 0), (50, 55), (62, 62.5)]


def test_a_period_that_no_agent_has_makes_no_gap_and_refuses_nothing(unwatched, postgres_url):
    """An agent's report is any number: a start before the last word of the one before it is no gap."""
    assert unwatched((1, 0), (2, 0)) == [(None, 0)]
    with psycopg.connect(postgres_url) as connection:
        connection.execute("UPDATE probing.agent_heartbeat SET beat_s = -1000")
    assert unwatched((3, 1.5)) == [(None, 0)]
    with psycopg.connect(postgres_url) as connection:
        latest = connection.execute("SELECT at FROM probing.agent_heartbeat").fetchone()
    assert latest == (NOON + timedelta(minutes=3),)


def test_an_agent_that_does_not_say_when_it_began(unwatched):
    """Of an older agent nothing is known."""
    assert unwatched((1, None), (99, None)) == []


def test_a_clock_that_ran_ahead_leaves_no_gap_in_the_future(unwatched):
    """A node that began with a wrong clock is watched again once it is right."""
    ahead = 60 * 24 * 365 * 50
    first = unwatched((ahead, ahead))
    spans = unwatched((1, 0), (ahead, ahead), (2, 0))
    now = (datetime.now(UTC) - NOON).total_seconds() / 60
    for found in (first, spans):
        assert all(until <= now for _, until in found)


def test_the_row_of_an_agent_that_dies_all_the_time_stays_short(unwatched):
    """The older half becomes one span: what lay between counts as not watched, never the other way round."""
    deaths = [(10 * n + 5, 10 * n) for n in range(150)]
    spans = unwatched(*deaths)
    assert len(spans) <= 100
    assert spans[0][0] is None
    assert spans[-50:] == [(10 * n - 5, 10 * n) for n in range(100, 150)]
    for n in range(1, 150):
        assert any((low is None or low <= 10 * n - 5) and 10 * n <= high for low, high in spans)
