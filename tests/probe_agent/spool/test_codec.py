"""What goes into the spool comes out equal."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from probing_cluster.core import errors, records
from probing_cluster.probe_agent.spool import codec

AT = datetime(2026, 1, 31, 14, 0, 0, 123456, tzinfo=UTC)


def test_event_with_every_field_comes_back_equal(event: Any) -> None:
    """No field is lost or changed on the way through the spool."""
    full = event(
        device="gpu3", pci_bus_id="0000:5e:00", gpu_uuid="GPU-1", pid=7, process="p\u00e9", job_id=4, count=9,
        last_at=AT, measured=1.5, threshold=2.0, unit="count", detail={"a": [1, None, "x"], "b": {"c": True}},
    )  # fmt: skip
    assert codec.decode(codec.encode(full), records.HealthEvent) == full


def test_check_and_allocation_come_back_equal() -> None:
    """The other two lanes keep their enums, tuples and unknowns."""
    check = records.CheckResult(
        cluster="c", node="n", name="x", outcome=records.Outcome.FAIL, severity=records.Severity.LOW, at=AT
    )
    held = records.JobAllocation(cluster="c", node="n", job_id=1, at=AT, gpu_uuids=("GPU-1", "GPU-2"))
    unknown = records.JobAllocation(cluster="c", node="n", job_id=1, at=AT, gpu_uuids=None, released_at=AT)
    assert codec.decode(codec.encode(check), records.CheckResult) == check
    assert codec.decode(codec.encode(held), records.JobAllocation) == held
    assert codec.decode(codec.encode(unknown), records.JobAllocation) == unknown


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b'{"kind":1}', b'{"event_id":"no"}', b"\xff\xfe"])
def test_bytes_that_are_no_record_are_refused_as_such(body: bytes) -> None:
    """A torn or foreign body is one known error, whatever is wrong with it."""
    with pytest.raises(errors.MalformedInput):
        codec.decode(body, records.HealthEvent)


def test_an_agent_that_was_taken_back_reads_the_newer_ones_spool(event: Any) -> None:
    """A field of a later release is left out, and the rest delivered."""
    newer = codec.encode(event()).replace(b"{", b'{"of_a_later_release":[1],', 1)
    assert codec.decode(newer, records.HealthEvent) == event()
