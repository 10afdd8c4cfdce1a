"""Lemons among all nodes: their signals beside the others', and large jobs before and after they left."""

from __future__ import annotations

import bisect
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from scipy import special

from probing_cluster.attribution.reliability.fleet import base
from probing_cluster.core import clock, records, vocabulary
from probing_cluster.db import store as db_store

LARGE_GPUS = 512
BUCKET_DAYS = 7.0
_PHASES = ("before the first left", "in between", "after the last left")


@dataclass(frozen=True, kw_only=True)
class SignalValue:
    """One value of one signal, and how many nodes have it."""

    signal: str
    value: float
    n_nodes: int
    n_lemons: int
    """Lemons among these nodes."""


@dataclass(frozen=True, kw_only=True)
class SignalSummary:
    """One signal over all nodes with a known value."""

    signal: str
    n_nodes: int
    n_lemons: int
    mean_of_lemons: float | None
    mean_of_others: float | None
    separation_frac: float | None
    """Probability that a lemon has a higher value than another node, ties half (0.5: no difference); None without both kinds."""


@dataclass(frozen=True, kw_only=True)
class LemonSignals(base.Figure):
    """The seven signals of the span's last scored day, as counts of nodes."""

    values: tuple[SignalValue, ...]
    signals: tuple[SignalSummary, ...]
    day: datetime | None
    """None if no day of the span is scored."""


def lemon_signals(
    source: db_store.Store,
    since: datetime,
    until: datetime,
    partition: str | None = None,
    users: Iterable[str] | None = None,
) -> LemonSignals:
    """Distribution of the seven lemon signals over nodes, lemons apart (Figure 11 of the paper). Users do not apply."""
    scores = [s for s in source.lemon_scores(before=until) if s.day >= since]
    return LemonSignals(
        **base.about(source, since, until, partition, users),
        values=tuple(value for name in vocabulary.LEMON_SIGNALS for value in _values(name, scores)),
        signals=tuple(_summary(name, scores) for name in vocabulary.LEMON_SIGNALS) if scores else (),
        day=scores[0].day if scores else None,
    )


def _values(name: str, scores: Sequence[records.LemonScore]) -> Iterable[SignalValue]:
    every, lemons = Counter[float](), Counter[float]()
    for score in scores:
        value = getattr(score, name)
        if value is not None:
            every[float(value)] += 1
            lemons[float(value)] += score.verdict == "lemon"
    for value in sorted(every):
        yield SignalValue(signal=name, value=value, n_nodes=every[value], n_lemons=lemons[value])


def _summary(name: str, scores: Sequence[records.LemonScore]) -> SignalSummary:
    known = [(float(v), s.verdict == "lemon") for s in scores if (v := getattr(s, name)) is not None]
    lemons = [value for value, is_lemon in known if is_lemon]
    others = sorted(value for value, is_lemon in known if not is_lemon)
    below = sum(bisect.bisect_left(others, v) + bisect.bisect_right(others, v) for v in lemons) / 2
    pairs = len(lemons) * len(others)
    return SignalSummary(
        signal=name,
        n_nodes=len(known),
        n_lemons=len(lemons),
        mean_of_lemons=sum(lemons) / len(lemons) if lemons else None,
        mean_of_others=sum(others) / len(others) if others else None,
        separation_frac=below / pairs if pairs else None,
    )


@dataclass(frozen=True, kw_only=True)
class DeparturePhase:
    """Large attempts that ended in one phase."""

    phase: str
    n_attempts: int
    n_failed: int
    """Attempts that infrastructure ended."""
    failed_frac: float | None
    low_frac: float | None
    """Lower end of its exact 95 % interval (Clopper and Pearson)."""
    high_frac: float | None
    gpu_h: float


@dataclass(frozen=True, kw_only=True)
class DepartureBucket:
    """Large attempts that ended in one stretch of time."""

    at: datetime
    n_attempts: int
    n_failed: int
    failed_frac: float | None
    n_left: int
    """Lemons that had left by its end."""


@dataclass(frozen=True, kw_only=True)
class Departure:
    """A lemon that left service."""

    cluster: str
    node: str
    left_at: datetime


@dataclass(frozen=True, kw_only=True)
class LemonDepartures(base.Figure):
    """The share of large jobs that infrastructure ended, before lemons left service and after."""

    phases: tuple[DeparturePhase, ...]
    """Empty if no lemon left."""
    buckets: tuple[DepartureBucket, ...]
    departures: tuple[Departure, ...]
    min_gpus: int
    bucket_days: float


def lemon_departures(
    source: db_store.Store,
    since: datetime,
    until: datetime,
    partition: str | None = None,
    users: Iterable[str] | None = None,
    *,
    min_gpus: int = LARGE_GPUS,
    bucket_days: float = BUCKET_DAYS,
    attempts: base.Given | None = None,
) -> LemonDepartures:
    """Failures of attempts with at least `min_gpus` GPUs, before, while and after lemons were drained.

    `attempts`: a source of the attempts that has read them already; the store by default.
    """
    span = base.FleetSpan(source if attempts is None else attempts, since, until, partition, users)
    found = source.rows(
        base.text("lemon_departures"), {"cluster": source.cluster, "since": since, "until": until}
    )
    departures = tuple(Departure(**row) for row in found)
    bucket_us = round(bucket_days * base.DAY_US)
    left_us = [clock.to_us(d.left_at) for d in departures]
    rows = span.rows(
        "fleet_large_ends",
        min_gpus=min_gpus,
        since_us=span.bounds["since_us"],
        bucket_us=bucket_us,
        first_us=left_us[0] if left_us else span.bounds["until_us"],
        last_us=left_us[-1] if left_us else span.bounds["until_us"],
    )
    n_buckets = -(-(span.bounds["until_us"] - span.bounds["since_us"]) // bucket_us) if rows else 0
    return LemonDepartures(
        **span.about,
        phases=tuple(_phase(n, [r for r in rows if r["phase"] == n]) for n in range(3)) if left_us else (),
        buckets=tuple(
            _bucket(n, [r for r in rows if r["n"] == n], span.bounds["since_us"], bucket_us, left_us)
            for n in range(n_buckets)
        ),
        departures=departures,
        min_gpus=min_gpus,
        bucket_days=bucket_days,
    )


def _phase(number: int, rows: Sequence[dict[str, Any]]) -> DeparturePhase:
    n, failed = sum(r["n_attempts"] for r in rows), sum(r["n_failed"] for r in rows)
    low = float(special.betaincinv(failed, n - failed + 1, 0.025)) if failed else 0.0
    high = float(special.betaincinv(failed + 1, n - failed, 0.975)) if failed < n else 1.0
    return DeparturePhase(
        phase=_PHASES[number],
        n_attempts=n,
        n_failed=failed,
        failed_frac=failed / n if n else None,
        low_frac=low if n else None,
        high_frac=high if n else None,
        gpu_h=sum(r["gpu_s"] for r in rows) / 3600,
    )


def _bucket(
    n: int, rows: Sequence[dict[str, Any]], since_us: int, bucket_us: int, left_us: Sequence[int]
) -> DepartureBucket:
    n_attempts, n_failed = sum(r["n_attempts"] for r in rows), sum(r["n_failed"] for r in rows)
    from_us = since_us + n * bucket_us
    return DepartureBucket(
        at=datetime.fromtimestamp(from_us / 1e6, UTC),
        n_attempts=n_attempts,
        n_failed=n_failed,
        failed_frac=n_failed / n_attempts if n_attempts else None,
        n_left=bisect.bisect_left(left_us, from_us + bucket_us),
    )
