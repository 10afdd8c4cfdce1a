"""Makes run accounts from the store: finds changed runs, reads the probe's reports, and stores where their time went."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from probing_cluster.attribution.reliability import account_columns, run_account
from probing_cluster.core import clock, digits, records, settings
from probing_cluster.db import arrow, bulk, store

_SQL = Path(__file__).parent / "sql"
STALE = (_SQL / "stale_attempts.sql").read_text(encoding="utf-8")
_STALLED = (_SQL / "stalled_attempts.sql").read_text(encoding="utf-8")
_PROGRESS = (_SQL / "run_progress.sql").read_text(encoding="utf-8")
_REFRESH = timedelta(minutes=5)
"""Greatest age of the account of a running run."""
_REFRESHED_AFTER = timedelta(hours=2)
"""How long after a run's end late reports of its nodes still change its account."""
SLICE_ROWS = 50_000
"""Attempts accounted at once; bounds memory."""

FIRST_STEP, LAST_STEP, CHECKPOINT = "first_step", "last_progress", "checkpoint"
"""Kinds of probe events about training."""

_MOST_S = 1e9
"""Longest credible duration: a larger number comes from a forged page."""
RunKey = tuple[str, str, str]
"""Cluster, user and run key: a run belongs to one user."""


def update(
    source: store.Store,
    config: settings.AttributionSettings,
    *,
    since: datetime,
    at: clock.Clock = clock.SYSTEM,
    between: Callable[[int], bool] = lambda _: True,
) -> int:
    """Makes missing and stale accounts, of runs with an attempt that ended since, runs or waits. Returns their number.

    One query reads all attempts; they are accounted and stored slice by slice. `between` gets the number of accounts so
    far after each slice; if it returns False, the pass ends.
    """
    now = at.now()
    until = min(now, source.exported_until() or now)
    total = 0

    def slices(reader: Any) -> Iterator[pa.Table]:
        nonlocal total
        for rows in _whole_runs(reader):
            made = _slice(source, rows, assumptions(config), now, until)
            total += made.num_rows
            yield made
            if not between(total):
                return

    query = _with_instants(STALE, since, now - _REFRESH, now - _REFRESHED_AFTER)
    with arrow.reading(source.connection_uri(), query) as reader:
        bulk.load_run_accounts(source.connection_uri(), slices(reader))
    return total


def _with_instants(query: str, *instants: datetime) -> str:
    """The query with its `$1` … written out: with parameters the driver would return all rows as one batch."""
    for number, at in enumerate(instants, 1):
        query = query.replace(f"${number}", f"timestamptz '{clock.iso_z(at)}'")
    return query


def run_of(attempt: records.JobAttempt) -> RunKey:
    """The run an attempt belongs to."""
    return (attempt.cluster, attempt.user, attempt.run_key or str(attempt.job_id))


def assumptions(config: settings.AttributionSettings) -> run_account.Assumptions:
    """The configured assumptions for what the probe did not see."""
    return run_account.Assumptions(
        interval_s=config.checkpoint_interval_s,
        write_s=config.checkpoint_write_s,
        restart_s=config.restart_s,
        failures_per_node_day=config.failure_rate_per_node_day,
    )


def _whole_runs(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """The rows in tables of about SLICE_ROWS, without dividing a run."""
    waiting: list[pa.RecordBatch] = []
    for batch in batches:
        for low in range(0, batch.num_rows, SLICE_ROWS):
            waiting.append(batch.slice(low, SLICE_ROWS))
            if sum(b.num_rows for b in waiting) < SLICE_ROWS:
                continue
            rows = pa.Table.from_batches(waiting).combine_chunks()
            last = rows["run_no"][-1]
            n_whole = pc.sum(pc.less(rows["run_no"], last)).as_py()
            if n_whole:
                yield rows.slice(0, n_whole)
            waiting = rows.slice(n_whole).to_batches()
    if waiting:
        yield pa.Table.from_batches(waiting).combine_chunks()


def _slice(
    source: store.Store, rows: pa.Table, assume: run_account.Assumptions, now: datetime, until: datetime
) -> pa.Table:
    """The accounts of some whole runs; open ones are accounted up to `until`. Runs with overlapping attempts go one by one."""
    columns = account_columns.attempts_of(rows, until)
    simple = account_columns.in_sequence(columns)
    by_columns = np.repeat(simple, np.diff(np.append(columns.first, rows.num_rows)))
    events = _probe_events(source, columns)
    jobs = np.array(sorted({e.job_id for e in events if e.job_id is not None}), np.int64)
    part = rows.filter(pa.array(~by_columns | np.isin(rows["job_id"], jobs)))
    ends = dict(zip(_keys(part), part["end_at"].to_pylist(), strict=True))
    read = [replace(a, end_at=ends[_key(a)]) for a in source.attempts_of(list(ends))]
    progress_of = progress(read, events)
    stalls = _stalls(source, rows["job_id"].to_pylist())
    overlapping = rows.filter(pa.array(~by_columns))
    made = [_one_by_one(read, overlapping, progress_of, stalls, assume, until)]
    if simple.any():
        whole = simple.all()
        part = columns if whole else account_columns.attempts_of(rows.filter(pa.array(by_columns)), until)
        made.append(account_columns.accounts(part, progress_of, assume, now, stalls))
    return pa.concat_tables(made)


def _probe_events(source: store.Store, columns: account_columns.Attempts) -> list[records.HealthEvent]:
    """The probe's progress events of the attempts that started."""
    if not columns.started.any():
        return []
    given = {
        "clusters": columns.rows["cluster"].unique().to_pylist(),
        "job_ids": columns.rows["job_id"].to_pylist(),
        "kinds": [FIRST_STEP, LAST_STEP, CHECKPOINT],
        "since": clock.from_us(int(columns.start[columns.started].min())),
        "until": clock.from_us(int(columns.end.max())),
    }
    return source.readable(records.HealthEvent, source.rows(_PROGRESS, given))


def _stalls(source: store.Store, job_ids: Sequence[int]) -> Mapping[run_account.Key, datetime]:
    """Attempt to the time of its last progress, for hung attempts of these jobs, from their verdicts."""
    found = source.rows(_STALLED, {"job_ids": job_ids})
    return {(r["cluster"], r["job_id"], r["submit_at"]): r["stalled_at"] for r in found}


def _keys(part: pa.Table) -> list[run_account.Key]:
    names = ("cluster", "job_id", "submit_at")
    return list(zip(*(part[name].to_pylist() for name in names), strict=True))


def _key(attempt: records.JobAttempt) -> run_account.Key:
    return (attempt.cluster, attempt.job_id, attempt.submit_at)


def _one_by_one(
    read: Iterable[records.JobAttempt],
    part: pa.Table,
    progress_of: Mapping[run_account.Key, run_account.RunProgress],
    stalls: Mapping[run_account.Key, datetime],
    assume: run_account.Assumptions,
    until: datetime,
) -> pa.Table:
    """The accounts of the runs in `part`, one by one."""
    wanted = set(_keys(part))
    by_run: dict[RunKey, list[records.JobAttempt]] = defaultdict(list)
    for attempt in read:
        if _key(attempt) in wanted:
            by_run[run_of(attempt)].append(attempt)
    made = (
        run_account.account(mine, now=until, progress=progress_of, stalls=stalls, assume=assume)
        for mine in by_run.values()
    )
    return arrow.table(records.RunAccount, [account for account in made if account is not None])


def progress(
    attempts: Iterable[records.JobAttempt], events: Iterable[records.HealthEvent]
) -> Mapping[run_account.Key, run_account.RunProgress]:
    """Attempt to its progress, from the probe's events; an attempt without events is missing."""
    by_job: dict[tuple[str, int], list[records.HealthEvent]] = defaultdict(list)
    for event in events:
        if event.source == "probe" and event.job_id is not None:
            by_job[event.cluster, event.job_id].append(event)
    found: dict[run_account.Key, run_account.RunProgress] = {}
    for a in attempts:
        if a.start_at is None:
            continue
        mine = [
            e
            for e in by_job.get((a.cluster, a.job_id), ())
            if e.at >= a.start_at and (a.end_at is None or e.at <= a.end_at)
        ]
        if mine:
            found[_key(a)] = _progress(mine)
    return found


def _progress(mine: Sequence[records.HealthEvent]) -> run_account.RunProgress:
    return run_account.RunProgress(
        first_step_at=min((e.at for e in mine if e.kind == FIRST_STEP), default=None),
        checkpoints=_checkpoints([e for e in mine if e.kind == CHECKPOINT]),
    )


def _checkpoints(events: Iterable[records.HealthEvent]) -> tuple[run_account.Checkpoint, ...]:
    """Completed checkpoints. An event states the begin and duration of one, and its process's total so far.

    Not every checkpoint is reported: those between two reports are in the difference of their totals.
    """
    blocked_s: dict[str, float] = defaultdict(float)
    found = []
    for event in sorted(events, key=lambda e: (e.at, e.event_id)):
        took_s, total_s = (
            s if (s := digits.number(event.detail.get(n))) is not None and s < _MOST_S else None
            for n in ("duration_s", "total_s")
        )
        process = f"{event.node} {event.detail.get('process')}"
        held_up_s = took_s if total_s is None else max(0.0, total_s - blocked_s[process])
        blocked_s[process] = max(blocked_s[process], total_s or 0.0)
        done_at = event.at + timedelta(seconds=took_s or 0.0)
        found.append(run_account.Checkpoint(at=done_at, duration_s=held_up_s or 0.0))
    return tuple(found)
