"""Refusing a job: only for a hard fault of its own, confirmed now, with a permission in hand."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from probing_cluster.core import records
from probing_cluster.probe_agent.faults import conditions, faults, gpus
from probing_cluster.probe_agent.hooks import fitness
from probing_cluster.probe_agent.jobs import jobs

NOW = datetime(2026, 1, 31, 14, 0, tzinfo=UTC)
INVENTORY = gpus.Inventory(gpus=tuple(gpus.Gpu(uuid=f"GPU-{i}", index=i) for i in range(2)))


def job(numbers: str = "1", uuids: tuple[str, ...] | None = ("GPU-1",)) -> jobs.NodeJob:
    return jobs.NodeJob(job_id=7, started_at=NOW, gpus=numbers, gpu_uuids=uuids)


def permission(after_s: float = 30, **detail: Any) -> fitness.Permission:
    return fitness.Permission(
        request_id=uuid.uuid4(), expires_at=NOW + timedelta(seconds=after_s), detail=detail
    )


@pytest.fixture
def state(event: Any) -> faults.Faults:
    made = faults.Faults("b")
    made.fold(event(device="gpu1", gpu_uuid="GPU-1"), now=NOW)
    return made


def decide(state: faults.Faults, held: fitness.Permissions, wanted: jobs.NodeJob, now: datetime = NOW) -> Any:
    return fitness.refusal(fitness.suspects(wanted, state, INVENTORY), held, now)


def test_without_a_permission_the_job_may_start(state: faults.Faults) -> None:
    """A restarted agent, an observing service, a spent budget: all the same."""
    assert decide(state, fitness.Permissions(), job()) is None


def test_with_a_permission_the_holder_of_the_broken_gpu_is_refused(state: faults.Faults) -> None:
    """And only it."""
    held = fitness.Permissions()
    held.grant(permission())
    refused = decide(state, held, job())
    assert refused is not None
    assert refused.fault.key == "xid:gpu1"
    assert decide(state, held, job("0", ("GPU-0",))) is None
    assert decide(state, held, job("", ())) is None


def test_job_whose_gpus_cannot_be_told_is_refused_only_if_it_has_them_all(state: faults.Faults) -> None:
    """A guess refuses nobody."""
    held = fitness.Permissions()
    held.grant(permission())
    assert decide(state, held, job("1", None)) is None
    assert decide(state, held, job("0,1", None)) is not None


def test_permission_that_has_run_out_is_none(state: faults.Faults) -> None:
    """Short-lived means short-lived."""
    held = fitness.Permissions()
    held.grant(permission(after_s=5))
    assert decide(state, held, job(), NOW + timedelta(seconds=6)) is None
    assert held.held == {}


def test_permission_for_one_fault_does_not_cover_another(state: faults.Faults, event: Any) -> None:
    """By the fault's key or by one of its events."""
    held = fitness.Permissions()
    held.grant(permission(faults=["mount:/scratch"]))
    assert decide(state, held, job()) is None
    held.grant(permission(event_ids=[str(event().event_id)]))
    assert decide(state, held, job()) is not None


def test_condition_read_long_ago_refuses_nobody() -> None:
    """Never a stale reading: it has to be confirmed at that moment."""
    state = faults.Faults("b")
    gone = conditions.Condition(kind="mount", device="/x", severity=records.Severity.HIGH, message="gone")
    active = conditions.ActiveCondition(condition=gone, since=NOW, event_id="e", confirmed_at=NOW)
    state.observe("mounts", conditions.Judgement(), [active], NOW)
    held = fitness.Permissions()
    held.grant(permission(after_s=100))
    assert decide(state, held, job("", ())) is not None
    assert decide(state, held, job("", ()), NOW + timedelta(seconds=20)) is None
