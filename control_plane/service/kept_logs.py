"""Keeps a job's log before a restart truncates it: its node copies it, as the job's owner, and stores its tail."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from probing_cluster.control_plane import context
from probing_cluster.control_plane.policy import confirm
from probing_cluster.core import records
from probing_cluster.slurm_plugins.live import output_mode

PATIENCE = timedelta(seconds=20)
"""How long a node is waited for that was asked to keep a log; a dead job waits no longer for its log."""
_TTL_S = 60.0
_FORGET = timedelta(hours=1)
"""A log that was asked for early, and whose attempt nothing was decided about, is remembered so long."""


class LogRequests(dict[tuple[str, int, datetime], tuple[datetime, uuid.UUID | None, str]]):
    """Per attempt whose log is to be kept: since when, by which request, on which node. A service that begins asks again: a second copy at most."""


def is_requested(service: context.Context, attempt: records.JobAttempt) -> bool:
    """Whether a node has been asked to keep its log."""
    return _key(attempt) in service.memory(LogRequests)


def ask(service: context.Context, attempt: records.JobAttempt, name: str, now: datetime) -> None:
    """Ask a node of the attempt, once, to keep its log. `name`: the job as scontrol is told of it."""
    key, memory = _key(attempt), service.memory(LogRequests)
    if key in memory:
        return
    for old in [k for k, (since, *_) in memory.items() if now - since > _FORGET]:
        del memory[old]
    node = _node(service, attempt)
    request = None
    if node is not None:
        appends = output_mode.appends(service.run_slurm, attempt.job_id, name)
        # With nothing to copy its tail is stored all the same.
        detail = {"most_bytes": 0 if appends else service.config.policy.keep_log_bytes}
        request = service.store.request(
            node, "keep_log", attempt.job_id, _TTL_S, detail, cluster=attempt.cluster
        )
    memory[key] = (now, request, node or "")


def kept(
    service: context.Context, attempt: records.JobAttempt, name: str, now: datetime
) -> dict[str, Any] | None:
    """What became of an attempt's log, for its restart's row; None while its node is at it."""
    ask(service, attempt, name, now)
    key, memory = _key(attempt), service.memory(LogRequests)
    since, request, node = memory[key]
    if request is None:
        del memory[key]
        return {"log": "not kept: no agent of its nodes answers"}
    state = service.store.request_states([request]).get(request)
    if state == "acknowledged":
        del memory[key]
        return {"log": f"{node} was asked to keep it"}
    if now - since < PATIENCE:
        return None
    del memory[key]
    service.store.cancel_request(request)
    return {"log": f"not kept: {node} did not answer within {PATIENCE.total_seconds():.0f} s"}


def _key(attempt: records.JobAttempt) -> tuple[str, int, datetime]:
    return (attempt.cluster, attempt.job_id, attempt.submit_at)


def _node(service: context.Context, attempt: records.JobAttempt) -> str | None:
    """The first node, which wrote the log, or else the next that is heard: its files are on a network as a rule."""
    nodes: Sequence[str] = attempt.nodes
    ages = service.store.heartbeat_ages_s(cluster=service.cluster)
    beats = {b.node: b for b in service.store.heartbeats(nodes, cluster=service.cluster)}
    return next((n for n in nodes if n in beats and confirm.is_current(beats[n], ages.get(n))), None)
