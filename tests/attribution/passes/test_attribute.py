"""Attribution against a real Postgres: what ends is judged once, late evidence re-opens, people are not overruled."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path

import pytest
import sqlalchemy as sa

from probing_cluster.attribution.passes import attribute, fetch, pending
from probing_cluster.attribution.verdict import taxonomy
from probing_cluster.core import clock, errors, records
from probing_cluster.db import delivery, tables
from tests import unjudged
from tests.set_clock import SetClock


@pytest.fixture
def deliver(postgres_url) -> Callable[..., None]:
    """Delivers events, allocations and a heartbeat as each node's agent would."""

    def send(
        *events: records.HealthEvent, nodes=("n1", "n2"), at: datetime | None = None, allocations=()
    ) -> None:
        for node in {*nodes, *(e.node for e in events)}:
            beat = records.AgentHeartbeat(cluster="c", node=node, at=at, boot_id="b") if at else None
            mine = [e for e in events if e.node == node]
            own = [a for a in allocations if a.node == node]
            delivery.Delivery(postgres_url, "c", node).deliver(events=mine, allocations=own, heartbeat=beat)

    return send


def later(make) -> SetClock:
    return SetClock(make.end + timedelta(minutes=2))


def test_an_ended_attempt_is_judged_once_and_only_once(store, make, deliver):
    """The second run finds nothing to do."""
    xid = make.xid(79)
    deliver(xid, at=make.end + timedelta(seconds=20))
    store.upsert_attempts([make.attempt()])
    first = attribute.attribute(store, at=later(make))
    assert first.counts == {"gpu_lost": 1}
    assert len(first.changed) == 1
    assert store.verdicts(job_ids=[4242])[0].evidence == (xid.event_id,)
    assert attribute.attribute(store, at=later(make)).n_attempts == 0


@pytest.mark.parametrize("many", [1, 1_000_000])
@pytest.mark.parametrize("evidence", [True, False])
def test_a_change_of_accounting_during_the_judgement_is_judged_next(
    store, make, deliver, monkeypatch, many, evidence
):
    """The verdict rests on the row as it was read, so the changed row remains to be judged."""
    deliver(*([make.xid(79)] if evidence else []), at=make.end + timedelta(seconds=20))
    first = make.attempt(state="FAILED", exit_code=1)
    store.upsert_attempts([first])
    save = type(store).save_verdicts

    def save_after_a_change(self, made, read):
        if made:
            changed = dataclasses.replace(first, state="CANCELLED", cancelled_by="1000", exit_code=0)
            self.upsert_attempts([changed])
        return save(self, made, read)

    monkeypatch.setattr(attribute, "MANY", many)
    with monkeypatch.context() as patch:
        patch.setattr(type(store), "save_verdicts", save_after_a_change)
        assert attribute.attribute(store, at=later(make)).n_attempts == 1
    assert [a.state for a in unjudged.attempts(store)] == ["CANCELLED"]
    assert attribute.attribute(store, at=later(make)).n_attempts == 1
    assert attribute.attribute(store, at=later(make)).n_attempts == 0


def test_the_columns_carry_the_fingerprint_that_the_store_compares(store, make):
    """Both are made of the columns whose change has an attempt judged again."""
    attempts = [make.attempt(), make.attempt(job_id=4243, gpus={"n1": ("GPU-1",)}, failed_node="n2")]
    store.upsert_attempts(attempts)
    found = pending.read(store, clock.EPOCH, make.end + timedelta(days=1))
    by_key = dict(zip(pending.keys(found), found["fingerprint"].to_pylist(), strict=True))
    assert by_key == store.fingerprints(by_key)
    assert len(set(by_key.values())) == 2


@pytest.mark.parametrize("restarts", [None, 0, 1])
@pytest.mark.parametrize("many", [1, 1_000_000])
def test_a_refusal_is_found_however_late_slurm_dates_the_end(
    store, make, deliver, monkeypatch, many, restarts
):
    """Slurm may write a later start's count into the row, and may date the end of a refused start to when it was put back in the queue: the refusal lies before the window then."""
    refused = make.event(at=make.start, kind="check", code="prolog_refused", source="agent", severity=records.Severity.INFO, job_id=4242, detail={"fault": "xid:gpu0", "restart_count": 0})  # fmt: skip
    other = dataclasses.replace(make.attempt(state="REQUEUED", exit_code=0), job_id=4243)
    deliver(refused, at=make.end + timedelta(minutes=2))
    store.upsert_attempts([make.attempt(state="REQUEUED", exit_code=0, restart_count=restarts), other])
    monkeypatch.setattr(attribute, "MANY", many)
    attribute.attribute(store, at=later(make))
    (mine,), (theirs,) = store.verdicts(job_ids=[4242]), store.verdicts(job_ids=[4243])
    assert (mine.cause, mine.node, mine.evidence) == ("node_refused", "n2", (refused.event_id,))
    assert theirs.cause == "requeued_by_user"


@pytest.mark.parametrize("many", [1, 1_000_000])
def test_one_end_of_a_heterogeneous_job_has_one_confidence(store, make, deliver, monkeypatch, many):
    """A component's case does not hold what the others met, so none of them is certain of why a person, or the limit, ended all."""
    limit_s = (make.end - make.start).total_seconds()
    ends = {"CANCELLED": {"cancelled_by": "alice"}, "TIMEOUT": {"time_limit_s": limit_s}}
    attempts = [
        dataclasses.replace(
            make.attempt(state=state, exit_code=0, nodes=(node,), **how, **het), job_id=4300 + 10 * n + k
        )
        for n, (state, how) in enumerate(ends.items())
        for k, (node, het) in enumerate(
            [
                ("n1", {"het_job_id": 4300, "het_offset": 0}),
                ("n2", {"het_job_id": 4300, "het_offset": 1}),
                ("n2", {}),
            ]
        )
    ]
    deliver(at=make.end + timedelta(minutes=2))
    store.upsert_attempts(attempts)
    monkeypatch.setattr(attribute, "MANY", many)
    attribute.attribute(store, at=later(make))
    found = {v.job_id: v for v in store.verdicts(job_ids=[a.job_id for a in attempts])}
    for first, second, alone in ((4300, 4301, 4302), (4310, 4311, 4312)):
        assert found[first].cause == found[second].cause == found[alone].cause
        assert found[first].confidence == found[second].confidence == records.Confidence.LIKELY
        assert not any(s.startswith("network") for s in found[first].ruled_out)
        assert found[alone].confidence is records.Confidence.CERTAIN


def test_a_pass_that_fails_leaves_nobody_who_still_writes(store, make, deliver, monkeypatch):
    """Verdicts made before the error are stored, before the error is raised: another process may hold the lock by then."""
    deliver(at=make.end + timedelta(seconds=20))
    store.upsert_attempts([make.attempt(), make.attempt(job_id=4243)])
    judged, save, done = attribute.judge_batch, type(store).save_verdicts, []

    def judge_one(source, batch, *args, **kwargs):
        if done:
            raise errors.DatabaseUnavailable("gone")
        done.append("judged")
        return judged(source, batch, *args, **kwargs)

    def save_slowly(self, made, read):
        time.sleep(0.5)
        before = save(self, made, read)
        done.append("stored")
        return before

    monkeypatch.setattr(pending, "BATCH", 1)
    monkeypatch.setattr(attribute, "judge_batch", judge_one)
    monkeypatch.setattr(type(store), "save_verdicts", save_slowly)
    with pytest.raises(errors.DatabaseUnavailable):
        attribute.attribute(store, at=later(make))
    assert done == ["judged", "stored"]


def test_a_dry_run_shows_what_would_change_and_stores_nothing(store, make, deliver):
    """Judging a span again with new evidence changes the verdict only on paper."""
    deliver(at=make.end + timedelta(seconds=20))
    store.upsert_attempts([make.attempt()])
    attribute.attribute(store, at=later(make))
    deliver(make.xid(79))
    run = attribute.attribute(store, since=make.start, dry_run=True, at=later(make))
    assert [(c.before.cause, c.after.cause) for c in run.changed] == [("user_error", "gpu_lost")]
    assert store.verdicts(job_ids=[4242])[0].cause == "user_error"


def test_late_evidence_reopens_and_history_is_kept(store, make, deliver):
    """The event arrives after the first verdict; both verdicts are kept, the new one is current."""
    deliver(at=make.end + timedelta(seconds=20))
    store.upsert_attempts([make.attempt()])
    attribute.attribute(store, at=later(make))
    deliver(make.xid(79))
    run = attribute.attribute(store, at=later(make))
    assert run.counts == {"gpu_lost": 1}
    assert [v.cause for v in store.verdict_histories([4242])] == ["user_error", "gpu_lost"]


def test_a_persons_verdict_is_not_overruled(store, make, deliver):
    """A person's verdict stays current, whatever the rules say."""
    deliver(at=make.end + timedelta(seconds=20))
    store.upsert_attempts([make.attempt()])
    attribute.attribute(store, at=later(make))
    mine = dataclasses.replace(
        store.verdicts(job_ids=[4242])[0],
        cause="ib_link",
        author="bob",
        made_at=make.end + timedelta(minutes=3),
    )
    store.save_verdicts([mine])
    run = attribute.attribute(store, since=make.start, at=later(make))
    assert run.changed == ()
    assert store.verdicts(job_ids=[4242])[0].author == "bob"


def test_fresh_ends_wait_for_their_evidence(store, make, deliver):
    """Within the settling time nothing is judged."""
    store.upsert_attempts([make.attempt()])
    run = attribute.attribute(store, at=SetClock(make.end + timedelta(seconds=3)), settle_s=5.0)
    assert run.n_attempts == 0


def test_events_of_another_cluster_do_not_count(store, make, postgres_url, deliver):
    """Two clusters may share a database and node names."""
    deliver(at=make.end + timedelta(seconds=20))
    other = dataclasses.replace(
        make.xid(79), cluster="d", event_id=records.make_event_id("d", "n2", "kernel", "1")
    )
    delivery.Delivery(postgres_url, "d", "n2").deliver(events=[other])
    store.upsert_attempts([make.attempt()])
    assert attribute.attribute(store, at=later(make)).counts == {"user_error": 1}


def test_one_xid_on_a_shared_node_has_one_victim(store, make, deliver):
    """End-to-end case 9 in rows: the Prolog's allocation shows the holder of the GPU."""

    def allocation(job_id: int, index: int) -> records.JobAllocation:
        return records.JobAllocation(
            cluster="c",
            node="n1",
            job_id=job_id,
            at=make.start,
            gpu_uuids=(make.uuid("n1", index),),
            gpu_indices=str(index),
        )

    attempts = [make.attempt(job_id=j, nodes=("n1",), n_gpus=1, gpus=None) for j in (1, 2)]
    deliver(
        make.xid(79, 1, node="n1"),
        at=make.end + timedelta(seconds=20),
        allocations=[allocation(1, 0), allocation(2, 1)],
    )
    store.upsert_attempts(attempts)
    run = attribute.attribute(store, at=later(make))
    assert {v.job_id: v.cause for v in run.verdicts} == {1: "user_error", 2: "gpu_lost"}


def test_a_standing_fault_convicts_the_job_that_starts_on_it(store, make, deliver):
    """A GPU lost hours ago on an undrained node ends every job that gets it; the window is widened to it."""
    at = make.end - timedelta(hours=5)
    lost = make.event(at=at, kind="gpu_lost", source="nvml", device="gpu3", gpu_uuid=make.uuid("n2", 3))
    deliver(lost, at=make.end + timedelta(seconds=20))
    store.upsert_attempts([make.attempt(start_at=make.end - timedelta(seconds=40))])
    (verdict,) = attribute.attribute(store, at=later(make)).verdicts
    assert (verdict.cause, verdict.confidence) == ("gpu_lost", records.Confidence.LIKELY)
    assert verdict.window_start_at <= lost.at


def test_a_fault_that_has_gone_does_not_stand(store, make, deliver):
    """The reading that saw it gone ends it."""
    at = make.end - timedelta(hours=5)
    lost = make.event(at=at, kind="gpu_lost", source="nvml", device="gpu3", gpu_uuid=make.uuid("n2", 3))
    gone = make.event(
        at=at + timedelta(hours=1),
        kind="gpu_lost",
        source="nvml",
        device="gpu3",
        severity=records.Severity.INFO,
        detail={"recovered": True},
    )
    deliver(lost, gone, at=make.end + timedelta(seconds=20))
    store.upsert_attempts([make.attempt(start_at=make.end - timedelta(seconds=40))])
    assert attribute.attribute(store, at=later(make)).counts == {"user_error": 1}


@pytest.mark.parametrize("many", [1, 1000])
@pytest.mark.parametrize("source", ["nvml", "kernel"])
def test_an_xid_of_before_a_short_job_is_over_unless_something_still_says_so(
    store, make, deliver, monkeypatch, many, source
):
    """An Xid is an instant: the GPU's check shows the state after it, which ends when the GPU is reset."""
    monkeypatch.setattr(attribute, "MANY", many)
    at = make.end - timedelta(minutes=13)
    where = {"device": "gpu3", "gpu_uuid": make.uuid("n2", 3)}
    deliver(
        make.event(at=at, kind="xid", code="119", source=source, **where), at=make.end + timedelta(seconds=20)
    )
    store.upsert_attempts([make.attempt(start_at=make.end - timedelta(seconds=20))])
    (verdict,) = attribute.attribute(store, at=later(make)).verdicts
    assert verdict.cause == "user_error"


@pytest.mark.parametrize("many", [1, 1000])
@pytest.mark.parametrize(("source", "cause"), [("import", "nvswitch"), ("kernel", "user_error")])
def test_a_fatal_switch_of_an_imported_log_stands_until_a_restart(
    store, make, deliver, monkeypatch, many, source, cause
):
    """Of a node with an agent its checks say whether the fabric is up."""
    monkeypatch.setattr(attribute, "MANY", many)
    event = make.event(at=make.end - timedelta(minutes=25), kind="sxid", code="20034", source=source)
    assert judged(store, make, deliver, event).cause == cause


@pytest.mark.parametrize("many", [1, 1000])
@pytest.mark.parametrize(
    ("kind", "code", "began_min", "over_min", "word"),
    [
        ("nfs", "not_responding", 50, None, "likely"),
        ("hung_task", "120", 50, None, "likely"),
        ("nfs", "not_responding", 50, 30, "certain"),  # the server came back
        ("nfs", "not_responding", 90, None, "certain"),  # before the job began: it ran well beside it
        ("thermal", "cpu_throttle", 50, None, "certain"),  # no stall
    ],
)
def test_a_cancellation_beside_a_stall_is_never_certain(
    store, make, deliver, monkeypatch, many, kind, code, began_min, over_min, word
):
    """Whoever cancels a job that has waited for its file server for most of an hour may do so because of it."""
    monkeypatch.setattr(attribute, "MANY", many)
    low = records.Severity.INFO
    stall = make.event(
        at=make.end - timedelta(minutes=began_min), kind=kind, code=code, severity=low, device="nas2"
    )
    over = [
        make.event(
            at=make.end - timedelta(minutes=m), kind=kind, code="recovered", severity=low, device="nas2"
        )
        for m in (over_min,)
        if m is not None
    ]
    deliver(stall, *over, at=make.end + timedelta(seconds=20))
    started = make.end - timedelta(minutes=80)
    store.upsert_attempts([make.attempt(state="CANCELLED", cancelled_by="1001", start_at=started)])
    (verdict,) = attribute.attribute(store, at=later(make)).verdicts
    assert (verdict.cause, str(verdict.confidence)) == ("user_cancelled", word)
    assert (stall.event_id in verdict.evidence) == (word == "likely")


@pytest.mark.parametrize("many", [1, 1000])
@pytest.mark.parametrize(("before_end_min", "word"), [(5, "likely"), (-5, "possible")])
def test_nobody_watched_before_the_first_agent(
    store, make, postgres_url, monkeypatch, many, before_end_min, word
):
    """History from before the agents came: their present heartbeats prove nothing about the nodes then."""
    monkeypatch.setattr(attribute, "MANY", many)
    for node in ("n1", "n2"):
        begun = make.end - timedelta(minutes=before_end_min)
        beat = records.AgentHeartbeat(cluster="c", node=node, at=begun, started_at=begun)
        door = delivery.Delivery(postgres_url, "c", node)
        door.deliver(heartbeat=beat)
        door.deliver(heartbeat=dataclasses.replace(beat, at=make.end + timedelta(minutes=6)))
        # Another process of the agent, today.
        today = make.end + timedelta(days=9)
        door.deliver(heartbeat=dataclasses.replace(beat, at=today, started_at=today))
    store.upsert_attempts([make.attempt()])
    (verdict,) = attribute.attribute(store, at=later(make)).verdicts
    assert (verdict.cause, str(verdict.confidence)) == ("user_error", word)
    assert any("GPUs" in words for words in verdict.ruled_out) == (word == "likely")


@pytest.mark.parametrize("many", [1, 1000])
@pytest.mark.parametrize(
    ("died_min", "begun_min", "word"),
    [
        (-40, 20, "possible"),
        (-40, None, "likely"),  # the same process: only the network was away
        (-40, -5, "likely"),  # it was back before the end
        (1, 20, "likely"),  # it died after the end
        (-0.5, 20, "likely"),  # its last word is half a minute old, as always
    ],
)
def test_nobody_watched_while_the_agent_was_dead(
    store, make, postgres_url, monkeypatch, many, died_min, begun_min, word
):
    """A later heartbeat proves nothing about the silent hour; a silence is no death."""
    monkeypatch.setattr(attribute, "MANY", many)
    started = make.end - timedelta(days=9)
    for node in ("n1", "n2"):
        last = make.end + timedelta(minutes=died_min)
        beat = records.AgentHeartbeat(cluster="c", node=node, at=last, started_at=started)
        door = delivery.Delivery(postgres_url, "c", node)
        door.deliver(heartbeat=beat)
        again = started if begun_min is None else make.end + timedelta(minutes=begun_min)
        today = make.end + timedelta(days=9)
        door.deliver(heartbeat=dataclasses.replace(beat, at=today, started_at=again))
    store.upsert_attempts([make.attempt()])
    (verdict,) = attribute.attribute(store, at=later(make)).verdicts
    assert (verdict.cause, str(verdict.confidence)) == ("user_error", word)
    assert any("GPUs" in words for words in verdict.ruled_out) == (word == "likely")


def preemption(make) -> tuple[records.JobAttempt, records.JobAttempt, records.JobAttempt]:
    """Job 99 ended on n9, and its next start took job 4242's place."""
    ours = {"job_id": 99, "name": "pretrain"}
    first = make.attempt(
        **ours,
        nodes=("n9",),
        start_at=make.end - timedelta(minutes=10),
        end_at=make.end - timedelta(seconds=50),
    )
    second = make.attempt(
        **ours,
        attempt=2,
        submit_at=first.end_at,
        start_at=make.end + timedelta(seconds=1),
        end_at=None,
        state="RUNNING",
    )
    return first, second, make.attempt(state="PREEMPTED", exit_code=0)


def test_the_preemptor_is_found_with_the_fault_behind_it(store, make, deliver):
    """Job 99 lost a GPU, was requeued, and took job 4242's place."""
    deliver(make.xid(79, 3, 60, node="n9"), nodes=("n1", "n2", "n9"), at=make.end + timedelta(seconds=20))
    store.upsert_attempts(preemption(make))
    run = attribute.attribute(store, at=later(make))
    verdict = next(v for v in run.verdicts if v.job_id == 4242)
    assert verdict.cause == "preempted"
    assert "job 99" in verdict.summary
    assert "gpu_lost on n9" in verdict.summary
    assert [v.job_id for v in run.verdicts] == [99, 4242]
    assert attribute.attribute(store, job_ids=[4242], at=later(make)).changed == ()


def test_a_preemption_is_told_as_it_becomes_known(store, make, deliver):
    """Who took the place is in accounting half a minute later, why they had to start again maybe an hour later."""
    first, second, ours = preemption(make)
    deliver(nodes=("n1", "n2", "n9"), at=make.end + timedelta(seconds=20))

    def summary() -> str:
        attribute.attribute(store, at=later(make))
        return store.verdicts(job_ids=[ours.job_id])[0].summary

    store.upsert_attempts([first, ours])
    assert "job 99" not in summary()
    store.upsert_attempts([second])
    alone = summary()
    assert "job 99" in alone
    deliver(make.xid(79, 3, 60, node="n9"))
    assert summary() == alone  # its first start is judged again now, and those it preempted next
    assert "gpu_lost on n9" in summary()
    assert attribute.attribute(store, at=later(make)).n_attempts == 0
    found = store.verdicts(job_ids=[first.job_id])[0]
    store.save_verdicts([dataclasses.replace(found, cause="pcie", author="ops", made_at=later(make).now())])
    assert "pcie on n9" in summary()  # a person knew better


def test_what_struck_the_next_job_is_not_the_last_ones(store, make, deliver):
    """A polled reading is told at once, the next start half a minute later: what the one before seemed to end of is the next one's."""
    lost = make.event(
        at=make.end + timedelta(seconds=30),
        kind="gpu_lost",
        source="nvml",
        device="gpu3",
        gpu_uuid=make.uuid("n2", 3),
    )
    deliver(lost, at=make.end + timedelta(minutes=1))
    store.upsert_attempts([make.attempt()])
    (first,) = attribute.attribute(store, at=later(make)).verdicts
    assert first.cause == "gpu_lost"
    begin = make.end + timedelta(seconds=3)
    store.upsert_attempts(
        [make.attempt(job_id=99, submit_at=begin, start_at=begin, end_at=None, state="RUNNING")]
    )
    (second,) = attribute.attribute(store, at=later(make)).verdicts
    assert (second.job_id, second.cause) == (first.job_id, "user_error")


def test_xids_that_follow_a_gpu_across_users_are_found_in_the_database(store, make, deliver):
    """Three strangers' jobs met Xid 31 on the GPU before."""
    events, attempts = [make.xid(31, severity=records.Severity.INFO)], [make.attempt()]
    for day in (1, 2, 3):
        at = make.end - timedelta(days=day)
        events.append(make.xid(31, 3, at=at, severity=records.Severity.INFO))
        attempts.append(
            make.attempt(
                job_id=day,
                submit_at=at - timedelta(hours=1),
                start_at=at - timedelta(hours=1),
                end_at=at,
                user=f"u{day}",
            )
        )
    deliver(*events, at=make.end + timedelta(seconds=20))
    store.upsert_attempts(attempts)
    run = attribute.attribute(store, job_ids=[4242], at=later(make))
    assert run.verdicts[0].cause == "gpu_xid"


def test_an_old_xid_meets_whoever_ran_on_its_node_then(store, make, deliver):
    """For an hour, across two midnights, or still running; not attempts between two Xids, or on other nodes."""
    at = make.end - timedelta(days=3)
    deliver(
        *(make.xid(31, 3, at=at - timedelta(hours=h), severity=records.Severity.INFO) for h in (0, 26)),
        at=make.end,
    )
    spans = {1: (1, 1), 2: (50, 30), 3: (90, None), 4: (3, -2)}
    store.upsert_attempts(
        [
            make.attempt(
                job_id=job,
                submit_at=at - timedelta(hours=before),
                start_at=at - timedelta(hours=before),
                end_at=None if after is None else at + timedelta(hours=after),
                state="RUNNING" if after is None else "COMPLETED",
                gpus={"n2": (make.uuid("n2", 3),)} if job == 2 else None,
            )
            for job, (before, after) in spans.items()
        ]
        + [
            make.attempt(
                job_id=5, nodes=("n1",), submit_at=at - timedelta(hours=1), start_at=at - timedelta(hours=1)
            )
        ]
    )
    given = {"cluster": "c", "keys": [7], "nodes": ["n2"], "untils": [make.end], "uuids": [make.uuid("n2", 3)], "devices": [None], "addresses": [None], "codes": ["31"], "days": 28}  # fmt: skip
    rows = store.rows((Path(fetch.__file__).parent / "sql/past_xids.sql").read_text("utf-8"), given)
    met = sorted((row["job_id"], (at - row["at"]) // timedelta(hours=1)) for row in rows)
    assert met == [(1, 0), (2, 0), (2, 26), (3, 0), (3, 26)]
    assert {row["job_id"]: row["held"] for row in rows} == {1: None, 2: [make.uuid("n2", 3)], 3: None}


def test_the_next_jobs_xid_says_nothing_of_the_gpu_the_last_one_had(store, make, deliver):
    """The same three strangers, but the fourth Xid 31 came minutes after the attempt's end: such an error ends its own job."""
    events, attempts = [make.xid(31, before_end_s=-200, severity=records.Severity.INFO)], [make.attempt()]
    for day in (1, 2, 3):
        at = make.end - timedelta(days=day)
        events.append(make.xid(31, 3, at=at, severity=records.Severity.INFO))
        begin = at - timedelta(hours=1)
        attempts.append(make.attempt(job_id=day, submit_at=begin, start_at=begin, end_at=at, user=f"u{day}"))
    deliver(*events, at=make.end + timedelta(seconds=20))
    store.upsert_attempts(attempts)
    run = attribute.attribute(store, job_ids=[4242], at=later(make))
    assert run.verdicts[0].cause == "user_error"


def test_what_stalled_since_yesterday_may_be_a_neighbours_too(store, make, deliver):
    """On a shared node with unrecorded GPUs, a condition older than any event in the window is at most possible."""
    lost = make.event(
        at=make.end - timedelta(days=2),
        kind="gpu_lost",
        source="nvml",
        device="gpu3",
        severity=records.Severity.HIGH,
    )
    deliver(lost, at=make.end + timedelta(seconds=20))
    mine = make.attempt(start_at=make.end - timedelta(seconds=300), nodes=("n2",), gpus=None, n_gpus=1)
    beside = make.attempt(job_id=7, nodes=("n2",), gpus=None, n_gpus=1, end_at=None, state="RUNNING")
    sure = {}
    for attempts in ([mine], [mine, beside]):
        store.upsert_attempts(attempts)
        (verdict,) = attribute.attribute(store, job_ids=[4242], dry_run=True, at=later(make)).verdicts
        sure[len(attempts)] = (verdict.cause, verdict.confidence)
    assert sure[1] == ("gpu_lost", records.Confidence.LIKELY)
    assert sure[2] == ("gpu_lost", records.Confidence.POSSIBLE)


def test_a_switch_that_takes_many_nodes_down_is_one_incident(store, make, deliver):
    """Four nodes, two jobs, one incident with one id, the same in every run."""
    nodes = ("n1", "n2", "n3", "n4")
    downs = [
        make.event(30 - i, node=n, kind="ib_link", code="port_down", device="mlx5_0", source="sysfs")
        for i, n in enumerate(nodes)
    ]
    deliver(*downs, nodes=nodes, at=make.end + timedelta(seconds=20))
    store.upsert_attempts(
        [make.attempt(job_id=j, nodes=pair) for j, pair in ((1, nodes[:2]), (2, nodes[2:]))]
    )
    first = attribute.attribute(store, at=later(make))
    ids = {v.incident_id for v in first.verdicts}
    assert {v.cause for v in first.verdicts} == {"ib_link"}
    assert len(ids) == 1
    assert None not in ids
    again = attribute.attribute(store, since=make.start, at=later(make))
    assert {v.incident_id for v in again.verdicts} == ids
    assert again.changed == ()


def test_verdicts_are_counted_by_cause(store, make, deliver):
    """An honest unknown is a cause of its own."""
    deliver(at=make.end + timedelta(seconds=20))
    store.upsert_attempts([make.attempt(job_id=1), make.attempt(job_id=2, exit_code=0, nodes=("n9",))])
    run = attribute.attribute(store, at=later(make))
    assert run.counts == {"user_error": 1, taxonomy.UNKNOWN: 1}


def lost(make, before_end, **over):
    """A kernel log's Xid 79 on gpu3 of n2, so long before the end."""
    over = {"source": "import", "gpu_uuid": None, "device": None, **over}
    return make.xid(79, 3, at=make.end - before_end, **over)


def judged(store, make, deliver, *events, **attempt):
    """The verdict of an attempt on a node of its own, GPUs unknown, that ran for three hours."""
    deliver(*events, at=make.end + timedelta(seconds=20))
    given = {"gpus": None, "nodes": ("n2",), "start_at": make.end - timedelta(hours=3), **attempt}
    store.upsert_attempts([make.attempt(**given)])
    (verdict,) = attribute.attribute(store, at=later(make)).verdicts
    return verdict


@pytest.mark.parametrize("many", [1, 1000])
@pytest.mark.parametrize(
    ("begun_h", "ended_min", "word"),
    [
        (5, 2, records.Confidence.POSSIBLE),
        (3, 60, records.Confidence.POSSIBLE),
        (5, -60, records.Confidence.LIKELY),
    ],
)
def test_who_shared_the_node_when_a_hang_began_is_known(
    store, make, deliver, monkeypatch, many, begun_h, ended_min, word
):
    """A GPU that failed as a hang of three hours began may have been the other job's, that ended hours before this one; not after that one had ended."""
    monkeypatch.setattr(attribute, "MANY", many)
    began = make.end - timedelta(hours=3)
    other = {"start_at": make.end - timedelta(hours=begun_h), "end_at": began + timedelta(minutes=ended_min)}
    store.upsert_attempts(
        [make.attempt(job_id=7, gpus=None, nodes=("n2",), n_gpus=1, state="COMPLETED", **other)]
    )
    waited = make.finding("nccl_timeout", detail={"timeout_ms": 3 * 3_600_000}, node="n2")
    fault = make.xid(48, at=began, gpu_uuid=None)
    verdict = judged(store, make, deliver, waited, fault, start_at=make.end - timedelta(hours=4))
    assert (verdict.cause, verdict.confidence) == ("gpu_memory_uncorrectable", word)


MINUTES_25 = timedelta(minutes=25)


@pytest.mark.parametrize("many", [1, 1000])
def test_a_gpu_lost_long_before_the_end_stands(store, make, deliver, monkeypatch, many):
    """Xid 79 in a kernel log, 25 minutes before a job fails on its own node: nothing brings a GPU back by itself."""
    monkeypatch.setattr(attribute, "MANY", many)
    event = lost(make, MINUTES_25)
    verdict = judged(store, make, deliver, event)
    assert (verdict.cause, verdict.confidence) == ("gpu_lost", records.Confidence.LIKELY)
    assert verdict.evidence == (event.event_id,)
    assert verdict.window_start_at <= event.at


@pytest.mark.parametrize("many", [1, 1000])
@pytest.mark.parametrize(
    "back", [{"kind": "node_boot", "code": "kernel"}, {"kind": "driver_load", "code": "nvidia"}]
)
@pytest.mark.parametrize("started_s", [60, 3 * 3600])
def test_a_lost_gpu_is_back_after_a_restart_or_a_driver_load(
    store, make, deliver, monkeypatch, many, back, started_s
):
    """A later event shows that the GPU was set up again."""
    monkeypatch.setattr(attribute, "MANY", many)
    again = make.event(
        at=make.end - timedelta(hours=4), source="import", severity=records.Severity.INFO, **back
    )
    events = (lost(make, timedelta(hours=5)), again)
    verdict = judged(store, make, deliver, *events, start_at=make.end - timedelta(seconds=started_s))
    assert verdict.cause == "user_error"


@pytest.mark.parametrize("many", [1, 1000])
@pytest.mark.parametrize(
    ("other", "cause"),
    [
        ({}, "user_error"),
        ({"n_gpus": 4}, "gpu_lost"),
        ({"state": "RUNNING"}, "gpu_lost"),
        ({"end_at": -175}, "gpu_lost"),
        ({"start_at": -310}, "gpu_lost"),
        ({"nodes": ("n1",)}, "gpu_lost"),
    ],
)
def test_a_gpu_with_which_a_job_of_the_whole_node_ended_well_since_was_brought_back(
    store, make, deliver, monkeypatch, many, other, cause
):
    """An imported log may lack the reset. A job with fewer GPUs, that runs still, was short, began before or ran elsewhere proves nothing."""
    monkeypatch.setattr(attribute, "MANY", many)
    given = {"job_id": 7, "gpus": None, "nodes": ("n2",), "n_gpus": 8, "state": "COMPLETED", "exit_code": 0,
             "start_at": -180, "end_at": -120} | other  # fmt: skip
    minutes = {name: make.end + timedelta(minutes=given[name]) for name in ("start_at", "end_at")}
    store.upsert_attempts([make.attempt(**given | minutes)])
    verdict = judged(
        store, make, deliver, lost(make, timedelta(hours=5)), start_at=make.end - timedelta(minutes=60)
    )
    assert verdict.cause == cause


@pytest.mark.parametrize("many", [1, 1000])
@pytest.mark.parametrize(
    ("n_gpus", "largest", "cause"),
    [(4, 4, "user_error"), (4, 8, "gpu_lost"), (2, 2, "gpu_lost"), (3, 4, "gpu_lost")],
)
def test_a_node_has_as_many_gpus_as_its_largest_job_held(
    store, make, deliver, monkeypatch, many, n_gpus, largest, cause
):
    """Four GPUs are a whole node of four, of any time's jobs; a node where no job held four is not known to have so few."""
    monkeypatch.setattr(attribute, "MANY", many)
    for job_id, held, hours in ((7, n_gpus, 3), (8, largest, 20)):
        times = {
            "start_at": make.end - timedelta(hours=hours),
            "end_at": make.end - timedelta(hours=hours - 1),
        }
        one = make.attempt(job_id=job_id, gpus=None, nodes=("n2",), n_gpus=held, state="COMPLETED", exit_code=0, **times)  # fmt: skip
        store.upsert_attempts([one])
    since = {"start_at": make.end - timedelta(minutes=60), "n_gpus": 1, "nodes": ("n2",), "gpus": None}
    verdict = judged(store, make, deliver, lost(make, timedelta(hours=5)), **since)
    assert verdict.cause == cause


@pytest.mark.parametrize("many", [1, 1000])
@pytest.mark.parametrize(("state", "by"), [("TIMEOUT", None), ("CANCELLED", "alice"), ("DEADLINE", None)])
@pytest.mark.parametrize(("shared", "cause"), [(False, "gpu_lost"), (True, None)])
def test_who_ends_a_job_beside_a_lost_gpu_is_never_certain(
    store, make, deliver, monkeypatch, many, state, by, shared, cause
):
    """On its own node the GPU is the likely story; on a shared node it is named, and the limit or the user is not certain."""
    monkeypatch.setattr(attribute, "MANY", many)
    if shared:
        store.upsert_attempts([make.attempt(job_id=7, gpus=None, nodes=("n2",), state="RUNNING", end_at=None, start_at=make.end - timedelta(hours=2))])  # fmt: skip
    event = lost(make, timedelta(minutes=70))
    verdict = judged(store, make, deliver, event, state=state, exit_code=0, cancelled_by=by)
    assert verdict.confidence is not records.Confidence.CERTAIN
    assert verdict.cause == cause or (shared and verdict.cause in ("time_limit", "user_cancelled"))
    assert "0000:53:00 of n2" in verdict.summary
    assert "Xid 79" in verdict.summary


def test_a_gpu_another_job_held_does_not_stand_for_this_one(store, make, deliver):
    """A lost GPU that the attempt is known not to have held neither convicts nor doubts."""
    event = lost(make, MINUTES_25, gpu_uuid=make.uuid("n2", 3))
    verdict = judged(
        store,
        make,
        deliver,
        event,
        state="CANCELLED",
        cancelled_by="alice",
        gpus={"n2": (make.uuid("n2", 0),)},
        n_gpus=1,
    )
    assert (verdict.cause, verdict.confidence) == ("user_cancelled", records.Confidence.CERTAIN)


def test_a_long_job_that_began_beside_a_lost_gpu_is_only_possibly_its_victim(store, make, deliver):
    """It ran for three hours without it."""
    verdict = judged(store, make, deliver, lost(make, timedelta(hours=5)))
    assert (verdict.cause, verdict.confidence) == ("gpu_lost", records.Confidence.POSSIBLE)


def test_an_error_of_the_programs_own_goes_before_a_gpu_lost_long_ago(store, make, deliver):
    """A traceback that such a fault does not produce, hours after it, is the program's."""
    trace = make.finding("traceback", node="n2", message="KeyError: 'x'", detail={"first_cause": True})
    verdict = judged(store, make, deliver, lost(make, timedelta(hours=2)), trace)
    assert verdict.cause == "user_error"


def test_node_fail_that_nobody_watched_is_no_certain_hardware(store, make):
    """Slurm's word alone: neither certain nor hardware."""
    store.upsert_attempts([make.attempt(nodes=("n2",), state="NODE_FAIL", exit_code=0, gpus=None)])
    (verdict,) = attribute.attribute(store, at=later(make)).verdicts
    assert (verdict.cause, verdict.confidence) == ("node_lost", records.Confidence.LIKELY)
    assert verdict.domain is records.Domain.UNKNOWN
    assert "nobody watched it" in verdict.summary


@pytest.mark.parametrize("silent", [False, True])
def test_a_node_that_slurm_gave_up_and_that_lived_on_is_no_broken_part(store, make, deliver, silent):
    """The machine stood still as a whole: Slurm ends the job for its node, and the agent goes on beating, a beat late or with
    a false word of its silence. What is judged within that minute is judged again once the node was heard, and then no more."""
    end = clock.SYSTEM.now() - timedelta(minutes=5)
    attempt = make.attempt(
        nodes=("n2",),
        state="NODE_FAIL",
        exit_code=0,
        gpus=None,
        start_at=end - timedelta(hours=1),
        end_at=end,
    )
    store.upsert_attempts([attempt])
    word = make.event(
        at=end - timedelta(minutes=1), kind="agent_silent", source="agent", severity=records.Severity.INFO
    )
    deliver(*([word] if silent else []), nodes=("n2",), at=end + timedelta(seconds=10))
    (early,) = attribute.attribute(store, at=SetClock(end + timedelta(seconds=20))).verdicts
    hardware = (
        records.Domain.HARDWARE if silent else records.Domain.UNKNOWN
    )  # only a word of silence proves a broken part
    assert (early.cause, early.domain) == ("node_lost", hardware)
    with store.engine.begin() as connection:  # as if it had been then: the mark is the server's own time
        connection.execute(sa.update(tables.job_attempt).values(judged_at=end + timedelta(seconds=20)))
    for after_s in (40, 70, 100):  # never a minute apart: no silence ends by them
        deliver(nodes=("n2",), at=end + timedelta(seconds=after_s))
    (verdict,) = attribute.attribute(store, at=SetClock(end + timedelta(seconds=120))).verdicts
    assert (verdict.cause, verdict.domain) == ("node_lost", records.Domain.UNKNOWN)
    assert verdict.confidence is not records.Confidence.CERTAIN
    deliver(nodes=("n2",), at=end + timedelta(seconds=130))
    assert attribute.attribute(store, at=SetClock(end + timedelta(seconds=140))).verdicts == ()


def test_a_quiet_log_is_no_silence(store, make, deliver):
    """One line of its kernel log an hour before does not say that the node died."""
    line = make.event(
        at=make.end - timedelta(hours=1),
        kind="xid",
        code="43",
        source="import",
        severity=records.Severity.INFO,
    )
    deliver(line)
    attempt = make.attempt(
        nodes=("n2",), state="NODE_FAIL", exit_code=0, gpus=None, start_at=make.end - timedelta(hours=3)
    )
    store.upsert_attempts([attempt])
    (verdict,) = attribute.attribute(store, at=later(make)).verdicts
    assert (verdict.cause, verdict.confidence) == ("node_lost", records.Confidence.LIKELY)
    assert verdict.domain is records.Domain.UNKNOWN
