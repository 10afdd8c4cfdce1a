"""Keeps a job's log before a restart truncates it: its node copies it, as the job's owner, and stores its tail."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from datetime import datetime, timedelta

from probing_cluster.control_plane import context
from probing_cluster.control_plane.policy import confirm
from probing_cluster.core import records
from probing_cluster.slurm_plugins.live import output_mode

PATIENCE = timedelta(seconds=20)
"""How long a node is waited for that was asked to keep a log; a requeued job is held no longer for its log."""
_TTL_S = 60.0


class LogRequests(dict[uuid.UUID, tuple[datetime, uuid.UUID | None, str]]):
    """Per restart whose log is to be kept: since when, by which request, on which node. A service that begins asks again: a second copy at most."""


def kept(service: context.Context, row: records.Drain, name: str, now: datetime) -> str:
    """What became of the log of a restart that was begun, in words; empty while its node is at it.

    `name`: the job as scontrol must be told of it.
    """
    memory = service.memory(LogRequests)
    if row.drain_id not in memory:
        memory[row.drain_id] = (now, *_request(service, row, name))
    since, request, node = memory[row.drain_id]
    if request is None:
        words = "not kept: no agent of its nodes answers"
    elif service.store.request_states([request]).get(request) == "acknowledged":
        words = f"{node} was asked to keep it"
    elif now - since < PATIENCE:
        return ""
    else:
        service.store.cancel_request(request)
        words = f"not kept: {node} did not answer within {PATIENCE.total_seconds():.0f} s"
    del memory[row.drain_id]
    return words


def _request(service: context.Context, row: records.Drain, name: str) -> tuple[uuid.UUID | None, str]:
    """The request to keep the log, and the node that has it; None and an empty name where no agent answers."""
    if row.job_id is None or row.submit_at is None:
        return None, ""
    attempts = service.store.attempts_of([(row.cluster, row.job_id, row.submit_at)])
    node = _node(service, attempts[0].nodes) if attempts else None
    if node is None:
        return None, ""
    appends = output_mode.appends(service.run_slurm, row.job_id, name)
    # With nothing to copy its tail is stored all the same.
    detail = {"most_bytes": 0 if appends else service.config.policy.keep_log_bytes}
    request = service.store.request(node, "keep_log", row.job_id, _TTL_S, detail, cluster=row.cluster)
    return request, node


def _node(service: context.Context, nodes: Sequence[str]) -> str | None:
    """The first node, which wrote the log, or else the next that is heard: its files are on a network as a rule."""
    ages = service.store.heartbeat_ages_s(cluster=service.cluster)
    beats = {b.node: b for b in service.store.heartbeats(nodes, cluster=service.cluster)}
    return next((n for n in nodes if n in beats and confirm.is_current(beats[n], ages.get(n))), None)
