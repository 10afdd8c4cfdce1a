"""Which running jobs a fault takes down with it: those that hold the broken part, and no other."""

from __future__ import annotations

import re
from collections.abc import Sequence

from probing_cluster.control_plane.policy import view
from probing_cluster.core import records, vocabulary

GPU_KINDS = frozenset(
    {"xid", "gpu_lost", "ecc", "row_remap", "retired_pages", "gsp", "pcie_replay", "throttle"}
)
"""Kinds that concern one GPU even where the GPU could not be named."""

_GPU_DEVICE = re.compile(r"gpu\d+")


def concerns_one_gpu(event: records.HealthEvent) -> bool:
    """True when only the holders of one GPU are hit; host, mount and link faults hit everyone on the node."""
    return bool(event.gpu_uuid or event.kind in GPU_KINDS or _GPU_DEVICE.fullmatch(event.device or ""))


def hit(job: view.ActiveJob, event: records.HealthEvent, fleet_view: view.View) -> str | None:
    """Why `job` must not be requeued for `event`; None when it holds the broken part and may be."""
    if event.node not in job.nodes or job.state not in {"RUNNING", "SUSPENDED"}:
        return "it does not run on the node"
    if job.start_at is None or job.start_at > event.at:
        return "it started after the fault"
    if concerns_one_gpu(event):
        return _holds(job, event, fleet_view) or _spared(job, event.node)
    return _spared(job, event.node)


def _spared(job: view.ActiveJob, node: str) -> str | None:
    if not job.batch:
        return "it is interactive"
    if not job.requeue:
        return "it was submitted with --no-requeue"
    return asks_for(job.required_nodes, node) or None


def asks_for(required: Sequence[str], node: str) -> str:
    """Words about a job that names the node it would have to leave; empty for any other.

    Back in the queue it would wait for that node alone, and its owner's dependents and next submission with it.
    """
    return f"it asks for {node} by name (--nodelist) and would wait for it" if node in required else ""


def _holds(job: view.ActiveJob, event: records.HealthEvent, fleet_view: view.View) -> str | None:
    if job.n_gpus == 0:
        return "it holds no GPU"
    own = [
        a
        for a in fleet_view.allocations
        if (a.job_id, a.node, a.restart_count) == (job.job_id, event.node, job.restart_count)
    ]
    held = max(own, key=lambda a: a.at).gpu_uuids if own else None
    node = fleet_view.nodes.get(event.node)
    if held and node and node.n_gpus and len(held) >= node.n_gpus:
        return None  # it holds every GPU of the node, so also the broken one
    if held is None:
        return vocabulary.GPUS_UNKNOWN
    if event.gpu_uuid is None:
        return "which GPU failed is not known"
    return None if event.gpu_uuid in held else "it does not hold the GPU"
