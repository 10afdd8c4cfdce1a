"""Lemon detection, ours beside the paper's seven thresholds on the same simulated fleets.

    python -m benchmarks.lemon.evaluate [--seeds N] [--regime NAME]

The baseline's percentile and votes are tuned for the best F1 on a training fleet of the same regime
(seed 0), which is more than the paper's hand tuning had. A node is named once, on the first day its
score says so; naming is a hit from its onset on. Removal: named nodes are repaired the next day.
"""

from __future__ import annotations

import argparse
import itertools
import statistics

import numpy as np

from benchmarks.lemon import fleet as fleets
from probing_cluster.lemon import baseline, model, trends

WINDOW_DAYS = 28
NAME_AT = 0.9


def window_of(fleet: fleets.Fleet, day: int) -> tuple[model.Window, dict[str, np.ndarray]]:
    """What the nightly run of `day` would see: the model's window and the paper's signals."""
    n = fleet.regime.nodes
    span = min(day, WINDOW_DAYS)
    named, episodes = np.zeros(n), np.zeros(n, np.int64)
    multi, single, tickets = np.zeros(n), np.zeros(n), np.zeros(n)
    days: list[set[int]] = [set() for _ in range(n)]
    xids: list[set[int]] = [set() for _ in range(n)]
    gangs = []
    for f in fleet.failures:
        if not day - WINDOW_DAYS <= f.day < day:
            continue
        if f.named < 0:
            gangs.append((f.nodes, f.weight))
            continue
        named[f.named] += f.weight
        episodes[f.named] += 1
        days[f.named].add(int(f.day))
        if f.xid:
            xids[f.named].add(f.xid)
        if f.nodes.size > 1:
            multi[f.named] += 1
        else:
            single[f.named] += 1
        tickets[f.named] += f.weight > 0.95 and f.culprit >= 0
    exposure = fleet.use * span
    jobs = fleet.single_jobs_per_day * span
    signals = {
        "excl_jobid_count": fleet.excludes[max(0, day - WINDOW_DAYS) : day].sum(0).astype(float),
        "xid_cnt": np.array([len(x) for x in xids], float),
        "tickets": tickets,
        "out_count": episodes.astype(float) * 0.5,
        "multi_node_node_fails": multi,
        "single_node_node_fails": single,
        "single_node_node_failure_rate": np.where(jobs > 0, single / np.maximum(jobs, 1e-9), np.nan),
    }
    window = model.Window(
        exposure_days=exposure,
        named=named,
        episodes=episodes,
        days=np.array([len(d) for d in days], np.int64),
        gangs=gangs,
        auxiliary=trends.log_ratio(
            {"minor": fleet.minor[max(0, day - WINDOW_DAYS) : day].sum(0).astype(float)}, exposure
        ),
    )
    return window, signals


def run(fleet: fleets.Fleet, rule: baseline.Rule | None) -> dict[int, int]:
    """Node to the day it was named; `rule` None is ours."""
    found: dict[int, int] = {}
    for day in range(7, fleet.regime.days + 1):
        window, signals = window_of(fleet, day)
        if rule is None:
            hit = model.score(window).probability >= NAME_AT
        else:
            hit = baseline.named(signals, baseline.thresholds(signals, rule), rule)
        for node in np.flatnonzero(hit):
            found.setdefault(int(node), day)
    return found


def figures(fleet: fleets.Fleet, found: dict[int, int]) -> dict[str, float]:
    """Precision, recall and days to detection of one run."""
    true = {n: d for n, d in found.items() if fleet.lemon[n] and d >= fleet.onset[n]}
    delays = [d - fleet.onset[n] for n, d in true.items()]
    lemons = int(fleet.lemon.sum())
    return {
        "named": len(found),
        "precision": len(true) / len(found) if found else float("nan"),
        "recall": len(true) / lemons if lemons else float("nan"),
        "days": statistics.median(delays) if delays else float("nan"),
        "false_per_month": (len(found) - len(true)) / (fleet.regime.days / 30.4),
    }


def tune(regime: fleets.Regime) -> baseline.Rule:
    """The baseline's best thresholds for this regime."""
    train = fleets.simulate(regime, seed=0)
    best, best_f1 = baseline.Rule(), -1.0
    for percentile, floor, votes in itertools.product(
        (98.0, 99.0, 99.5, 99.8), (1.0, 2.0, 3.0, 4.0), (2, 3, 4)
    ):
        rule = baseline.Rule(percentile=percentile, floor=floor, votes=votes)
        got = figures(train, run(train, rule))
        total = got["precision"] + got["recall"]
        f1 = 2 * got["precision"] * got["recall"] / total if total > 0 else 0.0
        if f1 > best_f1:
            best, best_f1 = rule, f1
    return best


def large_job_failures(fleet: fleets.Fleet) -> float:
    """Failures of jobs of 64 nodes and more, per 1,000 of their node-days in use."""
    large = sum(1 for f in fleet.failures if f.nodes.size >= 64 and f.culprit >= 0)
    share = fleets.GPU_TIME[fleets.SIZES >= 64].sum() / fleets.GPU_TIME.sum()
    return 1000 * large / (fleet.use.sum() * fleet.regime.days * share)


def main() -> None:
    """Prints one row per regime and method."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--regime", default="")
    options = parser.parse_args()
    print(
        f"{'regime':<12}{'method':<10}{'named':>7}{'prec':>7}{'recall':>8}{'days':>7}{'false/mo':>10}{'large before/after':>21}"
    )
    for regime in fleets.REGIMES:
        if options.regime and regime.name != options.regime:
            continue
        rule = tune(regime) if regime.lemon_share else baseline.Rule(percentile=99.8, floor=3.0, votes=3)
        for method, chosen in (("ours", None), ("paper", rule)):
            rows = []
            for seed in range(1, options.seeds + 1):
                fleet = fleets.simulate(regime, seed)
                found = run(fleet, chosen)
                after = fleets.simulate(regime, seed, removed={n: d + 1.0 for n, d in found.items()})
                rows.append(
                    figures(fleet, found) | {"b": large_job_failures(fleet), "a": large_job_failures(after)}
                )
            mean = {k: statistics.fmean(r[k] for r in rows) for k in rows[0]}
            print(
                f"{regime.name:<12}{method:<10}{mean['named']:>7.1f}{mean['precision']:>7.3f}{mean['recall']:>8.3f}"
                f"{mean['days']:>7.1f}{mean['false_per_month']:>10.2f}{mean['b']:>12.2f} -> {mean['a']:.2f}"
            )


if __name__ == "__main__":
    main()
