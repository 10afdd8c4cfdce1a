"""The cost of a job's failures in GPU-hours, from its run's account."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence

from probing_cluster.core import records
from probing_cluster.reports import phrase

_COUNTED_GPU_H = 0.05
"""A cost that rounds to less than 0.1 GPU-hours is not divided into parts."""


@records.record
class Cost:
    """GPU-hours that failures took from one run; the parts add up to `total`."""

    hung_gpu_h: float = records.doc("without progress until an end, GPU-hours", default=0.0)
    replayed_gpu_h: float = records.doc("training done again, or lost, GPU-hours")
    restarting_gpu_h: float = records.doc("starting up again after the first start, GPU-hours")
    queued_gpu_h: float = records.doc("waiting to start again, GPU-hours")
    measured: bool = records.doc("false when checkpoints and first steps were assumed")

    @property
    def total_gpu_h(self) -> float:
        """All of it, GPU-hours."""
        return self.hung_gpu_h + self.replayed_gpu_h + self.restarting_gpu_h + self.queued_gpu_h

    @property
    def assumed(self) -> bool:
        """Whether the total depends on assumptions; a total of 0 does not."""
        return not self.measured and self.total_gpu_h > 0

    @property
    def words(self) -> str:
        """`12.5 GPU-hours: 9.0 replayed, 3.5 queued`; parts that round to nothing are left out."""
        parts = (
            (self.hung_gpu_h, "hung"),
            (self.replayed_gpu_h, "replayed"),
            (self.restarting_gpu_h, "restarting"),
            (self.queued_gpu_h, "queued"),
        )
        if self.total_gpu_h < _COUNTED_GPU_H:
            return "under 0.1 GPU-hours" if self.total_gpu_h > 0 else "no GPU-hours"
        named = [(amount, word) for amount, word in parts if amount >= _COUNTED_GPU_H]
        total = f"{phrase.gpu_hours(self.total_gpu_h)} GPU-hours"
        if len(named) == 1:
            return f"{total}, {named[0][1]}"
        listed = ", ".join(f"{phrase.gpu_hours(amount)} {word}" for amount, word in named)
        return f"{total}: {listed}" if listed else total


def of_failures(
    account: records.RunAccount | None, attempts: Sequence[records.JobAttempt], hung_s: float = 0.0
) -> Cost | None:
    """The cost that the run would not have had without its failures; None if it is not known.

    `hung_s`: the part of the loss during which its attempts hung before their ends.
    The first wait in the queue and the first start-up are not counted. The first wait is known
    exactly; the first start-up counts as an equal share of all start-ups.
    """
    if account is None or not account.n_gpus or not attempts:
        return None
    first = attempts[0]
    eligible = first.eligible_at or first.submit_at
    first_wait_s = (first.start_at - eligible).total_seconds() if first.start_at else 0.0
    again = max(account.n_attempts - 1, 0) / max(account.n_attempts, 1)
    gpu_h = account.n_gpus / 3600
    hung_s = min(hung_s, account.lost_to_replay_s)
    return Cost(
        hung_gpu_h=hung_s * gpu_h,
        replayed_gpu_h=(account.lost_to_replay_s - hung_s) * gpu_h,
        restarting_gpu_h=account.restart_s * again * gpu_h,
        queued_gpu_h=max(account.queued_s - max(first_wait_s, 0.0), 0.0) * gpu_h,
        measured=account.measured,
    )


def covers(
    account: records.RunAccount | None,
    attempts: Sequence[records.JobAttempt],
    run_jobs: Sequence[int],
    *,
    is_reused: bool = False,
) -> bool:
    """Whether the account covers all attempts; false if it was made before accounting had the last start or end."""
    # Components of a heterogeneous job that start together are one start.
    starts = {(a.het_job_id or a.job_id, a.submit_at) for a in attempts if a.start_at is not None}
    if account is None or account.n_attempts < len(starts):
        return False
    if is_reused and len(run_jobs) == 1 and account.start_at < min(a.submit_at for a in attempts):
        return False  # the account includes an earlier job of the same id
    ends = [a.end_at for a in attempts if a.end_at is not None]
    if len(ends) < len(attempts):
        # The run goes on, and its account is made again; one from before an end lacks what was lost with it.
        return not ends or account.end_at >= max(ends)
    return account.end_at == max(ends) or (account.end_at > max(ends) and len(run_jobs) > 1)


def without_stall(
    account: records.RunAccount, last: records.JobAttempt, gangs: Iterable[records.GangVerdict]
) -> records.RunAccount:
    """The account of a run that hangs now: the time since the stall began counts as lost, not as productive."""
    since = min((g.onset_at for g in gangs if g.ended_at is None), default=None)
    if since is None or last.end_at is not None:
        return account
    stood_s = max(0.0, min(account.productive_s, (account.end_at - since).total_seconds()))
    productive_s = account.productive_s - stood_s
    counted_s = account.wall_s - account.suspended_s - account.idle_s
    return dataclasses.replace(
        account,
        productive_s=productive_s,
        lost_to_replay_s=account.lost_to_replay_s + stood_s,
        ettr_measured=productive_s / counted_s if counted_s > 0 else None,
    )


def ran_s(attempt: records.JobAttempt) -> float:
    """Seconds from start to end; 0 if either is not known."""
    return (attempt.end_at - attempt.start_at).total_seconds() if attempt.start_at and attempt.end_at else 0.0
