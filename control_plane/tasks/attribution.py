"""Attempts that ended, or that late evidence re-opened, into verdicts."""

from __future__ import annotations

from probing_cluster.attribution import attribute
from probing_cluster.control_plane import context, turn

_MOST_AT_ONCE = 2000
"""Attempts judged in one pass; after a long outage the rest follows in the next."""


def run(service: context.Context) -> str:
    """One pass; what was judged."""
    with turn.taken(service.store, "attribution") as mine:
        if not mine:
            return ""
        done = attribute.attribute(
            service.store,
            config=service.config.attribution,
            at=service.clock,
            settle_s=service.config.service.settle_s,
            limit=_MOST_AT_ONCE,
        )
    if not done.verdicts:
        return ""
    causes = ", ".join(
        f"{n} {cause}" for cause, n in sorted(done.counts.items(), key=lambda c: (-c[1], c[0]))
    )
    return f"{done.n_attempts} attempts judged: {causes}"


TASK = context.Task(
    name="attribution",
    meaning="judges attempts that ended or were re-opened",
    run=run,
    every_s=lambda config: config.service.attribution_poll_s,
)
