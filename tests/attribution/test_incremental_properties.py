"""Any small cluster: a verdict is the same whether its attempt is sorted out with a day's, judged in one batch, or judged alone.

And whenever the evidence came: judged again as it arrives, in any order, or judged once with all of it there.
"""

from __future__ import annotations

import dataclasses
import itertools
import os
import uuid
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import sqlalchemy as sa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy.dialects import postgresql as pg

from probing_cluster.attribution.passes import attribute, pending
from probing_cluster.attribution.verdict import case as cases
from probing_cluster.attribution.verdict import findings, judge, signatures
from probing_cluster.core import records, vocabulary
from probing_cluster.db import delivery, rows, tables
from tests.set_clock import SetClock

NOON = datetime(2026, 3, 2, 12, tzinfo=UTC)
AFTER = NOON + timedelta(days=1)
SETTLED = SetClock(AFTER)
NODES = ("n1", "n2", "n3")
SORTS = sorted({*signatures.exact_sorts(), *((kind, "") for kind in signatures.kinds()), ("odd", "x")})
FINDINGS = sorted(findings.kinds())
RECORDS = (
    records.HealthEvent,
    records.Drain,
    records.AgentHeartbeat,
    records.JobAllocation,
    records.Verdict,
    records.JobAttempt,
)
EXAMPLES = int(os.environ.get("PROBING_EXAMPLES", "6"))
one_of = st.sampled_from


@dataclasses.dataclass
class Cluster:
    """The contents of a database."""

    attempts: list[records.JobAttempt]
    events: list[records.HealthEvent]
    drains: list[records.Drain]
    beats: list[records.AgentHeartbeat]
    allocations: list[records.JobAllocation]
    verdicts: list[records.Verdict]


def ends(draw) -> datetime:
    """Near each other, often at the same instant, on one day."""
    return NOON + timedelta(seconds=draw(one_of([0, 0, 0, 1, 30, 61, 299, 301, 620, 1700, 7000, 30_000])))


def gpu(node: str, index: int) -> str:
    return f"GPU-{node}-{index}"


@st.composite
def attempts(draw, number: int) -> records.JobAttempt:
    """One of four job ids, so that some are starts of the same job, ended in any way Slurm (or a broken clock) has."""
    end = ends(draw)
    start = end - timedelta(seconds=draw(one_of([40, 40, 0, -7, 600, 901, 5000, 90_000])))
    nodes = draw(one_of([("n1",), ("n1",), ("n2",), ("n1", "n2"), ("n3", "n1", "n2"), ()]))
    held = draw(one_of([None, None, {}, {n: (gpu(n, 3),) for n in nodes}, dict.fromkeys(nodes[:1], ())]))
    return records.JobAttempt(
        cluster=draw(one_of(["c", "c", "c", "d"])),
        job_id=draw(st.integers(1, 4)),
        submit_at=start - timedelta(seconds=3, microseconds=number),
        attempt=draw(st.integers(1, 2)),
        array_job_id=draw(one_of([None, None, 1])),
        array_task_id=draw(one_of([None, 0])),
        het_job_id=draw(one_of([None, None, 2])),
        start_at=draw(one_of([start, start, start, None])) if number == 1 else start,
        end_at=end,
        suspended_s=draw(one_of([0.0, 30.0])),
        state=draw(one_of(["FAILED", "FAILED", "PREEMPTED", "COMPLETED", *sorted(judge.JUDGED_STATES)])),
        exit_code=draw(one_of([None, 0, 1, 137])),
        exit_signal=draw(one_of([None, 0, 9, 11])),
        reason=draw(one_of(["", "", "JobLaunchFailure"])),
        nodes=nodes,
        n_gpus=draw(one_of([None, 0, 8])),
        gpus=held,
        user=draw(one_of(["", "alice", "bob"])),
        name=draw(one_of(["", "train"])),
        priority=draw(one_of([None, 5, 9])),
        cancelled_by=draw(one_of([None, "0"])),
        failed_node=draw(one_of([None, None, "n1"])),
        restart_count=draw(one_of([None, None, 0, 1])),
        time_limit_s=draw(one_of([None, 41.0, 90_000.0])),
        run_key="r",
    )


@st.composite
def events(draw, number: int, around: records.JobAttempt) -> records.HealthEvent:
    """Near an attempt's end, or days before it; of a node, or of the job's own side."""
    assert around.end_at is not None
    before_s = [
        0,
        1,
        1,
        4,
        59,
        61,
        590,
        610,
        3600,
        90_000,
        604_000,
        605_000,
        -1,
        -3,
        -200,
        -310,
        -1000,
        -4000,
    ]
    at = around.end_at - timedelta(seconds=draw(one_of(before_s)))
    node = draw(one_of(around.nodes or NODES))
    kind, code = draw(one_of(SORTS))
    index = draw(one_of([None, 3, 4]))
    source = draw(one_of(["kernel", "kernel", "nvml", "sysfs", "check", "mount", "joblog", "probe", "dump"]))
    detail = draw(one_of([{}, {}, {"recovered": True}, {"recovered": "true"}, {"recovered": "?"}]))
    job_id = draw(one_of([None, None, around.job_id, 3]))
    if source in vocabulary.JOB_SIDE_SOURCES:
        kind, code, job_id = draw(one_of(FINDINGS)), "", around.job_id
        detail = draw(one_of([{}, {"timeout_ms": 600_000}, {"at_from_log": True, "restart_count": 1}]))
    return records.HealthEvent(
        event_id=uuid.UUID(int=number),
        cluster=around.cluster,
        node=node,
        at=at,
        observed_at=at,
        last_at=draw(one_of([None, None, None, at + timedelta(seconds=500), at + timedelta(hours=3)])),
        kind=kind,
        code=code or None,
        severity=draw(one_of(list(records.Severity))),
        device=None if index is None or draw(st.booleans()) else f"gpu{index}",
        gpu_uuid=None if index is None or draw(st.booleans()) else gpu(node, index),
        pci_bus_id=None if index is None or draw(st.booleans()) else f"0000:5{index}:00",
        job_id=job_id,
        source=source,
        message="",
        detail=detail,
    )


@st.composite
def drains(draw, number: int, around: records.JobAttempt) -> records.Drain:
    """Something done about an attempt or to one of its nodes, by us or by a person."""
    assert around.end_at is not None
    return records.Drain(
        drain_id=uuid.UUID(int=number),
        cluster=around.cluster,
        node=draw(one_of(around.nodes or NODES)),
        at=around.end_at + timedelta(seconds=draw(one_of([-2, 0, 20, -100, 100, 1000, -90_000]))),
        action=draw(one_of(["drain", "requeue", "refuse"])),
        reason=f"probing: reason {number}",
        owner=draw(one_of(["probing", "probing", "eve"])),
        state=draw(one_of(["done", "done", "failed"])),
        job_id=draw(one_of([None, around.job_id])),
        event_ids=draw(one_of([(), (uuid.UUID(int=1),)])),
    )


@st.composite
def clusters(draw) -> Cluster:
    """A few attempts on three nodes, what was seen of them and what was done."""
    ran = [draw(attempts(n)) for n in range(draw(st.integers(1, 6)))]
    owner = one_of(ran)
    last = [None, NOON - timedelta(hours=1), AFTER, AFTER, AFTER, AFTER]
    beats = [(c, n, draw(one_of(last))) for c in ("c", "d") for n in NODES]
    begun = [None, None, NOON - timedelta(days=1), NOON + timedelta(minutes=1)]
    notified = [a for a in ran if draw(one_of([False, False, True]))]
    return Cluster(
        attempts=ran,
        events=[draw(events(n, draw(owner))) for n in range(1, draw(st.integers(1, 9)))],
        drains=[draw(drains(n, draw(owner))) for n in range(1, draw(st.integers(1, 4)))],
        beats=[
            records.AgentHeartbeat(cluster=c, node=n, at=at, started_at=draw(one_of(begun)))
            for c, n, at in beats
            if at is not None
        ],
        allocations=[
            records.JobAllocation(
                cluster=a.cluster,
                node=a.nodes[0],
                job_id=a.job_id,
                at=(a.start_at or a.submit_at) - timedelta(seconds=1),
                restart_count=n,
                gpu_uuids=draw(one_of([None, (gpu(a.nodes[0], 3),)])),
                gpu_indices=draw(one_of(["", "3"])),
            )
            for n, a in enumerate(ran)
            if a.nodes and draw(one_of([False, True]))
        ],
        verdicts=[
            records.Verdict(
                cluster=a.cluster,
                job_id=a.job_id,
                submit_at=a.submit_at,
                attempt=a.attempt,
                cause="gpu_lost",
                domain=records.Domain.HARDWARE,
                node="n1",
                confidence=records.Confidence.LIKELY,
                summary="of an earlier pass",
                rules_version="earlier",
                made_at=NOON,
            )
            for a in notified
        ],
    )


def fill(store, made: Cluster) -> None:
    """The database holds this cluster and nothing else."""
    with store.engine.begin() as connection:
        connection.execute(sa.text("SET LOCAL synchronous_commit = off"))
        for table in (*(tables.BY_RECORD[cls] for cls in RECORDS), tables.event_key, tables.arrival):
            connection.execute(sa.delete(table))
        for held in vars(made).values():
            for record in held:
                insert = pg.insert(tables.BY_RECORD[type(record)]).on_conflict_do_nothing()
                connection.execute(insert, [rows.to_row(record)])
        connection.execute(
            sa.text(
                "UPDATE probing.agent_heartbeat SET unwatched = tstzmultirange(tstzrange(NULL, started_at))"
                " WHERE started_at IS NOT NULL"
            )
        )


def verdicts_of(done: attribute.AttributionRun) -> dict[tuple[str, int, datetime], records.Verdict]:
    return {(v.cluster, v.job_id, v.submit_at): v for v in done.verdicts}


@pytest.mark.timeout(1800)
@settings(
    max_examples=EXAMPLES, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(clusters())
def test_however_many_are_judged_at_once(store, monkeypatch, made):
    """Sorted out column by column, judged in one batch, judged alone: word for word the same."""
    fill(store, made)
    with monkeypatch.context() as patch:
        patch.setattr(attribute, "MANY", 1)
        sorted_out = verdicts_of(attribute.attribute(store, at=SETTLED, dry_run=True))
        patch.setattr(attribute, "MANY", 1_000_000)
        in_a_batch = verdicts_of(attribute.attribute(store, at=SETTLED, dry_run=True))
        patch.setattr(pending, "SLICE", 2)
        parts = list(attribute.in_slices(store, at=SETTLED, dry_run=True))
    assert sorted_out == in_a_batch
    assert {k: v for part in parts for k, v in verdicts_of(part).items()} == in_a_batch
    policy = cases.WindowPolicy()
    for attempt in made.attempts:
        alone = attribute.judge_batch(store, [attempt], policy, made_at=AFTER)
        mine = in_a_batch.get((attempt.cluster, attempt.job_id, attempt.submit_at))
        assert alone == ([mine] if mine else [])


@st.composite
def hangs(draw) -> Cluster:
    """A job that hung for hours or days on a node that others may have shared, faults about the time it began, and another day's end."""
    hung = timedelta(minutes=draw(one_of([5, 31, 180, 180, 180, 2000, 4000])))
    state = draw(one_of(["FAILED", "TIMEOUT", "CANCELLED"]))
    ran = timedelta(hours=draw(one_of([1, 4, 4, 200])))
    began = NOON - hung
    sorts = [("xid", "79"), ("xid", "74"), ("xid", "48"), ("nfs", "not_responding"), ("hung_task", None), ("gpu_lost", None)]  # fmt: skip

    def attempt(job_id: int, start_at: datetime, end_at: datetime, state: str = state) -> records.JobAttempt:
        return records.JobAttempt(
            cluster="c", job_id=job_id, submit_at=start_at, start_at=start_at, end_at=end_at, state=state, nodes=("n1",),
            exit_code=1, n_gpus=4, user=f"user{job_id}", cancelled_by="eve", run_key=str(job_id),
        )  # fmt: skip

    def event(number: int, at: datetime, kind: str, source: str, **more: Any) -> records.HealthEvent:
        return records.HealthEvent(
            event_id=uuid.UUID(int=number), cluster="c", node="n1", at=at, observed_at=at, kind=kind, source=source, message="",
            **{"severity": records.Severity.HIGH, **more},
        )  # fmt: skip

    def fault(number: int) -> records.HealthEvent:
        kind, code = draw(one_of(sorts))
        at = began + draw(one_of([-timedelta(days=6.99), -timedelta(days=1.01), *(timedelta(minutes=m) for m in (-70, -9, -1, 0, 1, 20))]))  # fmt: skip
        return event(number, at, kind, draw(one_of(["kernel", "check"])), code=code, device=draw(one_of([None, "gpu3"])))  # fmt: skip

    finding_kind = draw(one_of(["nccl_timeout", vocabulary.LOG_STALL, "rank_stall"]))
    measured = {"timeout_ms": round(hung.total_seconds() * 1000)}
    source = "probe" if finding_kind == "rank_stall" else "joblog"
    finding = event(1, NOON, finding_kind, source, job_id=1, detail=measured, measured=hung.total_seconds(), severity=records.Severity.INFO)  # fmt: skip
    left = began + timedelta(minutes=draw(one_of([-30, -2, 2, 30])))
    return Cluster(
        attempts=[
            attempt(1, began - ran, NOON),
            attempt(2, left - timedelta(hours=draw(one_of([1, 250]))), left, "COMPLETED"),
            attempt(3, NOON - timedelta(minutes=1), NOON + timedelta(hours=draw(one_of([0, 0, 11])))),
        ],
        events=[finding, *(fault(n) for n in range(2, draw(st.integers(3, 6))))],
        drains=[],
        beats=[records.AgentHeartbeat(cluster="c", node="n1", at=AFTER)],
        allocations=[],
        verdicts=[],
    )


@pytest.mark.timeout(1800)
@settings(
    max_examples=10 * EXAMPLES,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(hangs())
def test_a_hang_of_hours_is_judged_the_same_among_many(store, monkeypatch, made):
    """Its window begins long before all that is read for the day's other ends."""
    fill(store, made)
    monkeypatch.setattr(attribute, "MANY", 1)
    sorted_out = verdicts_of(attribute.attribute(store, at=SETTLED, dry_run=True))
    alone = attribute.judge_batch(store, made.attempts, cases.WindowPolicy(), made_at=AFTER)
    assert differences(sorted_out, {(v.cluster, v.job_id, v.submit_at): v for v in alone}) == {}


@st.composite
def waves(draw) -> list[records.HealthEvent]:
    """A fault that goes over the nodes about one attempt's end, its events closer together than GAP or just not."""
    kind, code = draw(one_of([("ib_link", "down"), ("nfs", "not_responding"), ("node_boot", None)]))
    at = NOON + timedelta(seconds=draw(one_of([-500, -60, -20, -5, 0, 25])))
    found = []
    for number in range(100, 100 + draw(st.integers(2, 7))):
        at += timedelta(seconds=draw(one_of([0, 1, 1, 20, 60, 119, 120, 121, 3600])))
        found.append(
            records.HealthEvent(
                event_id=uuid.UUID(int=number),
                cluster="c",
                node=draw(one_of(NODES)),
                at=at,
                observed_at=at,
                kind=kind,
                code=code,
                severity=records.Severity.HIGH,
                device="mlx5_0" if kind == "ib_link" else None,
                source="sysfs",
                message="",
            )
        )
    return found


def arrive(door, store, what) -> None:
    """One thing that becomes known, through the door it comes in by."""
    match what:
        case records.HealthEvent() | records.AgentHeartbeat() | records.JobAllocation():
            name = {records.HealthEvent: "events", records.JobAllocation: "allocations"}.get(type(what))
            given = {name: [what]} if name else {"heartbeat": what}
            door(what).deliver(**given)
        case records.JobAttempt():
            store.upsert_attempts([what])
        case records.Drain():
            store.save_drain(what)


def settle(store) -> None:
    """Passes until nothing is left to judge."""
    for _ in range(9):
        if not attribute.attribute(store, at=SETTLED).verdicts:
            return
    pytest.fail("judged again and again")


@st.composite
def victims(draw) -> list[records.JobAttempt]:
    """Whom such a fault ends: on one or two of the nodes, about that time."""
    found = []
    for number in range(draw(st.integers(1, 4))):
        end = NOON + timedelta(seconds=draw(one_of([0, 30, 130, 250])))
        found.append(
            records.JobAttempt(
                cluster="c",
                job_id=5 + number,
                submit_at=end - timedelta(hours=2),
                start_at=end - timedelta(hours=1),
                end_at=end,
                state=draw(one_of(["FAILED", "NODE_FAIL"])),
                exit_code=1,
                nodes=draw(one_of([("n1",), ("n2",), ("n3",), ("n1", "n2")])),
                n_gpus=8,
                user="alice",
                run_key=str(number),
            )
        )
    return found


def differences(
    one: Mapping[Any, records.Verdict], other: Mapping[Any, records.Verdict]
) -> dict[Any, dict[str, tuple[Any, Any]]]:
    """Per attempt the fields in which its two verdicts differ, one of them maybe missing."""
    none: dict[str, Any] = {}
    found = {}
    for k in one.keys() | other.keys():
        a, b = (vars(v[k]) if k in v else none for v in (one, other))
        fields = {n: (a.get(n), b.get(n)) for n in a.keys() | b.keys() if a.get(n) != b.get(n)}
        found |= {k: fields} if fields else {}
    return found


def events_in_place(made: Cluster, attempts: list[records.JobAttempt]) -> list[records.HealthEvent]:
    """Without what a job's own side says of it on nodes that it did not have: nobody is there to say it."""
    return [
        e
        for e in made.events
        if e.source not in vocabulary.JOB_SIDE_SOURCES
        or all(e.node in a.nodes for a in attempts if a.job_id == e.job_id)
    ]


@pytest.mark.timeout(1800)
@settings(
    max_examples=EXAMPLES, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(clusters(), waves(), victims(), st.data())
def test_in_whatever_order_the_evidence_arrives(store, monkeypatch, made, wave, struck, data):
    """All becomes known bit by bit, passes between: at last the verdicts of one batch over everything."""
    attempts = [a for a in (*made.attempts, *struck) if a.nodes]
    events = events_in_place(made, attempts)
    # A node's first heartbeat says since when somebody watches: all verdicts before it stay as they are.
    begun = [
        dataclasses.replace(b, at=NOON - timedelta(days=30), started_at=NOON - timedelta(days=31))
        for b in made.beats
    ]
    fill(store, Cluster(attempts=[], events=[], drains=[], beats=begun, allocations=[], verdicts=[]))
    waiting = [*attempts, *events, *wave, *made.drains, *made.beats, *made.allocations]
    monkeypatch.setattr(attribute, "MANY", data.draw(one_of([1, 1_000_000])))
    doors = {(c, n): delivery.Delivery(store.url, c, n) for c, n in itertools.product("cd", NODES)}
    for what in data.draw(st.permutations(waiting)):
        arrive(lambda w: doors[w.cluster, w.node], store, what)
        if data.draw(one_of([False, False, True])):
            attribute.attribute(store, at=SETTLED)
    settle(store)
    stored = {(v.cluster, v.job_id, v.submit_at): v for v in store.verdicts()}
    assert (
        differences(
            stored, verdicts_of(attribute.attribute(store, job_ids=range(9), at=SETTLED, dry_run=True))
        )
        == {}
    )
