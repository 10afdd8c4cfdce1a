"""Run accounts out of a real database."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta

import pytest
import sqlalchemy as sa

from probing_cluster.attribution.passes import node_clocks
from probing_cluster.attribution.reliability import accounts, run_account
from probing_cluster.core import records, settings
from probing_cluster.db import bulk, delivery
from tests.set_clock import SetClock

ASSUMED = settings.AttributionSettings(checkpoint_interval_s=1800, checkpoint_write_s=20)
LONG_AGO = datetime(2000, 1, 1, tzinfo=UTC)


def account(store, at: SetClock) -> records.RunAccount:
    """The only run's account, made and read back."""
    assert accounts.update(store, ASSUMED, since=LONG_AGO, at=at) == 1
    (made,) = store.run_accounts()
    return made


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
    made = account(store, SetClock(make.end + timedelta(hours=1)))
    assert made.n_attempts == 2
    assert made.measured is False
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


def test_the_probe_of_another_cluster_counts_nothing_here(store, make, postgres_url):
    """Its job of this number trained on its node of this name."""
    store.upsert_attempts([make.attempt(), make.attempt(cluster="d", user="bob")])

    def event(kind, seconds, **changes):
        at = make.start + timedelta(seconds=seconds)
        return make.event(
            cluster="d", at=at, kind=kind, source="probe", job_id=4242, node="n1", severity=records.Severity.INFO, **changes
        )  # fmt: skip

    checkpoint = event("checkpoint", 1000, detail={"duration_s": 25.0})
    events = [event("first_step", 900), checkpoint, event("last_progress", 1050)]
    delivery.Delivery(postgres_url, "d", "n1").deliver(events=events)
    accounts.update(store, ASSUMED, since=LONG_AGO, at=SetClock(make.end + timedelta(minutes=1)))
    assert {a.cluster: a.measured for a in store.run_accounts()} == {"c": False, "d": True}


def test_two_users_with_one_run_key_have_two_runs(store, make):
    """A run key is scoped to its user."""
    mine, hers = (
        make.attempt(run_key="k", job_id=1),
        make.attempt(run_key="k", job_id=2, user="eve", submit_at=make.start - timedelta(hours=9)),
    )
    store.upsert_attempts([mine, hers])
    assert accounts.update(store, ASSUMED, since=make.start, at=SetClock(make.end)) == 2
    assert {(a.user, a.n_attempts) for a in store.run_accounts()} == {("alice", 1), ("eve", 1)}


def test_what_the_probe_saw_is_measured(store, make, postgres_url):
    """First step and checkpoints arrive as probe events of the job."""

    def event(kind: str, after_s: float, **over) -> records.HealthEvent:
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
            event("first_step", 100),
            event("checkpoint", 675, detail={"duration_s": 25.0}),
            event("last_progress", 1000),
        ]
    )
    store.upsert_attempts([make.attempt()])
    made = account(store, SetClock(make.end))
    assert made.measured is True
    assert (made.restart_s, made.checkpoint_s, made.lost_to_replay_s) == (100, 25, 1102 - 700)


def history(make, n_runs: int, seed: int) -> tuple[list[records.JobAttempt], list[records.HealthEvent]]:
    """Runs of several attempts, requeued, overlapping or waiting, half of them with a probe; two users, two clusters."""
    chance, attempts, events = random.Random(seed), [], []
    for number in range(n_runs):
        submit = make.start + timedelta(seconds=chance.uniform(0, 9e5))
        for again in range(chance.choice([1, 1, 1, 2, 3])):
            start = submit + timedelta(seconds=chance.uniform(0, 900))
            end = start + timedelta(seconds=chance.uniform(0, 20_000))
            job_id = 1000 + number * 10 + again * chance.choice([0, 1])
            attempts.append(
                make.attempt(
                    job_id=job_id,
                    attempt=again + 1,
                    submit_at=submit,
                    eligible_at=submit,
                    start_at=start,
                    end_at=end if chance.random() < 0.9 else None,
                    time_limit_s=None,
                    state=chance.choice(["COMPLETED", "FAILED", "REQUEUED"]),
                    user=chance.choice(["alice", "eve"]) if again == 0 else attempts[-1].user,
                    cluster="c" if number % 7 else "d",
                    run_key=f"r{number // 2 if number % 5 == 0 else number}",
                )
            )
            if number % 2:
                events += [
                    make.event(
                        at=start + (end - start) * part,
                        kind=kind,
                        source="probe",
                        job_id=job_id,
                        node="n1",
                        severity=records.Severity.INFO,
                        detail={"duration_s": 3.5} if kind == "checkpoint" else {},
                    )
                    for kind, part in (("first_step", 0.1), ("checkpoint", 0.5), ("last_progress", 0.9))
                ]
            submit = end - timedelta(seconds=chance.choice([0, 0, 0, 300]))
    return attempts, events


@pytest.mark.parametrize("slice_rows", [3, 100, 50_000])
def test_accounts_of_many_runs_are_those_of_each(store, make, postgres_url, monkeypatch, slice_rows):
    """However large the slices: no run is parted, none is left out, every field is the one-run function's."""
    attempts, events = history(make, 300, seed=7)
    bulk.load_attempts(postgres_url, attempts)
    bulk.load_events(postgres_url, events)
    monkeypatch.setattr(accounts, "SLICE_ROWS", slice_rows)
    at = SetClock(make.start + timedelta(days=20))
    n_runs = len({accounts.run_of(a) for a in attempts})
    assert accounts.update(store, ASSUMED, since=LONG_AGO, at=at) == n_runs
    stored = {(a.cluster, a.user, a.run_key): a for a in store.run_accounts()}
    measured = accounts.progress(attempts, events)
    for key in {accounts.run_of(a) for a in attempts}:
        mine = [a for a in attempts if accounts.run_of(a) == key]
        want = run_account.account(
            mine, now=at.now(), progress=measured, assume=accounts.assumptions(ASSUMED)
        )
        assert stored[key] == want
    assert any(a.measured for a in stored.values())
    # Only those that go on, and they not before they are five minutes old.
    assert accounts.update(store, ASSUMED, since=LONG_AGO, at=at) == 0
    later = SetClock(at.now() + timedelta(minutes=6))
    going_on = len({accounts.run_of(a) for a in attempts if a.end_at is None})
    assert 0 < accounts.update(store, ASSUMED, since=LONG_AGO, at=later) == going_on < n_runs


def test_a_pass_that_is_told_to_stop_ends_after_its_slice(store, make, postgres_url, monkeypatch):
    """The accounts made so far are stored; the next pass makes the others."""
    attempts, _ = history(make, 60, seed=8)
    bulk.load_attempts(postgres_url, attempts)
    monkeypatch.setattr(accounts, "SLICE_ROWS", 10)
    at, counts = SetClock(make.start + timedelta(days=20)), []
    first = accounts.update(
        store, ASSUMED, since=LONG_AGO, at=at, between=lambda n: counts.append(n) or len(counts) < 2
    )
    assert first == counts[-1] == len(store.run_accounts())
    rest = accounts.update(store, ASSUMED, since=LONG_AGO, at=at)
    assert first + rest == len({accounts.run_of(a) for a in attempts})


def test_an_event_that_cannot_be_read_ends_no_pass(store, make, postgres_url):
    """It is left out and counted; the accounts are made of the others."""
    attempts, events = history(make, 10, seed=8)
    bulk.load_attempts(postgres_url, attempts)
    bulk.load_events(postgres_url, events)
    with store.engine.begin() as connection:
        spoil = "UPDATE probing.health_event SET detail = 'null' WHERE event_id = :id"
        connection.execute(sa.text(spoil), {"id": events[0].event_id})
    at = SetClock(make.start + timedelta(days=20))
    n_runs = len({accounts.run_of(a) for a in attempts})
    assert accounts.update(store, ASSUMED, since=LONG_AGO, at=at) == n_runs
    assert store.skipped.counts() == {"n1": 1}


def _hung(attempt: records.JobAttempt, since: datetime | None, made_at: datetime) -> records.Verdict:
    return records.Verdict(
        cluster=attempt.cluster,
        job_id=attempt.job_id,
        submit_at=attempt.submit_at,
        cause="time_limit",
        domain=records.Domain.USER_PROGRAM,
        confidence=records.Confidence.LIKELY,
        summary="s",
        stalled_at=since,
        rules_version="1",
        made_at=made_at,
    )


@pytest.mark.parametrize("overlap", [False, True], ids=["by columns", "one by one"])
def test_a_verdict_that_says_since_when_it_hung_changes_the_account_made_before(store, make, overlap):
    """And one that says so no more gives the time back; nothing is made again without need."""
    one = make.attempt(state="TIMEOUT", start_at=make.end - timedelta(hours=4), submit_at=make.end - timedelta(hours=4))  # fmt: skip
    beside = make.attempt(job_id=2, attempt=1, run_key=one.run_key or str(one.job_id), state="TIMEOUT", submit_at=one.submit_at, start_at=one.start_at)  # fmt: skip
    store.upsert_attempts([one, beside] if overlap else [one])
    at = SetClock(make.end + timedelta(hours=1))
    before = account(store, at)
    since = make.end - timedelta(hours=3)
    store.save_verdicts(
        [_hung(a, since, at.now() + timedelta(minutes=1)) for a in (one, beside)[: 1 + overlap]]
    )
    at = SetClock(at.now() + timedelta(minutes=2))
    after = account(store, at)
    assert after.lost_to_replay_s == before.lost_to_replay_s + 3 * 3600
    assert after.productive_s < 3600
    assert accounts.update(store, ASSUMED, since=LONG_AGO, at=at) == 0
    store.save_verdicts(
        [_hung(a, None, at.now() + timedelta(minutes=1)) for a in (one, beside)[: 1 + overlap]]
    )
    later = SetClock(
        datetime(2100, 1, 1, tzinfo=UTC)
    )  # the database notes by its own clock when a verdict was replaced
    assert account(store, later).productive_s == before.productive_s


@pytest.mark.parametrize("back", [{"end_at": -60}, {"submit_at": 60, "start_at": 60, "end_at": 0}])
def test_a_run_that_a_clock_set_back_ended_before_its_start_is_accounted_once(store, make, back):
    """Its account ends where it began, which is not its end, and no pass makes it anew for that."""
    store.upsert_attempts([make.attempt(**{k: make.start + timedelta(seconds=v) for k, v in back.items()})])
    at = SetClock(make.end + timedelta(days=1))
    account(store, at)
    assert accounts.update(store, ASSUMED, since=LONG_AGO, at=at) == 0


def test_an_end_that_accounting_told_late_changes_the_account_of_a_run_that_waits(store, make):
    """The account counted the attempt as running when it had ended: nothing was lost by it. Once is enough."""
    at = SetClock(make.end + timedelta(seconds=3))
    store.upsert_attempts([make.attempt(state="RUNNING", end_at=None)])
    assert account(store, at).lost_to_replay_s == 0
    ended = make.attempt(state="REQUEUED")
    waits = make.attempt(attempt=2, submit_at=make.end, start_at=None, end_at=None, state="PENDING", nodes=())
    store.upsert_attempts([ended, waits])
    store.save_verdicts([_hung(ended, None, at.now() + timedelta(seconds=4))])
    at = SetClock(at.now() + timedelta(seconds=5))
    assert account(store, at).lost_to_replay_s == ASSUMED.checkpoint_interval_s / 2
    assert accounts.update(store, ASSUMED, since=LONG_AGO, at=at) == 0


@pytest.mark.parametrize("ahead_s", [0.0, 2400.0, -2400.0])
def test_the_probe_of_a_node_with_a_wrong_clock_is_read_by_the_servers(store, make, postgres_url, ahead_s):
    """Forty minutes ahead: checkpoints came after the end, nothing seemed lost, and the account said "measured". One made before is renewed."""
    now = datetime.now(UTC)
    start, end, ahead = now - timedelta(hours=12), now - timedelta(seconds=5), timedelta(seconds=ahead_s)
    store.upsert_attempts([make.attempt(submit_at=start, start_at=start, end_at=end, nodes=("n1",))])
    node = delivery.Delivery(postgres_url, "c", "n1")

    def beat() -> None:
        at = datetime.now(UTC) + ahead
        node.deliver(heartbeat=records.AgentHeartbeat(cluster="c", node="n1", at=at, boot_id="b"))

    def event(kind: str, at: datetime, **detail: object) -> records.HealthEvent:
        return make.event(
            kind=kind, at=at + ahead, source="probe", job_id=4242, node="n1", severity=records.Severity.INFO,
            detail={"process": "1", **detail},
        )  # fmt: skip

    for other in ("n2", "n3"):
        delivery.Delivery(postgres_url, "c", other).deliver(
            heartbeat=records.AgentHeartbeat(cluster="c", node=other, at=now, boot_id="b")
        )
    beat()
    with store.engine.begin() as connection:
        connection.execute(
            sa.text("UPDATE probing.node_clock SET from_at = from_at - interval '1 hour', n_beats = 99")
        )
    saved = [event("checkpoint", now - timedelta(minutes=30 + 60 * h), duration_s=30.0) for h in range(11)]
    node.deliver(events=[event("first_step", start + timedelta(minutes=10)), *saved])
    beat()
    account(store, SetClock(datetime.now(UTC)))
    assert node_clocks.correct(store) == (len(saved) + 1 if ahead_s else 0)
    assert accounts.update(store, ASSUMED, since=LONG_AGO) == bool(ahead_s)
    (made,) = store.run_accounts()
    assert made.measured
    assert made.restart_s == pytest.approx(600, abs=5)
    assert made.lost_to_replay_s == pytest.approx(1770, abs=10)
