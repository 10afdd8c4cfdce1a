"""Agents that no longer beat, as events: a silent node is not a healthy one."""

from __future__ import annotations

from probing_cluster.control_plane import context
from probing_cluster.core import records

MISSED_BEATS = 2


def run(service: context.Context) -> str:
    """One look at every agent's age; the nodes that fell silent."""
    store = service.store
    ages = store.heartbeat_ages_s()
    beats = {b.node: b for b in store.heartbeats()}
    silent = {n for n, b in beats.items() if n in ages and ages[n] > MISSED_BEATS * b.beat_s}
    # Told again after a restart of the service is told once all the same: the event's identity is the last beat.
    fresh = sorted(silent - service.silent)
    if fresh:
        events = [_event(service, beats[node], ages[node]) for node in fresh]
        from probing_cluster.db import (
            bulk,
        )  # ADBC's threads, begun before serve.few_arenas, would each have a heap

        bulk.load_events(store.connection_uri(), events)
    service.silent = silent
    return f"silent: {', '.join(fresh)}" if fresh else ""


def _event(service: context.Context, beat: records.AgentHeartbeat, age_s: float) -> records.HealthEvent:
    now = service.clock.now()
    position = f"{beat.boot_id}:silent:{beat.at.timestamp():.6f}"
    return records.HealthEvent(
        event_id=records.make_event_id(beat.cluster, beat.node, "agent", position),
        cluster=beat.cluster,
        node=beat.node,
        at=beat.at,
        observed_at=now,
        kind="agent_silent",
        severity=records.Severity.INFO,
        source="agent",
        message=f"the agent has not been heard since its last beat; it promised one every {beat.beat_s:g} s",
        measured=age_s,
        threshold=MISSED_BEATS * beat.beat_s,
        unit="s",
        detail={"jobs": list(beat.jobs)},
    )


TASK = context.Task(
    name="silence",
    meaning="tells of agents that missed two beats",
    run=run,
    every_s=lambda _: 5.0,
)
