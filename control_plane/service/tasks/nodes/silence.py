"""Agents that no longer beat, as events: a silent node is not a healthy one."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from probing_cluster.attribution.passes import node_clocks
from probing_cluster.control_plane import context
from probing_cluster.core import errors, records, vocabulary
from probing_cluster.probe_agent.spool import delivery_loop

RECENT_S = 900.0
"""Slurm is asked about a node that has been silent for less; later no attempt waits for the answer."""
GONE = "NOT_RESPONDING"
"""slurmctld no longer reaches the node; only at SlurmdTimeout does it become DOWN and its jobs end."""
EVERY_S = 5.0
OFTEN_S = 120.0
"""Slurm gives a node up within its SlurmdTimeout; of one that has been silent for longer it is asked once a minute."""
SELDOM_S = 60.0
STOPPED_S = 4 * EVERY_S
"""A look this long after the one before means that the service, its database or the whole machine stood still."""
DOUBT_S = 600.0
"""For so long after many fell silent together, silence is believed, of however many."""
MOST_AT_ONCE_FRAC = 0.5
"""Where more of the agents than this fall silent together, the way to us may be at fault: they are looked at again."""

LOG = logging.getLogger("probing.silence")


@dataclass(kw_only=True)
class AgentListening:
    """How the service has looked at the agents; since when they can be heard is the database's (`listen_anew`)."""

    silent: set[str] = field(default_factory=set)
    down: set[str] = field(default_factory=set)
    """Silent nodes of which it is written that Slurm does not reach them either."""
    looked_s: float = 0.0
    """The last look, by the monotonic clock."""
    looked_at: datetime | None = None
    """The same by the wall clock; None before the first."""
    missed: bool = False
    """Whether the database did not answer the last look."""
    doubted_s: float = float("-inf")
    """When most agents were last silent together, by the monotonic clock: they were given the time to be heard."""


def run(service: context.Context) -> str:
    """One look at every agent's age; the nodes that fell silent.

    Nobody is silent while nobody listened: an agent's silence counts from when it could be heard again.
    """
    store, listening = service.store, service.memory(AgentListening)
    silences = _silences_s(service, listening)
    ages = store.heartbeat_ages_s(cluster=service.cluster)
    beats = {b.node: b for b in store.heartbeats(cluster=service.cluster)}
    clocks = node_clocks.read(store, service.config.cluster.name)
    silent = {
        n for n, b in beats.items() if n in ages and silences.get(n, 0.0) > vocabulary.MISSED_BEATS * b.beat_s
    }
    # A restarted service writes these again; they are stored once, since the last beat is the event's identity.
    fresh = sorted(silent - listening.silent)
    now_s = service.clock.monotonic_s()
    if len(fresh) > max(2, MOST_AT_ONCE_FRAC * len(beats)) and now_s - listening.doubted_s >= DOUBT_S:
        _listen_anew(service)
        listening.doubted_s = now_s
        return ""
    _save(service, [_event(service, beats[node], ages[node], clocks) for node in fresh])
    listening.silent, listening.down = silent, listening.down & silent
    due = {n for n in silent if _is_due(ages[n])} - listening.down
    unreached = _unreached(service, due)
    _save(service, [_down(service, beats[node], ages[node], clocks) for node in unreached])
    listening.down |= set(unreached)
    words = (("silent", fresh), ("out of Slurm's reach", unreached))
    return "; ".join(f"{what}: {', '.join(nodes)}" for what, nodes in words if nodes)


def _save(service: context.Context, events: list[records.HealthEvent]) -> None:
    if events:
        # Not above: ADBC's threads, begun before process_memory.keep_small, would each have a heap.
        from probing_cluster.db import bulk

        bulk.load_events(service.store.connection_uri(), events)


def _is_due(age_s: float) -> bool:
    """Whether this look asks Slurm about a node that has been silent for so long: its answer is large on a large cluster."""
    return age_s <= OFTEN_S or (age_s <= RECENT_S and age_s % SELDOM_S < EVERY_S)


def _unreached(service: context.Context, silent: set[str]) -> list[str]:
    """Which of these slurmctld does not reach either; Slurm is asked at most once."""
    # Also one whose last beat names no job: it may have begun one since.
    if not silent:
        return []
    return sorted(n.name for n in service.slurm.nodes() if n.name in silent and GONE in n.states)


def _down(
    service: context.Context, beat: records.AgentHeartbeat, age_s: float, clocks: node_clocks.NodeClocks
) -> records.HealthEvent:
    """A node that is gone, not only its agent: the jobs it had when it was last heard have lost it."""
    return dataclasses.replace(
        _event(service, beat, age_s, clocks),
        event_id=records.make_event_id(
            beat.cluster, beat.node, "agent", f"{beat.boot_id}:down:{beat.at.timestamp():.6f}"
        ),
        kind="node_down",
        message="the agent has not been heard since its last beat, and slurmctld does not reach its slurmd either",
    )


def _silences_s(service: context.Context, listening: AgentListening) -> Mapping[str, float]:
    """Node to seconds for which its agent could have been heard and was not; counted anew where nobody could be heard."""
    now_s, now = service.clock.monotonic_s(), service.clock.now()
    try:
        silences = service.store.silences_s(cluster=service.cluster)
        gap_s = _gap_s(listening, now_s, now, silences)
        if listening.missed or gap_s > STOPPED_S or _waits_for_agents(service, listening):
            LOG.warning("silence counts anew", extra={"fields": {"gap_s": round(gap_s, 1)}})
            _listen_anew(service)
            silences = service.store.silences_s(cluster=service.cluster)
    except errors.DatabaseUnavailable:
        listening.missed = True
        raise
    listening.looked_s, listening.looked_at, listening.missed = now_s, now, False
    return silences


def _waits_for_agents(service: context.Context, listening: AgentListening) -> bool:
    """Whether agents may still wait before they try again: at the service's start, if the database's was only just before.

    Some that were turned away while it was down have come back already, so others' silence shows no gap.
    """
    if listening.looked_at is not None:
        return False
    ages = service.store.heartbeat_ages_s(cluster=service.cluster)
    up_s = service.store.server_up_s()
    return up_s < delivery_loop.BACKOFF_MOST_S + STOPPED_S and any(age > up_s for age in ages.values())


def _gap_s(before: AgentListening, now_s: float, now: datetime, silences: Mapping[str, float]) -> float:
    """Seconds for which nobody may have listened: since the last look, by either clock, or since anybody at all was heard."""
    if before.looked_at is None:
        return min(silences.values(), default=0.0)
    return max(abs((now - before.looked_at).total_seconds()), now_s - before.looked_s)


def _listen_anew(service: context.Context) -> None:
    service.store.listen_anew(service.config.cluster.name, delivery_loop.BACKOFF_MOST_S)


def _event(
    service: context.Context, beat: records.AgentHeartbeat, age_s: float, clocks: node_clocks.NodeClocks
) -> records.HealthEvent:
    now = service.clock.now()
    position = f"{beat.boot_id}:silent:{beat.at.timestamp():.6f}"
    return records.HealthEvent(
        event_id=records.make_event_id(beat.cluster, beat.node, "agent", position),
        cluster=beat.cluster,
        node=beat.node,
        at=clocks.heartbeat(beat).at,
        observed_at=now,
        kind="agent_silent",
        severity=records.Severity.INFO,
        source="agent",
        message=f"the agent has not been heard since its last beat; it promised one every {beat.beat_s:g} s",
        measured=age_s,
        threshold=vocabulary.MISSED_BEATS * beat.beat_s,
        unit="s",
        detail={"jobs": list(beat.jobs)},
    )


TASK = context.Task(
    name="silence",
    meaning="tells of agents that missed two beats",
    run=run,
    every_s=lambda _: EVERY_S,
)
