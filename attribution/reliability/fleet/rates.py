"""Failure rates of the infrastructure: per component, over time, by job size."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from probing_cluster.attribution.reliability import mttf
from probing_cluster.attribution.reliability.fleet import base, failures

LARGE_GPUS = 128
"""r_f counts attempts with more GPUs than this."""
PROJECTED_GPUS = (1024, 4096, 16_384, 131_072)


@dataclass(frozen=True, kw_only=True)
class ComponentRate:
    """Failures of one component, per GPU-hour with an exact Poisson interval."""

    component: str
    causes: tuple[str, ...]
    n_failures: int
    n_attempts: int
    """Attempts that these failures ended."""
    n_nodes: int
    per_gpu_h: float | None
    low_per_gpu_h: float | None
    high_per_gpu_h: float | None


@dataclass(frozen=True, kw_only=True)
class FailureRates(base.Figure):
    """Attributed failures per component; the verdicts' confidence has no influence."""

    components: tuple[ComponentRate, ...]
    gpu_h: float
    counted: str = failures.COUNTED
    n_attempts_without_gpus: int = 0
    """Attempts that infrastructure ended without GPUs, or with an unknown number: they are in no rate."""
    n_attempts_set_down: int = 0
    """Attempts that a person ended by setting a node DOWN: no failure of the infrastructure, and in no rate."""


def failure_rates(
    source: base.Given,
    since: datetime,
    until: datetime,
    partition: str | None = None,
    users: Iterable[str] | None = None,
) -> FailureRates:
    """Failures attributed to each component, per GPU-hour (Figure 4 of the paper)."""
    span = base.FleetSpan(source, since, until, partition, users)
    span.with_failures()
    gpu_h = span.one("fleet_exposure")["gpu_s"] / 3600
    states = span.rows("fleet_states")
    others = sum(r["n_infra_without_gpus"] for r in states)
    rates = [_component(row, gpu_h) for row in span.rows("fleet_components")]
    return FailureRates(
        **span.about,
        components=tuple(sorted(rates, key=lambda c: (-c.n_failures, c.component))),
        gpu_h=gpu_h,
        n_attempts_without_gpus=others,
        n_attempts_set_down=sum(r["n_set_down"] for r in states),
    )


def _without_gpus(span: base.FleetSpan) -> int:
    return sum(r["n_infra_without_gpus"] for r in span.rows("fleet_states"))


def _component(row: Mapping[str, Any], gpu_h: float) -> ComponentRate:
    rate = mttf.poisson_rate(row["n_failures"], gpu_h)
    return ComponentRate(
        component=row["component"],
        causes=tuple(sorted(row["causes"])),
        n_failures=rate.n_events,
        n_attempts=row["n_attempts"],
        n_nodes=row["n_nodes"],
        per_gpu_h=rate.rate,
        low_per_gpu_h=rate.low,
        high_per_gpu_h=rate.high,
    )


@dataclass(frozen=True, kw_only=True)
class Bucket:
    """One stretch of time."""

    at: datetime
    gpu_h: float
    failures: dict[str, int]
    """Component to failures (incidents)."""
    per_gpu_h: float | None


@dataclass(frozen=True, kw_only=True)
class CheckBegan:
    """A check, or a new version of it, that came into use."""

    name: str
    version: str
    at: datetime
    """Its first result on any node."""


@dataclass(frozen=True, kw_only=True)
class FailuresOverTime(base.Figure):
    """Failures per component in equal stretches of time; a new check may make a rate appear to rise."""

    bucket_s: float
    buckets: tuple[Bucket, ...]
    checks_began: tuple[CheckBegan, ...]
    """Checks that came into use within the span, first one first: a rate may rise then because more is seen."""
    counted: str = failures.COUNTED
    n_attempts_without_gpus: int = 0
    """Attempts that infrastructure ended without GPUs, or with an unknown number: they are in no period."""


def failures_over_time(
    source: base.Given,
    since: datetime,
    until: datetime,
    partition: str | None = None,
    users: Iterable[str] | None = None,
    *,
    bucket: timedelta = timedelta(days=7),
) -> FailuresOverTime:
    """Failures per component and GPU-hours in each stretch of time (Figure 5 of the paper)."""
    span = base.FleetSpan(source, since, until, partition, users)
    span.with_failures()
    bucket_us = round(bucket.total_seconds() * 1e6)
    merged: dict[int, Bucket] = {}
    for row in span.rows("fleet_over_time", bucket_us=bucket_us, **span.bounds):
        old = merged.get(row["bucket_us"])
        found = dict(old.failures) if old else {}
        if row["component"]:
            found[row["component"]] = row["n_failures"]
        gpu_h = row["gpu_s"] / 3600
        merged[row["bucket_us"]] = Bucket(
            at=datetime.fromtimestamp(row["bucket_us"] / 1e6, UTC),
            gpu_h=gpu_h,
            failures=found,
            per_gpu_h=sum(found.values()) / gpu_h if gpu_h else None,
        )
    ordered = tuple(merged[k] for k in sorted(merged))
    return FailuresOverTime(
        **span.about,
        bucket_s=bucket.total_seconds(),
        buckets=ordered,
        checks_began=tuple(_checks_began(span)),
        n_attempts_without_gpus=_without_gpus(span),
    )


def _checks_began(span: base.FleetSpan) -> Iterator[CheckBegan]:
    """Checks that began after the site's first day; before that day nothing was checked, so the first ones raise no rate."""
    known = span.checks()
    begin_us = max(min((c["first_us"] for c in known), default=0) + base.DAY_US, span.bounds["since_us"])
    for check in sorted(known, key=lambda c: (c["first_us"], c["name"], c["version"])):
        if begin_us <= check["first_us"] < span.bounds["until_us"]:
            at = datetime.fromtimestamp(check["first_us"] / 1e6, UTC)
            yield CheckBegan(name=check["name"], version=check["version"], at=at)


@dataclass(frozen=True, kw_only=True)
class LargeJobRate(base.Figure):
    """r_f: infrastructure failures (incidents) per node-day of large attempts."""

    above_gpus: int
    n_attempts: int
    n_failures: int
    node_days: float
    per_node_day: float | None
    low_per_node_day: float | None
    high_per_node_day: float | None
    gpus_per_node: int
    """GPUs that a node has, by what attempts held at once."""
    counted: str = failures.COUNTED


@dataclass(frozen=True, kw_only=True)
class ModelRate:
    """The failure rate that a model calculates with, and where it is from."""

    failures_per_node_day: float
    rate_is_own: bool
    """False if the configured rate is used: no large job ran, or too little to say more than that rate does."""
    rate_is_bound: bool
    """True if no failure was seen: the rate is the upper end of its 95 % interval; ETTR and MTTF are at least what is given."""


def for_models(own: LargeJobRate, assumed_per_node_day: float) -> ModelRate:
    """The measured rate; without a failure the highest that fits, if it is below the assumed one; else the assumed one."""
    if own.n_failures and own.per_node_day:
        return ModelRate(failures_per_node_day=own.per_node_day, rate_is_own=True, rate_is_bound=False)
    if own.high_per_node_day is not None and own.high_per_node_day < assumed_per_node_day:
        return ModelRate(failures_per_node_day=own.high_per_node_day, rate_is_own=True, rate_is_bound=True)
    return ModelRate(failures_per_node_day=assumed_per_node_day, rate_is_own=False, rate_is_bound=False)


def large_job_rate(
    source: base.Given,
    since: datetime,
    until: datetime,
    partition: str | None = None,
    users: Iterable[str] | None = None,
    *,
    above_gpus: int = LARGE_GPUS,
) -> LargeJobRate:
    """r_f over attempts with more than `above_gpus` GPUs, with its exact interval."""
    span = base.FleetSpan(source, since, until, partition, users)
    span.with_failures()
    return _large(span, above_gpus)


def _large(span: base.FleetSpan, above_gpus: int) -> LargeJobRate:
    row = span.one("fleet_failure_rate", above_gpus=above_gpus)
    rate = mttf.poisson_rate(row["n_failures"], row["node_s"] / 86400)
    return LargeJobRate(
        **span.about,
        above_gpus=above_gpus,
        n_attempts=row["n_attempts"],
        n_failures=rate.n_events,
        node_days=rate.exposure,
        per_node_day=rate.rate,
        low_per_node_day=rate.low,
        high_per_node_day=rate.high,
        gpus_per_node=span.gpus_per_node(),
    )


@dataclass(frozen=True, kw_only=True)
class SizeMttf:
    """Mean time to failure of jobs of up to `n_gpus` GPUs, measured and projected by r_f."""

    n_gpus: int
    measured: mttf.Mttf | None
    """None for sizes that did not run."""
    projected_h: float | None
    projected_low_h: float | None
    projected_high_h: float | None


@dataclass(frozen=True, kw_only=True)
class MttfBySize(base.Figure):
    """MTTF by size; measured points count failed attempts, projections count incidents, so they need not agree."""

    sizes: tuple[SizeMttf, ...]
    rate: LargeJobRate
    counted: str = failures.COUNTED_ATTEMPTS


def mttf_by_size(
    source: base.Given,
    since: datetime,
    until: datetime,
    partition: str | None = None,
    users: Iterable[str] | None = None,
    *,
    above_gpus: int = LARGE_GPUS,
    gpus_per_node: int | None = None,
    project_to: Iterable[int] = PROJECTED_GPUS,
) -> MttfBySize:
    """Runtime per attempt that infrastructure ended by size, with intervals, and 1/(N r_f) (Figure 7 of the paper)."""
    span = base.FleetSpan(source, since, until, partition, users)
    span.with_failures()
    rate = _large(span, above_gpus)
    gpus_per_node = gpus_per_node or rate.gpus_per_node
    failed: dict[int, list[int]] = {}
    for row in span.rows("fleet_size_failures"):
        failed.setdefault(row["size"], []).append(row["n_failures"])
    measured = {
        r["size"]: mttf.measured(failed.get(r["size"], []), r["run_s"] / 3600)
        for r in span.rows("fleet_sizes")
        if r["size"]
    }
    sizes = sorted({*measured, *project_to})
    return MttfBySize(
        **span.about,
        sizes=tuple(
            SizeMttf(
                n_gpus=n,
                measured=measured.get(n),
                projected_h=_project(n, rate.per_node_day, gpus_per_node),
                projected_low_h=_project(n, rate.high_per_node_day, gpus_per_node),
                projected_high_h=_project(n, rate.low_per_node_day, gpus_per_node),
            )
            for n in sizes
        ),
        rate=rate,
    )


def _project(n_gpus: int, per_node_day: float | None, gpus_per_node: int) -> float | None:
    if not per_node_day:
        return None
    return mttf.projected_h(n_gpus, per_node_day, gpus_per_node=gpus_per_node)
