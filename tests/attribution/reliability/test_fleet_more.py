"""Figures 9 and 10 and the checks' coverage, against an independent computation on drawn histories."""

from __future__ import annotations

import random
import statistics
from collections import defaultdict
from datetime import UTC, datetime, timedelta

import numpy as np
import pyarrow as pa
import pytest
from scipy import special

from probing_cluster.attribution.history import source as sources
from probing_cluster.attribution.reliability import ettr, fleet
from probing_cluster.attribution.reliability.fleet import expectations
from probing_cluster.core import records

T0 = datetime(2026, 3, 1, tzinfo=UTC)
SINCE, UNTIL = T0, T0 + timedelta(days=30)


def test_measured_and_expected_ettr_by_size(store):
    """Means of two hundred runs by size, computed a second time by hand; short runs, other spans and unknown GPUs are left out."""
    rng = random.Random(5)
    runs = []
    for n in range(200):
        hours = rng.choice((10, 30, 50))
        measured = rng.uniform(0.3, 1.0)
        runs.append(
            records.RunAccount(
                cluster="c", run_key=str(n), user=rng.choice(("a", "b")), start_at=T0, end_at=T0 + timedelta(days=rng.choice((5, 40))),
                n_gpus=rng.choice((8, 9, 16, 60, None)), n_attempts=1, wall_s=hours * 3600 / measured,
                productive_s=(hours - 1) * 3600, lost_to_replay_s=3600, ettr_measured=measured,
                ettr_expected=rng.choice((None, measured * 0.9)), made_at=T0,
            )
        )  # fmt: skip
    store._upsert(records.RunAccount, runs)
    by_size = defaultdict(list)
    for run in runs:
        if (
            run.n_gpus
            and run.end_at < UNTIL
            and run.productive_s + run.lost_to_replay_s >= 86400
            and run.user == "a"
        ):
            by_size[1 << (run.n_gpus - 1).bit_length()].append(run)
    found = fleet.ettr_by_size(store, SINCE, UNTIL, users=["a"])
    assert [(s.n_gpus, s.n_runs) for s in found.sizes] == [(k, len(v)) for k, v in sorted(by_size.items())]
    for size in found.sizes:
        mine = [r.ettr_measured for r in by_size[size.n_gpus]]
        expected = [r.ettr_expected for r in by_size[size.n_gpus] if r.ettr_expected is not None]
        assert size.measured == pytest.approx(statistics.mean(mine), rel=1e-9)
        assert size.expected == pytest.approx(statistics.mean(expected), rel=1e-9)
        assert size.high - size.measured == pytest.approx(
            special.stdtrit(len(mine) - 1, 0.975) * statistics.stdev(mine) / len(mine) ** 0.5, rel=1e-6
        )
    assert fleet.ettr_by_size(store, SINCE, UNTIL, partition="nowhere").sizes == ()


class Drawn:
    """Attempts and events of a drawn history, as a source."""

    def __init__(self, seed: int) -> None:
        rng = random.Random(seed)
        self.rows, self.happened = [], []
        for job in range(400):
            nodes = rng.sample([f"n{i}" for i in range(40)], rng.randint(1, 6))
            start, end = rng.randrange(10**6), 0
            end = start + rng.randrange(1, 10**5)
            bad = rng.random() < 0.3
            sources = rng.sample(("check", "kernel", "joblog"), rng.randint(0, 3)) if bad else []
            evidence = [self.event(rng.choice(nodes), end, source) for source in sources]
            self.rows.append(
                {
                    "cluster": "c", "job_id": job, "attempt": 1, "submit_us": self.us(start), "eligible_us": self.us(start),
                    "start_us": self.us(start), "end_us": self.us(end), "suspended_s": 0.0, "state": "FAILED" if bad else "COMPLETED",
                    "nodes": nodes, "n_nodes": len(nodes), "n_gpus": 8 * len(nodes), "user": "u", "account": "", "partition": "gpu",
                    "run_key": str(job), "domain": "hardware" if bad else None, "cause": rng.choice(("gpu_lost", "ib_link")) if bad else None,
                    "evidence": evidence,
                }
            )  # fmt: skip
        for _ in range(60):
            self.event(
                f"n{rng.randrange(45)}",
                rng.randrange(10**6),
                rng.choice(("check", "kernel")),
                rng.choice(("high", "low", "info")),
            )

    @staticmethod
    def us(second: int) -> int:
        return round(T0.timestamp() + second) * 10**6

    def event(self, node: str, second: int, source: str, severity: str = "high") -> str:
        name = f"{len(self.happened):032x}"
        self.happened.append(
            {
                "event_id": name, "cluster": "c", "node": node, "at_us": self.us(second), "kind": "xid", "code": "79", "severity": severity,
                "source": source, "recovered": False,
            }
        )  # fmt: skip
        return name

    def attempts(self, since, until, needed=None):
        return pa.Table.from_pylist(self.rows, schema=sources.ATTEMPT_SCHEMA)

    def events(self, since, until, needed=None):
        return pa.Table.from_pylist(self.happened, schema=sources.EVENT_SCHEMA)


@pytest.mark.parametrize("seed", [1, 2])
def test_coverage_is_what_a_loop_counts(seed):
    """Completed jobs beside a failed check, and the sources that saw each cause."""
    drawn = Drawn(seed)
    found = fleet.check_coverage(drawn, SINCE, UNTIL)
    by_id = {e["event_id"]: e["source"] for e in drawn.happened}
    good = [r for r in drawn.rows if r["state"] == "COMPLETED"]
    beside = [
        r for r in good
        if any(
            e["source"] == "check" and e["severity"] != "info" and e["node"] in r["nodes"] and r["start_us"] <= e["at_us"] <= r["end_us"]
            for e in drawn.happened
        )
    ]  # fmt: skip
    assert (found.n_good, found.n_good_with_failed_check) == (len(good), len(beside))
    assert 0 < len(beside) < len(good)
    for cause in found.causes:
        sources_of = [{by_id[e] for e in r["evidence"]} for r in drawn.rows if r["cause"] == cause.cause]
        assert cause.n_attempts == len(sources_of)
        assert cause.n_by_check == sum("check" in s for s in sources_of)
        assert cause.n_by_node == sum(bool(s - {"joblog"}) for s in sources_of)
        assert cause.n_by_node + cause.n_without == cause.n_attempts


def test_the_grid_is_the_renewal_form_and_agrees_with_simulation():
    """Every combination once; a corner of it simulated."""
    found = fleet.ettr_grid(Drawn(1), SINCE, UNTIL, n_gpus=4096, gpus_per_node=8)
    assert len({(c.rate_factor, c.interval_s, c.restart_s) for c in found.cells}) == len(found.cells) == 60
    corner = max(found.cells, key=lambda c: (c.rate_factor, c.interval_s, c.restart_s))
    model = ettr.Model(
        n_nodes=512, failures_per_node_day=found.failures_per_node_day * corner.rate_factor, interval_s=corner.interval_s,
        restart_s=corner.restart_s,
    )  # fmt: skip
    simulated = ettr.simulate(model, n_runs=400)
    assert corner.ettr == pytest.approx(simulated.ettr, abs=4 * simulated.standard_error)


@pytest.mark.parametrize("n_runs", [2, 3, 5, 10, 30])
def test_the_interval_of_a_mean_holds_what_it_promises(n_runs):
    """In 95 of 100 draws it holds the true mean, also of two runs; of one run there is none."""
    drawn = np.random.default_rng(n_runs).normal(0.6, 0.004, (4000, n_runs))
    found = [
        expectations._comparison(64, n_runs, float(row.mean()), float(row.std(ddof=1)), None) for row in drawn
    ]
    assert np.mean([c.low <= 0.6 <= c.high for c in found]) == pytest.approx(0.95, abs=0.015)
    alone = expectations._comparison(64, 1, 0.6, None, None)
    assert (alone.low, alone.high) == (None, None)
