"""Makes attempts of accounting's rows: sets never-started rows apart, merges resizes, drops doubles, counts starts."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from probing_cluster.core import errors, records, vocabulary
from probing_cluster.slurm_plugins.accounting import sacct_rows
from probing_cluster.slurm_plugins.live import live_records

ACTIVE = frozenset({"RUNNING", "SUSPENDED", "COMPLETING", "CONFIGURING", "STAGE_OUT", "STOPPED", "SIGNALING"})
"""States of a job that has not ended."""
WAITING = frozenset({"PENDING", "REQUEUE_HOLD", "REQUEUE_FED", "RESV_DEL_HOLD", "SPECIAL_EXIT", "REVOKED"})
"""States of a job that is not running here; a start time beside them is a forecast."""
_FLAGS = frozenset(
    {"REQUEUED", "RESIZING", "LAUNCH_FAILED", "RECONFIG_FAIL", "POWER_UP_NODE", "UPDATE_DB", "EXPEDITING"}
)
STATES = live_records.JOB_BASES | ACTIVE | WAITING | _FLAGS
"""Every state that Slurm 20.11 to 26.05 writes of a job, the flags that newer JSON lists among them included."""


@dataclass(frozen=True, kw_only=True)
class NotStarted:
    """A row of a job that never ran: pending, or cancelled while pending."""

    cluster: str
    job_id: str
    """As Slurm writes it: 123, 123_4, 123_[5-9]."""
    raw_id: int | None = None
    """JobIDRaw, by which Slurm's mails and environment name an array's task; None where it was not given."""
    state: str
    submit_at: datetime | None = None
    end_at: datetime | None = None
    user: str = ""
    account: str = ""
    name: str = ""
    partition: str = ""
    """Empty in a row that slurmdbd has not completed; its user is not the job's then."""
    reason: str = ""
    """Why it still waited when it ended, in Slurm's word; empty where it gives none."""
    cancelled_by: str | None = None
    """A name, or the number that Slurm wrote; None where it names nobody."""


@dataclass(frozen=True, kw_only=True)
class ParseResult:
    """What accounting's answer held; rows = attempts + not_started + steps + duplicates + merged + bad rows."""

    attempts: tuple[records.JobAttempt, ...] = ()
    rejected: tuple[sacct_rows.RejectedRow, ...] = ()
    not_started: tuple[NotStarted, ...] = ()
    steps: int = 0
    duplicates: int = 0
    """Rows of an attempt that another row already gave, as where two daily dumps overlap."""
    merged: int = 0
    """RESIZING rows folded into the attempt they were part of."""
    running_until: datetime | None = None
    """When the newest row of a job that ran was made: its start and the time it had run."""
    n_naive: int = 0
    """Rows with times without a zone, where none was given."""
    notes: tuple[str, ...] = ()
    """What a person should know about how the rows were read."""


@dataclass(frozen=True, kw_only=True)
class AssembledAttempts:
    """Attempts in order, and what was folded into them."""

    attempts: tuple[records.JobAttempt, ...]
    duplicates: int
    merged: int


def require_state(state: str) -> str:
    """`state`; raises MalformedInput where Slurm has no such state, or it was cut too short to tell which."""
    if state in STATES:
        return state
    if state.endswith("+"):
        could_be = " or ".join(sorted(s for s in STATES if s.startswith(state[:-1]))) or "none that Slurm has"
        raise errors.MalformedInput(
            f"the state {state!r} is cut short (it may be {could_be}); export with --format=…,State%20"
        )
    raise errors.MalformedInput(
        f"{state!r} is no state that Slurm has, such as COMPLETED, FAILED, CANCELLED, TIMEOUT, NODE_FAIL,"
        " PREEMPTED, OUT_OF_MEMORY, BOOT_FAIL, DEADLINE, REQUEUED, RUNNING, PENDING"
    )


def shell_status(code: int | None, signal: int | None) -> int | None:
    """One number for how a step ended, as a shell gives it: its exit code, or 128 + the signal that ended it; None where neither is known."""
    return vocabulary.BY_SIGNAL + signal if signal and not code else code


def assemble(rows: Iterable[records.JobAttempt]) -> AssembledAttempts:
    """Attempts numbered by submit time within each job, ordered by submit time and job id."""
    # An id that Slurm used again has another owner or another name.
    jobs: dict[tuple[str, int, str, str], dict[tuple[datetime, datetime], records.JobAttempt]] = {}
    duplicates = merged = 0
    for row in rows:
        by_start = jobs.setdefault((row.cluster, row.job_id, row.user, row.name), {})
        key = (row.submit_at, row.start_at or row.submit_at)
        known = by_start.get(key)
        duplicates += known is not None
        by_start[key] = row if known is None else _later(known, row)
    attempts: list[records.JobAttempt] = []
    for by_start in jobs.values():
        ordered = [by_start[key] for key in sorted(by_start)]
        joined = _merge_resized(ordered)
        whole = _one_of_each_submit(joined)
        merged += len(ordered) - len(joined)
        duplicates += len(joined) - len(whole)
        attempts += [row if n == 1 else dataclasses.replace(row, attempt=n) for n, row in enumerate(whole, 1)]
    attempts.sort(key=lambda row: (row.submit_at, row.job_id))
    return AssembledAttempts(attempts=tuple(attempts), duplicates=duplicates, merged=merged)


def _later(a: records.JobAttempt, b: records.JobAttempt) -> records.JobAttempt:
    """The row that knows more: an ended one over a running one, then the later end, then the later row."""
    if a.end_at is None or b.end_at is None:
        return b if a.end_at is None else a
    return a if a.end_at > b.end_at else b


def _merge_resized(rows: Sequence[records.JobAttempt]) -> list[records.JobAttempt]:
    """Slurm closes a resized job's row as RESIZING and opens another; both are one attempt."""
    whole: list[records.JobAttempt] = []
    for row in rows:
        if whole and whole[-1].state == "RESIZING":
            whole[-1] = _joined(whole[-1], row)
        else:
            whole.append(row)
    return whole


def _one_of_each_submit(rows: Sequence[records.JobAttempt]) -> list[records.JobAttempt]:
    """A submission started once: of two rows with other starts, the one that knows more."""
    kept: dict[datetime, records.JobAttempt] = {}
    for row in rows:
        known = kept.get(row.submit_at)
        kept[row.submit_at] = row if known is None else _later(known, row)
    return list(kept.values())


def _joined(first: records.JobAttempt, rest: records.JobAttempt) -> records.JobAttempt:
    return dataclasses.replace(
        rest,
        submit_at=first.submit_at,
        eligible_at=first.eligible_at,
        start_at=first.start_at,
        suspended_s=first.suspended_s + rest.suspended_s,
        # Evidence on a node that was given back still concerns the attempt.
        nodes=tuple(dict.fromkeys((*first.nodes, *rest.nodes))),
        n_gpus=max((n for n in (first.n_gpus, rest.n_gpus) if n is not None), default=None),
        n_cpus=max((n for n in (first.n_cpus, rest.n_cpus) if n is not None), default=None),
    )


_BEFORE = timedelta(days=7)
"""A GPU job tells of the jobs so long before it, too: a site that began to account GPUs in between is unlikely."""


def with_zero_gpus(
    rows: Sequence[records.JobAttempt], accounted: bool | None
) -> Sequence[records.JobAttempt]:
    """The rows, with 0 GPUs where the cluster accounts GPUs and a row has none; elsewhere their number stays unknown.

    `accounted` None: a cluster accounts them from a week before its first row with GPUs on.
    """
    if accounted is False:
        return rows
    first: dict[str, datetime] = {}
    for row in rows:
        if row.n_gpus:
            first[row.cluster] = min(row.submit_at, first.get(row.cluster, row.submit_at))

    def has_none(row: records.JobAttempt) -> bool:
        since = first.get(row.cluster)
        return bool(accounted) or (since is not None and row.submit_at >= since - _BEFORE)

    return [
        dataclasses.replace(row, n_gpus=0) if row.n_gpus is None and row.n_cpus and has_none(row) else row
        for row in rows
    ]
