"""Every figure on a cluster small enough to add up by hand, from memory and from a real Postgres."""

from __future__ import annotations

import dataclasses
import json
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest

from probing_cluster.attribution.history import history
from probing_cluster.attribution.history import source as sources
from probing_cluster.attribution.reliability import accounts, fleet, run_account
from probing_cluster.core import records, settings
from probing_cluster.db import delivery
from tests import two_clusters

T0 = datetime(2026, 3, 1, tzinfo=UTC)
FROM_A_STORE = (
    "run_ettr",
    "ettr_by_size",
    "node_tests",
    "node_pace",
    "lemon_signals",
    "lemon_departures",
    "gpu_swaps",
)
"""Figures of rows that only a database has."""
SINCE, UNTIL = T0, T0 + timedelta(days=14)
H = 3600.0


class Cluster:
    """Attempts, verdicts and events of a toy cluster."""

    def __init__(self) -> None:
        self.attempts: list[records.JobAttempt] = []
        self.verdicts: list[records.Verdict] = []
        self.events: list[records.HealthEvent] = []

    def run(
        self,
        job_id: int,
        start_h: float,
        hours: float,
        nodes: tuple[str, ...],
        state: str = "COMPLETED",
        cause: str | None = None,
        **over,
    ):
        submit = T0 + timedelta(hours=start_h) - timedelta(minutes=1)
        values = {
            "cluster": "c",
            "job_id": job_id,
            "submit_at": submit,
            "eligible_at": submit,
            "start_at": T0 + timedelta(hours=start_h),
            "end_at": T0 + timedelta(hours=start_h + hours),
            "state": state,
            "nodes": nodes,
            "n_gpus": 8 * len(nodes),
            "user": "alice",
            "partition": "gpu",
            "run_key": str(job_id),
        }
        attempt = records.JobAttempt(**{**values, **over})
        self.attempts.append(attempt)
        if cause:
            self._verdict(attempt, cause)
        return attempt

    def _verdict(self, attempt: records.JobAttempt, cause: str) -> None:
        from probing_cluster.attribution.verdict import taxonomy

        info = taxonomy.cause(cause)
        event = records.HealthEvent(
            event_id=records.make_event_id("c", attempt.nodes[0], "kernel", str(len(self.events))),
            cluster="c",
            node=attempt.nodes[0],
            at=attempt.end_at - timedelta(seconds=9),
            observed_at=attempt.end_at,
            kind="xid",
            code="79",
            severity=records.Severity.HIGH,
            source="kernel",
            message="",
        )
        self.events.append(event)
        self.verdicts.append(
            records.Verdict(
                cluster="c",
                job_id=attempt.job_id,
                submit_at=attempt.submit_at,
                attempt=attempt.attempt,
                cause=cause,
                domain=info.domain,
                component=info.component,
                node=attempt.nodes[0],
                confidence=records.Confidence.CERTAIN,
                summary="s",
                evidence=(event.event_id,),
                rules_version="1",
                made_at=attempt.end_at,
            )
        )

    # Source
    def _table(self, since, until):
        verdicts = {(v.job_id, v.submit_at): v for v in self.verdicts}
        rows = []
        for a in self.attempts:
            v = verdicts.get((a.job_id, a.submit_at))
            rows.append(
                {
                    "cluster": a.cluster,
                    "job_id": a.job_id,
                    "attempt": a.attempt,
                    "submit_us": us(a.submit_at),
                    "eligible_us": us(a.eligible_at),
                    "start_us": us(a.start_at),
                    "end_us": us(a.end_at) if a.end_at else None,
                    "suspended_s": a.suspended_s,
                    "state": a.state,
                    "nodes": list(a.nodes),
                    "n_nodes": len(a.nodes),
                    "n_gpus": a.n_gpus,
                    "user": a.user,
                    "account": a.account,
                    "partition": a.partition,
                    "run_key": a.run_key,
                    "priority": a.priority,
                    **(
                        {}
                        if v is None
                        else {
                            "cause": v.cause,
                            "domain": str(v.domain),
                            "component": v.component,
                            "fault_node": v.node,
                            "confidence": str(v.confidence),
                            "evidence": [str(e) for e in v.evidence],
                            "incident_id": str(v.incident_id) if v.incident_id else None,
                            "stalled_us": us(v.stalled_at) if v.stalled_at else None,
                        }
                    ),
                }
            )
        return pa.Table.from_pylist(rows, schema=sources.ATTEMPT_SCHEMA)

    def table(self) -> pa.Table:
        return self._table(SINCE, UNTIL)


class InMemory:
    """The toy cluster as a source."""

    def __init__(self, toy: Cluster, cluster: str | None = None) -> None:
        self.toy, self.cluster = toy, cluster

    def attempts(self, since, until, needed=None):
        return self.toy.table()

    def events(self, since, until, needed=None):
        rows = [
            {
                "event_id": str(e.event_id),
                "cluster": "c",
                "node": e.node,
                "at_us": us(e.at),
                "kind": e.kind,
                "code": e.code,
                "severity": str(e.severity),
                "source": e.source,
                "recovered": False,
            }
            for e in self.toy.events
        ]
        return pa.Table.from_pylist(rows, schema=sources.EVENT_SCHEMA)


def us(at: datetime) -> int:
    return round(at.timestamp() * 1e6)


@pytest.fixture
def toy() -> Cluster:
    """Big jobs of 32 nodes that fail, small ones that do not, one storm with its victim."""
    c = Cluster()
    many = tuple(f"n{i}" for i in range(32))
    c.run(1, 0, 24, many)
    c.run(2, 24, 2, many, "FAILED", "gpu_lost")
    c.run(2, 26.2, 0.25, many, "REQUEUED", "ib_link", attempt=2)
    c.run(3, 20, 6.19, ("n40", "n0"), "PREEMPTED", "preempted", user="bob")
    c.run(2, 26.5, 10, many, "NODE_FAIL", "node_lost", attempt=3)
    c.run(4, 1, 5, ("n50",), user="bob", partition="debug")
    c.run(5, 2, 1, ("n51",), "FAILED", "user_error", user="bob")
    c.run(6, 3, 1, ("n52",), "REQUEUED", "node_refused", user="bob")
    c.run(7, 100, 1, ("n53",), n_gpus=None)
    return c


@pytest.fixture
def memory(toy) -> InMemory:
    return InMemory(toy)


def test_states_by_count_and_gpu_time(memory):
    """Nine attempts, three of them ended by infrastructure."""
    got = fleet.state_breakdown(memory, SINCE, UNTIL)
    assert got.n_attempts == 9
    assert got.infrastructure_attempts_frac == pytest.approx(3 / 9)
    by = {s.state: s for s in got.states}
    assert by["COMPLETED"].n_attempts == 3
    assert by["COMPLETED"].gpu_h == pytest.approx(24 * 256 + 5 * 8)
    assert by["FAILED"].n_infrastructure == 1
    total = 24 * 256 + 40 + (2 + 0.25 + 10) * 256 + 6.19 * 16 + 8 + 8
    assert got.gpu_h == pytest.approx(total)
    assert got.infrastructure_gpu_time_frac == pytest.approx(12.25 * 256 / total)


def test_a_file_server_that_only_the_jobs_own_words_suspect_is_in_no_rate() -> None:
    """At least likely, it counts; so does hardware, however sure."""
    counted = {}
    for cause in ("filesystem_mount", "gpu_lost"):
        for confidence in ("possible", "likely"):
            c = Cluster()
            c.run(1, 0, 1, ("n1",), "FAILED", cause)
            c.verdicts = [
                dataclasses.replace(v, confidence=records.Confidence(confidence)) for v in c.verdicts
            ]
            got = fleet.state_breakdown(InMemory(c), SINCE, UNTIL)
            counted[cause, confidence] = got.infrastructure_attempts_frac
    assert counted == {
        ("filesystem_mount", "possible"): 0,
        ("filesystem_mount", "likely"): 1,
        ("gpu_lost", "possible"): 1,
        ("gpu_lost", "likely"): 1,
    }


def test_what_an_operator_set_down_is_no_failure_and_is_named_apart() -> None:
    """Slurm calls it NODE_FAIL, and nothing failed: no rate, storm or MTTF counts it."""
    c = Cluster()
    for attempt in (1, 2, 3):
        c.run(1, attempt, 0.5, ("n1", "n2"), "NODE_FAIL", "node_set_down", attempt=attempt)
    rates = fleet.failure_rates(InMemory(c), SINCE, UNTIL)
    assert (rates.components, rates.n_attempts_set_down) == ((), 3)
    assert fleet.requeue_storms(InMemory(c), SINCE, UNTIL).storms == ()
    assert fleet.state_breakdown(InMemory(c), SINCE, UNTIL).infrastructure_attempts_frac == 0


def test_selection_by_partition_and_users(memory):
    """Only what was asked for."""
    assert fleet.state_breakdown(memory, SINCE, UNTIL, partition="debug").n_attempts == 1
    assert fleet.state_breakdown(memory, SINCE, UNTIL, users=["bob"]).n_attempts == 4
    assert fleet.state_breakdown(memory, SINCE, UNTIL, users=[]).n_attempts == 0


def test_time_is_clipped_to_the_span(memory):
    """Half of the first job lies before the span."""
    got = fleet.job_sizes(memory, T0 + timedelta(hours=12), T0 + timedelta(hours=24))
    by = {s.n_gpus: s for s in got.sizes}
    assert by[256].gpu_h == pytest.approx(12 * 256)
    assert by[16].gpu_h == pytest.approx(4 * 16)


def test_job_sizes(memory):
    """Sizes are powers of two; an unknown GPU count is counted apart."""
    got = fleet.job_sizes(memory, SINCE, UNTIL)
    assert {s.n_gpus: s.n_attempts for s in got.sizes} == {0: 1, 8: 3, 16: 1, 256: 4}
    assert got.n_unknown_gpus == 1


def test_failure_rates_per_component(memory):
    """One failure each of GPU, InfiniBand and node, over all GPU-hours."""
    got = fleet.failure_rates(memory, SINCE, UNTIL)
    assert {c.component: c.n_failures for c in got.components} == {"gpu": 1, "ib": 1, "node": 1}
    gpu = next(c for c in got.components if c.component == "gpu")
    assert gpu.per_gpu_h == pytest.approx(1 / got.gpu_h)
    assert gpu.low_per_gpu_h < gpu.per_gpu_h < gpu.high_per_gpu_h


def test_failures_over_time(memory):
    """Everything fails in the first week; the buckets' GPU-hours add up to the whole."""
    got = fleet.failures_over_time(memory, SINCE, UNTIL)
    assert [dict(b.failures) for b in got.buckets] == [{"gpu": 1, "ib": 1, "node": 1}]
    days = fleet.failures_over_time(memory, SINCE, UNTIL, bucket=timedelta(days=1))
    assert sum(b.gpu_h for b in days.buckets) == pytest.approx(sum(b.gpu_h for b in got.buckets))
    assert [sum(b.failures.values()) for b in days.buckets][:2] == [0, 3]


def test_a_failure_of_a_stretch_without_gpu_time_is_in_it() -> None:
    """One attempt ended in the instant with which a day begins, one as it began: nothing else ran on these days."""
    cluster = Cluster()
    cluster.run(1, 0, 24, ("n1",), "NODE_FAIL")
    cluster.run(2, 48, 0, ("n1",), "BOOT_FAIL")
    found = fleet.failures_over_time(InMemory(cluster), SINCE, UNTIL, bucket=timedelta(days=1))
    rates = fleet.failure_rates(InMemory(cluster), SINCE, UNTIL)
    assert [((b.at - SINCE).days, b.gpu_h, b.failures, b.per_gpu_h) for b in found.buckets] == [
        (0, 192.0, {}, 0.0),
        (1, 0.0, {"node": 1}, None),
        (2, 0.0, {"node": 1}, None),
    ]
    assert sum(c.n_failures for c in rates.components) == 2


def test_large_job_rate_and_its_threshold(memory):
    """Three failures in 32 x (24 + 12.25) node-hours of jobs above 128 GPUs."""
    got = fleet.large_job_rate(memory, SINCE, UNTIL)
    assert (got.n_failures, got.n_attempts) == (3, 4)
    assert got.node_days == pytest.approx(32 * 36.25 / 24)
    assert got.per_node_day == pytest.approx(3 / got.node_days)
    assert fleet.large_job_rate(memory, SINCE, UNTIL, above_gpus=256).n_attempts == 0
    assert fleet.large_job_rate(memory, SINCE, UNTIL, above_gpus=256).per_node_day is None


def test_mttf_by_size(memory):
    """Measured at 256 GPUs: 36.25 h of runtime, three failures; projected by r_f."""
    got = fleet.mttf_by_size(memory, SINCE, UNTIL, project_to=(16_384,))
    by = {s.n_gpus: s for s in got.sizes}
    assert by[256].measured.mttf_h == pytest.approx(36.25 / 3)
    assert by[8].measured.mttf_h is None
    assert by[16_384].measured is None
    assert by[16_384].projected_h == pytest.approx(24 / (2048 * got.rate.per_node_day))
    assert by[16_384].projected_low_h < by[16_384].projected_h < by[16_384].projected_high_h


def test_goodput_loss_first_and_second_order(memory):
    """Half an hour at most is lost per failure; the preempted job on n0 made way for a restarted one."""
    got = fleet.goodput_loss(memory, SINCE, UNTIL)
    assert got.first_gpu_h == pytest.approx((0.5 + 0.25 + 0.5) * 256)
    by = {s.n_gpus: s for s in got.sizes}
    assert (by[16].n_second, by[16].second_gpu_h) == (1, pytest.approx(0.5 * 16))
    assert got.second_frac == pytest.approx(8 / (320 + 8))
    assert fleet.goodput_loss(memory, SINCE, UNTIL, cap_s=600).first_gpu_h == pytest.approx(3 * 256 / 6)


def test_nodes_of_a_component_are_counted_over_its_causes(toy):
    """A node that was lost and another that restarted are two nodes of one component; a node that did both is one."""
    for job_id, node, cause in (
        (8, "n60", "node_lost"),
        (9, "n61", "node_reboot"),
        (10, "n60", "node_reboot"),
    ):
        toy.run(job_id, 50 * job_id - 300, 1, (node,), "FAILED", cause)
    (node,) = [
        c for c in fleet.failure_rates(InMemory(toy), SINCE, UNTIL).components if c.component == "node"
    ]
    assert node.causes == ("node_lost", "node_reboot")
    assert (node.n_failures, node.n_nodes) == (4, 3)


def test_goodput_loss_of_what_hung(toy):
    """Six hours of 256 GPUs that a lost GPU held up are lost, and the half hour before them; of a program's own hang nothing."""
    many = tuple(f"n{i}" for i in range(32))
    before = fleet.goodput_loss(InMemory(toy), SINCE, UNTIL).first_gpu_h
    for job_id, cause in ((8, "gpu_lost"), (9, "time_limit")):
        toy.run(job_id, 200, 10, many, "TIMEOUT", cause)
        toy.verdicts[-1] = dataclasses.replace(toy.verdicts[-1], stalled_at=T0 + timedelta(hours=204))
    assert fleet.goodput_loss(InMemory(toy), SINCE, UNTIL).first_gpu_h == pytest.approx(before + 6.5 * 256)


def test_whom_a_selection_meets_need_not_be_of_it(memory) -> None:
    """Bob's job was preempted for alice's: his selection shows what he lost by it, hers whom she preempted."""
    whole = fleet.goodput_loss(memory, SINCE, UNTIL)
    bobs = fleet.goodput_loss(memory, SINCE, UNTIL, users=["bob"])
    assert whole.second_gpu_h > 0
    assert (bobs.first_gpu_h, bobs.second_gpu_h) == (0, whole.second_gpu_h)
    (storm,) = fleet.requeue_storms(memory, SINCE, UNTIL, users=["alice"]).storms
    assert storm == fleet.requeue_storms(memory, SINCE, UNTIL).storms[0]
    assert storm.n_preempted == 1


def test_a_cluster_of_four_gpus_a_node_is_measured_by_four() -> None:
    """By eight, a full cluster was half idle, and a job of 1,024 GPUs had half of its nodes, so that it lived twice as long."""
    c = Cluster()
    many = tuple(f"n{i}" for i in range(64))
    c.run(1, 0, 100, many, "FAILED", "gpu_lost", n_gpus=256)
    c.run(2, 100, 236, many, n_gpus=256)
    c.run(3, 0, 0.5, ("n90",), n_gpus=64)  # accounting lost some of its nodes
    source = InMemory(c)
    used = fleet.utilisation(source, SINCE, UNTIL, users=["alice"], n_nodes=64)
    assert (used.gpus_per_node, round(used.utilisation_frac, 2)) == (4, 1.0)
    by_size = fleet.mttf_by_size(source, SINCE, UNTIL)
    per_day = by_size.rate.per_node_day
    assert next(s.projected_h for s in by_size.sizes if s.n_gpus == 1024) == pytest.approx(
        24 / (256 * per_day)
    )
    (large,) = fleet.expected_ettr(source, SINCE, UNTIL, sizes=[1024]).sizes
    assert large.mttf_h == pytest.approx(24 / (256 * per_day))
    scenarios = fleet.what_if(source, SINCE, UNTIL, n_gpus=1024).scenarios
    assert scenarios[0].mttf_h == pytest.approx(24 / (256 * per_day))
    for by_hand in (
        fleet.utilisation(source, SINCE, UNTIL, gpus_per_node=8),
        fleet.utilisation(InMemory(Cluster()), SINCE, UNTIL),
    ):
        assert by_hand.gpus_per_node == 8


def test_what_others_hold_of_a_node_is_not_free() -> None:
    """Two halves of n1, of two partitions, for an hour, and one of them an hour longer; n2 is the other partition's alone."""
    c = Cluster()
    c.run(1, 0, 2, ("n1",), n_gpus=4)
    c.run(2, 0, 1, ("n1",), n_gpus=4, partition="other")
    c.run(3, 0, 1, ("n2",), n_gpus=2, partition="other")
    found = {p: fleet.utilisation(InMemory(c), SINCE, UNTIL, partition=p) for p in ("gpu", "other")}
    free = {p: sum(b.fragmented_gpu_h for b in f.buckets) for p, f in found.items()}
    assert free == {"gpu": 4.0, "other": 4.0 + 6.0}


def test_requeue_storms(memory):
    """Job 2 failed three times and preempted job 3 on coming back."""
    got = fleet.requeue_storms(memory, SINCE, UNTIL)
    (storm,) = got.storms
    assert (storm.job_id, storm.n_failures, storm.n_preempted, storm.preempted_gpus) == (2, 3, 1, 16)
    assert storm.causes == ("gpu_lost", "ib_link", "node_lost")
    assert fleet.requeue_storms(memory, SINCE, UNTIL, min_failures=4).storms == ()


def test_cooccurrence(memory):
    """The evidence of ib_link and node_lost also shows a lost GPU."""
    got = fleet.cooccurrence(memory, SINCE, UNTIL)
    assert got.failures == {"gpu_lost": 1, "ib_link": 1, "node_lost": 1}
    assert {(p.cause, p.other, p.frac) for p in got.pairs} == {
        ("ib_link", "gpu_lost", 1.0),
        ("node_lost", "gpu_lost", 1.0),
    }


def test_expected_ettr_uses_the_clusters_own_rate(memory):
    """Falls with size; the simulation agrees with the renewal form."""
    got = fleet.expected_ettr(
        memory,
        SINCE,
        UNTIL,
        sizes=(8, 64),
        assume=run_account.Assumptions(interval_s=3600, write_s=60),
        simulate=True,
    )
    assert got.rate_is_own
    small, large = got.sizes
    assert small.renewal > large.renewal
    assert large.renewal == pytest.approx(large.simulated, rel=0.02)
    assert large.renewal_at_best >= large.renewal
    nothing = fleet.expected_ettr(memory, SINCE, UNTIL, users=[])
    assert (nothing.rate_is_own, nothing.failures_per_node_day) == (False, 0.005)


@pytest.mark.parametrize("days", [365, 10])
def test_no_failure_in_a_year_is_a_measurement(days):
    """64 nodes without one: the models calculate with the highest rate that fits and name it a bound; ten days say less than the default."""
    c = Cluster()
    for n in range(days // 5):
        c.run(n + 1, 120 * n, 120, [f"n{i}" for i in range(64)])
    source, until = InMemory(c), T0 + timedelta(days=days)
    high = fleet.large_job_rate(source, T0, until).high_per_node_day
    long = days == 365
    used = high if long else 0.005
    expected = fleet.expected_ettr(source, T0, until, sizes=(64,))
    grid, projected = fleet.ettr_grid(source, T0, until), fleet.what_if(source, T0, until, n_gpus=4096)
    assert {(f.rate_is_own, f.rate_is_bound) for f in (expected, grid, projected)} == {(long, long)}
    assert [f.failures_per_node_day for f in (expected, grid, projected.scenarios[0])] == [used] * 3
    assert projected.scenarios[0].mttf_h == pytest.approx(24 / (512 * used))


def test_what_if(memory):
    """Halving the rate and checkpointing more often each help; together most."""
    got = fleet.what_if(memory, SINCE, UNTIL, n_gpus=256, interval_s=600, restart_s=60)
    names = [s.name for s in got.scenarios]
    assert names == [
        "today",
        "failure rate x 0.5",
        "interval 600 s",
        "restart 60 s",
        "all together",
    ]
    assert got.scenarios[0].change == 0
    assert all(s.change > 0 for s in got.scenarios[1:])
    assert got.scenarios[-1].ettr == max(s.ettr for s in got.scenarios)


@pytest.mark.parametrize("name", [n for n in fleet.__all__ if n not in FROM_A_STORE])
def test_every_figure_becomes_json(memory, name):
    """And says which span it is about."""
    got = getattr(fleet, name)(memory, SINCE, UNTIL, partition="gpu", users=["alice"])
    plain = json.loads(json.dumps(got.to_json()))
    assert plain["since"] == "2026-03-01T00:00:00Z"
    assert plain["users"] == ["alice"]


@pytest.mark.parametrize("name", [n for n in fleet.__all__ if n not in FROM_A_STORE])
def test_an_empty_cluster_has_figures_without_numbers(name):
    """No division by zero, no invented zeros."""
    got = getattr(fleet, name)(InMemory(Cluster()), SINCE, UNTIL)
    assert json.dumps(got.to_json())


def test_postgres_gives_the_same_figures(toy, memory, store, postgres_url):
    """The ADBC path equals the in-memory one for every figure."""
    for node in {e.node for e in toy.events}:
        delivery.Delivery(postgres_url, "c", node).deliver(events=[e for e in toy.events if e.node == node])
    store.upsert_attempts(toy.attempts)
    store.save_verdicts(toy.verdicts)
    for name in fleet.__all__:
        if name not in FROM_A_STORE:
            figure = getattr(fleet, name)
            assert figure(store, SINCE, UNTIL) == figure(memory, SINCE, UNTIL), name


def test_run_ettr_sums_the_stored_accounts(toy, store):
    """The waterfall adds up to the wall time of all runs, however few are listed: those that held the most time without training."""
    toy.run(8, 110, 1, ("cpu1",), n_gpus=0)
    store.upsert_attempts(toy.attempts)
    accounts.update(store, settings.AttributionSettings(), since=SINCE)
    made = store.run_accounts()
    got = fleet.run_ettr(store, SINCE, UNTIL)
    assert {r.run_key for r in got.runs} == {r.run_key for r in made}
    assert sum(got.waterfall_gpu_h.values()) == pytest.approx(
        sum(r.wall_s * (r.n_gpus or 0) for r in made) / H
    )
    assert got.measured_frac == 0
    assert got.n_runs == len(made) > 2
    assert (got.n_with_gpus, got.n_unknown_gpus) == (got.n_runs - 2, 1)
    assert 0 < got.ettr < 1
    short = fleet.run_ettr(store, SINCE, UNTIL, most_runs=2)
    assert dataclasses.replace(short, runs=got.runs) == got

    def held_s(run):
        return (run.lost_to_replay_s + run.restart_s + run.checkpoint_s) * (run.n_gpus or 0)

    assert [held_s(r) for r in short.runs] == sorted(map(held_s, made), reverse=True)[:2]
    alices = fleet.run_ettr(store, SINCE, UNTIL, users=["alice"])
    assert {r.user for r in alices.runs} == {"alice"}
    assert alices.n_runs == len(alices.runs)
    assert len(fleet.run_ettr(store, SINCE, UNTIL, partition="debug").runs) == 1
    assert dataclasses.asdict(got)["users"] is None
    json.dumps(got.to_json())


def test_rates_count_incidents_of_jobs_with_gpus():
    """Two nodes died under twelve jobs without GPUs and three with: two failures per GPU-hour, none for the twelve."""
    cluster = Cluster()
    for i in range(12):
        cluster.run(100 + i, 1, 2, (f"n{i % 2}",), "NODE_FAIL", "node_lost", n_gpus=0)
    cluster.run(1, 1, 2, ("n0",), "NODE_FAIL", "node_lost")
    cluster.run(2, 1.05, 2, ("n1",), "NODE_FAIL", "node_lost")
    cluster.run(3, 0.9, 2.1, ("n0",), "NODE_FAIL")
    got = fleet.failure_rates(InMemory(cluster), SINCE, UNTIL)
    (node,) = [c for c in got.components if c.component == "node" and c.n_failures]
    assert sum(c.n_failures for c in got.components) == node.n_failures == 2
    assert (node.n_attempts, got.n_attempts_without_gpus) == (3, 12)
    over = fleet.failures_over_time(InMemory(cluster), SINCE, UNTIL)
    assert [b.failures for b in over.buckets if b.failures] == [{"node": 2}]
    assert fleet.large_job_rate(InMemory(cluster), SINCE, UNTIL, above_gpus=4).n_failures == 2
    lost = fleet.goodput_loss(InMemory(cluster), SINCE, UNTIL)
    assert [(s.n_gpus, s.n_first) for s in lost.sizes] == [(8, 3)]
    assert lost.n_attempts_without_gpus == 12


def test_one_fault_that_ends_many_jobs_is_one_failure():
    """Jobs whose verdicts name the same incident count once, however far apart they ended."""
    cluster = Cluster()
    for i in range(5):
        cluster.run(i + 1, 10 * i, 2, ("n0",), "FAILED", "gpu_lost")
    shared = cluster.events[0].event_id
    cluster.verdicts = [dataclasses.replace(v, incident_id=shared) for v in cluster.verdicts]
    cluster.run(9, 100, 2, ("n0",), "FAILED", "gpu_lost")
    got = fleet.failure_rates(InMemory(cluster), SINCE, UNTIL)
    assert [(c.component, c.n_failures, c.n_attempts) for c in got.components] == [("gpu", 2, 6)]
    by_size = {s.n_gpus: s for s in fleet.mttf_by_size(InMemory(cluster), SINCE, UNTIL).sizes}
    assert (by_size[8].measured.n_failures, by_size[8].measured.n_incidents) == (6, 2)
    assert by_size[8].measured.mttf_h == pytest.approx(2)


def test_a_jobs_mean_time_to_failure_counts_every_job_that_failed():
    """Ten jobs of 64 GPUs run 100 h; one switch ends all ten. Such a job lives 100 h, and r_f counts one fault."""
    cluster = Cluster()
    for j in range(10):
        cluster.run(j + 1, 0, 100, tuple(f"n{j}-{k}" for k in range(8)), "FAILED", "ib_link")
    shared = cluster.events[0].event_id
    cluster.verdicts = [dataclasses.replace(v, incident_id=shared) for v in cluster.verdicts]
    got = fleet.mttf_by_size(InMemory(cluster), SINCE, UNTIL, above_gpus=32)
    (measured,) = [s.measured for s in got.sizes if s.measured]
    assert (measured.n_failures, measured.n_incidents, measured.runtime_h) == (10, 1, 1000)
    assert measured.mttf_h == pytest.approx(100)
    assert (measured.low_h, measured.high_h) == (
        pytest.approx(1000 / 55.7, rel=1e-2),
        pytest.approx(1000 / 0.253, rel=1e-2),
    )
    assert (got.rate.n_failures, got.rate.node_days) == (1, pytest.approx(10 * 8 * 100 / 24))
    assert got.counted != got.rate.counted


class OnlyNeeded(InMemory):
    """The toy cluster, which returns no column that was not asked for."""

    def attempts(self, since, until, needed=None):
        table = super().attempts(since, until)
        return sources.in_schema(table.select(sorted(needed.columns)), sources.ATTEMPT_SCHEMA)

    def events(self, since, until, needed=None):
        table = super().events(since, until)
        return sources.in_schema(table.select(sorted(needed.columns)), sources.EVENT_SCHEMA)


@pytest.mark.parametrize("figure", [fleet.utilisation, fleet.check_coverage])
def test_a_figure_asks_for_every_column_it_needs(toy, figure):
    """Lost work of both orders, unknown GPUs and infrastructure's failures are in the toy cluster: a column too few changes them."""
    failed = next(v for v in toy.verdicts if v.cause == "node_lost")
    end_at = next(a.end_at for a in toy.attempts if (a.job_id, a.attempt) == (failed.job_id, failed.attempt))
    toy.verdicts[toy.verdicts.index(failed)] = dataclasses.replace(
        failed, stalled_at=end_at - timedelta(hours=3)
    )
    assert figure(OnlyNeeded(toy), SINCE, UNTIL) == figure(InMemory(toy), SINCE, UNTIL)


def test_a_figure_is_of_its_sources_cluster():
    """A store is of one cluster, and so are its figures, which name it."""
    c = Cluster()
    many = tuple(f"n{k}" for k in range(17))
    c.run(1, 0, 100, many, state="NODE_FAIL", cause="node_lost")
    c.run(2, 0, 100, many, state="COMPLETED", cluster="d")
    every, mine = InMemory(c), InMemory(c, "c")
    since, until = T0, T0 + timedelta(days=10)
    assert {f.cluster: f.gpu_h for f in (fleet.failure_rates(s, since, until) for s in (every, mine))} == {
        None: 2 * 17 * 800.0,
        "c": 17 * 800.0,
    }
    assert fleet.what_if(mine, since, until).cluster == "c"


def test_checks_are_counted_in_their_cluster(store):
    """Both clusters have a node n1 with a failed check of that name."""
    two_clusters.fill(store)
    source = history.of(store.of("c"))
    counts = {c: history.of(store.of(c)).checks(SINCE, UNTIL).num_rows for c in ("c", "zeta", None)}
    assert source.cluster == "c"
    assert counts == {"c": 1, "zeta": 1, None: 1}
    assert history.of(store.of("elsewhere")).checks(SINCE, UNTIL).num_rows == 0


def test_stored_figures_are_of_the_stores_cluster(store):
    """Runs, tests and scores of the other cluster count nothing here."""
    two_clusters.fill(store)
    since, until = T0 - timedelta(days=365), datetime.now(UTC) + timedelta(days=1)
    for cluster, n_runs in (("c", 1), (None, 2)):
        found = fleet.run_ettr(store.of(cluster), since, until, min_gpus=0)
        assert (found.cluster, found.n_runs) == (cluster, n_runs)
