"""Run accounts out of a real database."""

from __future__ import annotations

import dataclasses
from datetime import datetime, timedelta

import pytest

from probing_cluster.attribution import accounts
from probing_cluster.core import records
from probing_cluster.db import delivery


@dataclasses.dataclass
class FixedClock:
    """A clock that stands."""

    at: datetime

    def now(self) -> datetime:
        return self.at

    def monotonic_s(self) -> float:
        return 0.0


def test_a_requeued_job_is_one_run_with_one_account(store, make):
    """Both attempts share the run; the account is stored and can be read back by its key."""
    first = make.attempt(state="REQUEUED")
    second = make.attempt(
        attempt=2,
        submit_at=make.end,
        start_at=make.end + timedelta(seconds=64),
        end_at=make.end + timedelta(minutes=20),
        state="COMPLETED",
    )
    store.upsert_attempts([first, second])
    (made,) = accounts.account_runs(store, job_ids=[4242], at=FixedClock(make.end + timedelta(hours=1)))
    assert made.n_attempts == 2
    assert made.measured is False
    assert store.run_account("4242") == made
    total = (
        made.queued_s
        + made.productive_s
        + made.lost_to_replay_s
        + made.restart_s
        + made.checkpoint_s
        + made.suspended_s
        + made.idle_s
    )
    assert total == pytest.approx(made.wall_s, abs=1e-6)


def test_two_users_with_one_run_key_have_two_runs(store, make):
    """A run key is scoped to its user."""
    mine, hers = (
        make.attempt(run_key="k", job_id=1),
        make.attempt(run_key="k", job_id=2, user="eve", submit_at=make.start - timedelta(hours=9)),
    )
    store.upsert_attempts([mine, hers])
    made = accounts.account_runs(store, since=make.start, at=FixedClock(make.end))
    assert {(a.user, a.n_attempts) for a in made} == {("alice", 1), ("eve", 1)}


def test_what_the_probe_saw_is_measured(store, make, postgres_url):
    """First step and checkpoints arrive as probe events of the job."""

    def told(kind: str, after_s: float, **over) -> records.HealthEvent:
        return make.event(
            at=make.start + timedelta(seconds=after_s),
            kind=kind,
            source="probe",
            job_id=4242,
            node="n1",
            severity=records.Severity.INFO,
            **over,
        )

    delivery.Delivery(postgres_url, "c", "n1").deliver(
        events=[
            told("first_step", 100),
            told("checkpoint", 675, detail={"duration_s": 25.0}),
            told("last_progress", 1000),
        ]
    )
    store.upsert_attempts([make.attempt()])
    (made,) = accounts.account_runs(store, job_ids=[4242], at=FixedClock(make.end))
    assert made.measured is True
    assert (made.restart_s, made.checkpoint_s, made.lost_to_replay_s) == (100, 25, 1102 - 700)
