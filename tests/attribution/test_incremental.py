"""An incremental pass over many attempts gives, to the row, what judging each by itself gives."""

from __future__ import annotations

import dataclasses
import gc
import random
import uuid
from datetime import UTC, datetime, timedelta

import pytest

from probing_cluster.attribution.passes import attribute, columnar_prefilter, conditions, fetch, pending
from probing_cluster.attribution.verdict import judge, signatures, window
from probing_cluster.core import records, settings, vocabulary
from probing_cluster.db import bulk
from tests import unjudged
from tests.set_clock import SetClock

DAY = datetime(2026, 3, 2, 1, 0, tzinfo=UTC)
NODES = [f"n{i:02d}" for i in range(24)]
AFTER = DAY + timedelta(days=3)
SETTLED = SetClock(AFTER)
SORTS = sorted({*signatures.exact_sorts(), *((kind, "") for kind in signatures.kinds())})


class Fleet:
    """A day or two of a small cluster where far more goes wrong than on a real one; the same every time."""

    def __init__(self, days: int, n_jobs: int) -> None:
        self.random, self.days = random.Random(20260302), days
        self.attempts = [self._attempt(job) for job in range(1, n_jobs + 1)]
        self.attempts += [self._again(a) for a in self.attempts[::9] if a.state != "COMPLETED"]
        self.events = [self._event() for _ in range(3 * n_jobs)]
        self.events += [self._finding(a) for a in self.attempts[::11]]
        ended = [a for a in self.attempts if a.state in vocabulary.ENDED_FROM_OUTSIDE and a.start_at]
        self.events += [self._long_before(a) for a in ended[::3]]

    def _at(self) -> datetime:
        """Between one and eleven at night."""
        return DAY + timedelta(days=self.random.randrange(self.days), seconds=self.random.randrange(79_200))

    def _attempt(self, job: int) -> records.JobAttempt:
        pick = self.random
        end = self._at()
        start = end - timedelta(seconds=pick.choice([40, 600, 5000, 90_000]))
        first, size = pick.randrange(len(NODES)), pick.choice([1, 1, 1, 1, 2, 4, 9])
        nodes = tuple(sorted(NODES[(first + i) % len(NODES)] for i in range(size)))
        return records.JobAttempt(
            cluster="d" if job % 7 == 0 else "c",
            job_id=job,
            submit_at=start - timedelta(seconds=3),
            start_at=None if job == 5 else start,
            end_at=end,
            state=pick.choice(
                [
                    "COMPLETED",
                    "FAILED",
                    "FAILED",
                    "FAILED",
                    "PREEMPTED",
                    "PREEMPTED",
                    *sorted(judge.JUDGED_STATES),
                ]
            ),
            exit_code=pick.choice([None, 0, 1, 137]),
            exit_signal=pick.choice([None, 0, 9]),
            reason=pick.choice(["", "", "JobLaunchFailure"]),
            nodes=nodes,
            n_gpus=pick.choice([0, 8 * size, None]),
            gpus=pick.choice([None, {n: (f"GPU-{n}-3",) for n in nodes}]),
            user=pick.choice(["", "alice", "bob", "eve", "dan"]),
            name=pick.choice(["", "train"]),
            priority=pick.choice([None, 5, 9]),
            cancelled_by=pick.choice([None, "0"]),
            time_limit_s=pick.choice([None, 3600.0, 90_000.0]),
            run_key=str(job),
        )

    def _again(self, before: records.JobAttempt) -> records.JobAttempt:
        """A requeued job's second start."""
        start = before.end_at + timedelta(seconds=self.random.choice([1, 300, 3000]))
        return dataclasses.replace(
            before, attempt=2, submit_at=before.end_at, start_at=start, end_at=start + timedelta(minutes=9)
        )

    def _event(self, **over) -> records.HealthEvent:
        pick = self.random
        node, at = pick.choice(NODES), self._at()
        if pick.random() < 0.7:
            around = pick.choice([a for a in self.attempts if a.start_at is not None])
            node, at = pick.choice(around.nodes), around.end_at - timedelta(seconds=pick.randrange(-320, 700))
        kind, code = pick.choice(SORTS)
        gpu = pick.choice([None, 3])
        values = {
            "event_id": uuid.UUID(int=pick.getrandbits(128)),
            "cluster": pick.choice(["c", "c", "d"]),
            "node": node,
            "at": at,
            "observed_at": at,
            "kind": kind,
            "code": code or None,
            "severity": pick.choice([*records.Severity, records.Severity.INFO, records.Severity.INFO]),
            "device": None if gpu is None else f"gpu{gpu}",
            "gpu_uuid": None if gpu is None or pick.random() < 0.5 else f"GPU-{node}-3",
            "last_at": pick.choice([None] * 9 + [at + timedelta(hours=2)]),
            "source": pick.choice(["kernel", "kernel", "nvml", "sysfs", "check", "mount"]),
            "message": "",
            "detail": pick.choice([{}, {}, {"recovered": True}]),
        }
        return records.HealthEvent(**{**values, **over})

    def _finding(self, about: records.JobAttempt) -> records.HealthEvent:
        return self._event(
            cluster=about.cluster,
            node=about.nodes[0],
            at=about.end_at - timedelta(seconds=1),
            job_id=about.job_id,
            source="joblog",
            kind=self.random.choice(["nccl_timeout", "python_traceback", "cuda_oom"]),
            code=None,
            last_at=None,
            detail={"timeout_ms": 600_000},
        )

    def _long_before(self, about: records.JobAttempt) -> records.HealthEvent:
        """A fault well before its end, while it ran."""
        return self._event(
            cluster=about.cluster, node=about.nodes[0], at=about.end_at - timedelta(minutes=75), kind="xid", code="146",
            severity=records.Severity.HIGH, last_at=None, source="kernel", detail={},
        )  # fmt: skip

    def drains(self) -> list[records.Drain]:
        """Our actions on some of them."""
        pick = self.random
        return [
            records.Drain(
                drain_id=uuid.UUID(int=pick.getrandbits(128)),
                cluster=a.cluster,
                node=a.nodes[0],
                at=a.end_at - timedelta(seconds=2),
                action=pick.choice(["drain", "requeue", "refuse"]),
                reason="probing: xid 79",
                owner="probing",
                state="done",
                job_id=pick.choice([None, a.job_id]),
            )
            for a in self.attempts[::23]
        ]


@pytest.fixture(
    params=[(1, 120), *(pytest.param(p, marks=pytest.mark.soak) for p in ((1, 220), (2, 220)))], ids=str
)
def fleet(request, store, postgres_url) -> Fleet:
    """A database that holds it; one node's agent is silent, one has never been."""
    made = Fleet(*request.param)
    store.upsert_attempts(made.attempts)
    bulk.load_events(postgres_url, made.events)
    for drain in made.drains():
        store._upsert(records.Drain, [drain])
    beats = [
        records.AgentHeartbeat(cluster=c, node=n, at=AFTER if n != "n01" else DAY + timedelta(hours=20))
        for c in ("c", "d")
        for n in NODES
        if n != "n00"
    ]
    store._upsert(records.AgentHeartbeat, beats)
    return made


@pytest.fixture
def both(store, fleet, monkeypatch):
    """Runs a pass on paper in both ways, holds one against the other, stores it; what was done."""

    def run(**given) -> attribute.AttributionRun:
        with monkeypatch.context() as patch:
            patch.setattr(attribute, "MANY", 1_000_000)
            one_by_one = attribute.attribute(store, at=SETTLED, dry_run=True, **given)
        with monkeypatch.context() as patch:
            patch.setattr(attribute, "MANY", 2)
            sorted_out = attribute.attribute(store, at=SETTLED, dry_run=True, **given)
            verdicts = {_key(v): v for v in one_by_one.verdicts}
            assert [_key(v) for v in sorted_out.verdicts] == list(verdicts)
            for verdict in sorted_out.verdicts:
                assert verdict == verdicts[_key(verdict)]
            assert {c.after.job_id for c in sorted_out.changed} == {
                c.after.job_id for c in one_by_one.changed
            }
            return attribute.attribute(store, at=SETTLED, **given)

    return run


def _key(verdict: records.Verdict) -> tuple[str, int, datetime]:
    return (verdict.cluster, verdict.job_id, verdict.submit_at)


def test_new_attempts(store, fleet, both, monkeypatch):
    """Every cluster, state and shape at once; each judged attempt has its verdict and none is left."""
    answered = []
    prefilter = columnar_prefilter.prefilter

    def watched(*given):
        found = prefilter(*given)
        answered.append((found.without_evidence.sum(), len(found.without_evidence)))
        return found

    monkeypatch.setattr(columnar_prefilter, "prefilter", watched)
    done = both()
    wanted = {
        (a.cluster, a.job_id, a.submit_at)
        for a in fleet.attempts
        if a.state in judge.JUDGED_STATES and a.start_at is not None
    }
    assert {(v.cluster, v.job_id, v.submit_at) for v in store.verdicts()} == wanted
    assert len(done.changed) == len(wanted)
    assert len(done.counts) >= 12
    # Neither way had it easy: some were told by their ending alone, most were not.
    assert sum(n for n, _ in answered) > 20
    assert sum(n for n, _ in answered) < sum(n for _, n in answered)
    assert unjudged.attempts(store) == []


def test_what_is_not_new_is_not_judged_again(store, fleet, both):
    """Late evidence, changed accounting and a person's wish re-open their attempts and no others."""
    both()
    failed = [a for a in fleet.attempts if a.state == "FAILED" and a.start_at and a.attempt == 1]
    late, changed = failed[3], failed[10]
    event = fleet._event(
        cluster=late.cluster, node=late.nodes[0], at=late.end_at - timedelta(seconds=5), last_at=None,
        kind="xid", code="79", severity=records.Severity.HIGH, device="gpu3", gpu_uuid=f"GPU-{late.nodes[0]}-3",
    )  # fmt: skip
    bulk.load_events(store.url, [event])
    store.upsert_attempts([dataclasses.replace(changed, exit_signal=11)])
    done = both()
    judged = {v.job_id for v in done.verdicts}
    assert {late.job_id, changed.job_id} <= judged
    assert len(judged) < 20
    assert unjudged.attempts(store) == []


def test_changed_rules_judge_a_span_again(store, fleet, both, monkeypatch):
    """With other rules every verdict is stored anew; with the same ones a second time none is."""
    both()
    span = {"since": DAY, "until": AFTER}
    assert both(**span).changed == ()
    n_rows = len(store.verdict_histories([fleet.attempts[0].job_id]))
    wider = settings.AttributionSettings(before_s=1800.0)
    monkeypatch.setattr(judge, "rules_version", lambda: "other rules")
    done = both(config=wider, **span)
    assert done.changed
    assert {v.rules_version for v in store.verdicts()} == {"other rules"}
    assert len(store.verdict_histories([fleet.attempts[0].job_id])) == 2 * n_rows
    assert both(config=wider, **span).changed == ()


def test_a_persons_verdict_survives_a_pass_over_many(store, fleet, both):
    """The rules' later opinion is kept beside it."""
    both()
    first = store.verdicts()[0]
    store.save_verdicts([dataclasses.replace(first, cause="ib_link", author="bob")])
    done = both(since=DAY, until=AFTER)
    assert first.job_id not in {c.after.job_id for c in done.changed}
    assert [
        v.author for v in store.verdicts() if v.job_id == first.job_id and v.submit_at == first.submit_at
    ] == ["bob"]


def switch(fleet) -> list[records.HealthEvent]:
    """A switch that went up and down over a midnight, and took attempts with it on either side."""
    midnight = DAY.replace(hour=0) + timedelta(days=1)
    nodes = NODES[:5]
    downs = [
        fleet._event(
            cluster="c", node=nodes[i % 5], at=midnight + timedelta(seconds=100 * (i - 8)), kind="ib_link",
            code="down", severity=records.Severity.HIGH, device="mlx5_0", gpu_uuid=None, source="sysfs",
            last_at=None, detail={},
        )
        for i in range(16)
    ]  # fmt: skip
    victims = [
        dataclasses.replace(
            fleet.attempts[0], cluster="c", job_id=900 + i, run_key=str(i), nodes=(e.node, nodes[(i + 1) % 5]),
            submit_at=e.at - timedelta(hours=2), start_at=e.at - timedelta(hours=1), end_at=e.at + timedelta(seconds=9),
            state="NODE_FAIL" if i % 2 else "FAILED", gpus=None, n_gpus=16, exit_code=1, exit_signal=0,
            cancelled_by=None, time_limit_s=None, attempt=1, reason="",
        )
        for i, e in enumerate(downs)
    ]  # fmt: skip
    fleet.attempts += victims
    return downs


def test_slices_are_one_run(store, fleet, monkeypatch):
    """A span judged in slices of time: to the row what one batch says, incidents across the borders whole, little held."""
    bulk.load_events(store.url, switch(fleet))
    store.upsert_attempts(fleet.attempts)
    jobs = [a.job_id for a in fleet.attempts]
    span = {"since": DAY - timedelta(days=3), "until": AFTER}

    def verdicts(runs) -> dict:
        return {_key(v): v for done in runs for v in done.verdicts}

    for dry_run in (True, False):
        monkeypatch.setattr(attribute, "MANY", 1_000_000)
        one_batch = verdicts([attribute.attribute(store, job_ids=jobs, at=SETTLED, dry_run=True)])
        monkeypatch.setattr(attribute, "MANY", 5)
        monkeypatch.setattr(pending, "SLICE", 30)
        runs, most = [], 0
        for done in attribute.in_slices(store, at=SETTLED, dry_run=dry_run, **span):
            runs.append(done)
            most = max(most, len(done.verdicts))
        if not dry_run:
            # Why a preemptor had to start again is told by a verdict that is stored now.
            one_batch = verdicts([attribute.attribute(store, job_ids=jobs, at=SETTLED, dry_run=True)])
            assert {_key(v): v for v in store.verdicts()} == one_batch
        assert verdicts(runs) == one_batch
        assert sum(r.n_attempts for r in runs) == len(one_batch)
        assert len(runs) > len(one_batch) / 30
        # Preempted attempts wait for those that ended just after them.
        assert most <= 3 * 30
    ids = {v.incident_id for v in one_batch.values() if v.job_id >= 900 and v.cause == "ib_link"}
    assert len(ids) == 1
    sliced = list(attribute.in_slices(store, at=SETTLED, **span))
    assert [c for done in sliced for c in done.changed] == []


def test_a_run_in_slices_keeps_nothing_of_the_slices_before(store, fleet, monkeypatch):
    """However long the span: of the verdicts made, only the last slices' are in memory."""
    monkeypatch.setattr(pending, "SLICE", 20)

    def held() -> int:
        gc.collect()
        return sum(
            type(o) is records.Verdict for o in gc.get_objects()
        )  # isinstance asks foreign objects for more

    before, n, peak = held(), 0, 0
    for done in attribute.in_slices(store, at=SETTLED, since=DAY - timedelta(days=3), until=AFTER):
        n += done.n_attempts
        del done
        peak = max(peak, held() - before)
    assert n > 100
    assert peak <= 80


def test_as_many_records_as_a_day_has_are_made_without_looking_for_cycles():
    """A look at 50,000 living records takes 10 ms and finds nothing; a day of 2,000 nodes made one in each pass."""
    before, looks = gc.get_threshold(), []
    try:
        attribute.seldom_collected()
        gc.collect()
        gc.callbacks.append(count := lambda phase, _: looks.append(phase))
        kept = [{} for _ in range(100_000)]
        gc.callbacks.remove(count)
        assert len(kept) == 100_000
        assert looks == []
    finally:
        gc.set_threshold(*before)


def test_what_is_open_is_judged_in_slices_too(store, fleet, monkeypatch):
    """Those without a verdict and those that late events re-opened, and no others."""
    monkeypatch.setattr(pending, "SLICE", 10)
    first = list(attribute.in_slices(store, at=SETTLED))
    assert len(first) > 10
    assert sum(done.n_attempts for done in first) == len(store.verdicts())
    assert list(attribute.in_slices(store, at=SETTLED)) == []
    judged = next(a for a in fleet.attempts if a.state == "FAILED" and a.start_at)
    store.upsert_attempts([dataclasses.replace(judged, exit_signal=11)])
    (again,) = attribute.in_slices(store, at=SETTLED)
    assert [_key(v) for v in again.verdicts] == [(judged.cluster, judged.job_id, judged.submit_at)]


def test_who_ran_before_is_asked_only_of_nodes_that_lost_a_gpu(store, monkeypatch):
    """A mount that is away tells nothing of neighbours, and of a lost GPU's node nobody before the attempt's start matters."""
    died = DAY + timedelta(days=1)

    def attempt(job: int, node: str, end: datetime, took: timedelta) -> records.JobAttempt:
        return records.JobAttempt(
            cluster="c", job_id=job, submit_at=end - took, start_at=end - took, end_at=end, state="FAILED", nodes=(node,), n_gpus=8,
            user="alice", run_key=str(job),
        )  # fmt: skip

    def fault(node: str, kind: str, **over: str) -> records.HealthEvent:
        at = died - timedelta(days=2)
        return records.HealthEvent(
            event_id=uuid.uuid4(), cluster="c", node=node, at=at, observed_at=at, kind=kind, severity=records.Severity.HIGH,
            message="x", **over,
        )  # fmt: skip

    ten_hours, minute = timedelta(hours=10), timedelta(minutes=1)
    store.upsert_attempts(
        [
            attempt(1, "n1", died, minute),
            attempt(2, "n2", died, ten_hours),
            *(attempt(10 + i, node, died - timedelta(hours=h), minute) for i, (node, h) in enumerate((("n1", 5), ("n2", 5), ("n2", 20)))),
        ]
    )  # fmt: skip
    bulk.load_events(
        store.url,
        [fault("n1", "mount", code="missing", device="/scratch", source="mount"), fault("n2", "xid", code="79", device="gpu0", source="kernel")],
    )  # fmt: skip
    queries, arrow = [], type(store).arrow

    def watched(self, query, *given):
        found = arrow(self, query, *given)
        if "Attempts that ran in a span on any node" in query:
            queries.append((list(given[3]), sorted(found["job_id"].to_pylist())))
        return found

    monkeypatch.setattr(type(store), "arrow", watched)
    waiting = pending.read(store, died, died + minute, None, unjudged=False)
    columnar_prefilter.prefilter(store, waiting, attribute.policy_of(None))
    assert queries == [(["n2"], [1, 2, 11])]


def test_of_a_hang_of_days_only_its_own_node_is_asked_who_ran_there(store, make, monkeypatch):
    """A log may claim any time: what ran on other nodes in that time is not read."""
    hour, hung_h = timedelta(hours=1), 100
    ran = [(7, "n1"), (8, "n2")]
    store.upsert_attempts(
        make.attempt(job_id=job, nodes=(node,), gpus=None, state="COMPLETED", start_at=make.end - 98 * hour, end_at=make.end - 90 * hour)
        for job, node in ran
    )  # fmt: skip
    one = make.attempt(nodes=("n1",), gpus=None, start_at=make.end - 110 * hour)
    store.upsert_attempts([one])
    waited = make.finding("nccl_timeout", detail={"timeout_ms": hung_h * 3_600_000})
    fault = make.xid(48, node="n1", at=make.end - hung_h * hour, gpu_uuid=None)
    bulk.load_events(store.url, [waited, fault])
    jobs, arrow = [], type(store).arrow

    def watched(self, query, *given):
        found = arrow(self, query, *given)
        jobs.append(sorted(found["job_id"].to_pylist()))
        return found

    monkeypatch.setattr(type(store), "arrow", watched)
    (case,) = fetch.Fetcher(store, attribute.policy_of(None)).build([one])
    assert jobs == [[7, 4242]]
    assert case.shared == {"n1": ((make.end - 98 * hour, make.end - 90 * hour),)}


def test_faults_before_the_window_are_mentioned_without_the_judge(store, monkeypatch):
    """The last two, in order of time; only where two came at one instant does the judge say which is the later."""
    died, hour, minute = DAY + timedelta(days=1), timedelta(hours=1), timedelta(minutes=1)
    nodes = {1: ("n1", "n2"), 2: ("n3",)}
    store.upsert_attempts(
        records.JobAttempt(
            cluster="c", job_id=job, submit_at=died - 9 * hour, start_at=died - 9 * hour, end_at=died, state="FAILED", exit_code=1,
            nodes=where, n_gpus=8, user="alice", run_key=str(job),
        )
        for job, where in nodes.items()
    )  # fmt: skip
    faults = [
        ("n1", 5, "fatal"),
        ("n2", 3, "fatal"),
        ("n1", 2, "fatal"),
        ("n3", 4, "fatal"),
        ("n3", 4, "bus"),
    ]
    bulk.load_events(
        store.url,
        [
            records.HealthEvent(
                event_id=uuid.UUID(int=number), cluster="c", node=node, at=died - hours * hour, observed_at=died, kind="pcie_aer",
                code=code, severity=records.Severity.HIGH, source="kernel", message="",
            )
            for number, (node, hours, code) in enumerate(faults)
        ],
    )  # fmt: skip
    beats = [records.AgentHeartbeat(cluster="c", node=node, at=AFTER) for node in ("n1", "n2", "n3")]
    store._upsert(records.AgentHeartbeat, beats)
    waiting = pending.read(store, died, died + minute, None, unjudged=False)
    found = columnar_prefilter.prefilter(store, waiting, attribute.policy_of(None))
    assert dict(zip(waiting["job_id"].to_pylist(), found.without_evidence, strict=True)) == {
        1: True,
        2: False,
    }
    verdicts = []
    for many in (1, 1_000_000):
        monkeypatch.setattr(attribute, "MANY", many)
        verdicts.append(attribute.attribute(store, at=SETTLED, dry_run=True).verdicts)
    assert verdicts[0] == verdicts[1]
    ruled_out = next(v for v in verdicts[0] if v.job_id == 1).ruled_out
    assert [s for s in ruled_out if "outside the window" in s] == [
        "less likely: PCIe error fatal on n2 (it came 3 h before, outside the window)",
        "less likely: PCIe error fatal on n1 (it came 2 h before, outside the window)",
    ]


@pytest.mark.parametrize("many", [1, 1_000_000])
def test_a_fault_cured_before_the_job_began_is_not_mentioned(store, monkeypatch, many):
    """In a batch and one by one, although the end of the fault is no severe event; one that nothing ended is mentioned."""
    monkeypatch.setattr(attribute, "MANY", many)
    died, minute = DAY + timedelta(days=1), timedelta(minutes=1)
    store.upsert_attempts(
        records.JobAttempt(
            cluster="c", job_id=job, submit_at=died - 40 * minute, start_at=died - 40 * minute, end_at=died, state="FAILED", exit_code=1,
            nodes=(f"n{job}",), n_gpus=8, user="alice", run_key=str(job),
        )
        for job in (1, 2)
    )  # fmt: skip
    high, info = records.Severity.HIGH, records.Severity.INFO
    bulk.load_events(
        store.url,
        [
            records.HealthEvent(
                event_id=uuid.UUID(int=number), cluster="c", node=node, at=died - before * minute, observed_at=died, kind="pcie_link",
                code="link_down", severity=severity, source="check", message="", device="0000:3b:00.0", detail=detail,
            )
            for number, (node, before, severity, detail) in enumerate(
                (("n1", 76, high, {}), ("n1", 70, info, {"recovered": True}), ("n2", 76, high, {}))
            )
        ],
    )  # fmt: skip
    verdicts = attribute.attribute(store, at=SETTLED, dry_run=True).verdicts
    mentioned = {v.job_id: [s for s in v.ruled_out if "outside the window" in s] for v in verdicts}
    assert {job: len(sentences) for job, sentences in mentioned.items()} == {1: 0, 2: 1}


@pytest.mark.parametrize("many", [1, 1_000_000])
def test_an_earlier_fault_of_a_gpu_is_not_mentioned_to_who_held_none(store, monkeypatch, many):
    """In a batch and one by one; a fault of the node as a whole is."""
    monkeypatch.setattr(attribute, "MANY", many)
    died, hour = DAY + timedelta(days=1), timedelta(hours=1)
    store.upsert_attempts(
        records.JobAttempt(
            cluster="c", job_id=job, submit_at=died - hour, start_at=died - hour, end_at=died, state="FAILED", exit_code=1,
            nodes=("n1",), n_gpus=n_gpus, user="alice", run_key=str(job),
        )
        for job, n_gpus in ((1, 0), (2, 8), (3, None))
    )  # fmt: skip
    bulk.load_events(
        store.url,
        [
            records.HealthEvent(
                event_id=uuid.UUID(int=number), cluster="c", node="n1", at=died - hours * hour, observed_at=died, kind=kind,
                code=code, severity=records.Severity.HIGH, source="kernel", message="", pci_bus_id="0000:3b:00",
            )
            for number, (hours, kind, code) in enumerate(((5, "block_io", "nvme_disabled"), (4, "xid", "48")))
        ],
    )  # fmt: skip
    verdicts = attribute.attribute(store, at=SETTLED, dry_run=True).verdicts
    mentioned = {v.job_id: [s for s in v.ruled_out if "outside the window" in s] for v in verdicts}
    assert {job: len(sentences) for job, sentences in mentioned.items()} == {1: 1, 2: 2, 3: 2}
    assert "Xid" not in mentioned[1][0]


def test_a_preempted_attempt_beside_an_old_condition_needs_no_judge(store, monkeypatch):
    """Slurm names its cause: a GPU lost before only strikes a sentence, unless it is known which GPUs it had. One that needs the judge is judged with all others."""
    died, day, minute = DAY + timedelta(days=9), timedelta(days=1), timedelta(minutes=1)
    held = {1: None, 2: {"n2": ("GPU-n2-3",)}, 3: None, 4: None, 5: None}
    store.upsert_attempts(
        records.JobAttempt(
            cluster="c", job_id=job, submit_at=died - day, start_at=died - day, end_at=died, state="FAILED" if job == 5 else "PREEMPTED", nodes=(f"n{job}",),
            n_gpus=8, gpus=gpus, user="alice", run_key=str(job),
        )
        for job, gpus in held.items()
    )  # fmt: skip
    store._upsert(
        records.JobAllocation,
        [
            records.JobAllocation(
                cluster="c", node="n3", job_id=3, at=died - day, restart_count=0, gpu_uuids=("GPU-n3-3",)
            )
        ],
    )
    bulk.load_events(
        store.url,
        [
            records.HealthEvent(
                event_id=uuid.UUID(int=job), cluster="c", node=f"n{job}", at=died - before, observed_at=died, kind="xid",
                code="79", severity=records.Severity.HIGH, device="gpu3", source="kernel", message="",
            )
            for job, before in ((1, 3 * day), (2, 3 * day), (3, 3 * day), (4, minute), (5, minute))
        ],
    )  # fmt: skip
    store._upsert(
        records.AgentHeartbeat,
        [records.AgentHeartbeat(cluster="c", node=f"n{job}", at=died + day) for job in held],
    )
    waiting = pending.read(store, died, died + minute, None, unjudged=False)
    found = columnar_prefilter.prefilter(store, waiting, attribute.policy_of(None))
    assert dict(zip(waiting["job_id"].to_pylist(), found.without_evidence.tolist(), strict=True)) == {
        1: True,
        2: False,
        3: False,
        4: False,
        5: False,
    }
    batches, judge_batch = [], attribute.judge_batch
    monkeypatch.setattr(
        attribute, "judge_batch", lambda *a, **k: batches.append(len(a[1])) or judge_batch(*a, **k)
    )
    verdicts = []
    for many in (1, 1_000_000):
        monkeypatch.setattr(attribute, "MANY", many)
        verdicts.append(attribute.attribute(store, at=SetClock(died + day), dry_run=True).verdicts)
    assert {v.job_id: v for v in verdicts[0]} == {v.job_id: v for v in verdicts[1]}
    assert batches == [4, 1, 4]  # judged by themselves, those that are preempted come last
    one = next(v for v in verdicts[0] if v.job_id == 1)
    assert one.cause == "preempted"
    assert not any(s.startswith("GPUs") for s in one.ruled_out)


def test_older_stalls_are_read_only_where_the_job_told_of_something(store, monkeypatch):
    """Only what the job's own side says moves a window back: of a job that said nothing a day before its window is read, of another
    a day before all windows."""
    ended, day = DAY + timedelta(days=9), timedelta(days=1)
    store.upsert_attempts(
        records.JobAttempt(
            cluster="c", job_id=job, submit_at=ended - 5 * day, start_at=ended - 5 * day, end_at=ended, state="CANCELLED", nodes=(f"n{job}",),
            n_gpus=8, user="alice", run_key=str(job),
        )
        for job in (1, 2)
    )  # fmt: skip
    store.upsert_attempts([dataclasses.replace(store.attempts(job_ids=[1])[0], job_id=3, state="FAILED", nodes=("n3",), end_at=ended - day / 4)])  # fmt: skip
    finding = records.HealthEvent(
        event_id=uuid.UUID(int=1), cluster="c", node="n2", at=ended, observed_at=ended, kind="nccl_timeout", job_id=2,
        severity=records.Severity.INFO, source="joblog", message="",
    )  # fmt: skip
    bulk.load_events(store.url, [finding])
    lives = []
    monkeypatch.setattr(
        conditions.ConditionReader, "stalls", lambda _, __, given, *___: lives.extend(given) or {}
    )
    waiting = pending.read(store, ended - day / 4, ended + day, None, unjudged=False)
    columnar_prefilter.prefilter(store, waiting, attribute.policy_of(None))
    assert {node: until - since for node, since, until in lives} == {
        "n1": day,
        "n2": 1.25 * day + window.SLURMD_TIMEOUT,
    }
