"""The agent's account of itself: the heartbeat for Postgres, the status for a person at the node."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from probing_cluster.core import clock, errors, records
from probing_cluster.probe_agent import node_state, self_watch
from probing_cluster.probe_agent.jobs import alarm_words
from probing_cluster.probe_agent.ranks import rank_watch
from probing_cluster.probe_agent.spool import codec, delivery_loop


def heartbeat(
    node: node_state.NodeState,
    sent: delivery_loop.DeliveryLoop,
    ranks: rank_watch.RankWatch,
    alarms: alarm_words.AlarmWords,
) -> records.AgentHeartbeat:
    """The agent's state at this moment."""
    totals = node.spool.totals
    return records.AgentHeartbeat(
        cluster=node.identity.cluster,
        node=node.identity.node,
        at=node.clock.now(),
        boot_id=node.identity.boot_id(),
        version=self_watch.version(),
        started_at=node.started_at,
        beat_s=node.beat_s(),
        spool_depth=node.spool.depth,
        spool_bytes=node.spool.bytes,
        lag_s=_lag_s(node),
        dropped_total=totals.dropped,
        coalesced_total=totals.coalesced,
        rejected_total=totals.rejected,
        hung_children=len(node.children.hung),
        rss_bytes=self_watch.rss_bytes(),
        cpu_s=round(self_watch.cpu_s(), 3),
        sources={
            **node.watch.rows(),
            "spool": _spool(node),
            "delivery": _delivery(sent),
            **_jobs(node, alarms),
        },
        faults=node.faults.rows(),
        jobs=node.book.running,
        ranks=ranks.rows(),
    )


def status(
    node: node_state.NodeState,
    sent: delivery_loop.DeliveryLoop,
    ranks: rank_watch.RankWatch,
    alarms: alarm_words.AlarmWords,
) -> dict[str, Any]:
    """The state that `probing-agent --once` and the socket's `status` show."""
    beat = heartbeat(node, sent, ranks, alarms)
    own = ("spool_depth", "spool_bytes", "lag_s", "dropped_total", "rss_bytes", "cpu_s")
    return {
        **records.json_fields(beat, "node", "version", "boot_id", *own),
        "delivered_total": sent.delivered_total,
        "delivery_error": sent.error,
        "hung_children": list(node.children.hung),
        **records.json_fields(beat, "jobs", "faults", "sources", "ranks"),
    }


def _lag_s(node: node_state.NodeState) -> float:
    """How long what waits longest in the spool has waited; 0 when nothing does."""
    oldest = node.spool.oldest()
    if oldest is None:
        return 0.0
    try:
        record = codec.decode(oldest.body, codec.LANES[oldest.lane])
    except errors.MalformedInput:  # counted when it is delivered
        return 0.0
    observed_at: datetime = getattr(record, "observed_at", None) or record.at
    return max(0.0, round((node.clock.now() - observed_at).total_seconds(), 3))


def _spool(node: node_state.NodeState) -> dict[str, Any]:
    row: dict[str, Any] = {
        "state": "error" if node.spool.error else "ok",
        "full_share": round(node.spool.full_share, 4),
        "disk_errors_total": node.spool.totals.disk_errors,
    }
    facts = {"error": node.spool.error, "replaced_corrupt": node.spool.replaced_corrupt}
    return row | {k: v for k, v in facts.items() if v}


def _jobs(node: node_state.NodeState, alarms: alarm_words.AlarmWords) -> dict[str, Any]:
    """Jobs that hold GPUs idle, and words of alarm that jobs have said; nothing where there are none."""
    found = {"held": node.held.rows(), "alarm_words": alarms.rows()}
    return {name: {"state": "ok", "jobs": rows} for name, rows in found.items() if rows}


def _delivery(sent: delivery_loop.DeliveryLoop) -> dict[str, Any]:
    row: dict[str, Any] = {
        "state": "error" if sent.error else "ok",
        "delivered_total": sent.delivered_total,
    }
    if sent.delivered_at is not None:
        row["last_read"] = clock.iso_z(sent.delivered_at)
    return row | ({"error": sent.error} if sent.error else {})
