"""Attempts that ended, or that late evidence re-opened, into verdicts."""

from __future__ import annotations

from collections import Counter

from probing_cluster.attribution.passes import attribute
from probing_cluster.control_plane import context
from probing_cluster.control_plane.service import lease

_MOST_AT_ONCE = 2000
"""Attempts judged in one pass, or as many as there are nodes where more wait; bounds its memory."""


def run(service: context.Context) -> str:
    """Passes until nothing that has settled waits; what was judged."""
    counts: Counter[str] = Counter()
    n_attempts, limit = 0, _MOST_AT_ONCE
    while (done := _one_pass(service, limit)) is not None:
        counts.update(done.counts)
        n_attempts += done.n_attempts
        if done.n_attempts < limit or service.stopping.is_set():
            break
        # Each pass reads a day's events of the whole cluster: passes of one size would make a backlog quadratic in the nodes.
        limit = max(_MOST_AT_ONCE, len(service.store.heartbeat_ages_s()))
    if not counts:
        return ""
    causes = ", ".join(f"{n} {cause}" for cause, n in sorted(counts.items(), key=lambda c: (-c[1], c[0])))
    return f"{n_attempts} attempts judged: {causes}"


def _one_pass(service: context.Context, limit: int) -> attribute.AttributionRun | None:
    """None when another service has the turn, or this one is at it already."""
    # First among ourselves: a turn that we have ourselves is not one that another holds.
    with service.alone("attribution") as free:
        return _judged(service, limit) if free else None


def _judged(service: context.Context, limit: int) -> attribute.AttributionRun | None:
    with lease.taken(service, "attribution") as mine:
        if not mine:
            return None
        return attribute.attribute(
            service.store,
            config=service.config.attribution,
            at=service.clock,
            settle_s=service.config.service.settle_s,
            limit=limit,
        )


TASK = context.Task(
    name="attribution",
    meaning="judges attempts that ended or were re-opened",
    run=run,
    every_s=lambda config: config.service.attribution_poll_s,
)
