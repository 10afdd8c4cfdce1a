"""Measured and expected ETTR by size, and a grid of changes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from datetime import datetime

from scipy import special

from probing_cluster.attribution.reliability import ettr, run_account
from probing_cluster.attribution.reliability.fleet import base, rates
from probing_cluster.db import store

LEAST_HOURS = 24.0
"""Runs that trained for less are left out, as in the paper."""
RATE_FACTORS = (0.25, 0.5, 1.0, 2.0)
INTERVALS_S = (300.0, 900.0, 1800.0, 3600.0, 7200.0)
RESTARTS_S = (60.0, 300.0, 1200.0)


@dataclass(frozen=True, kw_only=True)
class SizeComparison:
    """Runs of more than half of and up to `n_gpus` GPUs."""

    n_gpus: int
    n_runs: int
    measured: float
    """Mean ETTR of the runs, 0..1."""
    low: float | None
    """Lower end of the mean's 95 % interval (Student's t: wide for few runs); None for one run."""
    high: float | None
    expected: float | None
    """Mean expected ETTR of the same runs; None without any."""


@dataclass(frozen=True, kw_only=True)
class EttrBySize(base.Figure):
    """ETTR by size, measured and expected, of runs that trained for `least_hours` or more."""

    least_hours: float
    sizes: tuple[SizeComparison, ...]


def ettr_by_size(
    source: store.Store,
    since: datetime,
    until: datetime,
    partition: str | None = None,
    users: Iterable[str] | None = None,
    *,
    least_hours: float = LEAST_HOURS,
) -> EttrBySize:
    """Measured against expected ETTR by size (Figure 9 of the paper), from the stored accounts."""
    about = base.about(source, since, until, partition, users)
    rows = source.ettr_by_size(since, until, least_hours * 3600, partition, about["users"])
    return EttrBySize(
        **about,
        least_hours=least_hours,
        sizes=tuple(_comparison(**row) for row in rows),
    )


def _comparison(
    n_gpus: int, n_runs: int, measured: float, deviation: float | None, expected: float | None
) -> SizeComparison:
    # Student's t: large sizes have two or three runs, of which 1.96 deviations would hold the mean in 70 % of cases.
    half = None if deviation is None else float(special.stdtrit(n_runs - 1, 0.975)) * deviation / n_runs**0.5
    return SizeComparison(
        n_gpus=n_gpus,
        n_runs=n_runs,
        measured=measured,
        low=None if half is None else max(0.0, measured - half),
        high=None if half is None else min(1.0, measured + half),
        expected=expected,
    )


@dataclass(frozen=True, kw_only=True)
class GridCell:
    """One combination of factors and its ETTR."""

    rate_factor: float
    """Failure rate relative to today's."""
    interval_s: float
    restart_s: float
    ettr: float
    """Renewal form, 0..1."""


@dataclass(frozen=True, kw_only=True)
class EttrGrid(base.Figure):
    """Expected ETTR of an endless run on `n_gpus` GPUs over failure rate, checkpoint interval and restart time."""

    n_gpus: int
    failures_per_node_day: float
    rate_is_own: bool
    """False if no rate could be measured and the configured one is used."""
    rate_is_bound: bool
    """True if no failure was seen: the rate is the highest that fits (95 % interval), and ETTR and MTTF are at least these."""
    cells: tuple[GridCell, ...]


def ettr_grid(
    source: base.Given,
    since: datetime,
    until: datetime,
    partition: str | None = None,
    users: Iterable[str] | None = None,
    *,
    n_gpus: int = 16_384,
    gpus_per_node: int | None = None,
    assume: run_account.Assumptions | None = None,
) -> EttrGrid:
    """Failure rate x checkpoint interval x restart time (Figure 10 of the paper)."""
    given = assume or run_account.Assumptions()
    own = rates.large_job_rate(source, since, until, partition, users)
    used = rates.for_models(own, given.failures_per_node_day)
    rate = used.failures_per_node_day
    n_nodes = max(1.0, n_gpus / (gpus_per_node or own.gpus_per_node))
    cells = [
        GridCell(
            rate_factor=factor,
            interval_s=interval_s,
            restart_s=restart_s,
            ettr=ettr.renewal(
                ettr.Model(
                    n_nodes=n_nodes,
                    failures_per_node_day=rate * factor,
                    interval_s=interval_s,
                    restart_s=restart_s,
                    write_s=given.write_s,
                )
            ),
        )
        for factor in RATE_FACTORS
        for restart_s in RESTARTS_S
        for interval_s in INTERVALS_S
    ]
    return EttrGrid(
        **{k: getattr(own, k) for k in ("since", "until", "cluster", "partition", "users")},
        n_gpus=n_gpus,
        **asdict(used),
        cells=tuple(cells),
    )
