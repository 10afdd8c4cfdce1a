"""What hung in the kernel behind a fault until a person or the time limit ended the job."""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import timedelta

from probing_cluster.attribution.verdict import claims, evidence_view, rank_claims, signatures
from probing_cluster.core import records

GSP, MOUNT = "gpu_gsp_timeout", "filesystem_mount"
ENDED_FROM_OUTSIDE = frozenset({"TIMEOUT", "DEADLINE", "CANCELLED"})
_WEIGHT = 0.85
"""Likely: that nothing says it passed is no proof that it did not."""
_BLOCKED_AFTER = timedelta(minutes=30)
"""The kernel complains of a blocked task two minutes after it began to wait, later where it looks seldom."""
_WHOLE_NODE = 4
"""GPUs of a node that a job without neighbours holds: no other GPU is likely to be the one that hung."""
_PROGRAM = re.compile(r"task (?:python|pt_|torchrun|ray::)")
"""Tasks that compute. Daemons that look after mounts hang on every dead server, whether or not the job uses it."""


def rule(view: evidence_view.EvidenceView) -> Iterable[claims.Claim]:
    """One claim per node and cause, where a task was blocked behind the fault and the fault was not seen to go."""
    if view.state not in ENDED_FROM_OUTSIDE:
        return
    hung = [e for e in view.stalls if e.kind == "hung_task"]
    for node in sorted({e.node for e in hung}):
        blocked = [e for e in hung if e.node == node]
        if _is_whole(view, node):
            yield from _claim(view, GSP, [e for e in view.left_behind if e.node == node], blocked)
        working = [e for e in blocked if _PROGRAM.search(e.message)]
        yield from _claim(view, MOUNT, [e for e in view.stalls if e.node == node], working)


def _is_whole(view: evidence_view.EvidenceView, node: str) -> bool:
    per_node = (view.attempt.n_gpus or 0) / max(len(view.attempt.nodes), 1)
    return not view.case.shared.get(node) and per_node >= _WHOLE_NODE


def _claim(
    view: evidence_view.EvidenceView,
    cause: str,
    faults: list[records.HealthEvent],
    blocked: list[records.HealthEvent],
) -> Iterable[claims.Claim]:
    step_at = view.case.last_progress_at
    for first in (e for e in faults if signatures.of(e).cause == cause):
        behind = [e for e in blocked if first.at <= e.at <= first.at + _BLOCKED_AFTER]
        if not behind or (step_at is not None and step_at > behind[0].at):
            continue
        yield claims.Claim(
            cause=cause,
            weight=_WEIGHT,
            at=first.at,
            rule="stuck",
            node=first.node,
            device=first.device or first.pci_bus_id,
            evidence=(first, behind[0]),
            cap=records.Confidence.LIKELY,
            nodes=frozenset((first.node,)),
            n_sources=1,
            explains=rank_claims.ENDINGS,
        )
        return
