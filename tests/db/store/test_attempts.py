"""Attempts are merged, judged once, and judged again when something new is known."""

from __future__ import annotations

import dataclasses
import uuid
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from probing_cluster.core import records
from probing_cluster.db import bulk, delivery, partitions
from probing_cluster.db import store as store_module
from tests import unjudged
from tests.db.conftest import NOW

Make = Callable[..., Any]


def test_what_is_known_is_not_forgotten(store: store_module.Store, make_attempt: Make) -> None:
    """A later accounting row without GPUs or run key keeps those an earlier one had, and brings what is new."""
    running = make_attempt(
        end_at=None, state="RUNNING", gpus={"n1": ("a",)}, run_key="llama", time_limit_s=60.0
    )
    ended = make_attempt(gpus=None, run_key="", time_limit_s=None, failed_node="n2")
    store.upsert_attempts([running])
    store.upsert_attempts([ended])
    assert store.attempts() == [dataclasses.replace(ended, gpus={"n1": ("a",)}, run_key="llama")]


def _versions(store: store_module.Store) -> list[str]:
    """Which transaction wrote each stored attempt."""
    return [
        row["xmin"] for row in store.rows("SELECT xmin::text FROM probing.job_attempt ORDER BY job_id", {})
    ]


@pytest.mark.parametrize("way", ["poll", "import"])
def test_a_row_that_says_nothing_new_is_not_written(
    store: store_module.Store, make_attempt: Make, way: str
) -> None:
    """A poll lists the same attempts again and again; a word of one that no verdict depends on is stored all the same."""
    attempts = [make_attempt(job_id=n, gpus={"n1": ("GPU-1",)}, reason="None") for n in (1, 2)]

    def put(given: list[records.JobAttempt]) -> None:
        if way == "poll":
            store.upsert_attempts(given)
        else:
            assert bulk.load_attempts(store.url, given) == 0

    store.upsert_attempts(attempts)
    before = _versions(store)
    put([dataclasses.replace(a, gpus=None) for a in attempts])
    assert _versions(store) == before
    put([attempts[0], dataclasses.replace(attempts[1], reason="Dependency")])
    assert _versions(store)[0] == before[0]
    assert _versions(store)[1] != before[1]
    assert [a.reason for a in store.attempts()] == ["None", "Dependency"]


def test_of_two_rows_of_one_attempt_the_last_counts(store: store_module.Store, make_attempt: Make) -> None:
    """One list may hold an attempt twice."""
    store.upsert_attempts([make_attempt(state="RUNNING", end_at=None), make_attempt()])
    assert [a.state for a in store.attempts()] == ["FAILED"]


@pytest.mark.parametrize("way", ["poll", "import"])
def test_a_start_that_has_ended_runs_no_more(store: store_module.Store, make_attempt: Make, way: str) -> None:
    """An export of the day before is loaded after that of the day it ended: it brings a column, and takes back no end."""
    ended = make_attempt(n_cpus=None, exit_code=3)
    running = dataclasses.replace(ended, state="RUNNING", end_at=None, exit_code=None, n_cpus=8)
    store.upsert_attempts([ended])
    if way == "poll":
        store.upsert_attempts([running])
    else:
        bulk.load_attempts(store.url, [running])
    assert store.attempts() == [dataclasses.replace(ended, n_cpus=8)]


def test_a_later_start_in_the_same_row_runs(store: store_module.Store, make_attempt: Make) -> None:
    """Slurm 22.05 may write a requeued job's new start over the row of the one that ended."""
    ended = make_attempt()
    again = dataclasses.replace(
        ended, state="RUNNING", end_at=None, start_at=ended.start_at + timedelta(hours=1)
    )
    store.upsert_attempts([ended])
    store.upsert_attempts([again])
    assert [a.state for a in store.attempts()] == ["RUNNING"]


def test_attempts_are_found(store: store_module.Store, make_attempt: Make) -> None:
    """By job, array, het job, run, user, node, state, span and whether they ended."""
    base = make_attempt()
    later = base.end_at + timedelta(days=1)
    attempts = [
        base,
        make_attempt(
            job_id=2, submit_at=later, start_at=later, end_at=None, state="RUNNING", user="bob", nodes=("n3",)
        ),
        make_attempt(job_id=11, array_job_id=10, array_task_id=4, run_key="10_4"),
        make_attempt(job_id=21, het_job_id=20, het_offset=1, cluster="d"),
    ]
    store.upsert_attempts(attempts)

    def found(**query: Any) -> list[int]:
        return [a.job_id for a in store.attempts(**query)]

    assert found(job_ids=[1, 2]) == [1, 2]
    assert found(job_ids=[10]) == [11]
    assert found(job_ids=[20]) == [21]
    assert found(run_key="10_4") == [11]
    assert found(user="bob") == found(node="n3") == found(ended=False) == found(states=["RUNNING"]) == [2]
    assert found(since=later) == [2]
    assert found(until=later) == [1, 11, 21]
    assert store.any_started("d", later)
    assert not store.any_started("d", base.start_at)
    assert not store.any_started("no such cluster", later)
    assert found(cluster="d") == [21]
    assert found(limit=1) == [1]


def test_ended_attempts_are_judged_once(
    store: store_module.Store, make_attempt: Make, make_verdict: Make
) -> None:
    """Only attempts that ended and did not complete want a verdict, until they have one."""
    failed = make_attempt()
    store.upsert_attempts(
        [
            failed,
            make_attempt(job_id=2, state="COMPLETED"),
            make_attempt(job_id=3, state="RUNNING", end_at=None),
        ]
    )
    assert unjudged.attempts(store) == [failed]
    store.save_verdicts([make_verdict(failed)])
    assert unjudged.attempts(store) == []
    store.upsert_attempts([failed])
    assert unjudged.attempts(store) == []


@pytest.mark.parametrize(
    "change", [{"exit_signal": 9}, {"gpus": {"n1": ("a",)}}, {"state": "NODE_FAIL"}, {"failed_node": "n2"}]
)
def test_news_from_accounting_reopens(
    change: dict[str, Any], store: store_module.Store, make_attempt: Make, make_verdict: Make
) -> None:
    """An attempt whose facts changed after its verdict is judged again."""
    store.upsert_attempts([make_attempt()])
    store.save_verdicts([make_verdict(make_attempt())])
    store.upsert_attempts([make_attempt(**change)])
    assert unjudged.attempts(store) == [make_attempt(**change)]


@pytest.mark.parametrize(
    ("node", "minutes_after_end", "reopened"),
    [
        ("n1", -5, True),
        ("n2", 4, True),
        ("n3", -5, False),
        ("n1", 6, False),
        ("n1", -100, True),
        ("n2", -60 * 24 * 7, True),
        ("n3", -100, False),
        ("n1", -60 * 24 * 7 - 11, False),
    ],
)
def test_late_evidence_reopens(
    node: str,
    minutes_after_end: int,
    reopened: bool,
    postgres_url: str,
    store: store_module.Store,
    make_attempt: Make,
    make_verdict: Make,
    make_event: Make,
) -> None:
    """An event that arrives after the verdict re-opens it if it is of its nodes and in its window or the week before, else not."""
    attempt = make_attempt()
    door = delivery.Delivery(postgres_url, "c", node)
    door.deliver(heartbeat=records.AgentHeartbeat(cluster="c", node=node, at=attempt.end_at))
    store.upsert_attempts([attempt])
    window = {
        "window_start_at": attempt.end_at - timedelta(minutes=10),
        "window_end_at": attempt.end_at + timedelta(minutes=5),
    }
    store.save_verdicts([make_verdict(attempt, **window)])
    assert unjudged.attempts(store) == []
    event = make_event(node=node, at=attempt.end_at + timedelta(minutes=minutes_after_end))
    door.deliver(events=[event])
    assert (unjudged.attempts(store) == [attempt]) == reopened
    store.save_verdicts([make_verdict(attempt, **window)])
    door.deliver(events=[event])
    assert unjudged.attempts(store) == []


def test_a_later_line_is_a_sign_of_life_where_no_agent_beats(
    postgres_url: str,
    store: store_module.Store,
    judged: Callable[[], records.JobAttempt],
    make_event: Make,
) -> None:
    """Of an imported log the last line is all that tells how long a node lived; the second such line tells nothing new."""
    attempt = judged()
    assert attempt.end_at is not None
    door = delivery.Delivery(postgres_url, "c", "n2")
    door.deliver(events=[make_event(node="n2", at=attempt.end_at + timedelta(hours=5))])
    assert unjudged.attempts(store) == [attempt]
    judged()
    door.deliver(events=[make_event(node="n2", at=attempt.end_at + timedelta(hours=6))])
    assert unjudged.attempts(store) == []


def test_a_first_line_is_a_sign_of_life_for_a_day(
    postgres_url: str, store: store_module.Store, make_attempt: Make, make_verdict: Make, make_event: Make
) -> None:
    """A node's first line re-opens what ended in the day before it, not all that ever ran there."""
    attempts = _judged_days_ago(store, make_attempt, make_verdict, 0, 2, 60)
    event = make_event(node="n2", at=attempts[0].end_at + timedelta(hours=5))
    delivery.Delivery(postgres_url, "c", "n2").deliver(events=[event])
    assert unjudged.attempts(store) == attempts[:1]


def test_a_start_is_no_sign_of_life_where_no_agent_beats(
    store: store_module.Store, make_attempt: Make, make_verdict: Make
) -> None:
    """It concerns its neighbours then. Accounting does not tell that the node lived since an earlier line, or ever."""
    attempts = _judged_days_ago(store, make_attempt, make_verdict, 0, 2, 60)
    start = attempts[0].end_at + timedelta(minutes=5)
    running = make_attempt(
        job_id=77, submit_at=start, start_at=start, end_at=None, state="RUNNING", nodes=("n1",)
    )
    store.upsert_attempts([running])
    assert unjudged.attempts(store) == attempts[:1]


def test_a_test_of_a_node_is_no_sign_of_life_where_no_agent_beats(
    store: store_module.Store, make_attempt: Make, make_verdict: Make, make_event: Make
) -> None:
    """It is an event, and no line of the node's log: it does not show that the node lived for the day before it."""
    attempts = _judged_days_ago(store, make_attempt, make_verdict, 0, 2, 60)
    at = attempts[0].end_at + timedelta(hours=20)
    bulk.load_events(store.url, [make_event(node="n1", at=at, source="diagnostics")])
    assert attempts[0] not in unjudged.attempts(store)


def test_an_event_of_no_node_is_no_late_evidence(
    store: store_module.Store, judged: Callable[[], records.JobAttempt], make_event: Make
) -> None:
    """A job that never started has no node: no verdict rests on its event."""
    attempt = judged()
    bulk.load_events(store.url, [make_event(node="", at=attempt.end_at, source="accounting")])
    assert store.rows("SELECT node FROM probing.arrival", {}) == []
    assert unjudged.attempts(store) == []


@pytest.mark.parametrize("n_away", [1, 21])
def test_nodes_that_were_away_for_months_reopen(
    n_away: int, postgres_url: str, store: store_module.Store, make_attempt: Make, make_verdict: Make
) -> None:
    """Whether few are looked up by their names or many by the time: what ended on them meanwhile, and nothing else."""
    attempts = [
        make_attempt(job_id=n, end_at=NOW - timedelta(days=days), nodes=(node,))
        for n, (node, days) in enumerate([("m0", 200), ("m0", 20), ("m0", 320), ("n1", 200)], 1)
    ]
    store.upsert_attempts(attempts)
    store.save_verdicts([make_verdict(a) for a in attempts])
    store.reopen_for_arrivals()
    store.save_verdicts([make_verdict(a) for a in attempts])
    for at in (NOW - timedelta(days=300), NOW):
        for n in range(n_away):
            beat = records.AgentHeartbeat(cluster="c", node=f"m{n}", at=at)
            delivery.Delivery(postgres_url, "c", f"m{n}").deliver(heartbeat=beat)
    assert unjudged.attempts(store) == attempts[:2]


@pytest.mark.parametrize(("is_kept", "reopened"), [(True, True), (False, False)])
def test_a_verdict_whose_evidence_was_dropped_stays(
    is_kept: bool,
    reopened: bool,
    postgres_url: str,
    store: store_module.Store,
    make_attempt: Make,
    make_verdict: Make,
    make_event: Make,
) -> None:
    """Before the oldest month of events: judged again without its evidence, its cause would be lost."""
    partitions.maintain(store.url, retention_days=400)
    end = NOW - timedelta(days=500)
    evidence, late = make_event(at=end), make_event(at=end - timedelta(seconds=1))
    door = delivery.Delivery(postgres_url, "c", "n1")
    if is_kept:
        door.deliver(events=[evidence])
    attempt = make_attempt(submit_at=end - timedelta(hours=2), start_at=end - timedelta(hours=1), end_at=end)
    store.upsert_attempts([attempt])
    store.save_verdicts([make_verdict(attempt, evidence=(evidence.event_id,))])
    store.reopen_for_arrivals()
    store.save_verdicts([make_verdict(attempt, evidence=(evidence.event_id,))])
    door.deliver(events=[late])
    assert (unjudged.attempts(store) == [attempt]) == reopened


def _judged_days_ago(
    store: store_module.Store, make_attempt: Make, make_verdict: Make, *days: int
) -> list[records.JobAttempt]:
    """Attempts with verdicts on n1 and n2 that ended so many days ago, for which nothing is late."""
    now = make_attempt().end_at
    made = [
        make_attempt(
            job_id=n,
            submit_at=now - timedelta(days=d, hours=2),
            start_at=now - timedelta(days=d, hours=1),
            end_at=now - timedelta(days=d),
        )
        for n, d in enumerate(days, 1)
    ]
    store.upsert_attempts(made)
    store.save_verdicts([make_verdict(a) for a in made])
    store.reopen_for_arrivals()
    store.save_verdicts([make_verdict(a) for a in made])
    return made


@pytest.fixture
def judged(
    store: store_module.Store, make_attempt: Make, make_verdict: Make
) -> Callable[[], records.JobAttempt]:
    """Stores an attempt of n1 and n2 with its verdict (again)."""

    def put() -> records.JobAttempt:
        attempt: records.JobAttempt = make_attempt(nodes=("n1", "n2"))
        store.upsert_attempts([attempt])
        store.save_verdicts([make_verdict(attempt)])
        store.reopen_for_arrivals()
        store.save_verdicts([make_verdict(attempt)])
        return attempt

    return put


@pytest.mark.parametrize(("silence_s", "reopened"), [(61, True), (59, False)])
def test_a_node_that_is_heard_of_again_reopens(
    silence_s: float,
    reopened: bool,
    postgres_url: str,
    store: store_module.Store,
    judged: Callable[[], records.JobAttempt],
) -> None:
    """Who judged in a silence of the agent saw nobody watch; an ordinary beat says nothing new."""
    attempt = judged()
    assert attempt.end_at is not None
    door = delivery.Delivery(postgres_url, "c", "n2")
    first = records.AgentHeartbeat(cluster="c", node="n2", at=attempt.end_at - timedelta(seconds=30))
    door.deliver(heartbeat=first)
    assert unjudged.attempts(store) == []
    door.deliver(heartbeat=dataclasses.replace(first, at=first.at + timedelta(seconds=silence_s)))
    assert (unjudged.attempts(store) == [attempt]) == reopened


@pytest.mark.parametrize("gpu_uuids", [("GPU-1",), None], ids=["with GPUs", "without"])
def test_a_late_prolog_or_epilog_reopens(
    gpu_uuids: tuple[str, ...] | None,
    postgres_url: str,
    store: store_module.Store,
    judged: Callable[[], records.JobAttempt],
) -> None:
    """A node that crashed delivers it after the verdict: which GPUs the attempt held, that it ran there, and that the node outlived it."""
    attempt = judged()
    assert attempt.start_at is not None
    door = delivery.Delivery(postgres_url, "c", "n1")
    allocation = records.JobAllocation(
        cluster="c", node="n1", job_id=attempt.job_id, at=attempt.start_at, gpu_uuids=gpu_uuids
    )
    other = dataclasses.replace(allocation, job_id=attempt.job_id + 1)
    door.deliver(allocations=[other])
    assert unjudged.attempts(store) == []
    door.deliver(allocations=[allocation])
    assert unjudged.attempts(store) == [attempt]
    released = dataclasses.replace(allocation, released_at=attempt.end_at)
    judged()
    door.deliver(allocations=[released])
    assert unjudged.attempts(store) == [attempt]
    judged()
    door.deliver(allocations=[released, allocation])
    assert unjudged.attempts(store) == [], "what is known already says nothing new"


def test_what_we_did_reopens(store: store_module.Store, judged: Callable[[], records.JobAttempt]) -> None:
    """A drain, and that it was done, bear on what ended then; that it was lifted does not."""
    attempt = judged()
    drain = records.Drain(
        drain_id=uuid.UUID(int=1),
        cluster="c",
        node="n1",
        at=attempt.end_at,
        action="drain",
        reason="r",
        owner="probing",
        state="failed",
    )
    store.save_drain(drain)
    assert unjudged.attempts(store) == [attempt]
    judged()
    store.update_drain(drain.drain_id, state="done")
    assert unjudged.attempts(store) == [attempt]
    judged()
    store.update_drain(drain.drain_id, ended_at=attempt.end_at)
    assert unjudged.attempts(store) == []
    # Of another node, but about this job.
    store.save_drain(dataclasses.replace(drain, drain_id=uuid.UUID(int=2), node="n9", job_id=attempt.job_id))
    assert unjudged.attempts(store) == [attempt]


@pytest.mark.parametrize(
    ("node", "minutes_after_end", "reopened"),
    [("n2", 14, True), ("n2", -5, True), ("n3", 1, False), ("n2", 16, False)],
)
def test_a_start_told_late_reopens(
    node: str,
    minutes_after_end: int,
    reopened: bool,
    store: store_module.Store,
    judged: Callable[[], records.JobAttempt],
    make_attempt: Make,
) -> None:
    """Who shared a node or took its place changes whose an event was; the same news again changes nothing."""
    attempt = judged()
    assert attempt.end_at is not None
    start = attempt.end_at + timedelta(minutes=minutes_after_end)
    waiting = make_attempt(
        job_id=77, submit_at=start - timedelta(hours=9), start_at=None, end_at=None, state="PENDING", nodes=()
    )
    store.upsert_attempts([waiting])
    assert unjudged.attempts(store) == []
    running = dataclasses.replace(waiting, start_at=start, nodes=("n7", node), state="RUNNING")
    store.upsert_attempts([running])
    assert (unjudged.attempts(store) == [attempt]) == reopened
    judged()
    store.upsert_attempts([dataclasses.replace(running, priority=7)])
    assert unjudged.attempts(store) == []


def test_verdicts_keep_their_history(
    store: store_module.Store, make_attempt: Make, make_verdict: Make
) -> None:
    """A new verdict is current, the old ones stay readable, and an unchanged one is not stored again."""
    attempt = make_attempt()
    store.upsert_attempts([attempt])
    first, second = make_verdict(attempt), make_verdict(attempt, cause="ib_down")
    store.save_verdicts([first])
    store.save_verdicts([second])
    store.save_verdicts([dataclasses.replace(second, made_at=second.made_at + timedelta(hours=1))])
    assert store.verdicts(job_ids=[1]) == [second]
    assert store.verdict_histories([1]) == [first, second]


def test_a_persons_verdict_stands(store: store_module.Store, make_attempt: Make, make_verdict: Make) -> None:
    """What an operator set is replaced by an operator only; the rules' later opinion is kept beside it."""
    attempt = make_attempt()
    store.upsert_attempts([attempt])
    theirs, rules, again = (
        make_verdict(attempt, cause=c, author=a) for c, a in (("x", "eve"), ("y", "rules"), ("z", "bob"))
    )
    store.save_verdicts([make_verdict(attempt), theirs, rules])
    assert store.verdicts() == [theirs]
    store.save_verdicts([again])
    assert store.verdicts() == [again]
    assert [v.cause for v in store.verdict_histories([1])] == ["gpu_lost", "x", "y", "z"]


def test_verdicts_are_found(store: store_module.Store, make_attempt: Make, make_verdict: Make) -> None:
    """By job, by node at fault and by when the attempt ended."""
    early, late = make_attempt(), make_attempt(job_id=2, end_at=make_attempt().end_at + timedelta(days=2))
    store.upsert_attempts([early, late])
    store.save_verdicts([make_verdict(early), make_verdict(late, node="n1")])
    assert [v.job_id for v in store.verdicts(since=late.end_at)] == [2]
    assert [v.job_id for v in store.verdicts(until=late.end_at)] == [1]
    assert [v.job_id for v in store.verdicts(node="n1")] == [2]
    assert len(store.verdicts()) == 2


def test_run_accounts(store: store_module.Store, make_attempt: Make) -> None:
    """A run's newer account replaces its older; two users' runs of one key stay apart."""
    at = make_attempt().submit_at
    mine, theirs = (
        records.RunAccount(cluster="c", run_key="r", user=user, start_at=at, end_at=at + timedelta(hours=n), wall_s=3600.0 * n, made_at=at)
        for n, user in enumerate(("alice", "bob"), 1)
    )  # fmt: skip
    bulk.load_run_accounts(store.connection_uri(), [dataclasses.replace(mine, wall_s=1.0), theirs])
    bulk.load_run_accounts(store.connection_uri(), [mine])
    assert store.run_account("r", user="alice") == mine
    assert store.run_account("r") == theirs
    assert store.run_account("s") is None
    assert store.run_accounts(until=theirs.end_at) == [mine]


def test_a_gang_judged_again_is_one_row(store: store_module.Store) -> None:
    """More snapshots say more of the same stall; one that ended stands no longer."""
    at = datetime.now(UTC)
    first = records.GangVerdict(
        gang_id=uuid.uuid4(),
        cluster="c",
        job_id=7,
        submit_at=at - timedelta(hours=1),
        kind="unknown",
        domain=records.Domain.UNKNOWN,
        confidence=records.Confidence.UNKNOWN,
        summary="no rank stands out",
        onset_at=at - timedelta(seconds=40),
        made_at=at,
    )
    better = dataclasses.replace(first, kind="python_loop", ranks=(5,), nodes=("n3",), summary="rank 5")
    other = dataclasses.replace(first, gang_id=uuid.uuid4(), job_id=8, ended_at=at)
    store.save_gang_verdicts([first, other])
    store.save_gang_verdicts([better])
    assert store.gang_verdicts(job_ids=[7]) == store.gang_verdicts(open_only=True) == [better]
    assert store.gang_verdicts(since=at + timedelta(seconds=1)) == []
    assert {v.job_id for v in store.gang_verdicts()} == {7, 8}


@pytest.mark.parametrize("ended_state", ["FAILED", "NODE_FAIL", "TIMEOUT"])
def test_a_rewritten_first_start_keeps_its_true_end(
    store: store_module.Store, make_attempt: Make, ended_state: str
) -> None:
    """Requeued after its end: accounting then says REQUEUED and the moment of the requeue, also when it is asked again later."""
    true = make_attempt(state=ended_state, exit_code=3, exit_signal=0)
    assert true.end_at is not None
    rewritten = dataclasses.replace(
        true, state="REQUEUED", end_at=true.end_at + timedelta(minutes=4), exit_code=0, reason="requeued"
    )
    store.upsert_attempts([true])
    for _ in range(2):
        store.upsert_attempts([rewritten])
    (kept,) = store.attempts(job_ids=[true.job_id])
    assert (kept.state, kept.end_at, kept.exit_code) == (ended_state, true.end_at, 3)


def test_a_requeue_of_a_running_attempt_ends_it(store: store_module.Store, make_attempt: Make) -> None:
    """Where no end is recorded the requeue is the end; one that is later corrected by accounting stays the requeue's."""
    running = make_attempt(state="RUNNING", end_at=None)
    requeued = make_attempt(state="REQUEUED")
    store.upsert_attempts([running])
    store.upsert_attempts([requeued])
    (kept,) = store.attempts(job_ids=[running.job_id])
    assert (kept.state, kept.end_at) == ("REQUEUED", requeued.end_at)
