"""The cost of failures: lost goodput of first and second order, requeue storms, causes seen together."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from probing_cluster.attribution.reliability.fleet import base

CAP_S = 1800.0
"""Most work lost by one ended attempt: half of an hourly checkpoint interval."""


@dataclass(frozen=True, kw_only=True)
class SizeLoss:
    """Loss of attempts of up to `n_gpus` GPUs."""

    n_gpus: int
    n_first: int
    first_gpu_h: float
    n_second: int
    second_gpu_h: float


@dataclass(frozen=True, kw_only=True)
class GoodputLoss(base.Figure):
    """GPU-hours lost to infrastructure by its victims, and by attempts preempted when the victims returned."""

    sizes: tuple[SizeLoss, ...]
    first_gpu_h: float
    second_gpu_h: float
    second_frac: float | None
    """Second-order loss as a share of all."""
    n_attempts_without_gpus: int = 0
    """Attempts that infrastructure ended without GPUs, or with an unknown number: they lost no GPU time."""


def goodput_loss(
    source: base.Given,
    since: datetime,
    until: datetime,
    partition: str | None = None,
    users: Iterable[str] | None = None,
    *,
    cap_s: float = CAP_S,
) -> GoodputLoss:
    """min(whole runtime, cap) x GPUs over first- and second-order victims, by size (Figure 8 of the paper)."""
    span = base.FleetSpan(source, since, until, partition, users)
    span.with_losses(cap_s)
    rows = span.rows("fleet_goodput")
    sizes = tuple(
        SizeLoss(
            n_gpus=r["size"],
            n_first=r["n_first"],
            first_gpu_h=r["first_gpu_s"] / 3600,
            n_second=r["n_second"],
            second_gpu_h=r["second_gpu_s"] / 3600,
        )
        for r in rows
        if r["size"]
    )
    first, second = sum(s.first_gpu_h for s in sizes), sum(s.second_gpu_h for s in sizes)
    return GoodputLoss(
        **span.about,
        sizes=sizes,
        first_gpu_h=first,
        second_gpu_h=second,
        second_frac=second / (first + second) if first + second else None,
        n_attempts_without_gpus=sum(r["n_first"] for r in rows if not r["size"]),
    )


@dataclass(frozen=True, kw_only=True)
class RequeueStorm:
    """One job that infrastructure ended repeatedly."""

    job_id: int
    user: str
    n_gpus: int
    n_attempts: int
    n_failures: int
    causes: tuple[str, ...]
    n_preempted: int
    """Attempts that it preempted when it returned."""
    preempted_gpus: int


@dataclass(frozen=True, kw_only=True)
class RequeueStorms(base.Figure):
    """Jobs with many infrastructure failures, worst first."""

    min_failures: int
    storms: tuple[RequeueStorm, ...]


def requeue_storms(
    source: base.Given,
    since: datetime,
    until: datetime,
    partition: str | None = None,
    users: Iterable[str] | None = None,
    *,
    min_failures: int = 3,
) -> RequeueStorms:
    """Jobs that infrastructure ended at least `min_failures` times, and the attempts that their returns preempted."""
    span = base.FleetSpan(source, since, until, partition, users)
    rows = span.rows("fleet_storms", min_failures=min_failures, near_us=round(base.NEAR_S * 1e6))
    storms = tuple(
        RequeueStorm(
            job_id=r["job_id"],
            user=r["user"],
            n_gpus=r["gpus"],
            n_attempts=r["n_attempts"],
            n_failures=r["n_failures"],
            causes=tuple(sorted(c for c in r["causes"].split(",") if c)),
            n_preempted=r["n_preempted"],
            preempted_gpus=r["preempted_gpus"],
        )
        for r in rows
    )
    return RequeueStorms(**span.about, min_failures=min_failures, storms=storms)


@dataclass(frozen=True, kw_only=True)
class CauseOverlap:
    """Number of failures attributed to `cause` whose evidence also shows `other`."""

    cause: str
    other: str
    n: int
    frac: float


@dataclass(frozen=True, kw_only=True)
class Cooccurrence(base.Figure):
    """Causes seen together in one failure's evidence."""

    failures: dict[str, int]
    """Cause to the number of its failures."""
    pairs: tuple[CauseOverlap, ...]
    n_events: int
    """Node events in the span; without any, no causes can be seen together."""


def cooccurrence(
    source: base.Given,
    since: datetime,
    until: datetime,
    partition: str | None = None,
    users: Iterable[str] | None = None,
) -> Cooccurrence:
    """Other causes in the evidence of each cause's failures."""
    span = base.FleetSpan(source, since, until, partition, users, events=None)
    rows = span.rows("fleet_cooccurrence")
    totals = {r["blamed"]: r["n"] for r in rows if not r["other"]}
    pairs = [
        CauseOverlap(cause=r["blamed"], other=r["other"], n=r["n"], frac=r["n"] / totals[r["blamed"]])
        for r in rows
        if r["other"]
    ]
    return Cooccurrence(
        **span.about,
        failures=totals,
        pairs=tuple(sorted(pairs, key=lambda p: (-p.n, p.cause, p.other))),
        n_events=span.n_node_events,
    )
