"""Months are made ahead, dropped when old, and a busy database is not stood in the way of."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest

from probing_cluster.db import delivery, partitions
from probing_cluster.db import store as store_module

Make = Callable[..., Any]
NOW = datetime(2026, 3, 31, 12, tzinfo=UTC)


def _homes(url: str) -> list[str]:
    with psycopg.connect(url) as connection:
        query = "SELECT tableoid::regclass::text FROM probing.health_event ORDER BY at"
        return [row[0].removeprefix("probing.health_event_") for row in connection.execute(query)]


def test_months_are_made_ahead(postgres_url: str) -> None:
    """This month and the three after it get a partition, over the end of a year; a second run makes nothing."""
    done = partitions.maintain(postgres_url, retention_days=400, now=datetime(2026, 11, 30, tzinfo=UTC))
    assert done.made == ("2026-11", "2026-12", "2027-01", "2027-02")
    assert (
        partitions.maintain(postgres_url, retention_days=400, now=datetime(2026, 11, 30, tzinfo=UTC)).made
        == ()
    )


def test_new_rows_are_summarized_without_waiting_for_a_vacuum(postgres_url: str) -> None:
    """A range of pages that no summary tells of is read for every question of a span of time."""
    partitions.maintain(postgres_url, retention_days=400, now=NOW)
    query = (
        "SELECT c.relname, c.reloptions FROM pg_class c JOIN pg_am m ON m.oid = c.relam"
        " WHERE m.amname = 'brin' AND c.relkind = 'i' AND c.relnamespace = 'probing'::regnamespace"
    )
    with psycopg.connect(postgres_url) as connection:
        found: dict[str, list[str]] = dict(connection.execute(query).fetchall())
    assert {"event_key_received_brin", "health_event_2026_03_at_idx"} <= found.keys()
    assert all("autosummarize=true" in options for options in found.values())


def test_rows_that_waited_move_to_their_month(
    postgres_url: str, store: store_module.Store, make_event: Make
) -> None:
    """Events stored before their month existed, or late for an old one, end up in it; absurd times stay apart."""
    times = [
        NOW - timedelta(days=60),
        NOW,
        NOW.replace(day=1, hour=0, minute=0, second=0) - timedelta(microseconds=1),
    ]
    absurd = datetime(2099, 1, 1, tzinfo=UTC)
    events = [make_event(at=at) for at in [*times, absurd]]
    delivery.Delivery(postgres_url, "c", "n1").deliver(events=events)
    assert set(_homes(postgres_url)) == {"default"}
    done = partitions.maintain(postgres_url, retention_days=400, now=NOW)
    assert done.made == ("2026-01", "2026-02", "2026-03", "2026-04", "2026-05", "2026-06")
    assert _homes(postgres_url) == ["2026_01", "2026_02", "2026_03", "default"]
    assert store.events() == sorted(events, key=lambda e: e.at)


def test_old_months_are_dropped_once_exported(
    postgres_url: str, make_event: Make, store: store_module.Store
) -> None:
    """A month goes when its last day is older than the retention, and only if it is safely elsewhere."""
    for days in (0, 120, 200):
        delivery.Delivery(postgres_url, "c", "n1").deliver(events=[make_event(at=NOW - timedelta(days=days))])
    partitions.maintain(postgres_url, retention_days=400, now=NOW)
    given_months: list[list[str]] = []

    def exported(months: Sequence[str]) -> list[str]:
        given_months.append(list(months))
        return months[:1] if len(given_months) == 1 else []

    assert partitions.past_retention(store.engine, 60, NOW) == ["2025-09", "2025-12"]
    for dropped in (("2025-09",), ()):
        done = partitions.maintain(postgres_url, retention_days=60, now=NOW, exported=exported)
        assert done.dropped == dropped
    assert given_months == [["2025-09", "2025-12"], ["2025-12"]]
    assert partitions.maintain(postgres_url, retention_days=60, now=NOW).dropped == ("2025-12",)
    assert [e.at for e in store.events()] == [NOW]


def test_a_month_is_kept_until_its_last_day_is_old(postgres_url: str, make_event: Make) -> None:
    """The month in which the retention ends stays whole."""
    at = datetime(2026, 1, 31, 23, tzinfo=UTC)
    delivery.Delivery(postgres_url, "c", "n1").deliver(events=[make_event(at=at)])
    partitions.maintain(postgres_url, retention_days=400, now=NOW)
    keep_days = (NOW - datetime(2026, 2, 1, tzinfo=UTC)).days
    assert partitions.maintain(postgres_url, retention_days=keep_days + 1, now=NOW).dropped == ()
    assert partitions.maintain(postgres_url, retention_days=keep_days, now=NOW).dropped == ("2026-01",)


def test_keys_outlive_any_spool(postgres_url: str, make_event: Make) -> None:
    """A key goes when it was both received and dated long ago, never before the spool's longest delay."""
    door = delivery.Delivery(postgres_url, "c", "n1")
    event = make_event(at=NOW - timedelta(days=50))
    door.deliver(events=[event])
    with psycopg.connect(postgres_url) as connection:
        connection.execute("UPDATE probing.event_key SET received_at = at")
    assert partitions.maintain(postgres_url, retention_days=10, now=NOW).keys_deleted == 0
    assert door.deliver(events=[event]).duplicates == 1
    later = NOW + timedelta(days=partitions.KEY_RETENTION_DAYS)
    done = partitions.maintain(postgres_url, retention_days=10, now=later)
    assert done.keys_deleted == 1
    assert _homes(postgres_url) == []


def test_a_key_outlives_its_event(postgres_url: str, make_event: Make) -> None:
    """While a month is kept whole, so are the keys of its first days, and nothing in it can come in twice."""
    door = delivery.Delivery(postgres_url, "c", "n1")
    events = [make_event(at=datetime(2025, 6, day, tzinfo=UTC)) for day in (1, 30)]
    door.deliver(events=events)
    with psycopg.connect(postgres_url) as connection:
        connection.execute("UPDATE probing.event_key SET received_at = at")
    partitions.maintain(postgres_url, retention_days=400, now=NOW)
    middle = (NOW - datetime(2025, 6, 15, tzinfo=UTC)).days
    assert partitions.maintain(postgres_url, retention_days=middle, now=NOW).keys_deleted == 0
    assert door.deliver(events=events).duplicates == 2
    done = partitions.maintain(postgres_url, retention_days=middle - 20, now=NOW)
    assert (done.dropped, done.keys_deleted) == (("2025-06",), 2)


def test_a_reader_in_the_way_postpones(postgres_url: str, make_event: Make) -> None:
    """An open transaction on an old month postpones its drop for seconds, holding up no delivery for long."""
    door = delivery.Delivery(postgres_url, "c", "n1")
    door.deliver(events=[make_event(at=NOW - timedelta(days=200))])
    partitions.maintain(postgres_url, retention_days=400, now=NOW)
    with psycopg.connect(postgres_url) as reader:
        reader.execute("SELECT count(*) FROM probing.health_event")
        done = partitions.maintain(postgres_url, retention_days=100, now=NOW)
        assert (done.dropped, done.postponed) == ((), ("2025-09",))
        assert door.deliver(events=[make_event()]).accepted == 1
    assert partitions.maintain(postgres_url, retention_days=100, now=NOW).dropped == ("2025-09",)


@pytest.mark.parametrize("month", ["2026-02-30", "2026-02-01'; DROP TABLE probing.drain; --"])
def test_a_month_is_a_date(month: str, postgres_url: str) -> None:
    """What is no date makes no table."""
    with psycopg.connect(postgres_url) as connection, pytest.raises(psycopg.DataError):
        connection.execute("SELECT probing.make_month(%s)", [month])


def test_what_roles_delivered_is_kept_for_two_days(postgres_url: str) -> None:
    """Quotas look at the current hour; a row per agent and hour of the whole retention would be millions."""
    add = "INSERT INTO probing.intake (role_name, hour, n_rows) SELECT 'r', now() - make_interval(hours => h), 1 FROM unnest(%s::int[]) AS h"
    with psycopg.connect(postgres_url) as connection:
        connection.execute(add, [[0, 47, 49, 2000]])
    partitions.maintain(postgres_url, retention_days=400)
    with psycopg.connect(postgres_url) as connection:
        age_h = "extract(epoch FROM now() - hour) / 3600"
        found = connection.execute(f"SELECT {age_h} FROM probing.intake ORDER BY 1").fetchall()
    assert [round(hours) for (hours,) in found] == [0, 47]
