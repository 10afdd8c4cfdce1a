"""Which attempt a job's output file is of, and what it says about it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo
from pathlib import Path

from probing_cluster.control_plane.imports import joblog, packed
from probing_cluster.core import errors, records
from probing_cluster.db import store as db_store
from probing_cluster.reports import job_ref


@dataclass(frozen=True, kw_only=True)
class JobOutput:
    """One output file, read and not stored yet."""

    job: str
    path: Path
    attempt: records.JobAttempt
    events: list[records.HealthEvent]


def attempt_of(
    store: db_store.Store, job: str, number: int | None = None, cluster: str | None = None
) -> records.JobAttempt:
    """The attempt of a job as people name it, by default its last; without a cluster, of the store's. Raises NotFound."""
    known = store.attempts(job_ids=[job_ref.parse(job).base], cluster=cluster)
    found, last = _last(known, job, number), _last(known, job)
    if found is None and last is not None:
        raise errors.NotFound(f"job {job} has no attempt {number}; its last is {last.attempt}")
    if found is None:
        which = "no attempt" if number is None else f"no attempt {number}"
        raise errors.NotFound(f"{which} of job {job} is known{_elsewhere(store, job)}")
    return found


def job_ids_of(store: db_store.Store, jobs: Sequence[str]) -> list[int]:
    """Slurm's raw ids of jobs as people name them; of a bare number that is an array's, all its tasks. Of the store's cluster. Raises NotFound."""
    found: dict[int, None] = {}
    for job in jobs:
        ref = job_ref.parse(job)
        ids = [a.job_id for a in store.attempts(job_ids=[ref.base]) if ref.plain or _is(a, ref)]
        if not ids:
            msg = f"job {job} is not known: no start is in the accounting read so far{_elsewhere(store, job)}"
            raise errors.NotFound(msg)
        found.update(dict.fromkeys(ids))
    return list(found)


def stored(store: db_store.Store, jobs: Collection[int], cluster: str) -> list[records.JobAttempt]:
    """The attempts of these jobs that the store has, of that cluster where it has any."""
    found = store.attempts(job_ids=jobs) if jobs else []
    return [a for a in found if a.cluster == cluster] or found


def _elsewhere(store: db_store.Store, job: str) -> str:
    """Which other clusters of the database have a job of that name; empty where none has."""
    ref = job_ref.parse(job)
    others = sorted({a.cluster for a in store.of(None).attempts(job_ids=[ref.base]) if _is(a, ref)})
    return f" in {store.cluster}; {', '.join(others)} has one" if others and store.cluster else ""


def attempts_of(
    given: Sequence[tuple[str, Path]], attempts: Iterable[records.JobAttempt]
) -> list[records.JobAttempt]:
    """The last attempt of each job that output was given of; raises NotFound naming every file whose job has none, or several clusters have."""
    known = list(attempts)
    for job, path in given:
        clusters = sorted({a.cluster for a in known if _is(a, job_ref.parse(job))})
        if len(clusters) > 1:
            raise errors.NotFound(
                f"{path} is given as output of job {job}, which the clusters {' and '.join(clusters)} have; once their accounting"
                " is stored, import the output by itself and name the cluster with --cluster"
            )
    found = [_last(known, job) for job, _ in given]
    missing = [
        f"{path} is given as output of job {job}, of which no attempt is known"
        for (job, path), attempt in zip(given, found, strict=True)
        if attempt is None
    ]
    if missing:
        raise errors.NotFound("; ".join(missing) + "; give the accounting (--sacct) that has the job")
    return [attempt for attempt in found if attempt is not None]


def read(
    job: str, path: Path, attempt: records.JobAttempt, read_at: datetime, zone: tzinfo | None
) -> JobOutput:
    """What the file at `path` says; raises OSError and MalformedInput."""

    def lines() -> Iterator[bytes]:
        with packed.opened(path) as stream:
            yield from packed.lines(stream)

    # A pipe can be read once only; its lines are held.
    again = lines if path.is_file() else None
    written_at = datetime.fromtimestamp(path.stat().st_mtime, UTC)
    events = joblog.read(lines(), attempt, read_at, zone, again, written_at)
    return JobOutput(job=job, path=path, attempt=attempt, events=events)


def _last(
    attempts: Iterable[records.JobAttempt], job: str, number: int | None = None
) -> records.JobAttempt | None:
    ref = job_ref.parse(job)
    found = [a for a in attempts if _is(a, ref) and number in (None, a.attempt)]
    return max(found, key=lambda a: a.submit_at, default=None)


def _is(attempt: records.JobAttempt, ref: job_ref.JobRef) -> bool:
    if ref.until is not None and attempt.submit_at > ref.until:
        return False
    if ref.task is not None:
        return (attempt.array_job_id, attempt.array_task_id) == (ref.base, ref.task)
    if ref.offset is not None:
        return (attempt.het_job_id, attempt.het_offset) == (ref.base, ref.offset)
    return attempt.job_id == ref.base
