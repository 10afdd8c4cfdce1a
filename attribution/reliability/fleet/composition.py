"""How attempts ended, and how large they were."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from probing_cluster.attribution.reliability.fleet import base


def _share(row: Mapping[str, Any], total: int, gpu_s: float) -> dict[str, Any]:
    """Fields of a share: number of attempts, their part of `total`, their GPU-hours, their part of `gpu_s`."""
    return {
        "n_attempts": row["n_attempts"],
        "attempts_frac": row["n_attempts"] / total,
        "gpu_h": _gpu_h(row),
        "gpu_time_frac": row["gpu_s"] / gpu_s if gpu_s else None,
    }


def _gpu_h(row: Mapping[str, Any]) -> float | None:
    """GPU-hours of a row's attempts; None if accounting records no GPUs for any of them."""
    unknown = row["n_attempts"] > 0 and row["n_unknown_gpus"] == row["n_attempts"]
    return None if unknown else row["gpu_s"] / 3600


@dataclass(frozen=True, kw_only=True)
class StateShare:
    """The share of one state."""

    state: str
    n_attempts: int
    attempts_frac: float
    gpu_h: float | None
    """None if accounting records no GPUs for any of them."""
    gpu_time_frac: float | None
    n_infrastructure: int
    """Attempts that hardware or system software ended."""


@dataclass(frozen=True, kw_only=True)
class StateBreakdown(base.Figure):
    """How attempts ended, by count and by GPU time."""

    states: tuple[StateShare, ...]
    n_attempts: int
    gpu_h: float | None
    """None if accounting records no GPUs for any of them."""
    n_unknown_gpus: int
    """Attempts without recorded GPUs: they add nothing to gpu_h."""
    infrastructure_attempts_frac: float | None
    infrastructure_gpu_time_frac: float | None


def state_breakdown(
    source: base.Given,
    since: datetime,
    until: datetime,
    partition: str | None = None,
    users: Iterable[str] | None = None,
) -> StateBreakdown:
    """Attempts that ended in the span, by state (Figure 3 of the paper)."""
    span = base.FleetSpan(source, since, until, partition, users)
    rows = span.rows("fleet_states")
    total, gpu_s, unknown = (sum(r[key] for r in rows) for key in ("n_attempts", "gpu_s", "n_unknown_gpus"))
    return StateBreakdown(
        **span.about,
        states=tuple(
            StateShare(
                state=r["state"],
                n_infrastructure=r["n_infra"],
                **_share(r, total, gpu_s),
            )
            for r in rows
        ),
        n_attempts=total,
        gpu_h=_gpu_h({"n_attempts": total, "gpu_s": gpu_s, "n_unknown_gpus": unknown}),
        n_unknown_gpus=unknown,
        infrastructure_attempts_frac=sum(r["n_infra"] for r in rows) / total if total else None,
        infrastructure_gpu_time_frac=sum(r["infra_gpu_s"] for r in rows) / gpu_s if gpu_s else None,
    )


@dataclass(frozen=True, kw_only=True)
class SizeShare:
    """Jobs of up to `n_gpus` GPUs (and more than half of that)."""

    n_gpus: int
    n_attempts: int
    attempts_frac: float
    gpu_h: float | None
    """None if accounting records no GPUs for any of them."""
    gpu_time_frac: float | None


@dataclass(frozen=True, kw_only=True)
class JobSizes(base.Figure):
    """Attempts and GPU time by size."""

    sizes: tuple[SizeShare, ...]
    n_unknown_gpus: int
    """Attempts without recorded GPU count."""


def job_sizes(
    source: base.Given,
    since: datetime,
    until: datetime,
    partition: str | None = None,
    users: Iterable[str] | None = None,
) -> JobSizes:
    """Attempts that ran in the span, by GPUs rounded up to a power of two (Figure 6 of the paper)."""
    span = base.FleetSpan(source, since, until, partition, users)
    rows = span.rows("fleet_sizes")
    total, gpu_s = sum(r["n_attempts"] for r in rows), sum(r["gpu_s"] for r in rows)
    return JobSizes(
        **span.about,
        sizes=tuple(
            SizeShare(
                n_gpus=r["size"],
                **_share(r, total, gpu_s),
            )
            for r in rows
        ),
        n_unknown_gpus=sum(r["n_unknown_gpus"] for r in rows),
    )
