"""Run accounts out of the store: which runs changed, what the probe saw of them, and where their time went."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta

from probing_cluster.attribution import run_account
from probing_cluster.core import clock, records, settings
from probing_cluster.db import store

FIRST_STEP, LAST_STEP, CHECKPOINT = "first_step", "last_progress", "checkpoint"
"""Kinds of probe events that tell of training."""

RunKey = tuple[str, str, str]
"""Cluster, user and run key: a run is one user's."""


def account_runs(
    source: store.Store,
    *,
    since: datetime | None = None,
    until: datetime | None = None,
    job_ids: Iterable[int] | None = None,
    config: settings.AttributionSettings | None = None,
    failures_per_node_day: float | None = None,
    at: clock.Clock = clock.SYSTEM,
) -> list[records.RunAccount]:
    """Compute and store the accounts of every run that has an attempt in the span (or among the jobs).

    `failures_per_node_day` is the cluster's own rate where it is known; else the configured one.
    """
    assume = assumptions(config or settings.AttributionSettings(), failures_per_node_day)
    touched = source.attempts(job_ids=job_ids, since=since, until=until)
    made = []
    for key in sorted({run_of(a) for a in touched}):
        attempts = [a for a in source.attempts(run_key=key[2]) if run_of(a) == key]
        made += _one(source, attempts or [a for a in touched if run_of(a) == key], assume, at.now())
    source.save_run_accounts(made)
    return made


def run_of(attempt: records.JobAttempt) -> RunKey:
    """The run an attempt belongs to."""
    return (attempt.cluster, attempt.user, attempt.run_key or str(attempt.job_id))


def assumptions(
    config: settings.AttributionSettings, failures_per_node_day: float | None = None
) -> run_account.Assumptions:
    """What the configuration takes for granted where the probe saw nothing."""
    return run_account.Assumptions(
        interval_s=config.checkpoint_interval_s,
        write_s=config.checkpoint_write_s,
        restart_s=config.restart_s,
        failures_per_node_day=failures_per_node_day or config.failure_rate_per_node_day,
    )


def _one(
    source: store.Store,
    attempts: Sequence[records.JobAttempt],
    assume: run_account.Assumptions,
    now: datetime,
) -> list[records.RunAccount]:
    told: list[records.HealthEvent] = []
    for job_id in sorted({a.job_id for a in attempts}):
        told += source.events(job_id=job_id, kinds=(FIRST_STEP, LAST_STEP, CHECKPOINT))
    account = run_account.account(attempts, now=now, progress=progress(attempts, told), assume=assume)
    return [account] if account is not None else []


def progress(
    attempts: Iterable[records.JobAttempt], told: Iterable[records.HealthEvent]
) -> Mapping[run_account.Key, run_account.Progress]:
    """What the probe saw of each attempt; attempts it said nothing about are missing."""
    by_job: dict[int, list[records.HealthEvent]] = defaultdict(list)
    for event in told:
        if event.source == "probe" and event.job_id is not None:
            by_job[event.job_id].append(event)
    found: dict[run_account.Key, run_account.Progress] = {}
    for a in attempts:
        if a.start_at is None:
            continue
        mine = [
            e
            for e in by_job.get(a.job_id, ())
            if e.at >= a.start_at and (a.end_at is None or e.at <= a.end_at)
        ]
        if mine:
            found[(a.cluster, a.job_id, a.submit_at)] = _progress(mine)
    return found


def _progress(mine: Sequence[records.HealthEvent]) -> run_account.Progress:
    return run_account.Progress(
        first_step_at=min((e.at for e in mine if e.kind == FIRST_STEP), default=None),
        last_step_at=max((e.at for e in mine if e.kind == LAST_STEP), default=None),
        checkpoints=_checkpoints([e for e in mine if e.kind == CHECKPOINT]),
    )


def _checkpoints(told: Iterable[records.HealthEvent]) -> tuple[run_account.Checkpoint, ...]:
    """Checkpoints as completed: an event tells of a begin and a duration, and of its process's total so far.

    Not every checkpoint is told: what lies between two told ones is in the difference of their totals.
    """
    blocked_s: dict[str, float] = defaultdict(float)
    found = []
    for event in sorted(told, key=lambda e: (e.at, e.event_id)):
        took_s, total_s = _number(event.detail, "duration_s"), _number(event.detail, "total_s")
        process = f"{event.node} {event.detail.get('process')}"
        held_up_s = took_s if total_s is None else max(0.0, total_s - blocked_s[process])
        blocked_s[process] = max(blocked_s[process], total_s or 0.0)
        done_at = event.at + timedelta(seconds=took_s or 0.0)
        found.append(run_account.Checkpoint(at=done_at, duration_s=held_up_s or 0.0))
    return tuple(found)


def _number(detail: Mapping[str, object], name: str) -> float | None:
    value = detail.get(name)
    if not isinstance(value, (int, float)) or isinstance(value, bool) or not 0 <= value < 1e9:
        return None
    return float(value)
