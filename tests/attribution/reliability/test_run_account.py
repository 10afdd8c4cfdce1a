"""A run's account adds up to its wall time, whatever happened to it."""

from __future__ import annotations

import dataclasses
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from probing_cluster.attribution.reliability import run_account as accounts
from probing_cluster.core import records

T0 = datetime(2026, 3, 2, 14, 0, tzinfo=UTC)
ASSUME = accounts.Assumptions(interval_s=1800, write_s=30, restart_s=120)


def at(minutes: float) -> datetime:
    return T0 + timedelta(minutes=minutes)


def attempt(
    submit: float, start: float | None, end: float | None, state: str = "COMPLETED", **over
) -> records.JobAttempt:
    values = {
        "cluster": "c",
        "job_id": 1,
        "submit_at": at(submit),
        "eligible_at": at(submit),
        "start_at": None if start is None else at(start),
        "end_at": None if end is None else at(end),
        "state": state,
        "nodes": ("n1", "n2"),
        "n_gpus": 16,
        "run_key": "r",
    }
    return records.JobAttempt(**{**values, **over})


def parts(a: records.RunAccount) -> float:
    return (
        a.queued_s
        + a.productive_s
        + a.lost_to_replay_s
        + a.restart_s
        + a.checkpoint_s
        + a.suspended_s
        + a.idle_s
    )


def test_a_clean_run_by_hand():
    """5 min queued, 2 min restart, 53 min training with one 30 s checkpoint."""
    a = accounts.account([attempt(0, 5, 60)], now=at(90), assume=ASSUME)
    assert (a.wall_s, a.queued_s, a.restart_s, a.checkpoint_s) == (3600, 300, 120, 30)
    assert (a.lost_to_replay_s, a.productive_s, a.idle_s) == (0, 3150, 0)
    assert a.ettr_measured == pytest.approx(3150 / 3600)
    assert a.measured is False


def test_a_failed_attempt_loses_half_an_interval_by_assumption():
    """15 minutes are replayed, the gap before the requeue is idle."""
    first = attempt(0, 0, 62, "FAILED")
    second = attempt(64, 65, 95, job_id=1)
    a = accounts.account([first, second], now=at(100), assume=ASSUME)
    assert a.lost_to_replay_s == 900
    assert a.queued_s == 60
    assert a.idle_s == 120
    assert a.restart_s == 240
    assert a.n_attempts == 2
    assert parts(a) == pytest.approx(a.wall_s, abs=1e-6)


def test_measured_progress_replaces_the_assumptions():
    """First step after 3 min, last checkpoint 10 min before the end: marked as measured."""
    failed = attempt(0, 0, 60, "NODE_FAIL")
    measured = accounts.RunProgress(
        first_step_at=at(3),
        checkpoints=(
            accounts.Checkpoint(at=at(25), duration_s=20),
            accounts.Checkpoint(at=at(50), duration_s=40),
        ),
    )
    a = accounts.account([failed], now=at(60), progress={("c", 1, at(0)): measured}, assume=ASSUME)
    assert (a.restart_s, a.lost_to_replay_s, a.checkpoint_s, a.productive_s) == (180, 600, 60, 2760)
    assert a.measured is True


def test_an_attempt_without_a_checkpoint_loses_all_its_training_in_a_run_whose_checkpoints_are_seen():
    """Nothing was saved, nothing is kept."""
    saved = (accounts.Checkpoint(at=at(60)),)
    progress = {
        ("c", 1, at(0)): accounts.RunProgress(first_step_at=at(5)),
        ("c", 1, at(30)): accounts.RunProgress(first_step_at=at(35), checkpoints=saved),
    }
    made = [attempt(0, 0, 30, "FAILED"), attempt(30, 30, 90)]
    a = accounts.account(made, now=at(90), progress=progress, assume=ASSUME)
    assert (a.productive_s, a.lost_to_replay_s, a.restart_s) == (55 * 60, 1500, 600)
    assert a.measured


def test_where_no_checkpoint_of_the_run_was_seen_half_an_interval_is_assumed_lost():
    """Its own code may have written checkpoints; the account is marked as assumed. Completed attempts lost nothing."""
    progress = {("c", 1, at(0)): accounts.RunProgress(first_step_at=at(5))}
    a = accounts.account([attempt(0, 0, 60, "FAILED")], now=at(60), progress=progress, assume=ASSUME)
    assert (a.restart_s, a.lost_to_replay_s, a.productive_s) == (300, 900, 40 * 60)
    assert not a.measured
    a = accounts.account([attempt(0, 0, 60)], now=at(60), progress=progress, assume=ASSUME)
    assert (a.lost_to_replay_s, a.productive_s, a.measured) == (0, 55 * 60, True)


@pytest.mark.parametrize("checkpoints", [(), (accounts.Checkpoint(at=at(300), duration_s=60),)])
def test_a_first_step_that_is_on_no_record_is_assumed(checkpoints):
    """Ten hours with a checkpoint or a last step were no restart; the account says that it assumes."""
    progress = {("c", 1, at(0)): accounts.RunProgress(checkpoints=checkpoints)}
    a = accounts.account([attempt(0, 0, 600)], now=at(600), progress=progress, assume=ASSUME)
    assert (a.restart_s, a.checkpoint_s) == (120, 60 * len(checkpoints))
    assert a.ettr_measured == pytest.approx((36000 - 120 - a.checkpoint_s) / 36000)
    assert not a.measured


def test_suspension_is_its_own_part_and_leaves_the_ratio():
    """Ten minutes suspended count neither for nor against."""
    a = accounts.account([attempt(0, 0, 70, suspended_s=600)], now=at(80), assume=ASSUME)
    assert a.suspended_s == 600
    assert a.ettr_measured == pytest.approx(a.productive_s / 3600)


def test_not_eligible_time_is_idle():
    """--begin and dependencies are no queueing."""
    a = accounts.account([attempt(0, 30, 60, eligible_at=at(20))], now=at(80), assume=ASSUME)
    assert (a.idle_s, a.queued_s) == (1200, 600)


def test_heterogeneous_components_count_once():
    """Two components side by side are one run's time, not two."""
    both = [attempt(0, 5, 60), attempt(0, 5, 60, job_id=2)]
    assert accounts.account(both, now=at(80), assume=ASSUME).wall_s == 3600
    assert accounts.account(both, now=at(80), assume=ASSUME).productive_s == 3150


def test_components_that_start_together_are_one_start():
    """A heterogeneous job started once has not started again; its second start is one more."""
    both = [attempt(0, 5, 60, job_id=4400 + i, het_job_id=4400, het_offset=i) for i in (0, 1)]
    again = [attempt(60, 65, 70, job_id=4400 + i, het_job_id=4400, het_offset=i) for i in (0, 1)]
    assert accounts.account(both, now=at(80), assume=ASSUME).n_attempts == 1
    assert accounts.account([*both, *again], now=at(80), assume=ASSUME).n_attempts == 2


def test_the_components_of_one_start_hold_their_gpus_together():
    """A launcher without GPUs, two components of 64 GPUs on 8 nodes each: 128 GPUs, and the failure rate of 17 nodes."""
    nodes = [("n1",), tuple(f"g{i}" for i in range(8)), tuple(f"h{i}" for i in range(8))]
    job = [
        attempt(0, 5, 60, job_id=600 + i, het_job_id=600, het_offset=i, nodes=nodes[i], n_gpus=64 * bool(i))
        for i in range(3)
    ]
    whole = attempt(0, 5, 60, nodes=tuple(n for some in nodes for n in some), n_gpus=128)
    got, want = (accounts.account(a, now=at(80), assume=ASSUME) for a in (job, [whole]))
    assert (got.n_gpus, got.ettr_expected) == (want.n_gpus, want.ettr_expected) == (128, want.ettr_expected)
    smaller = [attempt(60, 65, 70, job_id=600, het_job_id=600, het_offset=0, n_gpus=16)]
    assert accounts.account([*job, *smaller], now=at(80), assume=ASSUME).n_gpus == 128
    unknown = [dataclasses.replace(a, n_gpus=None) for a in job]
    assert accounts.account(unknown, now=at(80), assume=ASSUME).n_gpus is None


def test_a_pending_attempt_waits_until_now():
    """The run is still queued."""
    a = accounts.account(
        [attempt(0, 5, 30, "FAILED"), attempt(31, None, None, "PENDING")], now=at(41), assume=ASSUME
    )
    assert (a.end_at, a.queued_s, a.idle_s) == (at(41), 900, 60)


def test_a_clock_set_back_makes_no_negative_time():
    """An end before its start counts as no time."""
    a = accounts.account([attempt(0, 10, 8)], now=at(20), assume=ASSUME)
    assert a.wall_s == 600
    assert parts(a) == pytest.approx(a.wall_s, abs=1e-6)


def test_daylight_saving_neither_adds_nor_removes_an_hour():
    """Europe/Berlin, the night the clocks go forward."""
    zone = ZoneInfo("Europe/Berlin")
    begin, end = datetime(2026, 3, 29, 1, 30, tzinfo=zone), datetime(2026, 3, 29, 3, 30, tzinfo=zone)
    one = attempt(0, 0, 0, submit_at=begin, eligible_at=begin, start_at=begin, end_at=end)
    assert accounts.account([one], now=end, assume=ASSUME).wall_s == 3600


def test_nothing_gives_no_account():
    """A run without attempts has none."""
    assert accounts.account([], now=at(0)) is None


@st.composite
def histories(draw):
    made, minute = [], 0.0
    for i in range(draw(st.integers(1, 6))):
        minute += draw(st.floats(0, 30))
        wait, life = draw(st.floats(0, 60)), draw(st.floats(-5, 300))
        state = draw(
            st.sampled_from(["COMPLETED", "FAILED", "NODE_FAIL", "REQUEUED", "PREEMPTED", "TIMEOUT"])
        )
        made.append(
            attempt(
                minute,
                minute + wait,
                minute + wait + life,
                state,
                job_id=draw(st.integers(1, 3)) * 10 + i,
                eligible_at=at(minute + draw(st.floats(-5, 30))),
                suspended_s=draw(st.floats(0, 4000)),
            )
        )
        if draw(st.booleans()):
            minute += wait + max(life, 0)
    return made


@given(histories(), st.randoms())
def test_the_parts_always_add_up(made, random):
    """wall = queued + productive + lost + restart + checkpoint + suspended + idle, whatever the order of the rows."""
    a = accounts.account(made, now=at(5000), assume=ASSUME)
    assert parts(a) == pytest.approx(a.wall_s, abs=1e-6)
    assert (
        min(a.queued_s, a.productive_s, a.lost_to_replay_s, a.restart_s, a.checkpoint_s, a.suspended_s) >= 0
    )
    assert a.idle_s >= -1e-6
    random.shuffle(made)
    assert accounts.account(made, now=at(5000), assume=ASSUME) == a


ZONES = ("Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "America/St_Johns")
NIGHTS = (
    datetime(2026, 3, 29, 0, 0, tzinfo=UTC),  # Europe forward
    datetime(2026, 10, 25, 0, 0, tzinfo=UTC),  # Europe back
    datetime(2026, 11, 1, 5, 0, tzinfo=UTC),  # New York back
    datetime(2026, 4, 4, 14, 30, tzinfo=UTC),  # Lord Howe back, by half an hour
)


@st.composite
def runs(draw):
    """One run as Slurm makes them: requeues of one id, an array's task, het components, or all by chance."""
    begin = draw(st.sampled_from(NIGHTS)) + timedelta(minutes=draw(st.integers(-180, 60)))
    sort = draw(st.sampled_from(["requeued", "array", "het"]))
    ids = {"requeued": {}, "array": {"array_job_id": 7, "array_task_id": 3}, "het": {"het_job_id": 1}}[sort]
    made, measured, submit = [], {}, begin
    for number in range(draw(st.integers(1, 5))):
        held = timedelta(seconds=draw(st.sampled_from([0, 5, 121, 2000])) if number else 0)
        start = submit + held + timedelta(seconds=draw(st.integers(0, 4000)))
        end = start + timedelta(seconds=draw(st.integers(0, 9000)))
        state = draw(st.sampled_from(["REQUEUED", "NODE_FAIL", "PREEMPTED", "COMPLETED"]))
        for offset in range(draw(st.integers(1, 3)) if sort == "het" else 1):
            late = start + timedelta(seconds=offset)
            one = attempt(
                0,
                0,
                0,
                state,
                **ids,
                **({"het_offset": offset} if sort == "het" else {}),
                job_id=1 + offset,
                attempt=number + 1,
                submit_at=submit,
                eligible_at=submit + held,
                start_at=late,
                end_at=max(late, end),
                suspended_s=float(draw(st.sampled_from([0, 60, 600, 100_000]))),
            )
            made.append(one)
            if draw(st.booleans()):
                first = late + timedelta(seconds=draw(st.integers(0, 600)))
                saved = [
                    first + timedelta(seconds=s) for s in draw(st.lists(st.integers(0, 9000), max_size=3))
                ]
                written = tuple(
                    accounts.Checkpoint(at=s, duration_s=draw(st.floats(0, 50))) for s in sorted(saved)
                )
                key = (one.cluster, one.job_id, one.submit_at)
                measured[key] = accounts.RunProgress(first_step_at=first, checkpoints=written)
        submit = end
    return made, measured


@given(runs(), st.sampled_from(ZONES))
def test_requeues_arrays_and_het_jobs_add_up_in_every_zone_and_night(made, zone):
    """The identity holds to the microsecond, and an account does not depend on the zone its times are written in."""
    attempts, measured = made
    now = NIGHTS[1] + timedelta(days=30)
    a = accounts.account(attempts, now=now, progress=measured, assume=ASSUME)
    assert round(parts(a) * 1e6) == round(a.wall_s * 1e6)
    assert min(a.queued_s, a.productive_s, a.lost_to_replay_s, a.restart_s, a.suspended_s, a.idle_s) >= 0
    names = ("submit_at", "eligible_at", "start_at", "end_at")
    there = [
        dataclasses.replace(x, **{n: getattr(x, n).astimezone(ZoneInfo(zone)) for n in names})
        for x in attempts
    ]
    assert accounts.account(there, now=now, progress=measured, assume=ASSUME) == a


def test_a_start_nobody_saw_takes_at_most_a_tenth():
    """Without a report, a completed job of five minutes is not taken to have spent two of them starting up."""
    a = accounts.account([attempt(0, 0, 5)], now=at(9), assume=ASSUME)
    assert a.restart_s == 30
    assert a.productive_s == 270


def test_the_hold_slurm_puts_on_a_requeued_job_is_waiting():
    """The credential's 121 s belong to the queue; the same wait at a first submission is the user's begin time."""
    held = {"eligible_at": at(62)}
    first = attempt(0, 0, 60, "REQUEUED")
    again = attempt(60, 63, 90, attempt=2, **held)
    assert accounts.account([first, again], now=at(99), assume=ASSUME).queued_s == 180
    begin = attempt(60, 63, 90, **held)
    assert accounts.account([begin], now=at(99), assume=ASSUME).queued_s == 60
    for_an_hour = attempt(60, 130, 140, attempt=2, eligible_at=at(120))
    assert accounts.account([first, for_an_hour], now=at(199), assume=ASSUME).queued_s == 600


@pytest.mark.parametrize("state", ["TIMEOUT", "CANCELLED", "FAILED"])
def test_what_hung_until_its_end_is_lost_from_the_last_checkpoint_before_the_stall_on(state):
    """An hour of training and three of nothing: half an interval is lost of the hour, and all three."""
    one = attempt(0, 0, 240, state)
    hung = {("c", 1, at(0)): at(60)}
    a = accounts.account([one], now=at(300), stalls=hung, assume=dataclasses.replace(ASSUME, write_s=0))
    assert (a.restart_s, a.lost_to_replay_s, a.productive_s) == (120, 180 * 60 + 900, 60 * 60 - 120 - 900)
    assert parts(a) == a.wall_s
    probed = accounts.RunProgress(first_step_at=at(3), checkpoints=(accounts.Checkpoint(at=at(50)),))
    a = accounts.account([one], now=at(300), progress={("c", 1, at(0)): probed}, stalls=hung, assume=ASSUME)
    assert (a.restart_s, a.lost_to_replay_s, a.productive_s) == (180, 190 * 60, 47 * 60)


def test_what_hung_from_its_second_minute_on_was_not_starting_up():
    """The assumed start-up ends where the stall begins, and all else is lost."""
    a = accounts.account(
        [attempt(0, 0, 240, "TIMEOUT")], now=at(300), stalls={("c", 1, at(0)): at(1)}, assume=ASSUME
    )
    assert (a.restart_s, a.lost_to_replay_s, a.productive_s) == (60, 239 * 60, 0)


def test_what_completed_lost_nothing_by_a_stall():
    """It got on again."""
    hung = {("c", 1, at(0)): at(10)}
    a = accounts.account([attempt(0, 0, 60)], now=at(90), stalls=hung, assume=ASSUME)
    assert a == accounts.account([attempt(0, 0, 60)], now=at(90), assume=ASSUME)
