"""Attempts that ended, or that late evidence re-opened, into verdicts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple

from probing_cluster.attribution.passes import attribute
from probing_cluster.control_plane import child_process, context
from probing_cluster.control_plane.policy import slurm_actions
from probing_cluster.control_plane.service import turns
from probing_cluster.core import settings
from probing_cluster.db import store as db_store
from probing_cluster.slurm_plugins import commands

_MOST_AT_ONCE = 2000
"""Attempts judged in one pass, or as many as there are nodes where more wait; bounds its memory."""
_PASSES_OF_A_CHILD = 8
"""So many a child makes before the service is asked whether to go on."""


class _Judged(NamedTuple):
    """What one pass or several have judged."""

    n_attempts: int
    counts: Mapping[str, int]
    """Cause to attempts."""
    all_done: bool
    """Whether nothing is left that has settled."""


def run(service: context.Context) -> str:
    """Passes until nothing that has settled waits; what was judged."""
    counts: Counter[str] = Counter()
    n_attempts, limit = 0, _MOST_AT_ONCE
    while (done := _one_pass(service, limit, backlog=n_attempts > 0)) is not None:
        counts.update(done.counts)
        n_attempts += done.n_attempts
        if done.all_done or service.stopping.is_set():
            break
        # Each pass reads a day's events of the whole cluster: passes of one size would make a backlog quadratic in the nodes.
        limit = max(_MOST_AT_ONCE, len(service.store.heartbeat_ages_s(cluster=service.cluster)))
    if not counts:
        return ""
    causes = ", ".join(f"{n} {cause}" for cause, n in sorted(counts.items(), key=lambda c: (-c[1], c[0])))
    return f"{n_attempts} attempts judged: {causes}"


def _one_pass(service: context.Context, limit: int, *, backlog: bool) -> _Judged | None:
    """None when another service has the turn, or this one is at it already."""
    # First among ourselves: a turn that we have ourselves is not one that another holds.
    with service.try_lock("attribution") as locked:
        if not locked:
            return None
        if backlog and service.in_children:
            # What a pass of thousands took stays with its process, in pieces too small to give back.
            found: _Judged | None = child_process.run(__name__, service.config, limit)
            return found
        return _judged(service, limit)


def in_child(config: settings.Settings, limit: int) -> _Judged | None:
    """A part of a backlog, in a process of its own; None when another service has the turn."""
    attribute.seldom_collected()
    run_slurm = commands.SlurmCommands(settings=config.slurm)
    slurm = slurm_actions.SlurmActions(config, run_slurm)
    counts: Counter[str] = Counter()
    n_attempts, done = 0, None
    with db_store.Store.open(config) as store:
        service = context.Context(config=config, store=store, run_slurm=run_slurm, slurm=slurm)
        for _ in range(_PASSES_OF_A_CHILD):
            done = _judged(service, limit)
            if done is None:
                break
            counts.update(done.counts)
            n_attempts += done.n_attempts
            if done.all_done:
                break
    if done is None and not n_attempts:
        return None
    return _Judged(n_attempts, counts, done is None or done.all_done)


def _judged(service: context.Context, limit: int) -> _Judged | None:
    with turns.take(service, "attribution") as mine:
        if not mine:
            return None
        done = attribute.attribute(
            service.store,
            config=service.config.attribution,
            at=service.clock,
            settle_s=service.config.service.settle_s,
            limit=limit,
        )
        return _Judged(done.n_attempts, done.counts, done.n_attempts < limit)


TASK = context.Task(
    name="attribution",
    meaning="judges attempts that ended or were re-opened",
    run=run,
    every_s=lambda config: config.service.attribution_poll_s,
)
