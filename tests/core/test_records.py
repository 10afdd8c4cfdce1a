"""The records refuse what would poison a row."""

import json
from dataclasses import FrozenInstanceError, fields
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from probing_cluster.core import errors, records

AT = datetime(2026, 1, 31, 14, 2, 11, tzinfo=UTC)
ALL = [
    records.HealthEvent, records.CheckResult, records.JobAttempt, records.Verdict, records.RunAccount, records.GangVerdict,
    records.LemonScore, records.OperatorNote, records.Drain, records.AgentHeartbeat, records.JobAllocation,
]  # fmt: skip


def event(**changes: object) -> records.HealthEvent:
    """A plain event with some fields changed."""
    values: dict[str, object] = {
        "event_id": records.make_event_id("c", "n1", "kernel", "boot:1"), "cluster": "c", "node": "n1", "at": AT,
        "observed_at": AT, "kind": "xid", "severity": records.Severity.HIGH, "source": "kernel", "message": "m",
    }  # fmt: skip
    return records.HealthEvent(**{**values, **changes})  # type: ignore[arg-type]


def test_a_naive_time_is_refused_and_named() -> None:
    """A time without a zone would silently shift a verdict's window."""
    with pytest.raises(errors.MalformedInput, match=r"HealthEvent\.at"):
        event(at=datetime(2026, 1, 31))  # noqa: DTZ001


def test_times_are_stored_in_utc() -> None:
    """Another zone is converted, not kept."""
    local = AT.astimezone(timezone(timedelta(hours=9)))
    assert event(at=local).at.utcoffset() == timedelta(0)
    assert event(at=local).at == AT


def test_records_are_frozen() -> None:
    """A fact does not change once made."""
    with pytest.raises(FrozenInstanceError):
        event().node = "other"  # type: ignore[misc]


@pytest.mark.parametrize("cls", ALL)
def test_every_field_has_its_meaning(cls: type) -> None:
    """Field documentation becomes the column comment, so none may be missing."""
    assert [f.name for f in fields(cls) if not f.metadata.get("doc")] == []


def test_from_row_ignores_foreign_columns() -> None:
    """A row with more columns than the record still makes the record."""
    row = {f.name: getattr(event(), f.name) for f in fields(records.HealthEvent)} | {"extra": 1}
    assert records.HealthEvent.from_row(row) == event()


@given(
    st.lists(st.text(max_size=8), min_size=4, max_size=4),
    st.lists(st.text(max_size=8), min_size=4, max_size=4),
)
def test_event_ids_differ_exactly_when_their_parts_do(left: list[str], right: list[str]) -> None:
    """Parts are length-prefixed, so `ab`+`c` and `a`+`bc` are different events."""
    assert (records.make_event_id(*left) == records.make_event_id(*right)) == (left == right)


def test_a_record_of_checked_values_is_the_same_record() -> None:
    """As equal, as frozen and as hashable as one that was checked."""
    plain = event()
    made = records.of_checked(records.HealthEvent, dict(plain.__dict__))
    assert made == plain
    assert repr(made) == repr(plain)
    with pytest.raises(FrozenInstanceError):
        made.node = "n9"  # type: ignore[misc]


def test_fields_as_json_are_plain_in_order_and_all_the_way_down() -> None:
    """Enums, instants and ids as text, tuples as lists, also inside a mapping; json.dumps takes them as they are."""
    found = event(detail={"seen": [AT, (records.Severity.LOW,)], "n": 1})
    plain = records.json_fields(found, "severity", "at", "event_id", "device", "detail")
    assert list(plain) == ["severity", "at", "event_id", "device", "detail"]
    at = "2026-01-31T14:02:11Z"
    assert json.loads(json.dumps(plain)) == {
        "severity": "high", "at": at, "event_id": str(found.event_id), "device": None,
        "detail": {"seen": [at, ["low"]], "n": 1},
    }  # fmt: skip
    assert type(plain["severity"]) is str


@pytest.mark.parametrize(
    ("attempt", "restart_count", "n_restarts"), [(1, None, 0), (3, None, 2), (3, 0, 0), (1, 2, 2)]
)
def test_restarts_are_slurms_count_or_else_the_attempts_before(
    attempt: int, restart_count: int | None, n_restarts: int
) -> None:
    """Slurm's counts requeues only; a job id that is used again begins at 0."""
    made = records.JobAttempt(
        cluster="c", job_id=7, submit_at=AT, state="FAILED", attempt=attempt, restart_count=restart_count
    )
    assert made.n_restarts == n_restarts
