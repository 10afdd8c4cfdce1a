"""Utilisation, goodput and fragmentation against a count minute by minute, in plain Python."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest

from probing_cluster.attribution.history import source as sources
from probing_cluster.attribution.reliability import fleet

T0 = datetime(2026, 3, 1, tzinfo=UTC)
MINUTES = 3000
SINCE, UNTIL = T0 + timedelta(minutes=200), T0 + timedelta(minutes=200 + MINUTES)
NODES = 12


class DrawnUse:
    """Attempts on nodes of eight GPUs, none holding what another holds, whole minutes long."""

    def __init__(self, seed: int) -> None:
        rng = random.Random(seed)
        self.rows: list[dict[str, object]] = []
        free = {f"n{n}": [0] * 8 for n in range(NODES)}  # per GPU, from which minute on it is free
        for job in range(700):
            start = rng.randrange(MINUTES + 400)
            nodes = rng.sample(sorted(free), rng.choice((1, 1, 1, 2, 4)))
            held = 8 if len(nodes) > 1 else rng.choice((1, 2, 4, 8))
            gpus = {n: [g for g in range(8) if free[n][g] <= start][:held] for n in nodes}
            if any(len(g) < held for g in gpus.values()):
                continue
            running = rng.random() < 0.02
            end = 10**9 if running else start + rng.randrange(1, 600)
            for node, indexes in gpus.items():
                for g in indexes:
                    free[node][g] = end
            self._add(job, start, None if running else end, nodes, held * len(nodes), rng.random() < 0.3)

    def _add(
        self, job: int, start: int, end: int | None, nodes: list[str], n_gpus: int, failed: bool
    ) -> None:
        failed &= end is not None
        self.rows.append(
            {
                "cluster": "c", "job_id": job, "attempt": 1, "submit_us": us(start), "start_us": us(start),
                "end_us": None if end is None else us(end), "suspended_s": 0.0,
                "state": "RUNNING" if end is None else "FAILED" if failed else "COMPLETED",
                "nodes": nodes, "n_nodes": len(nodes), "n_gpus": n_gpus, "user": "u", "partition": "gpu",
                "domain": "hardware" if failed else None, "cause": "gpu_lost" if failed else None,
            }
        )  # fmt: skip

    def attempts(self, since, until, needed=None):
        return pa.Table.from_pylist(self.rows, schema=sources.ATTEMPT_SCHEMA)

    def events(self, since, until, needed=None):
        return pa.Table.from_pylist([], schema=sources.EVENT_SCHEMA)


def us(minute: int) -> int:
    return (round(T0.timestamp()) + 60 * minute) * 10**6


def minute(at_us) -> int:
    return 10**9 if at_us is None else round(at_us / 6e7 - T0.timestamp() / 60)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_use_goodput_and_fragments_are_what_a_clock_counts(seed):
    drawn = DrawnUse(seed)
    found = fleet.utilisation(drawn, SINCE, UNTIL, bucket_h=7)
    first, last = 200, 200 + MINUTES
    inside = [r for r in drawn.rows if minute(r["start_us"]) < last and minute(r["end_us"]) >= first]
    names = {n for r in inside for n in r["nodes"]}
    assert found.n_nodes == len(names)
    use, fragments, lost = ([0.0] * len(found.buckets) for _ in range(3))
    for now in range(first, last):
        bucket = (now - first) // 420
        per_node = dict.fromkeys(names, 0.0)
        for row in inside:
            if minute(row["start_us"]) <= now < minute(row["end_us"]):
                for node in row["nodes"]:
                    per_node[node] += row["n_gpus"] / row["n_nodes"]
        use[bucket] += sum(per_node.values()) / 60
        fragments[bucket] += sum(8 - held for held in per_node.values() if 0 < held < 8) / 60
    for row in inside:
        end = minute(row["end_us"])
        if row["cause"] and first <= end < last:
            ran = end - max(minute(row["start_us"]), first)
            lost[(end - first) // 420] += min(ran, 30) * row["n_gpus"] / 60
    assert sum(fragments) > 0 < sum(lost)
    assert [b.used_gpu_h for b in found.buckets] == pytest.approx(use, rel=1e-6)
    assert [b.fragmented_gpu_h for b in found.buckets] == pytest.approx(fragments, rel=1e-6, abs=1e-9)
    assert [b.lost_gpu_h for b in found.buckets] == pytest.approx(lost, rel=1e-6)
    capacity = len(names) * 8 * MINUTES / 60
    assert found.capacity_gpu_h == pytest.approx(capacity)
    assert found.utilisation_frac == pytest.approx(sum(use) / capacity)
    assert found.goodput_frac == pytest.approx((sum(use) - sum(lost)) / capacity)
    assert found.fragmented_frac == pytest.approx(sum(fragments) / capacity)


def test_nothing_ran_and_a_given_size():
    """No node, no capacity; twice as many nodes as were used, half the share."""
    drawn = DrawnUse(1)
    empty = fleet.utilisation(drawn, SINCE, UNTIL, partition="none")
    assert (empty.buckets, empty.utilisation_frac, empty.n_nodes) == ((), None, 0)
    once, twice = (fleet.utilisation(drawn, SINCE, UNTIL, n_nodes=n) for n in (NODES, 2 * NODES))
    assert twice.utilisation_frac == pytest.approx(once.utilisation_frac / 2)


def test_a_node_of_cpus_alone_is_no_node_of_gpus():
    """A job without GPUs adds no capacity; one with an unknown number may."""
    drawn = DrawnUse(1)
    names = fleet.utilisation(drawn, SINCE, UNTIL).n_nodes
    drawn._add(9001, 300, 400, ["cpu1", "cpu2"], 0, False)
    assert fleet.utilisation(drawn, SINCE, UNTIL).n_nodes == names
    drawn.rows[-1]["n_gpus"] = None
    assert fleet.utilisation(drawn, SINCE, UNTIL).n_nodes == names + 2


def test_attempts_whose_gpus_are_not_recorded_used_nobody_knows_how_much() -> None:
    """No share of a capacity that is made up, and no GPU hours of 0."""
    drawn = DrawnUse(1)
    for row in drawn.rows:
        row["n_gpus"] = None
    found = fleet.utilisation(drawn, SINCE, UNTIL)
    assert (found.utilisation_frac, found.capacity_gpu_h, found.buckets) == (None, 0, ())
    assert found.n_unknown_gpus > 10
    states, sizes = fleet.state_breakdown(drawn, SINCE, UNTIL), fleet.job_sizes(drawn, SINCE, UNTIL)
    assert states.n_unknown_gpus == states.n_attempts > 10
    assert {states.gpu_h, *(s.gpu_h for s in (*states.states, *sizes.sizes))} == {None}
    assert fleet.cooccurrence(drawn, SINCE, UNTIL).n_events == 0
