"""What an agent delivers is stored once each, whatever goes wrong on the way."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest
import sqlalchemy as sa
from sqlalchemy.dialects import postgresql

from probing_cluster.core import errors, records
from probing_cluster.db import delivery, tables
from probing_cluster.db import store as store_module
from tests import unjudged

Make = Callable[..., records.HealthEvent]


def _delivery(url: str, node: str = "n1", **options: Any) -> delivery.Delivery:
    return delivery.Delivery(url, "c", node, **options)


def _checks_since_ever(store: store_module.Store, node: str) -> list[records.CheckResult]:
    changes = sa.select(tables.check_result).where(tables.check_result.c.node == node)
    return store._select(records.CheckResult, changes.order_by(tables.check_result.c.at))


def test_the_columns_of_a_delivery_are_those_of_the_record() -> None:
    """No field of an event is left behind on the way."""
    columns = {c.name: str(c.type.compile(postgresql.dialect())).lower() for c in tables.health_event.columns}
    names = {"timestamptz": "timestamp with time zone", "text": "text"}
    assert [name for name, _ in delivery.EVENT_FIELDS] == list(columns)
    for name, kind in delivery.EVENT_FIELDS:
        assert name == "detail" or columns[name] == names.get(kind, kind)


def test_every_field_arrives(
    postgres_url: str, store: store_module.Store, full_record: Callable[[type[Any]], Any]
) -> None:
    """An event, a check, an allocation and a heartbeat with every field set come back equal."""
    place = {"cluster": "c", "node": "n1"}
    event = dataclasses.replace(full_record(records.HealthEvent), **place)
    check = dataclasses.replace(full_record(records.CheckResult), **place)
    allocation = dataclasses.replace(full_record(records.JobAllocation), **place)
    heartbeat = dataclasses.replace(full_record(records.AgentHeartbeat), **place)
    ack = _delivery(postgres_url).deliver(
        events=[event], checks=[check], allocations=[allocation], heartbeat=heartbeat
    )
    assert (ack.accepted, ack.duplicates, ack.rejected) == (1, 0, 0)
    assert store.events() == [event]
    assert store.checks() == _checks_since_ever(store, "n1") == [check]
    assert store.allocations() == [allocation]
    assert store.heartbeats(with_ranks=True, with_sources=True) == [heartbeat]
    assert store.heartbeats() == [dataclasses.replace(heartbeat, ranks={}, sources={})]


def test_an_older_agent_leaves_fields_out(
    postgres_url: str, store: store_module.Store, bare_record: Callable[[type[Any]], Any]
) -> None:
    """Rows without the fields an older release does not know are stored with those fields' defaults."""
    arguments = {}
    for name, cls in (
        ("p_checks", records.CheckResult),
        ("p_allocations", records.JobAllocation),
        ("p_heartbeat", records.AgentHeartbeat),
    ):
        record = dataclasses.replace(bare_record(cls), cluster="c", node="n1")
        required = {
            f.name for f in dataclasses.fields(cls) if f.default is f.default_factory is dataclasses.MISSING
        }
        row = {k: v for k, v in dataclasses.asdict(record).items() if k in required}
        arguments[name] = json.dumps(row if name == "p_heartbeat" else [row], default=str)
    with psycopg.connect(postgres_url) as connection:
        connection.execute(
            "SELECT probing.deliver(p_cluster => 'c', p_node => 'n1', p_checks => %(p_checks)s,"
            " p_allocations => %(p_allocations)s, p_heartbeat => %(p_heartbeat)s)",
            arguments,
        )
    for found, cls in (
        (store.checks(), records.CheckResult),
        (store.allocations(), records.JobAllocation),
        (store.heartbeats(), records.AgentHeartbeat),
    ):
        assert found == [dataclasses.replace(bare_record(cls), cluster="c", node="n1")]


@pytest.mark.parametrize("far", ["infinity", "-infinity", "20000-01-01", "0044-03-15 BC"])
def test_times_that_no_client_can_hold_stop_nobody(
    far: str, postgres_url: str, store: store_module.Store, make_event: Make
) -> None:
    """Postgres has times that its clients refuse to read: a node that sends some is refused, and all others are read on."""
    near = "2026-03-03T00:00:00+00:00"
    given = {
        "p_heartbeat": [{"at": far}, {"at": near, "started_at": far}],
        "p_allocations": [[{"job_id": 1, "at": far}], [{"job_id": 1, "at": near, "released_at": far}]],
        "p_checks": [[{"name": "x", "at": far, "outcome": "ok", "severity": "info"}]],
    }
    event = "e_event_id => ARRAY[gen_random_uuid()], e_cluster => '{c}', e_node => '{n1}', e_kind => '{xid}', e_severity => '{high}'"
    event += ", e_source => '{kernel}', e_message => '{x}'"
    times = "e_at => ARRAY[%s]::timestamptz[], e_observed_at => ARRAY[%s]::timestamptz[], e_last_at => ARRAY[%s]::timestamptz[]"
    # The other columns say nothing.
    nulls = [name for name, _ in delivery.EVENT_FIELDS if f"e_{name} " not in event + times]
    rest = ", ".join(f"e_{name} => '{{NULL}}'" for name in nulls)
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        for name, loads in given.items():
            for load in loads:
                row = connection.execute(
                    f"SELECT probing.deliver('c', 'n1', {name} => %s)", [json.dumps(load)]
                ).fetchone()
                assert row is not None
                assert row[0]["rejected"] == 1
        stored = []
        for wrong in range(3):
            at = [near, near, near]
            at[wrong] = far
            row = connection.execute(
                f"SELECT probing.deliver('c', 'n1', {event}, {times}, {rest})", at
            ).fetchone()
            assert row is not None
            stored.append((row[0]["accepted"], row[0]["rejected"]))
    assert stored == [(0, 1), (1, 0), (1, 0)]
    assert len(store.events()) == 2
    assert (store.heartbeats(), store.allocations(), store.checks()) == ([], [], [])
    assert unjudged.attempts(store) == []


def test_a_delivery_repeated_adds_nothing(
    postgres_url: str, store: store_module.Store, make_event: Make
) -> None:
    """The same batch again, as after a commit nobody heard of, is all duplicates."""
    events = [make_event() for _ in range(10)]
    with _delivery(postgres_url) as door:
        assert door.deliver(events=events).accepted == 10
        again = door.deliver(events=[*events, make_event(), events[0]])
    assert (again.accepted, again.duplicates, again.rejected) == (1, 11, 0)
    assert len(store.events()) == 11


def test_the_same_id_at_another_time_is_the_same_event(
    postgres_url: str, store: store_module.Store, make_event: Make
) -> None:
    """An event whose clock was corrected between two deliveries stays one row, in whatever month."""
    event = make_event()
    moved = dataclasses.replace(event, at=event.at - timedelta(days=90))
    ack = _delivery(postgres_url).deliver(events=[event, moved, make_event(), event])
    assert (ack.accepted, ack.duplicates) == (2, 2)
    assert _delivery(postgres_url).deliver(events=[moved]).duplicates == 1
    assert sorted(e.event_id for e in store.events()).count(event.event_id) == len(store.events()) - 1 == 1


def test_two_agents_at_once(postgres_url: str, store: store_module.Store, make_event: Make) -> None:
    """Eight deliverers of overlapping batches in clashing orders leave one row per event and no deadlock."""
    events = [make_event(at=make_event().at - timedelta(seconds=i)) for i in range(120)]
    failures: list[BaseException] = []
    accepted: list[int] = []

    def work(offset: int) -> None:
        try:
            with _delivery(postgres_url, keep_open=True) as door:
                order = events[offset:] + events[:offset]
                batches = [order[i : i + 30] for i in range(0, len(order), 15)]
                accepted.extend(door.deliver(events=b[:: -1 if offset % 2 else 1]).accepted for b in batches)
        except BaseException as exc:  # noqa: BLE001 - handed to the test's own thread
            failures.append(exc)

    threads = [threading.Thread(target=work, args=(i * 14,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert sum(accepted) == len(store.events()) == 120


def test_rows_of_another_node_are_refused_and_counted(
    postgres_url: str, store: store_module.Store, make_event: Make
) -> None:
    """A delivery for n1 cannot carry n2's events; the refusal is on record."""
    ack = _delivery(postgres_url).deliver(
        events=[make_event(), make_event(node="n2"), make_event(cluster="d")]
    )
    assert (ack.accepted, ack.rejected) == (1, 2)
    with psycopg.connect(postgres_url) as connection:
        rows = connection.execute("SELECT node, reason, n_rows FROM ops.rejections").fetchall()
    assert rows == [("n1", "another node", 2)]


@pytest.mark.parametrize(
    "poison",
    [
        {"pid": 2**70},
        {"job_id": -(2**63) - 1},
        {"detail": {"x": object()}},
        {"measured": "not a number"},
    ],
)
def test_one_bad_row_holds_up_nothing(
    poison: dict[str, Any], postgres_url: str, store: store_module.Store, make_event: Make
) -> None:
    """A row that Postgres cannot hold is refused alone, with its reason counted; its neighbours are stored."""
    good = [make_event() for _ in range(6)]
    bad = make_event(**poison)
    heartbeat = records.AgentHeartbeat(cluster="c", node="n1", at=good[0].at)
    ack = _delivery(postgres_url).deliver(events=[*good[:3], bad, *good[3:]], heartbeat=heartbeat)
    assert (ack.accepted, ack.rejected, sum(ack.reasons.values())) == (6, 1, 1)
    assert len(store.heartbeats()) == 1
    with psycopg.connect(postgres_url) as connection:
        assert connection.execute("SELECT sum(n_rows) FROM ops.rejections").fetchone() == (1,)


@pytest.mark.parametrize(
    ("given", "stored"),
    [
        ({"message": "a\0b"}, {"message": "a\ufffdb"}),
        ({"message": "a\ud800b"}, {"message": "a\ufffdb"}),
        ({"detail": {"x\0": ["\0", float("nan")]}}, {"detail": {"x\ufffd": ["\ufffd", None]}}),
    ],
)
def test_bad_text_is_mended_not_lost(
    given: dict[str, Any],
    stored: dict[str, Any],
    postgres_url: str,
    store: store_module.Store,
    make_event: Make,
) -> None:
    """Evidence with bytes that no Postgres text can hold is kept without them."""
    ack = _delivery(postgres_url).deliver(events=[make_event(**given), make_event()])
    assert (ack.accepted, ack.rejected) == (2, 0)
    assert [e for e in store.events() if all(getattr(e, k) == v for k, v in stored.items())]


def test_a_long_message_is_cut(postgres_url: str, store: store_module.Store, make_event: Make) -> None:
    """A message or detail beyond any use does not fill the disk."""
    _delivery(postgres_url).deliver(events=[make_event(message="x" * 100_000, detail={"y": "z" * 100_000})])
    assert len(store.events()[0].message) == 4096
    assert store.events()[0].detail == {"truncated": True}


def test_more_than_one_call_holds(
    postgres_url: str, make_event: Make, store: store_module.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A delivery larger than the function takes is divided on this side."""
    monkeypatch.setattr(delivery, "CALL_EVENTS_MAX", 10)
    events = [make_event() for _ in range(31)]
    heartbeat = records.AgentHeartbeat(cluster="c", node="n1", at=events[0].at)
    assert _delivery(postgres_url).deliver(events=events, heartbeat=heartbeat).accepted == 31
    assert store.heartbeats(with_ranks=True, with_sources=True) == [heartbeat]


def test_requests_come_back_until_acknowledged(postgres_url: str, store: store_module.Store) -> None:
    """A node receives its own open requests with each delivery until it acknowledges them or they expire."""
    mine = store.request("n1", "collect", job_id=7, ttl_s=60, detail={"why": "ended"}, cluster="c")
    store.request("n2", "recheck", cluster="c")
    store.request("n1", "recheck", ttl_s=-1, cluster="c")
    with _delivery(postgres_url) as door:
        first = door.deliver()
        again = door.deliver()
        done = door.deliver(acknowledged=[mine])
    assert [(r.request_id, r.verb, r.job_id, r.detail) for r in first.requests] == [
        (mine, "collect", 7, {"why": "ended"})
    ]
    assert first.requests == again.requests
    assert first.requests[0].expires_at.tzinfo is not None
    assert done.requests == ()
    assert store.request_states([mine]) == {mine: "acknowledged"}


def test_another_nodes_request_cannot_be_acknowledged(postgres_url: str, store: store_module.Store) -> None:
    """An acknowledgement counts only for the node's own requests."""
    theirs = store.request("n2", "recheck", cluster="c")
    _delivery(postgres_url, "n1").deliver(acknowledged=[theirs])
    assert store.request_states([theirs]) == {theirs: "open"}


def test_checks_are_stored_on_change(postgres_url: str, store: store_module.Store, make_event: Make) -> None:
    """Of ok, ok, fail, ok in one batch or four, history keeps ok, fail, ok and `checks` shows the last."""
    at = make_event().at
    results = [
        records.CheckResult(
            cluster="c", node=node, name="gpu", outcome=outcome, severity="low", at=at + timedelta(seconds=i)
        )
        for node in ("n1", "n2")
        for i, outcome in enumerate(("ok", "ok", "fail", "ok", "ok"))
    ]
    _delivery(postgres_url, "n1").deliver(checks=results[:5])
    for result in results[5:]:
        _delivery(postgres_url, "n2").deliver(checks=[result])
    for node in ("n1", "n2"):
        assert [c.outcome for c in _checks_since_ever(store, node)] == ["ok", "fail", "ok"]
        assert store.checks(node)[0].at == at + timedelta(seconds=4)
    _delivery(postgres_url, "n1").deliver(checks=results[:5])
    assert len(_checks_since_ever(store, "n1")) == 3


def _links(*results: tuple[str, float]) -> list[records.CheckResult]:
    """Results of one check, each so many seconds from now."""
    place: dict[str, Any] = {"cluster": "c", "node": "n1", "name": "ib_link", "severity": "high"}
    now = datetime.now(UTC)
    return [records.CheckResult(outcome=o, at=now + timedelta(seconds=s), **place) for o, s in results]


@pytest.mark.parametrize(
    ("before_s", "after_s", "shown"),
    [(7200, 0, "ok"), (300, 0, "ok"), (7200, 3600, "ok"), (0, -7200, "fail"), (-30, -60, "fail")],
)
def test_the_result_that_came_last_is_shown_whatever_the_nodes_clock(
    postgres_url: str, store: store_module.Store, before_s: float, after_s: float, shown: str
) -> None:
    """A clock two hours ahead was set right. An older result that comes later shows nothing new: a long backlog comes failures first."""
    for result in _links(("fail", before_s), ("ok", after_s)):
        _delivery(postgres_url).deliver(checks=[result])
    assert store.checks()[0].outcome == shown


def test_of_one_delivery_the_result_of_the_right_clock_is_shown(
    postgres_url: str, store: store_module.Store
) -> None:
    """Both waited in the node's spool; the clock was set right between them."""
    _delivery(postgres_url).deliver(checks=_links(("fail", 7200), ("ok", 0)))
    assert store.checks()[0].outcome == "ok"


def test_a_clock_set_back_freezes_no_heartbeat(
    postgres_url: str, store: store_module.Store, make_event: Make
) -> None:
    """The state heard last is the present one, though its clock says earlier; its age is by the server's clock."""
    at = make_event().at
    with _delivery(postgres_url) as door:
        door.deliver(
            heartbeat=records.AgentHeartbeat(cluster="c", node="n1", at=at + timedelta(days=900), version="1")
        )
        door.deliver(heartbeat=records.AgentHeartbeat(cluster="c", node="n1", at=at, version="2"))
    assert [h.version for h in store.heartbeats()] == ["2"]
    assert 0 <= store.heartbeat_ages_s()["n1"] < 60


def test_a_clock_set_back_freezes_no_check(postgres_url: str, store: store_module.Store) -> None:
    """It failed while the clock was two hours ahead; set right, the node passes at once. An older result changes nothing else."""
    now = datetime.now(UTC)

    def deliver(outcome: str, at: datetime) -> str:
        found = records.CheckResult(
            cluster="c", node="n1", name="ib_link", outcome=outcome, severity="low", at=at
        )
        _delivery(postgres_url).deliver(checks=[found])
        return store.checks("n1")[0].outcome

    assert deliver("fail", now + timedelta(hours=2)) == "fail"
    assert deliver("ok", now) == "ok"
    assert deliver("fail", now - timedelta(seconds=10)) == "ok"


def test_the_epilog_completes_the_prologs_row(
    postgres_url: str, store: store_module.Store, make_event: Make
) -> None:
    """A second report of one start adds what it knows and forgets nothing."""
    at = make_event().at
    first = records.JobAllocation(
        cluster="c", node="n1", job_id=5, at=at, uid=7, gpu_uuids=("a",), detail={"x": 1}
    )
    with _delivery(postgres_url) as door:
        door.deliver(allocations=[first])
        door.deliver(
            allocations=[
                records.JobAllocation(
                    cluster="c", node="n1", job_id=5, at=at, released_at=at, detail={"y": 2}
                )
            ]
        )
    assert store.allocations(5) == [dataclasses.replace(first, released_at=at, detail={"x": 1, "y": 2})]


def test_only_a_heartbeat_alone_may_be_lost_in_a_crash(postgres_url: str, make_event: Make) -> None:
    """Rows are on the disk when they are acknowledged; a beat that follows in seconds asks for no sync."""
    beat = records.AgentHeartbeat(cluster="c", node="n1", at=make_event().at)
    check = records.CheckResult(
        cluster="c",
        node="n1",
        name="load",
        outcome=records.Outcome.OK,
        severity=records.Severity.LOW,
        message="",
        at=beat.at,
    )
    loads: list[tuple[dict[str, Any], str]] = [
        ({"heartbeat": beat}, "off"),
        ({"heartbeat": beat, "events": [make_event()]}, "on"),
        ({"heartbeat": beat, "checks": [check]}, "on"),
        ({"heartbeat": beat, "acknowledged": [uuid.uuid4()]}, "on"),
    ]
    for load, expected in loads:
        with _delivery(postgres_url, keep_open=True) as door:
            connection = door._open()
            with connection.transaction():
                door.deliver(**load)
                row = connection.execute("SHOW synchronous_commit").fetchone()
            assert row == (expected,), load


def test_a_quota_holds_a_flood_back(postgres_url: str, make_event: Make) -> None:
    """An agent's role beyond its hourly quota is told to wait, and nothing of that batch is stored."""
    with psycopg.connect(postgres_url) as connection:
        connection.execute("INSERT INTO probing.agent_role VALUES (session_user, 'c', 'n1', 5)")
    assert _delivery(postgres_url).deliver(events=[make_event() for _ in range(5)]).accepted == 5
    with pytest.raises(errors.DatabaseUnavailable, match="more than its 5 per hour"):
        _delivery(postgres_url).deliver(events=[make_event()])


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ("default_transaction_read_only = on", "database is read-only"),
        ("statement_timeout = '1ms'", "cannot be reached"),
    ],
)
def test_a_server_that_takes_nothing_now_is_unavailable(
    setting: str, words: str, postgres_url: str, make_event: Make
) -> None:
    """Read-only and overloaded servers mean: keep it and try again."""
    name = postgres_url.partition("@/")[2].partition("?")[0]
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute(f"ALTER DATABASE {name} SET {setting}")
    with pytest.raises(errors.DatabaseUnavailable, match=words):
        _delivery(postgres_url).deliver(events=[make_event() for _ in range(1000)])


@pytest.mark.parametrize(
    "sqlstate",
    [
        "53100",
        "53200",
        "53300",
        "57P01",
        "57P02",
        "57P03",
        "25006",
        "40001",
        "40P01",
        "58030",
        "XX000",
        "XX001",
        "42883",
        "42501",
    ],
)
def test_what_waiting_can_cure_keeps_the_batch(sqlstate: str, postgres_url: str, make_event: Make) -> None:
    """A full disk, failover, shutdown, deadlock, corruption or a missing grant lose no row: the same batch is good later."""
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute(
            f"CREATE FUNCTION fail() RETURNS trigger LANGUAGE plpgsql AS"
            f" $$BEGIN RAISE EXCEPTION 'no' USING ERRCODE = '{sqlstate}'; END$$"
        )
        connection.execute("CREATE TRIGGER fail BEFORE INSERT ON probing.event_key EXECUTE FUNCTION fail()")
        events = [make_event() for _ in range(3)]
        with pytest.raises(errors.DatabaseUnavailable):
            _delivery(postgres_url).deliver(events=events)
        connection.execute("DROP FUNCTION fail() CASCADE")
    assert _delivery(postgres_url).deliver(events=events).accepted == 3


def test_the_second_host_is_tried(postgres_url: str, make_event: Make, tmp_path: Any) -> None:
    """A URL with several hosts finds the one that takes writes."""
    failing_over = postgres_url.replace(
        "?host=", f"?target_session_attrs=read-write&host={tmp_path},"
    ).replace("port=5432", "port=5432,5432")
    assert _delivery(failing_over).deliver(events=[make_event()]).accepted == 1


def test_a_server_that_went_away_and_came_back(postgres_url: str, make_event: Make) -> None:
    """A backend ended by an administrator costs one failed delivery; the next opens a new connection."""
    with _delivery(postgres_url, keep_open=True) as door:
        door.deliver(events=[make_event()])
        with psycopg.connect(postgres_url, autocommit=True) as other:
            other.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'probing-agent'"
            )
        event = make_event()
        with pytest.raises(errors.DatabaseUnavailable):
            door.deliver(events=[event])
        assert door.deliver(events=[event]).accepted == 1


def test_no_server_is_unavailable(tmp_path: Any) -> None:
    """Where nothing listens the error says so and names the product's way, not the driver's class."""
    with pytest.raises(errors.DatabaseUnavailable, match="database cannot be reached"):
        _delivery(f"postgresql://x@/y?host={tmp_path}").deliver()


def test_a_server_that_hangs_is_given_up(postgres_url: str, make_event: Make) -> None:
    """A server that accepts the call and never answers does not hold the agent."""
    door = _delivery(postgres_url, keep_open=True)
    door.deliver()
    door._call_timeout_s = 0.3
    with psycopg.connect(postgres_url) as other:
        other.execute("LOCK TABLE probing.event_key IN ACCESS EXCLUSIVE MODE")
        with pytest.raises(errors.DatabaseUnavailable, match="does not answer"):
            door.deliver(events=[make_event()])


def test_the_connection_is_given_back(postgres_url: str, make_event: Make) -> None:
    """Between deliveries no backend is held, except in a burst of full batches or where asked for."""
    with psycopg.connect(postgres_url, autocommit=True) as other:

        def held() -> bool:
            query = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'held?'"
            for _ in range(100):
                if other.execute(query).fetchone() == (0,):
                    return False
                time.sleep(0.01)
            return True

        door = _delivery(postgres_url, application_name="held?")
        door.deliver(events=[make_event()])
        assert not held()
        door.deliver(events=[make_event() for _ in range(delivery.FULL_BATCH)])
        assert held()
        door.close()
        assert not held()


def test_nothing_heavy_rides_with_the_agent() -> None:
    """Importing the door imports neither SQLAlchemy nor pyarrow nor numpy."""
    code = (
        "import sys, probing_cluster.db.delivery\n"
        "print([m for m in ('sqlalchemy', 'pyarrow', 'numpy', 'pandas', 'alembic') if m in sys.modules])"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"
