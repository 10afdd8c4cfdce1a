"""The door stores what every reader can read, refuses and counts the rest, and no argument gets round quota, times or bounds."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import hypothesis
import hypothesis.strategies as st
import psycopg
import pytest

from probing_cluster.core import records
from probing_cluster.db import delivery, roles
from probing_cluster.db import store as store_module
from probing_cluster.db.server import embedded

NOW = datetime.now(UTC).isoformat()
FAULT = {"severity": "high", "since": NOW, "event_id": str(uuid.UUID(int=1)), "event_ids": [], "code": "79"}
DEEP = json.loads("[" * 60 + "]" * 60)


@pytest.fixture
def agent_url(postgres_url: str) -> Iterator[str]:
    """The database as node n1's agent, with 200 rows an hour."""
    name = roles.add_agent(postgres_url, "c", "n1", rows_per_hour=200)
    yield postgres_url.replace(f"{embedded.OWNER}@", f"{name}@")
    roles.remove(postgres_url, name)


def call(connection: psycopg.Connection[Any], **given: Any) -> dict[str, Any]:
    """One delivery of arguments as SQL literals of their types."""
    names = ", ".join(f"{name} => %s::{kind(name)}" for name in given)
    row = connection.execute(f"SELECT probing.deliver('c', 'n1', {names})", list(given.values())).fetchone()
    assert row is not None
    return dict(row[0])


def kind(name: str) -> str:
    """The SQL type of an argument."""
    columns = {f"e_{column}": f"{sql}[]" for column, sql in delivery.EVENT_FIELDS}
    return {"p_acks": "uuid[]", **columns}.get(name, "jsonb")


HEARTBEATS = [
    [], None, "boo", 5, {}, {"at": None}, {"at": "boo"}, {"at": NOW, "faults": {"xid:gpu0": "boo"}}, {"at": NOW, "faults": [1, 2]},
    {"at": NOW, "faults": {"xid:gpu0": {"since": "boo"}}}, {"at": NOW, "faults": {"xid:gpu0": FAULT | {"since": "boo"}}},
    {"at": NOW, "faults": {"xid:gpu0": FAULT | {"since": "2026-01-01T24:00:00Z"}}},
    {"at": NOW, "faults": {"xid:gpu0": FAULT | {"since": "2026-01-01T00:00:00"}}},
    {"at": NOW, "faults": {"xid:gpu0": FAULT | {"since": 5}}}, {"at": NOW, "faults": {"xid:gpu0": FAULT | {"event_id": "boo"}}},
    {"at": NOW, "faults": {"xid:gpu0": FAULT | {"event_ids": 5}}}, {"at": NOW, "faults": {"xid:gpu0": FAULT | {"event_ids": [[]]}}},
    {"at": NOW, "faults": {"xid:gpu0": FAULT | {"code": {}}}}, {"at": NOW, "faults": {"xid:gpu0": FAULT | {"severity": None}}},
    {"at": NOW, "faults": {"xid:gpu0": None}}, {"at": NOW, "faults": {"xid:gpu0": FAULT | {"x": DEEP}}}, {"at": NOW, "faults": 1},
    {"at": NOW, "ranks": [1]}, {"at": NOW, "ranks": None}, {"at": NOW, "sources": [1]}, {"at": NOW, "sources": {"kernel": 1}},
    {"at": NOW, "jobs": [None]}, {"at": NOW, "jobs": [[1, 2], [3, 4]]}, {"at": NOW, "jobs": "boo"}, {"at": NOW, "jobs": None},
    {"at": NOW, "beat_s": "NaN"}, {"at": NOW, "beat_s": "Infinity"}, {"at": NOW, "beat_s": 0}, {"at": NOW, "beat_s": -1},
    {"at": NOW, "beat_s": 1.7e308}, {"at": NOW, "spool_depth": -1}, {"at": NOW, "spool_depth": None}, {"at": NOW, "lag_s": None},
    {"at": NOW, "version": "x" * 500}, {"at": "infinity"}, {"at": "-infinity"}, {"at": "20000-01-01"}, {"at": NOW, "started_at": "infinity"},
]  # fmt: skip
HUGE = '{"at": "%s", "%s": {"kernel": {"x": 1e131000}}}'


def test_a_heartbeat_nobody_could_read_is_refused_and_counted(postgres_url: str, agent_url: str) -> None:
    """Shape, size and range: what would end a reader is not stored, and its node's refusals say so."""
    given = [*map(json.dumps, HEARTBEATS), HUGE % (NOW, "sources"), HUGE % (NOW, "faults")]
    with psycopg.connect(agent_url, autocommit=True) as connection:
        stored_all_the_same = [one for one in given if call(connection, p_heartbeat=one)["rejected"] != 1]
    assert stored_all_the_same == []
    with psycopg.connect(postgres_url) as connection:
        assert connection.execute("SELECT count(*) FROM probing.agent_heartbeat").fetchone() == (0,)
        counted = (
            "SELECT node, split_part(reason, ':', 1), sum(n_rows)::int FROM ops.rejections GROUP BY 1, 2"
        )
        assert connection.execute(counted).fetchall() == [("n1", "heartbeat", len(given))]


def test_a_job_cannot_silence_its_node(store: store_module.Store, agent_url: str) -> None:
    """Ranks are the job's word: those that nobody could read are left out, and the heartbeat is stored."""
    ranks = '{"7:0": {"steps": 5}, "7:1": 5, "7:2": {"steps": 1e131000}, "boo": {}, "7:3": {"x": %s}, "7:pid5": {"alive": true}}'
    given = f'{{"at": "{NOW}", "faults": {{"xid:gpu0": {json.dumps(FAULT)}}}, "ranks": {ranks % json.dumps(DEEP)}}}'
    with psycopg.connect(agent_url, autocommit=True) as connection:
        assert call(connection, p_heartbeat=given)["rejected"] == 0
    (beat,) = store.heartbeats(with_ranks=True)
    assert set(beat.ranks) == {"7:0", "7:pid5"}
    assert set(beat.faults) == {"xid:gpu0"}


CHECK = {"name": "x", "at": NOW, "outcome": "ok", "severity": "info"}
ALLOCATION = {"job_id": 7, "at": NOW}


BAD: list[tuple[str, dict[str, Any]]] = [
    ("p_checks", {"outcome": "boo"}), ("p_checks", {"outcome": None}), ("p_checks", {"severity": "worst"}),
    ("p_checks", {"name": None}), ("p_checks", {"name": "x" * 201}), ("p_checks", {"at": "infinity"}),
    ("p_checks", {"duration_s": "NaN"}), ("p_checks", {"measured": "Infinity"}), ("p_checks", {"detail": [1]}),
    ("p_checks", {"detail": None}), ("p_checks", {"detail": {"x": DEEP}}), ("p_checks", {"message": "x" * 2**18}),
    ("p_allocations", {"job_id": -1}), ("p_allocations", {"job_id": None}), ("p_allocations", {"at": "-infinity"}),
    ("p_allocations", {"released_at": "infinity"}), ("p_allocations", {"gpu_uuids": [None]}),
    ("p_allocations", {"gpu_uuids": [["a"]]}), ("p_allocations", {"detail": "boo"}), ("p_allocations", {"restart_count": 2**70}),
]  # fmt: skip


def test_a_row_nobody_could_read_is_refused_alone(agent_url: str, store: store_module.Store) -> None:
    """Beside a good one; rows that are no objects are counted as well."""
    good = {"p_checks": CHECK, "p_allocations": ALLOCATION}
    with psycopg.connect(agent_url, autocommit=True) as connection:
        for name, bad in BAD:
            given = json.dumps([good[name] | bad, good[name], 5, None, []])
            assert call(connection, **{name: given})["rejected"] == 4, bad
    assert (len(store.checks()), len(store.allocations())) == (1, 1)


DETAILS = [
    "[1]", "null", '{"x": 1e131000}', '{"x": -1e400}', "boo", "", "5", '{"x": ' + "[" * 60 + "]" * 60 + "}",
    "[" * 30000 + "]" * 30000,
]  # fmt: skip


def test_an_event_nobody_could_read_is_refused_alone(agent_url: str, store: store_module.Store) -> None:
    """The others of its delivery are stored."""
    with psycopg.connect(agent_url, autocommit=True) as connection:
        for detail in DETAILS:
            ack = call(connection, **events(3, e_detail=["{}", detail, None]))
            assert (ack["accepted"], ack["rejected"]) == (2, 1), detail[:20]
    assert {str(dict(e.detail)) for e in store.events()} == {"{}"}


def events(n: int, **changes: Any) -> dict[str, Any]:
    """The arguments of some events."""
    usual = {
        "e_event_id": [uuid.uuid4() for _ in range(n)], "e_cluster": ["c"] * n, "e_node": ["n1"] * n, "e_at": [NOW] * n,
        "e_kind": ["xid"] * n, "e_severity": ["high"] * n, "e_source": ["kernel"] * n,
    }  # fmt: skip
    return usual | changes


WRONG: dict[str, list[Any]] = {
    "p_heartbeat": [None, "[]", "5", "{}", '{"at": "infinity"}'],
    "p_checks": [None, "[]", "{}", "5", "null", '["boo"]', '[{"at": "infinity"}]', json.dumps([CHECK] * 5001)],
    "p_allocations": [None, "[]", "{}", "null", '[{"job_id": 1, "at": "infinity"}]', json.dumps([ALLOCATION] * 5001)],
    "p_refused": [None, "[]", "{}", "null", "[5]", "[{}]", '[{"reason": null, "n_rows": 1e300}]', '[{"n_rows": "boo"}]'],
    "p_acks": [None, [], [None], [uuid.uuid4()] * 5001],
    "e_event_id": [None, [], [None] * 3, [uuid.UUID(int=5)] * 3],
    "e_at": [None, [], [None] * 3, ["infinity"] * 3, ["-infinity", NOW, "20000-01-01"], [NOW] * 4],
    "e_observed_at": [None, [], [None] * 3, ["infinity"] * 3],
    "e_last_at": [None, [], ["infinity"] * 3],
    "e_cluster": [None, [], [None, "c", "d"]], "e_node": [None, [], ["n2", None, "n1"]], "e_kind": [None, [], [None, "x" * 5000, "x"]],
    "e_severity": [None, [], ["boo", None, "low"]], "e_source": [None, [], [None, "", "x" * 5000]],
    "e_message": [None, [], [None, "x" * 10**6, ""]],
    "e_detail": [None, [], [None, "", "boo"], ['{"x": "%s"}' % ("y" * 10**6)] * 3],
    "e_count": [None, [], [None, -5, 2**62]], "e_job_id": [None, [], [None, -(2**63), 2**63 - 1]], "e_pid": [None, [], [2**62] * 3],
    "e_measured": [None, [], [None, float("nan"), float("inf")]], "e_threshold": [None, [], [-float("inf")] * 3],
    "e_code": [None, [], [None, "x" * 5000, ""]], "e_device": [None, []], "e_pci_bus_id": [None, []], "e_gpu_uuid": [None, []],
    "e_process": [None, []], "e_unit": [None, [], ["x" * 500] * 3],
}  # fmt: skip


@hypothesis.settings(suppress_health_check=[hypothesis.HealthCheck.function_scoped_fixture])
@hypothesis.given(
    wrong=st.dictionaries(st.sampled_from(sorted(WRONG)), st.integers(0, 7), min_size=1, max_size=4),
    n=st.integers(0, 3),
)
def test_no_argument_gets_round_anything(
    wrong: dict[str, int], n: int, postgres_url: str, agent_url: str
) -> None:
    """Null, empty, huge and wrong, for every argument and some together: what is stored is sound, counted, and within the quota."""
    given = {
        **events(3),
        "p_checks": json.dumps([CHECK | {"name": f"x{n}"}]),
        "p_allocations": json.dumps([ALLOCATION]),
    }
    given |= {name: WRONG[name][i % len(WRONG[name])] for name, i in wrong.items()}
    before = stored(postgres_url)
    with psycopg.connect(agent_url, autocommit=True) as connection:
        try:
            call(connection, **given)
        except psycopg.Error:
            assert stored(postgres_url) == before
    require_sound(postgres_url)


def test_more_words_than_a_delivery_holds_are_refused_whole(postgres_url: str, agent_url: str) -> None:
    """128 MiB in all: nothing of it is stored. Made by the server itself, since sending them costs seconds of processor."""
    given = events(3)
    columns = ", ".join(f"{name} => %s::{kind(name)}" for name in given)
    words = "e_message => ARRAY(SELECT repeat('x', 45 * 1024 * 1024) FROM generate_series(1, 3))"
    with psycopg.connect(agent_url, autocommit=True) as connection:
        connection.execute("SET statement_timeout = 0")  # the role's own is for machines that are not busy
        with pytest.raises(psycopg.errors.ProgramLimitExceeded, match="128 MiB"):
            connection.execute(f"SELECT probing.deliver('c', 'n1', {columns}, {words})", list(given.values()))
    assert set(stored(postgres_url).values()) == {0}


def stored(url: str) -> dict[str, int]:
    """Rows per table that an agent may fill."""
    names = (
        "health_event",
        "event_key",
        "check_result",
        "check_now",
        "job_allocation",
        "agent_heartbeat",
        "rejection",
        "intake",
    )
    with psycopg.connect(url) as connection:
        return {
            name: connection.execute(f"SELECT count(*) FROM probing.{name}").fetchone()[0] for name in names
        }  # type: ignore[index]


def require_sound(url: str) -> None:
    """Everything stored is of node n1, in range, counted against its quota, and can be read."""
    n_rows = stored(url)
    with psycopg.connect(url) as connection:
        (counted,) = connection.execute("SELECT coalesce(sum(n_rows), 0) FROM probing.intake").fetchone() or (
            0,
        )
        nodes = connection.execute("SELECT DISTINCT node FROM probing.health_event").fetchall()
    assert n_rows["health_event"] == n_rows["event_key"]
    assert nodes in ([], [("n1",)])
    assert n_rows["health_event"] + n_rows["check_result"] + n_rows["job_allocation"] <= counted <= 200
    with store_module.Store.open(url) as store:
        read = [
            store.events(),
            store.heartbeats(with_ranks=True, with_sources=True),
            store.checks(),
            store.allocations(),
        ]
        assert store.skipped.counts() == {}
    for record in (r for found in read for r in found):
        assert isinstance(
            record, records.HealthEvent | records.AgentHeartbeat | records.CheckResult | records.JobAllocation
        )
        for value in vars(record).values():
            assert not isinstance(value, datetime) or 1970 <= value.year < 9999
            assert not isinstance(value, float) or abs(value) <= 1e300
            assert not isinstance(value, str) or len(value) <= 4096


def test_a_null_does_not_lift_the_quota(postgres_url: str, agent_url: str) -> None:
    """A flood with null arguments stops at the quota like any other, and one of large rows sooner."""
    nulls = {"p_checks": None, "p_allocations": None, "p_refused": None, "p_acks": None}
    with psycopg.connect(agent_url, autocommit=True) as connection:
        for _ in range(10):
            call(connection, **events(20), **nulls)
        with pytest.raises(psycopg.errors.ConfigurationLimitExceeded):
            call(connection, **events(1, e_severity=["low"]), **nulls)
    assert stored(postgres_url)["health_event"] == 200


def test_large_rows_use_the_quota_up_sooner(postgres_url: str, agent_url: str) -> None:
    """The quota is of rows of 4 KiB: what fills a disk is bytes."""
    large = '{"x": "%s"}' % ("y" * 60000)
    with psycopg.connect(agent_url, autocommit=True) as connection:
        call(connection, **events(10, e_detail=[large] * 10))
        with pytest.raises(psycopg.errors.ConfigurationLimitExceeded):
            call(connection, **events(10, e_detail=[large] * 10))
    assert stored(postgres_url)["health_event"] == 10
