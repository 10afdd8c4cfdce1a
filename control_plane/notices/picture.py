"""What the kinds of notices look at, read once per pass: as many statements for a thousand nodes as for one."""

from __future__ import annotations

import dataclasses
import uuid
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from probing_cluster.attribution.places import layout
from probing_cluster.control_plane import alarmed_jobs, context, held_jobs
from probing_cluster.control_plane.policy import view
from probing_cluster.core import errors, records
from probing_cluster.db.store import actions
from probing_cluster.slurm_plugins.acts import node_events

LOOK_BACK = timedelta(hours=24)
"""What happened longer ago, and no longer stands, is told to nobody."""
_FAULTY_FOR = timedelta(days=7)
"""A drain that was not carried out is reported for so long, if the fault stays."""
_JUST_OVER = timedelta(hours=1)
"""Why a hang or a drain is over is looked for in this time; the pass that finds it over comes seconds later."""
_SELDOM_S = 60.0
"""How old nodes' partitions, lemon scores and idle jobs may be."""
_INCIDENTS = (Path(__file__).parent / "sql" / "incidents.sql").read_text(encoding="utf-8")


@dataclasses.dataclass(frozen=True, kw_only=True)
class NoticePicture:
    """The cluster as the notices see it."""

    now: datetime
    cluster: str
    budget_window: timedelta
    drains: Sequence[records.Drain] = ()
    """Decisions of LOOK_BACK, and drains that stand, are needed still, or were over a short while ago."""
    unanswered: AbstractSet[uuid.UUID] = frozenset()
    """Of these drains, those that were not carried out and whose fault is still there."""
    incidents: Sequence[Mapping[str, Any]] = ()
    gangs: Sequence[records.GangVerdict] = ()
    """Hangs that stand, and those that were over a short while ago."""
    attempts: Mapping[tuple[int, datetime], records.JobAttempt] = dataclasses.field(default_factory=dict)
    """The attempts that hang or hung, by job and submit time."""
    refs: Mapping[int, str] = dataclasses.field(default_factory=dict)
    """The jobs that were to be brought back, as their owners name them."""
    silent_s: Mapping[str, float] | None = None
    """Node to how long its agent has been silent; None before that was looked at."""
    by_slurm: Sequence[actions.SlurmDrain] = ()
    """Nodes that Slurm drained by itself for what went wrong there."""
    faults_by_node: Mapping[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)
    """Node to the faults that its agent reported last."""
    lemons: Sequence[records.LemonScore] = ()
    """The lemons of the last scored day."""
    held: Sequence[held_jobs.HeldJob] = ()
    alarmed: Sequence[alarmed_jobs.AlarmedJob] = ()
    partitions: Mapping[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)
    """Node to its partitions, as far as Slurm answered."""
    where: Callable[[], layout.NodeLayout] | None = None
    """What nodes share, read when it is asked for: most passes tell of no three nodes at once."""

    def partitions_of(self, nodes: Sequence[str]) -> tuple[str, ...]:
        """The partitions of these nodes."""
        return tuple(sorted({p for n in nodes for p in self.partitions.get(n, ())}))


def read(service: context.Context, silent: AbstractSet[str]) -> NoticePicture:
    """The picture of now; `silent`: the nodes whose agents the task `silence` found silent. Raises DatabaseUnavailable."""
    store, now = service.store, service.clock.now()
    cluster = service.config.cluster.name
    since = now - LOOK_BACK
    unanswered = _unanswered(service)
    recent = {
        d.drain_id: d
        for d in (
            *store.drains(open_only=True, cluster=service.cluster),
            *store.drains(since=since, cluster=service.cluster),
            *store.drains(actions=["drain"], ended_since=now - _JUST_OVER, cluster=service.cluster),
            *unanswered,
        )
    }
    gangs = store.gang_verdicts(since=now - timedelta(days=30), open_since=now - _JUST_OVER, cluster=cluster)
    hung = store.attempts_of(sorted({(g.cluster, g.job_id, g.submit_at) for g in gangs}))
    moved = sorted(
        {d.job_id for d in recent.values() if d.action in view.BRINGS_BACK and d.job_id is not None}
    )
    by_slurm = [d for d in store.slurm_drains(cluster) if node_events.is_mishap(d.reason)]
    beats = store.heartbeats(sorted(d.node for d in by_slurm), cluster=service.cluster) if by_slurm else []
    return NoticePicture(
        now=now,
        cluster=cluster,
        budget_window=timedelta(seconds=service.config.policy.budget_window_s),
        # What is under way is neither done nor failed.
        drains=sorted((d for d in recent.values() if not view.is_begun(d)), key=lambda d: d.at),
        unanswered=frozenset(d.drain_id for d in unanswered),
        incidents=store.rows(_INCIDENTS, {"cluster": cluster, "since": since}),
        gangs=gangs,
        attempts={(a.job_id, a.submit_at): a for a in hung},
        refs={a.job_id: a.ref for a in store.attempts(job_ids=moved, cluster=cluster)} if moved else {},
        silent_s=_silent_s(service, silent),
        by_slurm=by_slurm,
        faults_by_node={b.node: tuple(sorted(b.faults)) for b in beats},
        lemons=service.seldom("lemons", _SELDOM_S, lambda: _lemons(service)),
        held=held(service),
        alarmed=service.seldom("alarmed", _SELDOM_S, lambda: alarmed_jobs.read(store, cluster)),
        partitions=_partitions(service),
        where=lambda: service.seldom(
            "where", _SELDOM_S, lambda: layout.Places(store.places(cluster)).at(cluster, now)
        ),
    )


def _unanswered(service: context.Context) -> list[records.Drain]:
    store, since = service.store, service.clock.now() - _FAULTY_FOR
    drains = store.drains(since=since, actions=["drain"], cluster=service.cluster)
    nodes = sorted({d.node for d in drains if view.left_in_service(d)})
    beats = store.heartbeats(nodes, cluster=service.cluster) if nodes else []
    return view.unanswered(drains, {b.node: b for b in beats})


def _silent_s(service: context.Context, silent: AbstractSet[str]) -> Mapping[str, float] | None:
    if "silence" not in service.journal.passes():
        return None  # a service that has just begun knows of none yet
    if not silent:
        return {}
    ages = service.store.heartbeat_ages_s(cluster=service.cluster)
    return {node: ages[node] for node in sorted(silent & ages.keys())}


def held(service: context.Context) -> Sequence[held_jobs.HeldJob]:
    """The jobs that hold GPUs idle, as of the last minute."""
    idle_s, cluster = service.config.policy.idle_s, service.config.cluster.name
    return service.seldom(
        "held", _SELDOM_S, lambda: held_jobs.read(service.store, cluster, idle_s, service.clock.now())
    )


def _lemons(service: context.Context) -> list[records.LemonScore]:
    return [s for s in service.store.lemon_scores() if s.verdict == "lemon"]


def _partitions(service: context.Context) -> dict[str, tuple[str, ...]]:
    """Empty while Slurm is away: what concerns no known partition goes to the routes of all."""
    try:
        return service.seldom(
            "partitions", _SELDOM_S, lambda: {n.name: n.partitions for n in service.slurm.nodes()}
        )
    except errors.SlurmUnavailable:
        return {}
