"""Accounts of many runs by columns: the sums of `run_account`, for runs whose attempts follow one another."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from probing_cluster.attribution.reliability import ettr, run_account
from probing_cluster.core import clock, records
from probing_cluster.db import arrow

_EXACT_US = 1 << 53
"""Floats represent every integer up to here; longer runs (285 years) are not accounted by columns."""
_PARTS = ("suspended", "restart", "checkpoint", "lost", "productive")
Ints = Any
"""A numpy array of int64, one element per attempt or per run."""


@dataclass(frozen=True, kw_only=True)
class Attempts:
    """Attempts of whole runs, by run and then by submit time; times in microseconds since 1970."""

    rows: pa.Table
    """Rows of stale_attempts.sql."""
    first: Ints
    """Index of each run's first attempt."""
    submit: Ints
    eligible: Ints
    start: Ints
    """The start; the submit time if it never started."""
    end: Ints
    """The end; `now` while it runs or waits; never before start or submission."""
    ended: Any
    """True if the end is known."""
    started: Any


def attempts_of(rows: pa.Table, now: datetime) -> Attempts:
    """The rows as columns of numbers."""
    run_no = rows["run_no"].to_numpy()
    submit = _us_of(rows["submit_at"], 0)
    started, ended = (pc.is_valid(rows[name]).to_numpy() for name in ("start_at", "end_at"))
    start = np.where(started, _us_of(rows["start_at"], 0), submit)
    end = np.where(ended, _us_of(rows["end_at"], 0), clock.to_us(now))
    known = np.where(pc.is_valid(rows["eligible_at"]).to_numpy(), _us_of(rows["eligible_at"], 0), submit)
    eligible = np.maximum(submit, known)
    held = (rows["attempt"].to_numpy() > 1) & (eligible - submit <= clock.span_us(run_account.REQUEUE_HOLD))
    return Attempts(
        rows=rows,
        first=np.flatnonzero(np.concatenate([[True], run_no[1:] != run_no[:-1]])),
        submit=submit,
        eligible=np.where(held, submit, eligible),
        start=start,
        end=np.maximum(np.maximum(submit, start), end),
        ended=ended,
        started=started,
    )


def in_sequence(attempts: Attempts) -> Any:
    """For each run: True if its attempts follow one another, so that no instant belongs to two of them."""
    a = attempts
    suspended = a.rows["suspended_s"].to_numpy()
    own = (a.start >= a.submit) & np.isfinite(suspended) & (np.abs(suspended) < _EXACT_US / 1e6)
    after = np.ones(len(own), bool)
    # Of one submission there are several attempts only in a heterogeneous job: its components' GPUs add up.
    after[1:] = (a.submit[1:] >= a.end[:-1]) & (a.submit[1:] > a.submit[:-1])
    after[a.first] = True
    long = np.maximum.reduceat(a.end, a.first) - np.minimum.reduceat(a.submit, a.first) >= _EXACT_US
    return np.logical_and.reduceat(own & after, a.first) & ~long


def accounts(
    attempts: Attempts,
    progress: Mapping[run_account.Key, run_account.RunProgress],
    assume: run_account.Assumptions,
    now: datetime,
    stalls: Mapping[run_account.Key, datetime] | None = None,
) -> pa.Table:
    """One account per run, in the records' Arrow schema. Every run must be `in_sequence`."""
    a = attempts
    waited = np.maximum(0, np.where(a.started, a.start, a.end) - a.eligible)
    running = np.where(a.started, a.end - a.start, 0)
    split, is_measured = _split(a, running, progress, assume, stalls or {})
    parts = {name: np.add.reduceat(split[name], a.first) for name in _PARTS}
    n_started = np.add.reduceat(a.started.astype(np.int64), a.first)
    queued = np.add.reduceat(waited, a.first)
    begin, end = np.minimum.reduceat(a.submit, a.first), np.maximum.reduceat(a.end, a.first)
    wall = end - begin
    idle = wall - queued - sum(parts.values())
    denominator = wall - parts["suspended"] - idle
    ran = running > 0
    measured = np.logical_or.reduceat(ran, a.first) & np.logical_and.reduceat(~ran | is_measured, a.first)
    return _table(
        a,
        {
            "start_at": begin,
            "end_at": end,
            "n_attempts": n_started,
            "wall_s": wall / 1e6,
            "queued_s": queued / 1e6,
            "productive_s": parts["productive"] / 1e6,
            "lost_to_replay_s": parts["lost"] / 1e6,
            "restart_s": parts["restart"] / 1e6,
            "checkpoint_s": parts["checkpoint"] / 1e6,
            "suspended_s": parts["suspended"] / 1e6,
            "idle_s": idle / 1e6,
            "measured": measured,
            "ettr_measured": _ratio(parts["productive"], denominator),
            "ettr_expected": _expected(a, n_started, queued, parts["productive"], assume),
        },
        now,
    )


def _split(
    a: Attempts,
    running: Ints,
    progress: Mapping[run_account.Key, run_account.RunProgress],
    assume: run_account.Assumptions,
    stalls: Mapping[run_account.Key, datetime],
) -> tuple[dict[str, Ints], Any]:
    """Each attempt's running time in the parts of `run_account.split`, and True if its start-up and loss are measured."""
    measured = _ProgressColumns.of(a, progress)
    suspended = np.minimum(running, np.maximum(0, _whole(a.rows["suspended_s"].to_numpy() * 1e6)))
    active = running - suspended
    kept = pc.is_in(a.rows["state"], pa.array(sorted(run_account.KEPT))).to_numpy()
    hung = np.where(kept, 0, np.minimum(active, _hung(a, stalls)))
    guessed = np.minimum(
        round(assume.restart_s * 1e6), (active * run_account.ASSUMED_RESTART_FRAC).astype(np.int64)
    )
    first_step = np.maximum(0, measured.first - a.start)
    restart = np.minimum(active - hung, np.where(measured.first_known, first_step, guessed))
    training = active - restart
    since_saved = np.where(measured.saved_known & a.ended, np.maximum(hung, a.end - measured.saved), training)
    n_attempts = np.diff(np.append(a.first, len(a.submit)))
    saves = np.repeat(np.logical_or.reduceat(measured.saves, a.first), n_attempts)
    assumed = hung + round(assume.interval_s * 5e5)
    lost = np.minimum(training, np.where(measured.any & saves, since_saved, assumed))
    lost = np.where(kept, 0, lost)
    left = training - lost
    each = round((assume.interval_s + assume.write_s) * 1e6)
    written = left // each * round(assume.write_s * 1e6) if assume.write_s > 0 and each else 0
    checkpoint = np.minimum(left, np.where(measured.any, measured.blocked, written))
    return {
        "suspended": suspended,
        "restart": restart,
        "checkpoint": checkpoint,
        "lost": lost,
        "productive": left - checkpoint,
    }, measured.first_known & (saves | kept)


def _hung(a: Attempts, stalls: Mapping[run_account.Key, datetime]) -> Ints:
    """How long each attempt had hung at its end; 0 if it did not hang."""
    hung = np.zeros(len(a.submit), np.int64)
    for i, key in _places_of(a, stalls):
        if a.ended[i]:
            hung[i] = max(0, int(a.end[i]) - clock.to_us(stalls[key]))
    return hung


def _places_of(a: Attempts, known: Collection[run_account.Key]) -> Iterator[tuple[int, run_account.Key]]:
    """Index and key of each attempt in `known`."""
    jobs, clusters = a.rows["job_id"].to_numpy(), a.rows["cluster"]
    for i in np.flatnonzero(np.isin(jobs, list({job_id for _, job_id, _ in known}))) if known else ():
        key = (clusters[i].as_py(), int(jobs[i]), clock.from_us(int(a.submit[i])))
        if key in known:
            yield int(i), key


@dataclass(frozen=True, kw_only=True)
class _ProgressColumns:
    """The probe's report on each attempt, one column per fact; zeros without a report."""

    any: Any
    first: Ints
    first_known: Any
    saved: Ints
    saved_known: Any
    saves: Any
    blocked: Ints

    @classmethod
    def of(cls, a: Attempts, progress: Mapping[run_account.Key, run_account.RunProgress]) -> _ProgressColumns:
        n = len(a.submit)
        flags = {name: np.zeros(n, bool) for name in ("any", "first_known", "saved_known", "saves")}
        times = {name: np.zeros(n, np.int64) for name in ("first", "saved", "blocked")}
        for i, key in _places_of(a, progress):
            _put(i, progress[key], int(a.end[i]) if a.ended[i] else None, flags, times)
        return cls(**flags, **times)


def _put(
    i: int,
    mine: run_account.RunProgress,
    end_us: int | None,
    flags: Mapping[str, Any],
    times: Mapping[str, Ints],
) -> None:
    flags["any"][i] = True
    if mine.first_step_at is not None:
        flags["first_known"][i], times["first"][i] = True, clock.to_us(mine.first_step_at)
    flags["saves"][i] = bool(mine.checkpoints)
    saved = [at for at in (clock.to_us(c.at) for c in mine.checkpoints) if end_us is None or at <= end_us]
    if saved:
        flags["saved_known"][i], times["saved"][i] = True, max(saved)
    times["blocked"][i] = min(_EXACT_US, round(sum(c.duration_s for c in mine.checkpoints) * 1e6))


def _expected(
    a: Attempts, n_started: Ints, queued: Ints, productive: Ints, assume: run_account.Assumptions
) -> pa.Array:
    sizes = np.where(a.started, a.rows["n_nodes"].to_numpy(), 0)
    n_nodes = np.maximum(1, np.maximum.reduceat(sizes, a.first))
    some = (n_started > 0) & (productive > 0)
    queue_s = queued / 1e6 / np.maximum(1, n_started)
    given = ettr.Model(
        n_nodes=1,
        failures_per_node_day=assume.failures_per_node_day,
        interval_s=assume.interval_s,
        restart_s=assume.restart_s,
        write_s=assume.write_s,
    )
    found = np.zeros(len(some))
    found[some] = ettr.renewals(given, n_nodes[some], queue_s[some], productive[some] / 1e6)
    return pa.array(found, mask=~some)


def _ratio(part: Ints, whole: Ints) -> pa.Array:
    return pa.array(part / np.maximum(1, whole), mask=whole <= 0)


def _table(a: Attempts, columns: Mapping[str, Any], now: datetime) -> pa.Table:
    wanted = arrow.schema(records.RunAccount)
    last = pa.array(np.concatenate([a.first[1:], [len(a.submit)]]) - 1)
    made = dict(columns)
    for name in ("cluster", "run_key", "user"):
        made[name] = a.rows[name].combine_chunks().take(last)
    gpus = np.where(
        pc.is_valid(a.rows["n_gpus"]).to_numpy(), pc.fill_null(a.rows["n_gpus"], -1).to_numpy(), -(1 << 62)
    )
    most = np.maximum.reduceat(gpus, a.first)
    made["n_gpus"] = pa.array(most, mask=most == -(1 << 62))
    made["made_at"] = np.full(len(last), clock.to_us(now))
    arrays = [_as(made[f.name], f.type) for f in wanted]
    return pa.Table.from_arrays(arrays, schema=wanted)


def _as(values: Any, kind: pa.DataType) -> pa.Array:
    made = values if isinstance(values, pa.Array) else pa.array(values)
    return made.cast(kind)


def _us_of(column: pa.ChunkedArray, missing: int) -> Ints:
    return pc.fill_null(column.cast(pa.timestamp("us", tz="UTC")).cast(pa.int64()), missing).to_numpy()


def _whole(values: Any) -> Ints:
    return np.rint(values).astype(np.int64)
