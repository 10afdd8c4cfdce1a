"""Two clusters of one database have a job of one number on nodes of one name; a service decides about its own."""

from __future__ import annotations

import dataclasses
import uuid
from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any

import fakes
import gang_rows
import pytest

from probing_cluster.control_plane import context
from probing_cluster.control_plane.cli.jobs import manual_verdict
from probing_cluster.control_plane.imports import job_outputs
from probing_cluster.control_plane.notices import picture as notice_picture
from probing_cluster.control_plane.policy import restart_loop
from probing_cluster.control_plane.service import restart_picture
from probing_cluster.control_plane.service.tasks.jobs import accounting, gangs, hangs
from probing_cluster.core import errors, records, settings
from probing_cluster.db import delivery
from probing_cluster.db import store as db_store
from tests.set_clock import SetClock


def service_of(name: str, store: db_store.Store, sacct: fakes.Sacct, at: datetime) -> context.Context:
    """The service of another cluster on the same database."""
    config = settings.Settings(
        cluster=settings.ClusterSettings(name=name), policy=settings.PolicySettings(observe_only=False)
    )
    return context.Context(
        config=config, store=store, run_slurm=sacct, slurm=fakes.FakeSlurm(), clock=SetClock(at)
    )


def test_a_cluster_polls_on_from_its_own_last_poll(store: db_store.Store) -> None:
    """b's service was away for three hours, in which a's polled: what ran at b meanwhile is stored at b's next poll."""
    a_sacct, b_sacct = fakes.Sacct(), fakes.Sacct()
    begin = fakes.NOW - timedelta(hours=4)
    a, b = service_of("a", store, a_sacct, begin), service_of("b", store, b_sacct, begin)
    accounting.run(a)
    accounting.run(b)
    start = int((fakes.NOW - timedelta(hours=2)).timestamp())
    b_sacct.rows = [
        fakes.row(77, State="FAILED", Submit=str(start - 60), Eligible=str(start - 60), Start=str(start), End=str(start + 600))
    ]  # fmt: skip
    for minutes in range(10, 250, 10):
        a.clock = SetClock(begin + timedelta(minutes=minutes))
        accounting.run(a)
    b.clock = SetClock(fakes.NOW)
    accounting.run(b)
    assert [x.job_id for x in store.attempts(cluster="b")] == [77]


def test_the_gpus_are_of_our_own_prolog(service: context.Context) -> None:
    """The other cluster's Prolog of a job of this number ran a minute later on its node of this name."""
    start = fakes.NOW - timedelta(minutes=20)
    service.run_slurm.rows = [fakes.row(77, NodeList="n1", State="FAILED")]  # type: ignore[attr-defined]
    for cluster, at in (("c", start), ("zeta", start + timedelta(minutes=1))):
        detail = {"run_key": f"run of {cluster}", "stdout": f"/home/{cluster}.out"}
        held = records.JobAllocation(
            cluster=cluster, node="n1", job_id=77, at=at, gpu_uuids=(f"GPU-{cluster}",), detail=detail
        )
        delivery.Delivery(service.store.connection_uri(), cluster, "n1").deliver(allocations=[held])
    accounting.run(service)
    (attempt,) = service.store.attempts(job_ids=[77])
    assert attempt.gpus == {"n1": ("GPU-c",)}
    assert (attempt.run_key, attempt.stdout_path) == ("run of c", "/home/c.out")


def foreign_hang(service: context.Context) -> records.JobAttempt:
    """Job 7 of zeta runs on n1 and n2, and its rank 3 was found stopped."""
    attempt = dataclasses.replace(gang_rows.attempt(7, "n1", "n2"), cluster="zeta")
    service.store.upsert_attempts([attempt])
    verdict = records.GangVerdict(
        gang_id=uuid.UUID(int=1), cluster="zeta", job_id=7, submit_at=attempt.submit_at, kind="rank_stopped", ranks=(3,), nodes=("n2",),
        domain=records.Domain.SYSTEM_SOFTWARE, confidence=records.Confidence.LIKELY, summary="rank 3 on n2 was stopped",
        onset_at=fakes.NOW - timedelta(seconds=120), made_at=fakes.NOW - timedelta(seconds=61), detail={"steps": 40, "ranks_seen": 4},
    )  # fmt: skip
    service.store.save_gang_verdicts([verdict])
    return attempt


def test_the_other_clusters_hang_is_not_decided_here(service: context.Context) -> None:
    foreign_hang(service)
    policy = dataclasses.replace(service.config.policy, on_hang="requeue")
    service.config = dataclasses.replace(service.config, policy=policy)
    for seconds in range(0, 80, 10):
        service.clock = SetClock(fakes.NOW + timedelta(seconds=seconds))
        hangs.run(service)
    assert service.store.of(None).drains() == []


def test_the_other_clusters_hang_is_not_announced_here(service: context.Context) -> None:
    foreign_hang(service)
    picture = notice_picture.read(service, set())
    assert (picture.gangs, picture.attempts) == ([], {})


def test_the_other_clusters_hang_stays_open(service: context.Context) -> None:
    """Our job of the same number runs on: that ends nothing there."""
    foreign_hang(service)
    usual, later = gang_rows.attempt(7, "n1", "n2"), timedelta(seconds=5)
    assert usual.start_at is not None
    mine = dataclasses.replace(usual, submit_at=usual.submit_at + later, start_at=usual.start_at + later)
    service.store.upsert_attempts([mine])
    gangs.run(service)
    (verdict,) = service.store.of("zeta").gang_verdicts()
    assert verdict.ended_at is None


def deaths(store: db_store.Store, attempts: Iterable[records.JobAttempt]) -> None:
    """Each attempt ended at step 40 for a GPU that fell off the bus."""
    for number, attempt in enumerate(attempts):
        assert attempt.end_at is not None
        store.upsert_attempts([attempt])
        step = records.HealthEvent(
            event_id=uuid.UUID(int=90 + number), cluster=attempt.cluster, node="n1", at=attempt.end_at - timedelta(seconds=9),
            observed_at=attempt.end_at, kind="last_progress", severity=records.Severity.INFO, source="probe", job_id=7,
            message="", detail={"steps": 40},
        )  # fmt: skip
        delivery.Delivery(store.connection_uri(), attempt.cluster, "n1").deliver(events=[step])
        verdict = records.Verdict(
            cluster=attempt.cluster, job_id=7, submit_at=attempt.submit_at, attempt=attempt.attempt, cause="gpu_off_bus",
            domain=records.Domain.HARDWARE, confidence=records.Confidence.CERTAIN, summary="s", node="n1", rules_version="1",
            made_at=fakes.NOW,
        )  # fmt: skip
        store.save_verdicts([verdict])


def died(number: int, minutes: int, **changes: Any) -> records.JobAttempt:
    """Start `number` of job 7, so many minutes ago."""
    start = fakes.NOW - timedelta(minutes=minutes)
    values: dict[str, Any] = {
        "cluster": "c", "job_id": 7, "submit_at": start, "start_at": start, "end_at": start + timedelta(minutes=4),
        "state": "FAILED", "attempt": number, "nodes": ("n1", "n2"), "n_gpus": 16, "user": "alice", "run_key": "7", "exit_code": 1,
    }  # fmt: skip
    return records.JobAttempt(**(values | changes))


@pytest.mark.parametrize("other", [{"cluster": "zeta"}, {"user": "bob"}], ids=["cluster", "user"])
def test_the_deaths_of_another_job_are_no_loop(service: context.Context, other: dict[str, str]) -> None:
    """Of another cluster's job of this number, and of another user's, whom Slurm gave it before."""
    deaths(service.store, [died(1, 40, **other), died(2, 30, **other), died(3, 5)])
    known = restart_picture.past(service, fakes.NOW)
    ended = restart_picture.ended(service, known, fakes.NOW)
    assert not any(restart_loop.loop(e.deaths) for e in ended)


def test_our_own_deaths_are_a_loop(service: context.Context) -> None:
    """The same three of one job: so the test above does not pass for want of deaths."""
    deaths(service.store, [died(1, 40), died(2, 30), died(3, 5)])
    known = restart_picture.past(service, fakes.NOW)
    assert any(restart_loop.loop(e.deaths) for e in restart_picture.ended(service, known, fakes.NOW))


def test_a_persons_verdict_is_on_our_job(service: context.Context) -> None:
    """The other cluster's job of this number ended later."""
    service.store.upsert_attempts([died(1, 60), died(1, 30, cluster="zeta")])
    given = manual_verdict.ManualVerdict(
        job="7", attempt=None, cause="gpu_lost", note="it was out", node="n1", device="gpu3", author="eve"
    )
    manual_verdict.set_verdict(service.store, given)
    assert [v.cluster for v in service.store.of(None).verdicts(job_ids=[7])] == ["c"]


def test_a_job_that_only_another_cluster_has_is_told_apart(service: context.Context) -> None:
    service.store.upsert_attempts([died(1, 30, cluster="zeta")])
    for ask in (
        lambda: job_outputs.attempt_of(service.store, "7"),
        lambda: job_outputs.job_ids_of(service.store, ["7"]),
    ):
        with pytest.raises(errors.NotFound, match="zeta has one"):
            ask()
    with pytest.raises(errors.NotFound, match=r"^job 7 has no attempt 9; its last is 1$"):
        job_outputs.attempt_of(service.store.of("zeta"), "7", 9)
    assert job_outputs.job_ids_of(service.store.of("zeta"), ["7"]) == [7]
