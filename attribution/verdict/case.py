"""A case: all records on which one attempt is judged."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from probing_cluster.core import records


@dataclass(frozen=True, kw_only=True)
class WindowPolicy:
    """Bounds of the window, relative to the onset and the end."""

    before_s: float = 600.0
    """Seconds before the onset."""
    after_s: float = 300.0
    """Seconds after the end."""
    paper: bool = False
    """True: the fixed window of arXiv 2410.21680, relative to the end, for FAILED, NODE_FAIL and REQUEUED only."""


Key = tuple[str, int, datetime]
"""Cluster, job id and submit time: each attempt of a requeued job has its own."""
Span = tuple[datetime, datetime | None]
"""Begin and end; the end is None while it goes on."""


@records.record
class PastFault:
    """A user-type GPU error on one GPU, before this attempt."""

    node: str = records.doc("where")
    gpu: str = records.doc("the GPU as `gpu_key` names it")
    code: str = records.doc("Xid number")
    at: datetime = records.doc("when")
    job_id: int = records.doc("the job that held the GPU")
    user: str = records.doc("its owner")


@records.record
class Case:
    """One attempt and the records around it. The order inside the tuples does not matter."""

    attempt: records.JobAttempt = records.doc("the attempt judged")
    events: tuple[records.HealthEvent, ...] = records.doc(
        "node events and the job's own findings around it", default=()
    )
    active_faults: tuple[records.HealthEvent, ...] = records.doc(
        "faults that began before the window and that an agent still read as present in it", default=()
    )
    stalls: tuple[records.HealthEvent, ...] = records.doc(
        "stalls that began while it ran, before the window, and that no event ended before its end",
        default=(),
    )
    shared: Mapping[str, tuple[Span, ...]] = records.doc(
        "node to the times at which another attempt ran on it", default_factory=dict
    )
    allocations: tuple[records.JobAllocation, ...] = records.doc("what the Prolog saw of it", default=())
    actions: tuple[records.Drain, ...] = records.doc("what was done to its nodes or to it", default=())
    watched: Mapping[str, datetime | None] = records.doc(
        "node to the last time its agent was heard from; a node that is missing had no agent then",
        default_factory=dict,
    )
    by_log: frozenset[str] = records.doc(
        "nodes in `watched` that are known from a log file alone: where it ends does not prove that the node fell silent",
        default=frozenset(),
    )
    by_whole_log: frozenset[str] = records.doc(
        "nodes in `by_log` whose log reaches from before the start to after the end",
        default=frozenset(),
    )
    preemptor: records.JobAttempt | None = records.doc("the attempt that took its place", default=None)
    preemptor_verdict: records.Verdict | None = records.doc(
        "the verdict on the preemptor's attempt before, where that one had failed", default=None
    )
    past: tuple[PastFault, ...] = records.doc("earlier user-type GPU errors on its GPUs", default=())
    last_progress_at: datetime | None = records.doc(
        "last progress before it stalled, by the probe pages or the times in the job's own log", default=None
    )
    policy: WindowPolicy = field(default_factory=WindowPolicy)


def key(attempt: records.JobAttempt) -> Key:
    """The attempt's key."""
    return (attempt.cluster, attempt.job_id, attempt.submit_at)
