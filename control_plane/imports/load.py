"""One import from its files to its rows: what was read, stored and kept aside."""

from __future__ import annotations

import dataclasses
import zoneinfo
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import IO

from probing_cluster.control_plane.imports import (
    accounting_file,
    event_lines,
    job_outputs,
    kernel,
    known_starts,
    line_hosts,
    node_clusters,
    packed,
    rejected_input,
    zone_hint,
)
from probing_cluster.control_plane.repair import workflow
from probing_cluster.core import clock, errors, records, sanitize, storable, vocabulary
from probing_cluster.db import bulk
from probing_cluster.db import store as db_store
from probing_cluster.reports import job_ref
from probing_cluster.slurm_plugins.accounting import attempt_rows, never_started


@dataclass(frozen=True, kw_only=True)
class LoadOrder:
    """What the person asked for."""

    sacct: Sequence[Path] = ()
    kernel: Sequence[tuple[str, Path]] = ()
    """Node and file; an empty node for a file whose lines name their hosts."""
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
    has_naive_rows: bool = False
    """Some row of accounting has times without a zone, and the person named none."""
    exported_until: datetime | None = None
    """The last instant that any row of accounting shows; None without one."""
    done: Loaded
    clusters: node_clusters.NodeClusters | None = None
    """Of the accounting's nodes; None without accounting."""

    def nodes(self, order: LoadOrder) -> frozenset[str] | None:
        """Every node these files name; None without accounting, where any host may be one."""
        if not self.attempts:
            return None
        if not self._nodes:
            self._nodes = {n for a in self.attempts for n in a.nodes} | {n for n, _ in order.kernel if n}
        return frozenset(self._nodes)

    _nodes: set[str] = field(default_factory=set)


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
        files.clusters = node_clusters.NodeClusters(files.attempts, done.cluster)
        done.cluster = files.clusters.most
        nodes = {n for a in files.attempts for n in a.nodes}
        known = line_hosts.as_known((*order.boots, *(node for node, _ in order.kernel)), nodes)
        boots = {known[node]: at for node, at in order.boots.items()}
        logs = [(known[node], path) for node, path in order.kernel]
        order = dataclasses.replace(order, kernel=logs, boots=boots)
        done.lines += [f"  note: {note}" for node, _ in logs if (note := line_hosts.stranger(node, nodes))]
    about = _span_of(files.attempts)
    for node, path in order.kernel:
        announce(f"reading {path.name}")
        found = _kernel(path, node, order, files, about)
        what = f"node {node}" if node else vocabulary.plural(len(found.nodes), "node")
        files.events.append(_Events(path=path, what=what, found=found))
    for path in order.events:
        announce(f"reading {path.name}")
        with _opened(path) as stream:
            found = event_lines.read(packed.lines(stream), _place(path, "", order, files, about))
        _require_rows(found.bad, good=bool(found.events))
        files.events.append(_Events(path=path, what="events", found=found))
    for _, path in order.joblog:
        with _opened(path) as stream:
            stream.read(1)
    _require_some(order, files)
    return files


def require_jobs(order: LoadOrder, attempts: Iterable[records.JobAttempt]) -> None:
    """Raises NotFound naming the output files of jobs of which `attempts` has none."""
    job_outputs.attempts_of(order.joblog, attempts)


def save(store: db_store.Store, order: LoadOrder, files: ImportFiles, announce: Announce = _silent) -> Loaded:
    """Store what the files say, and what the jobs' output says about their attempts; raises NotFound for an unknown job.

    What it raises for a file, it raises before anything is stored.
    """
    done = files.done
    if files.attempts:
        known_starts.require_same_zone(store, files.attempts)
        files.attempts, n_known = known_starts.under_known_submits(
            store, files.attempts, n_exports=len(order.sacct)
        )
        if n_known:
            done.lines.append(
                f"  note: starts that another export gives with another submit time, or without: {n_known}; each is kept once"
            )
    outputs = _outputs(store, order, files, announce)
    if files.attempts:
        announce(f"storing {vocabulary.plural(len(files.attempts), 'attempt')}")
        done.n_attempts = bulk.load_attempts(store.connection_uri(), files.attempts)
        done.n_known_attempts = len(files.attempts) - done.n_attempts
        known_starts.count(store, files.attempts)
    if files.exported_until is not None:
        known = [at for at in (files.exported_until, store.exported_until()) if at]
        store.remember(vocabulary.ACCOUNTING_EXPORTED, clock.iso_z(max(known)))
    bulk.load_events(store.connection_uri(), never_started.events(files.not_started, order.now))
    for one in files.events:
        announce(f"storing the events of {one.path.name}")
        _store_events(store, done, one.path, one.found, one.what)
    for output in outputs:
        _store_output(store, done, output)
    return done


def _outputs(
    store: db_store.Store, order: LoadOrder, files: ImportFiles, announce: Announce
) -> list[job_outputs.JobOutput]:
    """Every output file, read; its job is one of the files' or of the database's."""
    jobs = {job_ref.parse(job).base for job, _ in order.joblog}
    stored = job_outputs.stored(store.of(order.cluster), jobs, files.done.cluster)
    known, outputs = [*stored, *files.attempts], []
    for (job, path), attempt in zip(order.joblog, job_outputs.attempts_of(order.joblog, known), strict=True):
        announce(f"reading {path.name}")
        try:
            outputs.append(job_outputs.read(job, path, attempt, order.now, zone_of(order.timezone)))
        except OSError as exc:
            raise errors.MalformedInput(f"{path} cannot be read: {exc.strerror}") from exc
    return outputs


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
        raise errors.MalformedInput(f"{path} cannot be read: {exc.strerror}") from exc


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
            raise errors.MalformedInput(f"{path} cannot be read: {exc.strerror}") from exc
        # Columns cut short leave a few steps among rows that cannot be read: no history.
        _require_rows(bad, good=bool(found.attempts) or len(found.not_started) + found.steps > len(bad))
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
        instants = [*_instants(attempts, found.not_started), found.running_until, files.exported_until]
        files.exported_until = max((at for at in instants if at and at <= order.now), default=None)
        files.has_naive_rows = files.has_naive_rows or found.n_naive > 0
        done.lines += [f"  note: {note}" for note in found.notes]
        yield from attempts


def _instants(
    attempts: Iterable[records.JobAttempt], not_started: Iterable[attempt_rows.NotStarted]
) -> Iterator[datetime | None]:
    for attempt in attempts:
        yield from (attempt.submit_at, attempt.start_at, attempt.end_at)
    for job in not_started:
        yield from (job.submit_at, job.end_at)


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


def _kernel(path: Path, node: str, order: LoadOrder, files: ImportFiles, about: _Span | None) -> kernel.Read:
    with _opened(path) as stream:
        found = kernel.read(packed.lines(stream), _place(path, node, order, files, about))
    if not node and not found.is_empty and not found.names_hosts:
        raise errors.MalformedInput(
            f"no line of {path} names a host; say whose kernel log it is: --kernel NODE={path}"
        )
    if found.foreign_dates and not found.is_log:
        raise errors.MalformedInput(f"{path}: {kernel.UNREAD_LANGUAGE}")
    if not found.is_empty and not found.is_log:
        raise errors.MalformedInput(
            f"{path} is no kernel log: no line of it begins with a date or the seconds since boot; give what `dmesg` or `journalctl -k` printed (of its JSON `-o json`, an object a line)"
        )
    _require_rows(
        found.bad, good=bool(found.events or found.covers)
    )  # a dated log was read, whatever it says
    if found.is_naive or files.has_naive_rows:
        hint = zone_hint.words(found.events, files.attempts)
        found.notes += [hint] if hint else []
    return found


def _place(
    path: Path, node: str, order: LoadOrder, files: ImportFiles, about: _Span | None
) -> kernel.FilePlace:
    written = datetime.fromtimestamp(path.stat().st_mtime, order.now.tzinfo) if path.exists() else order.now
    return kernel.FilePlace(
        file=str(path),
        node=node,
        cluster=files.done.cluster,
        cluster_of=files.clusters.of if files.clusters else None,
        read_at=order.now,
        reference=year_less_before(about, written),
        zone=zone_of(order.timezone),
        boots=order.boots,
        nodes=files.nodes(order),
    )


def _store_events(store: db_store.Store, loaded: Loaded, path: Path, found: kernel.Read, what: str) -> None:
    new = bulk.load_events(store.connection_uri(), found.events) if found.events else 0
    bulk.load_events(store.connection_uri(), [c for c in found.covers if storable.why_not(c) is None])
    loaded.n_events += new
    loaded.bad += found.bad
    known = len(found.events) - new
    loaded.n_known_events += known
    doubles = f" ({known} already known)" if known else ""
    loaded.lines.append(
        f"{path} ({what}): {vocabulary.plural(new, 'event')} of {vocabulary.plural(found.n_lines, 'line')}{doubles}; {_aside(found.bad)}"
    )
    loaded.lines += [f"  note: {note}" for note in found.notes]
    if found.n_unsure:
        loaded.lines.append(
            f"  note: in an hour the clocks repeated, nothing tells which time it was: read as the earlier, perhaps an hour"
            f" too early: {vocabulary.plural(found.n_unsure, 'finding')}"
        )


def _store_output(store: db_store.Store, loaded: Loaded, output: job_outputs.JobOutput) -> None:
    events = output.events
    new = bulk.load_events(store.connection_uri(), events) if events else 0
    loaded.n_events += new
    loaded.n_known_events += len(events) - new
    known = f" ({len(events) - new} already known)" if len(events) > new else ""
    loaded.lines.append(
        f"{output.path} (output of job {output.job}, attempt {output.attempt.attempt}): {vocabulary.plural(new, 'finding')}{known}"
    )


def _aside(bad: Iterable[object]) -> str:
    return f"{sum(1 for _ in bad)} kept aside"
