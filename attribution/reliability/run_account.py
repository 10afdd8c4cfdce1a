"""The parts of a run's wall time; they add up to it exactly."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from probing_cluster.attribution.reliability import ettr
from probing_cluster.core import clock, records

Key = tuple[str, int, datetime]
"""Cluster, job id and submit time of an attempt."""


KEPT = frozenset({"COMPLETED", "RUNNING", "SUSPENDED", "COMPLETING"})
"""States of attempts whose training is not lost."""


@records.record
class Checkpoint:
    """One checkpoint that the probe saw."""

    at: datetime = records.doc("when it was complete")
    duration_s: float = records.doc("how long training was blocked for it, seconds", default=0.0)


@records.record
class RunProgress:
    """The probe's report on one attempt's training; it means at least one step."""

    first_step_at: datetime | None = records.doc(
        "end of the first training step; None: on no record", default=None
    )
    checkpoints: tuple[Checkpoint, ...] = records.doc("checkpoints completed", default=())


@dataclass(frozen=True, kw_only=True)
class Assumptions:
    """Values for what the probe did not see."""

    interval_s: float = 3600.0
    write_s: float = 0.0
    restart_s: float = 300.0
    failures_per_node_day: float = 0.005


@dataclass(frozen=True, kw_only=True)
class Split:
    """One attempt's running time, microseconds, in parts that add up to it."""

    suspended: int
    restart: int
    checkpoint: int
    lost: int
    productive: int


def account(
    attempts: Iterable[records.JobAttempt],
    *,
    now: datetime,
    progress: Mapping[Key, RunProgress] | None = None,
    stalls: Mapping[Key, datetime] | None = None,
    assume: Assumptions | None = None,
) -> records.RunAccount | None:
    """The account of one run from all its attempts; None without attempts.

    `stalls`: attempt to the time of its last progress, for attempts that hung until their end, from their verdicts.

    At each instant the run is running (the attempt that started first counts), else queued (an eligible attempt waits),
    else idle.
    """
    given = assume or Assumptions()
    measured_progress, hung = progress or {}, stalls or {}
    ordered = sorted(attempts, key=lambda a: (a.submit_at, a.job_id))
    if not ordered:
        return None
    begin = min(a.submit_at for a in ordered)
    end = max([begin, *(_end(a, now) for a in ordered)])
    running, queued_us = _timeline(ordered, begin, end, now)
    reports = [p for a in ordered if (p := measured_progress.get(_key(a))) is not None]
    saves = any(p.checkpoints for p in reports)
    splits = {
        key: split(a, running[key], measured_progress.get(key), given, hung.get(key), saves=saves)
        for a in ordered
        if (key := _key(a)) in running
    }
    wall_us = clock.span_us(end - begin)
    parts = {
        name: sum(getattr(s, name) for s in splits.values())
        for name in ("suspended", "restart", "checkpoint", "lost", "productive")
    }
    idle_us = wall_us - queued_us - sum(parts.values())
    denominator = wall_us - parts["suspended"] - idle_us
    starts = _starts(ordered)
    started = [start for start in starts if any(a.start_at is not None for a in start)]
    measured = bool(splits) and all(
        _measured(a, measured_progress.get(k), saves=saves) for a in ordered if (k := _key(a)) in splits
    )
    last = ordered[-1]
    return records.RunAccount(
        cluster=last.cluster,
        run_key=last.run_key or str(last.job_id),
        user=last.user,
        start_at=begin,
        end_at=end,
        n_gpus=max((n for start in starts if (n := _gpus(start)) is not None), default=None),
        n_attempts=len(started),
        wall_s=wall_us / 1e6,
        queued_s=queued_us / 1e6,
        productive_s=parts["productive"] / 1e6,
        lost_to_replay_s=parts["lost"] / 1e6,
        restart_s=parts["restart"] / 1e6,
        checkpoint_s=parts["checkpoint"] / 1e6,
        suspended_s=parts["suspended"] / 1e6,
        idle_s=idle_us / 1e6,
        measured=measured,
        ettr_measured=parts["productive"] / denominator if denominator > 0 else None,
        ettr_expected=_expected(
            [[a for a in start if a.start_at is not None] for start in started],
            queued_us,
            parts["productive"],
            given,
        ),
        made_at=now,
    )


def _starts(attempts: Iterable[records.JobAttempt]) -> list[list[records.JobAttempt]]:
    """The attempts by start: components of a heterogeneous job that were submitted together are one start."""
    found: dict[Key, list[records.JobAttempt]] = {}
    for attempt in attempts:
        key = (attempt.cluster, attempt.het_job_id or attempt.job_id, attempt.submit_at)
        found.setdefault(key, []).append(attempt)
    return list(found.values())


def _gpus(start: Iterable[records.JobAttempt]) -> int | None:
    """GPUs that the components of one start held together; None if no component's number is known."""
    known = [a.n_gpus for a in start if a.n_gpus is not None]
    return sum(known) if known else None


def split(
    attempt: records.JobAttempt,
    running_us: int,
    progress: RunProgress | None,
    assume: Assumptions,
    stalled_at: datetime | None = None,
    *,
    saves: bool,
) -> Split:
    """One attempt's running time in parts: from the probe's report if there is one, else by assumption.

    Time from `stalled_at` on is neither training nor start-up. `saves`: the probe saw a checkpoint of the run.
    """
    suspended = min(running_us, max(0, round(attempt.suspended_s * 1e6)))
    active = running_us - suspended
    kept = attempt.state in KEPT
    hung = 0 if kept else min(active, _hung_us(attempt, stalled_at))
    restart = min(active - hung, _restart_us(attempt, active, progress, assume))
    training = active - restart
    lost = 0 if kept else min(training, _lost_us(attempt, training, hung, progress, assume, saves=saves))
    checkpoint = min(training - lost, _checkpoint_us(training - lost, progress, assume))
    return Split(
        suspended=suspended,
        restart=restart,
        checkpoint=checkpoint,
        lost=lost,
        productive=training - lost - checkpoint,
    )


def _measured(attempt: records.JobAttempt, progress: RunProgress | None, *, saves: bool) -> bool:
    """True if the attempt's start-up and loss are measured, not assumed."""
    return progress is not None and progress.first_step_at is not None and (saves or attempt.state in KEPT)


ASSUMED_RESTART_FRAC = 0.1
"""Greatest share of an attempt that an assumed start-up takes: a job of two minutes did not start for five."""


def _restart_us(
    attempt: records.JobAttempt, active_us: int, progress: RunProgress | None, assume: Assumptions
) -> int:
    if progress is not None and progress.first_step_at is not None and attempt.start_at is not None:
        return max(0, clock.span_us(progress.first_step_at - attempt.start_at))
    return min(round(assume.restart_s * 1e6), int(active_us * ASSUMED_RESTART_FRAC))


def _hung_us(attempt: records.JobAttempt, stalled_at: datetime | None) -> int:
    if stalled_at is None or attempt.end_at is None:
        return 0
    return max(0, clock.span_us(attempt.end_at - stalled_at))


def _lost_us(
    attempt: records.JobAttempt,
    training_us: int,
    hung_us: int,
    progress: RunProgress | None,
    assume: Assumptions,
    *,
    saves: bool,
) -> int:
    """The time it hung, and the training since the last checkpoint before that.

    Half an interval is assumed for a run without a seen checkpoint: its own code may write checkpoints unseen.
    """
    if progress is None or not saves:
        return min(training_us, hung_us + round(assume.interval_s * 5e5))
    saved = [c.at for c in progress.checkpoints if attempt.end_at is None or c.at <= attempt.end_at]
    if not saved or attempt.end_at is None:
        return training_us
    return max(hung_us, clock.span_us(attempt.end_at - max(saved)))


def _checkpoint_us(training_us: int, progress: RunProgress | None, assume: Assumptions) -> int:
    if progress is not None:
        return round(sum(c.duration_s for c in progress.checkpoints) * 1e6)
    if assume.write_s <= 0:
        return 0
    each_us = round((assume.interval_s + assume.write_s) * 1e6)
    return training_us // each_us * round(assume.write_s * 1e6) if each_us else 0


def _timeline(
    attempts: Sequence[records.JobAttempt], begin: datetime, end: datetime, now: datetime
) -> tuple[dict[Key, int], int]:
    """Attempt to the microseconds in which it was the run's running one, and the microseconds spent queued."""
    edges = sorted({begin, end, *(t for a in attempts for t in _edges(a, now) if begin <= t <= end)})
    starting = sorted((a for a in attempts if a.start_at is not None), key=lambda a: (a.start_at, _key(a)))
    waits = sorted((t, step) for a in attempts for t, step in _waits(a, now))
    alive: list[tuple[int, Key, datetime]] = []
    """Running attempts as (place in the order of starts, key, end); the first one counts."""
    running: dict[Key, int] = {}
    queued_us = at_start = at_wait = waiting = 0
    for left, right in itertools.pairwise(edges):
        while at_start < len(starting) and (starting[at_start].start_at or left) <= left:
            item = starting[at_start]
            heapq.heappush(alive, (at_start, _key(item), _end(item, now)))
            at_start += 1
        while at_wait < len(waits) and waits[at_wait][0] <= left:
            waiting += waits[at_wait][1]
            at_wait += 1
        while alive and alive[0][2] <= left:
            heapq.heappop(alive)
        if alive:
            running[alive[0][1]] = running.get(alive[0][1], 0) + clock.span_us(right - left)
        elif waiting > 0:
            queued_us += clock.span_us(right - left)
    return running, queued_us


def _edges(attempt: records.JobAttempt, now: datetime) -> Iterable[datetime]:
    yield attempt.submit_at
    if attempt.start_at is not None:
        yield attempt.start_at
    yield _end(attempt, now)
    yield from (t for t, _ in _waits(attempt, now))


def _waits(attempt: records.JobAttempt, now: datetime) -> Iterable[tuple[datetime, int]]:
    """The instants at which an eligible attempt begins (+1) and ends (-1) to wait."""
    until = attempt.start_at if attempt.start_at is not None else _end(attempt, now)
    since = _eligible(attempt)
    if since < until:
        yield since, 1
        yield until, -1


REQUEUE_HOLD = timedelta(seconds=300)
"""Slurm itself holds a requeued job until its old credentials expire (121 s by default): that is waiting.

A longer delay is a hold or a begin time, as at a first submission.
"""


def _eligible(attempt: records.JobAttempt) -> datetime:
    eligible = max(attempt.submit_at, attempt.eligible_at or attempt.submit_at)
    if attempt.attempt > 1 and eligible - attempt.submit_at <= REQUEUE_HOLD:
        return attempt.submit_at
    return eligible


def _end(attempt: records.JobAttempt, now: datetime) -> datetime:
    """The end, but not before the start (clocks are set back) or the submission."""
    begin = max(attempt.submit_at, attempt.start_at or attempt.submit_at)
    return max(begin, attempt.end_at if attempt.end_at is not None else now)


def _key(attempt: records.JobAttempt) -> Key:
    return (attempt.cluster, attempt.job_id, attempt.submit_at)


def _expected(
    started: Sequence[Sequence[records.JobAttempt]], queued_us: int, productive_us: int, assume: Assumptions
) -> float | None:
    """ETTR by the renewal form for a run of this size, length and mean wait; None for a run that never started."""
    if not started or productive_us <= 0:
        return None
    return ettr.renewal(
        ettr.Model(
            n_nodes=max(len({n for a in start for n in a.nodes}) for start in started) or 1,
            failures_per_node_day=assume.failures_per_node_day,
            interval_s=assume.interval_s,
            restart_s=assume.restart_s,
            write_s=assume.write_s,
            queue_s=queued_us / 1e6 / len(started),
            productive_s=productive_us / 1e6,
        )
    )
