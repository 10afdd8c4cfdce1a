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

CORRECTED_S = 86400.0
"""Greatest offset of a clock by which times are corrected, seconds; nothing is dated by a clock further off."""


@records.record
class PastFault:
    """A user-type GPU error on one GPU, before this attempt."""

    node: str = records.doc("its node")
    gpu: str = records.doc("the GPU as `gpu_key` names it")
    code: str = records.doc("Xid number")
    at: datetime = records.doc("its time")
    job_id: int = records.doc("the job that held the GPU")
    user: str = records.doc("the job's user")


@records.record
class Case:
    """One attempt and the records around it. The order inside the tuples does not matter."""

    attempt: records.JobAttempt = records.doc("the attempt judged")
    events: tuple[records.HealthEvent, ...] = records.doc(
        "node events and job-side findings around it", default=()
    )
    active_faults: tuple[records.HealthEvent, ...] = records.doc(
        "conditions from before the window that were active at its end (`assign_rows.was_active_at_end`)",
        default=(),
    )
    stalls: tuple[records.HealthEvent, ...] = records.doc(
        "stalls from before the window, but while it ran, that no event reports as over by its end",
        default=(),
    )
    shared: Mapping[str, tuple[Span, ...]] = records.doc(
        "node to the times at which another attempt ran on it", default_factory=dict
    )
    allocations: tuple[records.JobAllocation, ...] = records.doc("the Prologs' records of it", default=())
    actions: tuple[records.Drain, ...] = records.doc("our actions on its nodes or on it", default=())
    watched: Mapping[str, datetime | None] = records.doc(
        "node to the last report of its agent, or to its log's end; a missing node had no agent then",
        default_factory=dict,
    )
    away: frozenset[str] = records.doc(
        "nodes whose agent missed its beats at the end and was back within a minute: its last report is in `watched`, but nobody looked then",
        default=frozenset(),
    )
    returned: Mapping[str, datetime] = records.doc(
        "node whose agent was silent at the end to the start of the next one, if that was in the same boot: the machine did not stop",
        default_factory=dict,
    )
    by_log: frozenset[str] = records.doc(
        "agentless nodes of `watched`, known by a log alone: its end does not prove that the node fell silent",
        default=frozenset(),
    )
    by_whole_log: frozenset[str] = records.doc(
        "nodes in `by_log` whose log covers the whole run",
        default=frozenset(),
    )
    clock_offsets_s: Mapping[str, float] = records.doc(
        "node to the seconds by which its clock was ahead in the window; the times of its records here are corrected by that",
        default_factory=dict,
    )
    preemptor: records.JobAttempt | None = records.doc("the attempt that took its place", default=None)
    preemptor_verdict: records.Verdict | None = records.doc(
        "the infrastructure failure of the preemptor's previous start, if there was one", default=None
    )
    past_faults: tuple[PastFault, ...] = records.doc("earlier user-type GPU errors on its GPUs", default=())
    last_progress_at: datetime | None = records.doc(
        "last progress before a stall, by the probe's pages or the times in the job's own log", default=None
    )
    policy: WindowPolicy = field(default_factory=WindowPolicy)


def key(attempt: records.JobAttempt) -> Key:
    """The attempt's key."""
    return (attempt.cluster, attempt.job_id, attempt.submit_at)


def may_have_peers(attempt: records.JobAttempt) -> bool:
    """True if it ran on several nodes, or is one component of a heterogeneous job, whose others run elsewhere."""
    return len(attempt.nodes) > 1 or attempt.het_job_id is not None
