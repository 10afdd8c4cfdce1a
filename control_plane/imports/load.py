"""One import from its files to its rows: what was read, stored and kept aside."""

from __future__ import annotations

import dataclasses
import zoneinfo
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import IO

from probing_cluster.control_plane.imports import (
    accounting_file,
    event_lines,
    joblog,
    kernel,
    packed,
    rejected_input,
)
from probing_cluster.control_plane.repair import workflow
from probing_cluster.core import errors, records, sanitize, storable, vocabulary
from probing_cluster.db import bulk
from probing_cluster.db import store as db_store
from probing_cluster.reports import job_ref
from probing_cluster.slurm_plugins.accounting import attempt_rows, never_started


@dataclass(frozen=True, kw_only=True)
class LoadOrder:
    """What the person asked for."""

    sacct: Sequence[Path] = ()
    kernel: Sequence[tuple[str, Path]] = ()
    joblog: Sequence[tuple[str, Path]] = ()
    events: Sequence[Path] = ()
    boots: Mapping[str, datetime] = field(default_factory=dict)
    timezone: str | None = None
    delimiter: str | None = None
    fields: Sequence[str] | None = None
    cluster: str | None = None
    """The name all rows get; None: the one they tell."""
    unnamed: str = "cluster"
    """The name of rows that tell none."""
    now: datetime


@dataclass(kw_only=True)
class Loaded:
    """What one import did."""

    lines: list[str] = field(default_factory=list)
    """One per file, for a person."""
    bad: list[rejected_input.RejectedInput] = field(default_factory=list)
    n_attempts: int = 0
    """Those that were new."""
    n_known_attempts: int = 0
    """Attempts that the database had already, from an earlier import or another of the files."""
    n_events: int = 0
    """Those that were new."""
    n_known_events: int = 0
    cluster: str = ""


@dataclass(frozen=True, kw_only=True)
class _Events:
    """One file's events, not stored yet."""

    path: Path
    what: str
    found: kernel.Read


@dataclass(kw_only=True)
class ImportFiles:
    """What the files say; nothing of it is stored yet."""

    attempts: list[records.JobAttempt] = field(default_factory=list)
    not_started: list[attempt_rows.NotStarted] = field(default_factory=list)
    events: list[_Events] = field(default_factory=list)
    done: Loaded


Announce = Callable[[str], None]
"""Takes what is being done now, for a person who waits."""


def _silent(_: str) -> None:
    """For callers nobody waits behind."""


def load(store: db_store.Store, order: LoadOrder) -> Loaded:
    """Read every file, store what they say; a file that cannot be read at all raises before anything is stored."""
    return save(store, order, read(order))


def read(order: LoadOrder, announce: Announce = _silent) -> ImportFiles:
    """Every file but the jobs' output, which only the database may tell the attempts of; raises MalformedInput, UsageError."""
    files = ImportFiles(done=Loaded(cluster=order.cluster or order.unnamed))
    done = files.done
    files.attempts = list(_accounting(order, files, announce))
    if files.attempts:
        clusters = Counter(a.cluster for a in files.attempts)
        done.cluster = max(clusters, key=lambda name: clusters[name])
    about = _span_of(files.attempts)
    for node, path in order.kernel:
        announce(f"reading {path.name}")
        files.events.append(
            _Events(path=path, what=f"node {node}", found=_kernel(path, node, order, done, about))
        )
    for path in order.events:
        announce(f"reading {path.name}")
        with _opened(path) as stream:
            found = event_lines.read(packed.lines(stream), _place(path, "", order, done, about))
        _require_rows(found.bad, good=bool(found.events))
        files.events.append(_Events(path=path, what="events", found=found))
    for _, path in order.joblog:
        with _opened(path) as stream:
            stream.read(1)
    _require_some(order, files)
    return files


def save(store: db_store.Store, order: LoadOrder, files: ImportFiles, announce: Announce = _silent) -> Loaded:
    """Store what the files say, and what the jobs' output says about their attempts; raises NotFound for an unknown job."""
    done = files.done
    if files.attempts:
        files.attempts = _under_known_submits(store, files.attempts, order, done)
        announce(f"storing {vocabulary.plural(len(files.attempts), 'attempt')}")
        done.n_attempts = bulk.load_attempts(store.connection_uri(), files.attempts)
        done.n_known_attempts = len(files.attempts) - done.n_attempts
    bulk.load_events(store.connection_uri(), never_started.events(files.not_started, done.cluster, order.now))
    for one in files.events:
        announce(f"storing the events of {one.path.name}")
        _store_events(store, done, one.path, one.found, one.what)
    jobs = [job for job, _ in order.joblog]
    known = store.attempts(job_ids={job_ref.parse(job).base for job in jobs}) if jobs else []
    attempts = [_last(known, job) for job in jobs]
    for attempt, (job, path) in zip(attempts, order.joblog, strict=True):
        announce(f"reading {path.name}")
        _job_output(store, order, done, attempt, job, path)
    return done


def _under_known_submits(
    store: db_store.Store, attempts: Sequence[records.JobAttempt], order: LoadOrder, done: Loaded
) -> list[records.JobAttempt]:
    """The attempts; a start that one export gives with Submit and another without has the submit time that came first."""
    made = list(attempts)
    known: dict[int, datetime] = {}
    for first in range(0, len(made), bulk.BATCH_ROWS):
        part = store.known_submits(made[first : first + bulk.BATCH_ROWS])
        known |= {first + n: submit_at for n, submit_at in part.items()}
    if len(order.sacct) > 1:
        first_of = {(a.cluster, a.job_id, a.start_at): a.submit_at for a in reversed(made)}
        for n, one in enumerate(made):
            submit_at = first_of[one.cluster, one.job_id, one.start_at]
            if submit_at != one.submit_at and one.start_at in (submit_at, one.submit_at):
                known.setdefault(n, submit_at)
    for n, submit_at in known.items():
        made[n] = dataclasses.replace(made[n], submit_at=submit_at)
    if known:
        done.lines.append(
            f"  note: starts that another export gives with another submit time, or without: {len(known)}; each is kept once"
        )
    return made


def _require_some(order: LoadOrder, files: ImportFiles) -> None:
    """Raises MalformedInput where the logs and lists are empty and nothing else was given."""
    good = files.attempts or files.not_started or any(one.found.n_lines for one in files.events)
    if files.events and not good and not order.joblog:
        raise errors.MalformedInput(f"{files.events[0].path} is empty; there is nothing to import")


def _require_rows(bad: Sequence[rejected_input.RejectedInput], *, good: bool) -> None:
    """Raises MalformedInput for a file of which no row could be read; the first bad row tells why, and what helps."""
    if bad and not good:
        raise errors.MalformedInput(
            f"none of {vocabulary.plural(len(bad), 'row')} could be read, so nothing was imported; {bad[0].file}, line {bad[0].line_no}: {sanitize.clean(bad[0].why, 200)}"
        )


def zone_of(name: str | None) -> zoneinfo.ZoneInfo | None:
    """The zone called `name`; raises UsageError."""
    if name is None:
        return None
    try:
        return zoneinfo.ZoneInfo(name)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError) as exc:
        raise errors.UsageError(f"{name!r} is not a time zone of this machine's database") from exc


@contextmanager
def _opened(path: Path) -> Iterator[IO[bytes]]:
    try:
        with packed.opened(path) as stream:
            yield stream
    except OSError as exc:
        raise errors.UsageError(f"{path}: {exc.strerror}") from exc


def _accounting(order: LoadOrder, files: ImportFiles, announce: Announce) -> Iterator[records.JobAttempt]:
    done = files.done
    for path in order.sacct:
        announce(f"reading {path.name}")
        try:
            found, bad = accounting_file.read(
                path,
                timezone=order.timezone,
                cluster=order.cluster,
                unnamed=order.unnamed,
                delimiter=order.delimiter,
                fields=order.fields,
            )
        except OSError as exc:
            raise errors.UsageError(f"{path}: {exc.strerror}") from exc
        _require_rows(bad, good=bool(found.attempts or found.not_started or found.steps))
        files.not_started += found.not_started
        done.bad += bad
        # Who runs our tests is not in the file; that the name holds one of the job's own nodes has to do.
        ours = {id(a) for a in found.attempts if workflow.is_of_a_test(a.name, a.nodes)}
        future = {id(a) for a in found.attempts if a.start_at and a.start_at > order.now + _CLOCKS_DIFFER}
        attempts = [a for a in found.attempts if id(a) not in ours | future]
        left_out = [
            (
                len(ours),
                "job that tested nodes for Probing Cluster",
                "jobs that tested nodes for Probing Cluster",
            ),
            (len(found.not_started), "job that never started", "jobs that never started"),
            (len(future), "that begins in the future", "that begin in the future"),
            (found.steps, "step", "steps"),
            (found.duplicates, "double", "doubles"),
            (found.merged, "resized row merged", "resized rows merged"),
        ]
        left_out_text = ", ".join(vocabulary.plural(n, one, many) for n, one, many in left_out if n)
        done.lines.append(
            f"{path}: {vocabulary.plural(len(attempts), 'attempt')}; {_aside(bad)}"
            + (f"; left out: {left_out_text}" if left_out_text else "")
        )
        done.lines += [f"  note: {note}" for note in found.notes]
        yield from attempts


_CLOCKS_DIFFER = timedelta(days=1)
"""A start that lies so far ahead of this machine's clock, or a zone that was not given, is no start."""
_Span = tuple[datetime, datetime]


def _span_of(attempts: Sequence[records.JobAttempt]) -> _Span | None:
    """First start and last end of `attempts`; None when none has one."""
    ends = [a.end_at for a in attempts if a.end_at]
    return (min(a.start_at or a.submit_at for a in attempts), max(ends)) if ends else None


def year_less_before(about: _Span | None, written: datetime) -> datetime:
    """What dates without a year are not long after: the accounting read with a log says which year it is about.

    A log goes on when the last job has ended, so the part of a year that the accounting leaves open is halved.
    """
    if about is None:
        return written
    since, until = about
    open_part = max(timedelta(days=365) - (until - since), timedelta())
    return max(until, min(until + open_part / 2, written))


def _kernel(path: Path, node: str, order: LoadOrder, loaded: Loaded, about: _Span | None) -> kernel.Read:
    with _opened(path) as stream:
        found = kernel.read(packed.lines(stream), _place(path, node, order, loaded, about))
    if found.foreign_dates and not found.is_log:
        raise errors.MalformedInput(f"{path}: {kernel.UNREAD_LANGUAGE}")
    if not found.is_empty and not found.is_log:
        raise errors.MalformedInput(
            f"{path} is no kernel log: no line of it begins with a date or the seconds since boot; give what `dmesg` or `journalctl -k` printed"
        )
    _require_rows(
        found.bad, good=bool(found.events or found.covers)
    )  # a dated log was read, whatever it says
    return found


def _place(path: Path, node: str, order: LoadOrder, loaded: Loaded, about: _Span | None) -> kernel.FilePlace:
    written = datetime.fromtimestamp(path.stat().st_mtime, order.now.tzinfo) if path.exists() else order.now
    return kernel.FilePlace(
        file=str(path),
        node=node,
        cluster=loaded.cluster,
        read_at=order.now,
        reference=year_less_before(about, written),
        zone=zone_of(order.timezone),
        boot_at=order.boots.get(node),
    )


def _store_events(store: db_store.Store, loaded: Loaded, path: Path, found: kernel.Read, what: str) -> None:
    new = bulk.load_events(store.connection_uri(), found.events) if found.events else 0
    if found.covers is not None and storable.why_not(found.covers) is None:
        bulk.load_events(store.connection_uri(), [found.covers])
    loaded.n_events += new
    loaded.bad += found.bad
    known = len(found.events) - new
    loaded.n_known_events += known
    doubles = f" ({known} already known)" if known else ""
    loaded.lines.append(
        f"{path} ({what}): {vocabulary.plural(new, 'event')} of {vocabulary.plural(found.n_lines, 'line')}{doubles}; {_aside(found.bad)}"
    )
    if found.n_unsure:
        loaded.lines.append(
            f"  note: in an hour the clocks repeated, nothing tells which time it was: read as the earlier, perhaps an hour"
            f" too early: {vocabulary.plural(found.n_unsure, 'finding')}"
        )


def _job_output(
    store: db_store.Store, order: LoadOrder, loaded: Loaded, attempt: records.JobAttempt, job: str, path: Path
) -> None:
    with _opened(path) as stream:
        events = joblog.read(packed.lines(stream), attempt, order.now, zone_of(order.timezone))
    new = bulk.load_events(store.connection_uri(), events) if events else 0
    loaded.n_events += new
    loaded.n_known_events += len(events) - new
    known = f" ({len(events) - new} already known)" if len(events) > new else ""
    loaded.lines.append(
        f"{path} (output of job {job}, attempt {attempt.attempt}): {vocabulary.plural(new, 'finding')}{known}"
    )


def attempt_of(store: db_store.Store, job: str, number: int | None = None) -> records.JobAttempt:
    """The attempt of a job as people name it, by default its last; raises NotFound."""
    return _last(store.attempts(job_ids=[job_ref.parse(job).base]), job, number)


def _last(attempts: Iterable[records.JobAttempt], job: str, number: int | None = None) -> records.JobAttempt:
    ref = job_ref.parse(job)
    found = [a for a in attempts if _is(a, ref) and number in (None, a.attempt)]
    if not found:
        which = "no attempt" if number is None else f"no attempt {number}"
        raise errors.NotFound(f"{which} of job {job} is known")
    return max(found, key=lambda a: a.submit_at)


def _is(attempt: records.JobAttempt, ref: job_ref.JobRef) -> bool:
    if ref.task is not None:
        return (attempt.array_job_id, attempt.array_task_id) == (ref.base, ref.task)
    if ref.offset is not None:
        return (attempt.het_job_id, attempt.het_offset) == (ref.base, ref.offset)
    return attempt.job_id == ref.base


def _aside(bad: Iterable[object]) -> str:
    return f"{sum(1 for _ in bad)} kept aside"
