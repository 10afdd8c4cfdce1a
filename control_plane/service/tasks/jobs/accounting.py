"""Accounting into rows: `sacct` for everybody at once, joined with what the Prologs saw."""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from probing_cluster.control_plane import context
from probing_cluster.control_plane.service import own_jobs
from probing_cluster.core import clock, errors, records, vocabulary
from probing_cluster.db import bulk
from probing_cluster.db.store import actions as store_actions
from probing_cluster.slurm_plugins import commands
from probing_cluster.slurm_plugins.accounting import (
    accounting,
    attempt_rows,
    never_started,
    resized_rows,
    reused_rows,
)

LOG = logging.getLogger("probing.accounting")
CURSOR = vocabulary.ACCOUNTING_READ
DEEP = "accounting.deep"
OVER_TIME_LIMIT = "slurm.over_time_limit"
"""Slurm's OverTimeLimit, seconds, -1 for none; read by probing.over_time_limit()."""
READ_FROM = "accounting.read_from"
"""From when on polls have read what no run's account may have yet."""
REQUESTED_LOGS = "accounting.logs_asked"
_MOST_REQUESTED = 1000
_REQUEST_TTL_S = 300.0
OVERLAP = timedelta(minutes=10)
"""slurmctld's word can reach slurmdbd late; the last minutes are asked for again."""
DEEP_EVERY = timedelta(hours=1)
"""After a slurmdbd outage rows arrive hours late: as often as this the whole history is asked for again, also where it could not all be read."""
_READER_S = 300.0
"""How long it is believed which fields sacct offers and whether GPUs are accounted for."""
_MOST_UNLISTED = 1000
_SLACK = timedelta(seconds=60)
"""Clocks of nodes and controller may differ by this much when a Prolog is matched to a start."""


@dataclasses.dataclass(kw_only=True)
class _Known:
    """What polls have found out about attempts, so that no job's history is asked for again and again."""

    late_ends: set[tuple[int, datetime]] = dataclasses.field(default_factory=set)
    """Attempts, as job and submission, that run by our rows and that polls do not list: asked for by their ids already."""
    resized: dict[tuple[int, datetime], bool] = dataclasses.field(default_factory=dict)
    """Job and submission of rows that began while their job ran by our rows: whether its history shows them as part of a resized attempt."""


def run(service: context.Context) -> str:
    """One poll: new and changed attempts stored, and as often as `DEEP_EVERY` those of the whole history."""
    done = recent(service)
    now = service.clock.now()
    deep = recalled(service, DEEP)
    # A mark that lies ahead is of a clock that was wrong: it must not keep the history unread until then.
    if deep is not None and timedelta() <= now - datetime.fromisoformat(deep) <= DEEP_EVERY:
        return done
    reader = _reader(service)
    oldest = now - timedelta(days=service.config.slurm.history_days)
    try:
        done = _stored(service, reader, reader.day_by_day(oldest, now), oldest, None)
    except errors.SlurmUnavailable:
        # Its time is up all the same: begun anew at every poll, it would never leave slurmdbd alone.
        remember(service, DEEP, clock.iso_z(service.clock.now()))
        raise
    remember(service, CURSOR, clock.iso_z(now))
    remember(service, DEEP, clock.iso_z(service.clock.now()))
    return done


def recalled(service: context.Context, key: str) -> Any:
    """What this cluster's polls keep under a key; None before the first. Each cluster is read by a service of its own."""
    return service.store.recall(vocabulary.key_of(key, service.cluster))


def remember(service: context.Context, key: str, value: Any) -> None:
    service.store.remember(vocabulary.key_of(key, service.cluster), value)


def recent(service: context.Context) -> str:
    """New and changed attempts since the last poll stored; nothing while another thread is at it.

    What still runs is listed in every window, however long ago it began.
    """
    with service.try_lock("accounting") as locked:
        if not locked:
            return ""
        now, reader = service.clock.now(), _reader(service)
        cursor = recalled(service, CURSOR)
        read_at = datetime.fromisoformat(cursor) if cursor is not None else now
        since = read_at - OVERLAP
        listed: set[tuple[int, datetime]] = set()
        found = (_noted(answer, listed) for answer in _answers(service, reader, since, now))
        done = _stored(service, reader, found, since, since)
        _store_unlisted(service, reader, listed)
        remember(service, CURSOR, clock.iso_z(now))
        if now - read_at > OVERLAP:
            _read_history_soon(service, read_at, now)
        return done


def _answers(
    service: context.Context, reader: accounting.Accounting, since: datetime, now: datetime
) -> Iterator[attempt_rows.ParseResult]:
    """What accounting lists from `since` on, however long ago that is.

    After an outage longer than `slurm.history_days` the cursor follows each older day that is stored. Such a day is passed over
    if sacct cannot list it although it lists the present: it would keep every later day from being read, at every poll.
    """
    oldest = now - timedelta(days=service.config.slurm.history_days)
    if since < oldest and recalled(service, READ_FROM) is None:
        remember(service, READ_FROM, clock.iso_z(since))
    while since < oldest:
        end = min(since + accounting.WINDOW, oldest)
        try:
            yield from reader.day_by_day(since, end)
        except commands.SlurmTimedOut as exc:
            reader.attempts(now - OVERLAP, now)  # raises where it is Slurm that does not answer
            LOG.warning("accounting of %s to %s is not read: %s", clock.iso_z(since), clock.iso_z(end), exc)
        remember(service, CURSOR, clock.iso_z(end))
        since = end
    yield from reader.day_by_day(since, now)


def _read_history_soon(service: context.Context, read_at: datetime, now: datetime) -> None:
    """Have the whole history read in ten minutes: slurmctld may still be handing slurmdbd what happened since `read_at`.

    Not where it was the whole history whose reading took so long.
    """
    deep = recalled(service, DEEP)
    soon = now - DEEP_EVERY + OVERLAP
    if deep is not None and soon < datetime.fromisoformat(deep) <= read_at:
        remember(service, DEEP, clock.iso_z(soon))


def _reader(service: context.Context) -> accounting.Accounting:
    return service.seldom("accounting_reader", _READER_S, lambda: _new_reader(service))


def _new_reader(service: context.Context) -> accounting.Accounting:
    reader = accounting.Accounting(
        service.config.slurm, cluster=service.config.cluster.name, run=service.run_slurm, now=service.clock
    )
    with contextlib.suppress(errors.SlurmUnavailable):  # what was read before stands
        limit_s = reader.over_time_limit_s()
        remember(service, OVER_TIME_LIMIT, limit_s if math.isfinite(limit_s) else -1.0)
    return reader


def _noted(answer: attempt_rows.ParseResult, listed: set[tuple[int, datetime]]) -> attempt_rows.ParseResult:
    listed |= {(a.job_id, a.submit_at) for a in answer.attempts}
    return answer


def _stored(
    service: context.Context,
    reader: accounting.Accounting,
    answers: Iterable[attempt_rows.ParseResult],
    since: datetime,
    never_started_since: datetime | None,
) -> str:
    """Store answers one by one, so that only one is held; how many attempts they listed."""
    attempts: set[tuple[int, datetime]] = set()
    n_rejected = 0
    for found in answers:
        stored = _store(
            service, _numbered(service, reader, own_jobs.of_users(service, found.attempts, since), since)
        )
        attempts |= {(a.job_id, a.submit_at) for a in stored}
        not_started = own_jobs.not_started_of_users(service, found.not_started, since)
        _store_never_started(service, not_started, never_started_since, service.clock.now())
        n_rejected += len(found.rejected)
    return f"{len(attempts)} attempts" + (f", {n_rejected} rows rejected" if n_rejected else "")


def _store(service: context.Context, attempts: Sequence[records.JobAttempt]) -> Sequence[records.JobAttempt]:
    """Store attempts with what their Prologs saw."""
    earliest = min((a.start_at for a in attempts if a.start_at), default=None)
    allocations = (
        service.store.allocations(
            since=earliest - _SLACK, job_ids={a.job_id for a in attempts}, cluster=service.cluster
        )
        if earliest is not None
        else []
    )
    attempts = with_allocations(attempts, allocations)
    service.store.upsert_attempts(attempts)
    _ask_for_logs(service, attempts, allocations)
    return attempts


def _store_unlisted(
    service: context.Context, reader: accounting.Accounting, listed: set[tuple[int, datetime]]
) -> None:
    """Store the ends that reached slurmdbd later than `OVERLAP`: of attempts that ran by our rows and that the poll did not list.

    However long ago they began, and all in one question. Each is asked for once: what accounting still takes for running, it lists.
    """
    running = service.store.attempts(ended=False, cluster=service.config.cluster.name)
    unlisted = {
        (a.job_id, a.submit_at)
        for a in running
        if a.start_at is not None and (a.job_id, a.submit_at) not in listed
    }
    known = service.memory(_Known)
    queried = set(sorted(unlisted - known.late_ends)[:_MOST_UNLISTED])
    if queried:
        found = reader.history(sorted({job_id for job_id, _ in queried})).attempts
        late = [a for a in found if (a.job_id, a.submit_at) in queried]
        since = min(submit_at for _, submit_at in queried)
        _store(service, _numbered(service, reader, own_jobs.of_users(service, late, since), since))
    known.late_ends = (known.late_ends | queried) & unlisted


def _store_never_started(
    service: context.Context,
    jobs: Iterable[attempt_rows.NotStarted],
    since: datetime | None,
    now: datetime,
) -> None:
    """An event for each job that ended before it began, at `since` or later."""
    events = never_started.events(jobs, now)
    fresh = [e for e in events if since is None or e.at >= since]
    bulk.load_events(service.store.connection_uri(), fresh)


def of_jobs(service: context.Context, job_ids: Iterable[int]) -> int:
    """Store what accounting has of these jobs now, out of turn: somebody waits for their ends. How many attempts."""
    found, now = _reader(service).history(sorted(job_ids)), service.clock.now()
    oldest = now - timedelta(days=service.config.slurm.history_days)
    _store_never_started(
        service, own_jobs.not_started_of_users(service, found.not_started, oldest), oldest, now
    )
    if not found.attempts:
        return 0
    since = min(a.submit_at for a in found.attempts)
    mine = own_jobs.of_users(service, found.attempts, since)
    stored = _known_starts(service, mine)
    return len(_store(service, renumber(reused_rows.apart(mine, stored), stored)))


def _known_starts(service: context.Context, found: Iterable[records.JobAttempt]) -> list[records.JobAttempt]:
    """The stored attempts of these attempts' jobs."""
    ids = {a.job_id for a in found}
    return [a for a in service.store.attempts(job_ids=ids) if a.job_id in ids] if ids else []


def _numbered(
    service: context.Context,
    reader: accounting.Accounting,
    found: Sequence[records.JobAttempt],
    since: datetime,
) -> list[records.JobAttempt]:
    """Attempt numbers over everything known of each job, not only over this answer; a resized job's parts are one attempt.

    `since`: the answer holds what ran from then on. A job that began before and is not stored may have earlier rows.
    """
    stored = _known_starts(service, found)
    found = reused_rows.apart(found, stored)
    parts, resized = resized_rows.parts(found, stored), service.memory(_Known).resized
    unread = {key for key, whole in parts.items() if resized.get(key) is None or (resized[key] and not whole)}
    attempts = [a for a in found if not (resized.get(k := (a.job_id, a.submit_at)) and k in parts)]
    known = {a.job_id for a in stored}
    gap = {
        a.job_id for a in found if a.restart_count and a.restart_count >= a.attempt and a.job_id not in known
    }
    unknown = {a.job_id for a in found if a.start_at and a.start_at < since and a.job_id not in known}
    gap |= {job_id for job_id, _ in unread}.union(sorted(unknown)[:_MOST_UNLISTED])
    if gap:
        history = reused_rows.apart(reader.history(sorted(gap)).attempts, stored)
        starts = {(a.job_id, a.submit_at) for a in history}
        read = {job_id for job_id, _ in starts}
        attempts = [a for a in attempts if a.job_id not in read] + history
        resized.update({key: key not in starts for key in unread if key[0] in read})
    return renumber(attempts, stored)


def renumber(
    found: Iterable[records.JobAttempt], stored: Iterable[records.JobAttempt]
) -> list[records.JobAttempt]:
    """`found`, each attempt counted by submit time among all starts of its job."""
    found = list(found)
    starts: dict[tuple[str, int, str], set[datetime]] = {}
    for attempt in (*stored, *found):
        starts.setdefault((attempt.cluster, attempt.job_id, attempt.user), set()).add(attempt.submit_at)
    order = {key: {at: n for n, at in enumerate(sorted(times), 1)} for key, times in starts.items()}
    return [dataclasses.replace(a, attempt=order[a.cluster, a.job_id, a.user][a.submit_at]) for a in found]


def with_allocations(
    attempts: Sequence[records.JobAttempt], allocations: Iterable[records.JobAllocation]
) -> list[records.JobAttempt]:
    """The attempts with the GPUs, run key and paths that the Prologs of that very start reported."""
    by_job: dict[int, list[records.JobAllocation]] = {}
    for allocation in allocations:
        by_job.setdefault(allocation.job_id, []).append(allocation)
    starts: dict[int, list[records.JobAttempt]] = {}
    for attempt in attempts:
        starts.setdefault(attempt.job_id, []).append(attempt)
    return [
        _with_prolog_facts(a, [x for x in by_job.get(a.job_id, []) if _is_of(x, a, starts[a.job_id])])
        for a in attempts
    ]


def _is_of(
    allocation: records.JobAllocation, attempt: records.JobAttempt, starts: Iterable[records.JobAttempt]
) -> bool:
    """Whether this Prolog ran for this start: of all starts of the job, the nearest in time."""
    if allocation.node not in attempt.nodes or attempt.start_at is None:
        return False
    if attempt.end_at is not None and allocation.at > attempt.end_at + _SLACK:
        return False
    begun = [a.start_at for a in starts if a.start_at and a.start_at <= allocation.at + _SLACK]
    return bool(begun) and min(begun, key=lambda at: abs(allocation.at - at)) == attempt.start_at


def _with_prolog_facts(
    attempt: records.JobAttempt, allocations: Sequence[records.JobAllocation]
) -> records.JobAttempt:
    start_at = attempt.start_at
    if not allocations or start_at is None:
        return attempt
    # Where accounting does not list the next start yet, its Prologs are matched to this one, too.
    first = min(allocations, key=lambda x: abs(x.at - start_at))
    count = first.restart_count
    allocations = [x for x in allocations if x.restart_count == count]
    gpus = {x.node: x.gpu_uuids for x in allocations if x.gpu_uuids is not None}
    detail: dict[str, str] = {}
    for allocation in allocations:
        detail |= {k: v for k, v in allocation.detail.items() if isinstance(v, str) and v}
    return dataclasses.replace(
        attempt,
        gpus=gpus or attempt.gpus,
        run_key=detail.get("run_key") or attempt.run_key,
        stdout_path=attempt.stdout_path or detail.get("stdout"),
        work_dir=attempt.work_dir or detail.get("work_dir"),
        # The Epilog of a start that is requeued is given the next start's count: without a Prolog nothing else tells it.
        restart_count=attempt.restart_count if first.detail.get("prolog_seen") is False else count,
    )


def _ask_for_logs(
    service: context.Context,
    attempts: Iterable[records.JobAttempt],
    allocations: Iterable[records.JobAllocation],
) -> None:
    """Tell agents, once each, the numbers of ended jobs whose output they could not name: older Prologs do not say them."""
    ended = {(a.job_id, a.restart_count): a for a in attempts if a.end_at is not None}
    unnamed = [x for x in allocations if (x.job_id, x.restart_count) in ended and has_unnamed_log(x)]
    requested = recalled(service, REQUESTED_LOGS) if unnamed else []
    requested = requested if isinstance(requested, list) else []
    subjects: list[store_actions.RequestSubject] = []
    for allocation in unnamed:
        key = f"{allocation.node} {allocation.job_id} {allocation.restart_count}"
        if key in requested:
            continue
        attempt = ended[allocation.job_id, allocation.restart_count]
        ids = {
            "restart_count": attempt.restart_count,
            "array_job_id": attempt.array_job_id,
            "array_task_id": attempt.array_task_id,
            "job_name": attempt.name,
            "user": attempt.user,
        }
        subjects.append(store_actions.RequestSubject(allocation.node, attempt.job_id, attempt.cluster, ids))
        requested = [*requested, key][-_MOST_REQUESTED:]
    service.store.request_all(subjects, "collect", _REQUEST_TTL_S)
    if unnamed:
        remember(service, REQUESTED_LOGS, requested)


def has_unnamed_log(allocation: records.JobAllocation) -> bool:
    """Whether the node's agent could not tell the name of a file that the job wrote; its row may hold anything."""
    logs = allocation.detail.get("logs")
    return isinstance(logs, list) and any(isinstance(x, Mapping) and x.get("unnamed") is True for x in logs)


TASK = context.Task(
    name="accounting",
    meaning="reads new and changed attempts from sacct",
    run=run,
    every_s=lambda config: config.service.accounting_poll_s,
)
