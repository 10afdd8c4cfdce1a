"""GPU time of the cluster: used, lost, and free on partly used nodes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from probing_cluster.attribution.history import source as sources
from probing_cluster.attribution.reliability.fleet import base, losses

BUCKET_H = 24.0
ATTEMPTS = sources.NeededPart(
    columns=frozenset({
        "cluster", "job_id", "attempt", "submit_us", "start_us", "end_us", "suspended_s", "state", "nodes", "n_nodes", "n_gpus", "cause", "domain",
        "stalled_us", "ran_until_us",
    })
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class UsageBucket:
    """One stretch of time."""

    at: datetime
    capacity_gpu_h: float
    used_gpu_h: float
    """GPU time that attempts held; of a suspended attempt, the share of its life that it was not suspended."""
    lost_gpu_h: float
    """Work of attempts that ended here, lost to infrastructure (goodput_loss); of each at most what it used in the span."""
    fragmented_gpu_h: float
    """GPU time free on nodes that are partly in use."""
    utilisation_frac: float
    goodput_frac: float
    """(used - lost) / capacity; a loss counts when its attempt ended."""
    fragmented_frac: float


@dataclass(frozen=True, kw_only=True)
class Utilisation(base.Figure):
    """GPU time against capacity: nodes on which GPU jobs ran in the span (or a given number) × GPUs per node."""

    buckets: tuple[UsageBucket, ...]
    bucket_h: float
    n_nodes: int
    gpus_per_node: int
    capacity_gpu_h: float
    utilisation_frac: float | None
    """None without any node, or if accounting records no attempt's GPUs."""
    goodput_frac: float | None
    fragmented_frac: float | None
    n_unknown_gpus: int
    """Attempts without recorded GPUs: their use is missing in used_gpu_h."""


def utilisation(
    source: base.Given,
    since: datetime,
    until: datetime,
    partition: str | None = None,
    users: Iterable[str] | None = None,
    *,
    gpus_per_node: int | None = None,
    n_nodes: int = 0,
    bucket_h: float = BUCKET_H,
    cap_s: float = losses.CAP_S,
) -> Utilisation:
    """Utilisation, normalised goodput and fragmentation; `n_nodes` = 0: the nodes on which attempts with GPUs ran; `gpus_per_node`: what attempts held at once, if not given."""
    span = base.FleetSpan(source, since, until, partition, users, attempts=ATTEMPTS)
    span.with_losses(cap_s)
    gpus_per_node = gpus_per_node or span.gpus_per_node()
    bucket_us = round(bucket_h * 3.6e9)
    bounds = {"bucket_us": bucket_us, **span.bounds}
    used = {r["n"]: r for r in span.rows("fleet_usage", **bounds)}
    free_s = {
        r["n"]: r["free_gpu_s"] for r in span.rows("fleet_fragments", gpus_per_node=gpus_per_node, **bounds)
    }
    there = span.one("fleet_nodes")
    n_nodes = n_nodes or there["n_nodes"]
    recorded = there["n_known"] or not there["n_unknown_gpus"]
    gpus = n_nodes * gpus_per_node if recorded else 0
    n_buckets = -(-(bounds["until_us"] - bounds["since_us"]) // bucket_us) if gpus else 0
    buckets = tuple(_bucket(n, gpus, bounds, used.get(n, {}), free_s.get(n, 0.0)) for n in range(n_buckets))
    capacity = sum(b.capacity_gpu_h for b in buckets)
    in_use, lost, free = (
        sum(getattr(b, key) for b in buckets) for key in ("used_gpu_h", "lost_gpu_h", "fragmented_gpu_h")
    )
    return Utilisation(
        **span.about,
        buckets=buckets,
        bucket_h=bucket_h,
        n_nodes=n_nodes,
        gpus_per_node=gpus_per_node,
        capacity_gpu_h=capacity,
        utilisation_frac=in_use / capacity if capacity else None,
        goodput_frac=(in_use - lost) / capacity if capacity else None,
        fragmented_frac=free / capacity if capacity else None,
        n_unknown_gpus=there["n_unknown_gpus"],
    )


def _bucket(n: int, gpus: int, bounds: dict[str, int], row: dict[str, Any], free_s: float) -> UsageBucket:
    from_us = bounds["since_us"] + n * bounds["bucket_us"]
    hours = (min(from_us + bounds["bucket_us"], bounds["until_us"]) - from_us) / 3.6e9
    capacity = gpus * hours
    used, lost, free = row.get("gpu_s", 0.0) / 3600, row.get("lost_gpu_s", 0.0) / 3600, free_s / 3600
    return UsageBucket(
        at=datetime.fromtimestamp(from_us / 1e6, UTC),
        capacity_gpu_h=capacity,
        used_gpu_h=used,
        lost_gpu_h=lost,
        fragmented_gpu_h=free,
        utilisation_frac=used / capacity,
        goodput_frac=(used - lost) / capacity,
        fragmented_frac=free / capacity,
    )
