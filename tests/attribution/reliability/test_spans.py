"""Figures of spans that cut an attempt's life: suspensions, the work lost at a span's begin."""

from __future__ import annotations

import dataclasses
from datetime import UTC, datetime, timedelta

import pytest

from probing_cluster.attribution.reliability import accounts, fleet
from probing_cluster.core import records, settings
from probing_cluster.db import store as db_store
from tests.attribution.reliability.test_fleet import T0, Cluster, InMemory
from tests.set_clock import SetClock

DAY = timedelta(days=1)


@pytest.fixture
def suspended() -> InMemory:
    """A job of thirty days on eight GPUs, ten of them suspended, until its node went."""
    c = Cluster()
    c.run(1, 0, 24 * 30, ("n1",), state="NODE_FAIL", cause="node_lost", suspended_s=10 * 86400.0)
    return InMemory(c)


def gpu_hours(source: InMemory, first: int, last: int) -> dict[str, float]:
    """GPU hours of one span as four figures count them."""
    since, until = T0 + first * DAY, T0 + last * DAY
    sizes = fleet.mttf_by_size(source, since, until, above_gpus=4).sizes
    return {
        "rates": fleet.failure_rates(source, since, until).gpu_h,
        "over_time": sum(b.gpu_h for b in fleet.failures_over_time(source, since, until).buckets),
        "utilisation": sum(b.used_gpu_h for b in fleet.utilisation(source, since, until).buckets),
        "mttf": sum(8 * s.measured.runtime_h for s in sizes if s.measured),
    }


def test_a_suspension_takes_the_same_share_off_every_part_of_a_life(suspended: InMemory) -> None:
    """Slurm records how long it was suspended, not when: the last week has two thirds of its hours, in every figure."""
    assert gpu_hours(suspended, 23, 30) == pytest.approx(
        dict.fromkeys(("rates", "over_time", "utilisation", "mttf"), 7 * 24 * 8 * 2 / 3)
    )


def test_adjoining_spans_add_up_to_the_whole(suspended: InMemory) -> None:
    """Twenty days of eight GPUs, however the month is cut."""
    whole = gpu_hours(suspended, 0, 31)
    assert whole == pytest.approx(dict.fromkeys(whole, 20 * 24 * 8))
    cuts = [gpu_hours(suspended, first, last) for first, last in ((0, 3), (3, 15), (15, 30), (30, 31))]
    assert {key: sum(c[key] for c in cuts) for key in whole} == pytest.approx(whole)


def test_a_job_suspended_for_another_is_no_second_use_of_its_gpus() -> None:
    """PreemptMode=SUSPEND: a job of a day made way for twelve hours; the node was in use all day, once."""
    c = Cluster()
    c.run(1, 0, 24, ("n1",), suspended_s=12 * 3600.0)
    c.run(2, 6, 12, ("n1",))
    found = fleet.utilisation(InMemory(c), T0, T0 + DAY)
    assert found.utilisation_frac == pytest.approx(1)
    assert fleet.failure_rates(InMemory(c), T0, T0 + DAY).gpu_h == pytest.approx(24 * 8)


@pytest.mark.parametrize("suspended_s", [86400.0, 90000.0])
def test_an_attempt_suspended_all_its_life_used_nothing(suspended_s: float) -> None:
    """Nor less than nothing, where accounting rounds the suspension up."""
    c = Cluster()
    c.run(1, 0, 24, ("n1",), suspended_s=suspended_s)
    assert set(gpu_hours(InMemory(c), 0, 2).values()) == {0}


def test_work_lost_is_of_the_whole_runtime() -> None:
    """It ran for ten days and died a minute into the span: half an hour of work was lost, not a minute."""
    c = Cluster()
    c.run(1, 0, 240, ("n1",), state="NODE_FAIL", cause="node_lost")
    since = T0 + timedelta(hours=240, minutes=-1)
    assert fleet.goodput_loss(InMemory(c), since, T0 + 12 * DAY).first_gpu_h == pytest.approx(4)


def test_work_lost_is_no_more_than_it_ran() -> None:
    """An hour of life, fifty minutes of it suspended: ten minutes."""
    c = Cluster()
    c.run(1, 0, 1, ("n1",), state="NODE_FAIL", cause="node_lost", suspended_s=3000.0)
    assert fleet.goodput_loss(InMemory(c), T0, T0 + DAY).first_gpu_h == pytest.approx(8 / 6)


def test_a_preempted_job_loses_work_from_before_the_span_too() -> None:
    """It made way for a job that infrastructure had ended, a minute into the span."""
    c = Cluster()
    c.run(1, 10, 14.01, ("n1",), state="NODE_FAIL", cause="node_lost")
    c.run(1, 24.03, 5, ("n2",), attempt=2)
    c.run(2, 0, 24.02, ("n2",), state="PREEMPTED", cause="preempted")
    found = fleet.goodput_loss(InMemory(c), T0 + DAY, T0 + 2 * DAY)
    assert (found.first_gpu_h, found.second_gpu_h) == (pytest.approx(4), pytest.approx(4))


def test_goodput_takes_off_no_more_than_was_used_in_the_span() -> None:
    """Ten days of which it hung nine, a minute of them in the span: that minute was used and lost."""
    c = Cluster()
    c.run(1, 0, 240, ("n1",), state="NODE_FAIL", cause="node_lost")
    c.verdicts = [dataclasses.replace(v, stalled_at=T0 + DAY) for v in c.verdicts]
    since = T0 + timedelta(hours=240, minutes=-1)
    found = fleet.utilisation(InMemory(c), since, since + DAY)
    (bucket,) = found.buckets
    assert bucket.lost_gpu_h == pytest.approx(bucket.used_gpu_h) == pytest.approx(8 / 60)
    assert found.goodput_frac == pytest.approx(0)
    assert fleet.goodput_loss(InMemory(c), since, since + DAY).first_gpu_h == pytest.approx(
        (9 * 24 + 0.5) * 8
    )


def test_a_job_whose_end_slurmdbd_never_heard_counts_to_its_limit(store: db_store.Store) -> None:
    """Forty days RUNNING under a limit of one day: a day of its GPUs, in every figure and however the span is cut, and in its run's account."""
    now = datetime.now(UTC)
    begin = now - timedelta(days=40)
    times = {"submit_at": begin, "eligible_at": begin, "start_at": begin, "time_limit_s": 86400.0}
    attempt = records.JobAttempt(
        cluster="c", job_id=1, state="RUNNING", nodes=("n1",), n_gpus=8, user="a", run_key="r", **times
    )
    store.upsert_attempts([attempt])
    clusters = store.of("c")

    def counted(first: float, last: float) -> set[float]:
        since, until = (begin + timedelta(days=n) for n in (first, last))
        return {
            round(fleet.failure_rates(clusters, since, until).gpu_h, 3),
            round(sum(b.gpu_h for b in fleet.failures_over_time(clusters, since, until).buckets), 3),
            round(sum(b.used_gpu_h for b in fleet.utilisation(clusters, since, until).buckets), 3),
        }

    assert counted(-1, 40) == {8 * 24}
    assert [counted(*span) for span in ((-1, 0.5), (0.5, 2), (2, 40))] == [{8 * 12}, {8 * 12}, {0}]

    def made(at: datetime) -> int:
        return accounts.update(store, settings.AttributionSettings(), since=begin, at=SetClock(at))

    assert made(now) == 1
    (account,) = store.run_accounts()
    assert (account.wall_s, account.end_at) == (86400.0, begin + timedelta(days=1))
    assert made(now + timedelta(hours=1)) == 0, "nothing of it changes any more"
