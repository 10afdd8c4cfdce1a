"""ETTR of runs, measured and expected, and the effect of changes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from datetime import datetime

from probing_cluster.attribution.reliability import ettr, run_account
from probing_cluster.attribution.reliability.fleet import base, rates
from probing_cluster.core import records
from probing_cluster.db import store
from probing_cluster.db.store import attempts

SIZES = (8, 64, 256, 1024, 2048, 4096, 8192, 16_384)
MOST_RUNS = 1000
"""Most runs that are listed: a year of a large cluster has millions (`ops.runs` has them all)."""


@dataclass(frozen=True, kw_only=True)
class RunEttr(base.Figure):
    """The accounts of runs that ended in the span, and their sum."""

    runs: tuple[records.RunAccount, ...]
    """The runs that held the most GPU time without training, worst first, up to the number asked for."""
    n_runs: int
    """All runs that ended in the span."""
    n_with_gpus: int
    """Those of them that held GPUs: `ettr` and `measured_frac` are of these."""
    n_unknown_gpus: int
    """Those of them whose GPUs accounting does not record."""
    measured_frac: float | None
    """Share of the runs with GPUs whose checkpoints and first steps are measured; of the others they are assumed, as if each had trained."""
    waterfall_gpu_h: dict[str, float]
    """GPU-hours per part of the wall time, over all runs whose GPU count is known."""
    ettr: float | None
    """Productive over (wall − suspended − idle), weighted by GPUs."""


def run_ettr(
    source: store.Store,
    since: datetime,
    until: datetime,
    partition: str | None = None,
    users: Iterable[str] | None = None,
    *,
    min_gpus: int = 0,
    most_runs: int = MOST_RUNS,
) -> RunEttr:
    """ETTR per run from the stored accounts (Figure 9 of the paper). A partition selects runs with an attempt in it.

    All runs count; the `most_runs` with the most GPU time without training are listed.
    """
    about = base.about(source, since, until, partition, users)
    totals = source.run_totals(since, until, partition, about["users"], min_gpus=min_gpus)
    waterfall = {part: totals[part] for part in attempts.RUN_PARTS}
    counted = sum(waterfall.values()) - waterfall["suspended"] - waterfall["idle"]
    return RunEttr(
        **about,
        runs=tuple(
            source.run_accounts(since, until, partition, about["users"], min_gpus=min_gpus, most=most_runs)
        ),
        n_runs=totals["n_runs"],
        n_with_gpus=totals["n_with_gpus"],
        n_unknown_gpus=totals["n_unknown_gpus"],
        measured_frac=totals["measured_frac"],
        waterfall_gpu_h=waterfall,
        ettr=waterfall["productive"] / counted if counted > 0 else None,
    )


@dataclass(frozen=True, kw_only=True)
class SizeEttr:
    """Expected ETTR of an endless run on `n_gpus` GPUs by each form, 0..1."""

    n_gpus: int
    linear_v1: float
    linear_v2: float
    renewal: float
    simulated: float | None
    best_interval_s: float | None
    """Checkpoint interval that maximises the renewal form; None if the cost of a write is unknown."""
    renewal_at_best: float | None
    mttf_h: float


@dataclass(frozen=True, kw_only=True)
class ExpectedEttr(base.Figure):
    """Expected ETTR by size, at the cluster's own failure rate if it is known."""

    failures_per_node_day: float
    rate_is_own: bool
    """False if no rate could be measured and the configured one is used."""
    rate_is_bound: bool
    """True if no failure was seen: the rate is the highest that fits (95 % interval), and ETTR and MTTF are at least these."""
    sizes: tuple[SizeEttr, ...]


def expected_ettr(
    source: base.Given,
    since: datetime,
    until: datetime,
    partition: str | None = None,
    users: Iterable[str] | None = None,
    *,
    assume: run_account.Assumptions | None = None,
    queue_s: float = 0.0,
    gpus_per_node: int | None = None,
    sizes: Iterable[int] = SIZES,
    simulate: bool = False,
) -> ExpectedEttr:
    """Expected ETTR by job size; `simulate` adds a Monte Carlo check of the renewal form."""
    given = assume or run_account.Assumptions()
    own = rates.large_job_rate(source, since, until, partition, users)
    used = rates.for_models(own, given.failures_per_node_day)
    gpus_per_node = gpus_per_node or own.gpus_per_node
    return ExpectedEttr(
        **{k: getattr(own, k) for k in ("since", "until", "cluster", "partition", "users")},
        **asdict(used),
        sizes=tuple(
            _size(n, _model(n / gpus_per_node, used.failures_per_node_day, given, queue_s), simulate)
            for n in sizes
        ),
    )


def _model(n_nodes: float, rate: float, given: run_account.Assumptions, queue_s: float) -> ettr.Model:
    return ettr.Model(
        n_nodes=max(1.0, n_nodes),
        failures_per_node_day=rate,
        interval_s=given.interval_s,
        restart_s=given.restart_s,
        write_s=given.write_s,
        queue_s=queue_s,
    )


def _size(n_gpus: int, model: ettr.Model, simulate: bool) -> SizeEttr:
    best_s = ettr.best_interval_s(model)
    at_best = None if best_s is None else ettr.renewal(replace(model, interval_s=best_s))
    return SizeEttr(
        n_gpus=n_gpus,
        linear_v1=ettr.linear_v1(model),
        linear_v2=ettr.linear_v2(model),
        renewal=ettr.renewal(model),
        simulated=ettr.simulate(model).ettr if simulate else None,
        best_interval_s=best_s,
        renewal_at_best=at_best,
        mttf_h=24.0 / (model.n_nodes * model.failures_per_node_day),
    )


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """One change and its effect."""

    name: str
    failures_per_node_day: float
    interval_s: float
    write_s: float
    restart_s: float
    ettr: float
    """Renewal form for a run of the given size."""
    change: float
    """Difference from today."""
    mttf_h: float


@dataclass(frozen=True, kw_only=True)
class WhatIf(base.Figure):
    """Today's ETTR, and each change's effect on a run of `n_gpus` GPUs."""

    n_gpus: int
    rate_is_own: bool
    """False if no rate could be measured and the configured one is used."""
    rate_is_bound: bool
    """True if no failure was seen: the rate is the highest that fits (95 % interval), and ETTR and MTTF are at least these."""
    scenarios: tuple[Scenario, ...]


def what_if(
    source: base.Given,
    since: datetime,
    until: datetime,
    partition: str | None = None,
    users: Iterable[str] | None = None,
    *,
    n_gpus: int = 4096,
    assume: run_account.Assumptions | None = None,
    queue_s: float = 0.0,
    gpus_per_node: int | None = None,
    rate_factor: float = 0.5,
    interval_s: float | None = None,
    write_s: float | None = None,
    restart_s: float | None = None,
) -> WhatIf:
    """Halve r_f, checkpoint every x, write in w, restart in y: each alone, then all together."""
    given = assume or run_account.Assumptions()
    own = rates.large_job_rate(source, since, until, partition, users)
    used = rates.for_models(own, given.failures_per_node_day)
    rate = used.failures_per_node_day
    today = _model(n_gpus / (gpus_per_node or own.gpus_per_node), rate, given, queue_s)
    changes: list[tuple[str, dict[str, float]]] = [
        (f"failure rate x {rate_factor:g}", {"failures_per_node_day": rate * rate_factor})
    ]
    for name, value in (("interval_s", interval_s), ("write_s", write_s), ("restart_s", restart_s)):
        if value is not None:
            changes.append((f"{name.removesuffix('_s')} {value:g} s", {name: value}))
    together: dict[str, float] = {}
    for _, change in changes:
        together |= change
    every = [("today", {}), *changes, *([("all together", together)] if len(changes) > 1 else [])]
    return WhatIf(
        **{k: getattr(own, k) for k in ("since", "until", "cluster", "partition", "users")},
        n_gpus=n_gpus,
        rate_is_own=used.rate_is_own,
        rate_is_bound=used.rate_is_bound,
        scenarios=tuple(_scenario(name, today, change) for name, change in every),
    )


def _scenario(name: str, today: ettr.Model, change: dict[str, float]) -> Scenario:
    model = replace(today, **change)
    value = ettr.renewal(model)
    return Scenario(
        name=name,
        failures_per_node_day=model.failures_per_node_day,
        interval_s=model.interval_s,
        write_s=model.write_s,
        restart_s=model.restart_s,
        ettr=value,
        change=value - ettr.renewal(today),
        mttf_h=24.0 / (model.n_nodes * model.failures_per_node_day),
    )
