"""History as monthly Parquet beside the recent records in Postgres: written by the service, read as one.

    nodes.parquet          node_idx, cluster, node
    sorts.parquet          sort_idx, kind, code, severity, source, recovered: every sort of event ever seen
    attempts/month=…       ended attempts with their verdict, by end
    attempt_nodes/month=…  attempt_id, node_idx, start_us, end_us, judged
    events/month=…         events by time; node and sort as small integers, `row` their number in the history
    manifest.json          which months were exported, and when each

A month is written beside its place, as `.part.new`. Once all of it is on the disk the manifest states that it is being placed; a crash
from then on is made up for by the next export.

Small integers make the joins cheap; the current rules give each sort of event its meaning. What changed since a month's export
comes from Postgres. A month that lacks late events is written again before Postgres drops them.
"""

from __future__ import annotations

import errno
import json
import os
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from probing_cluster.attribution.history import source as sources
from probing_cluster.attribution.passes import bulk
from probing_cluster.attribution.verdict import judge
from probing_cluster.core import clock
from probing_cluster.db import store

REMEMBERED = "attribution.history"
"""Key of the store's note with the history directory."""
OVERLAP = timedelta(hours=1)
"""Rows stored up to this long before an export are also read from Postgres: their transaction may have been open."""

_SORT = ("kind", "code", "severity", "source", "recovered")
_ROWS_A_MONTH = 1 << 29
"""Rows of a month are numbered from the months since 2000 times this: in order of time, however often it is written. Bulk keeps 40 bits."""
_SQL = Path(__file__).parent / "sql"
_KINDS = ("attempts", "attempt_nodes", "events")


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """The contents of a history directory."""

    exported_at: Mapping[str, datetime] = field(default_factory=dict)
    """Each exported month (2026-03), oldest first, to when its last export began."""
    placing: str = ""
    """The month whose written files are being put into their places; empty for none."""

    @property
    def months(self) -> tuple[str, ...]:
        """The exported months, oldest first."""
        return tuple(self.exported_at)

    @property
    def until(self) -> datetime | None:
        """End of the last exported month; None for an empty history."""
        return _following(self.months[-1]) if self.months else None


def read_manifest(directory: Path) -> Manifest:
    """The manifest of a directory; an empty one if there is none."""
    try:
        raw = json.loads((directory / "manifest.json").read_text("utf-8"))
    except FileNotFoundError:
        return Manifest()
    known = raw["exported_at"]
    if isinstance(known, str):
        # Until 0.1.0 one time stood for all months. None was exported before its end.
        known = {month: _following(month).isoformat() for month in raw["months"]}
    exported_at = {month: datetime.fromisoformat(at) for month, at in known.items()}
    return Manifest(exported_at=exported_at, placing=raw.get("placing", ""))


def export(
    given: store.Store, directory: Path, *, before: datetime, since: datetime, at: clock.Clock = clock.SYSTEM
) -> Manifest:
    """Exports every month from `since` (or after the last exported one) that ended by `before`. Returns the new manifest.

    A month appears whole or not at all. The store records the directory, so that figures read both.
    """
    directory.mkdir(parents=True, exist_ok=True)
    manifest = _placed(directory, read_manifest(directory))
    month = manifest.months[-1] if manifest.months else None
    start = _following(month) if month else datetime(since.year, since.month, 1, tzinfo=UTC)
    while _following(f"{start:%Y-%m}") <= before:
        manifest = _export_month(given, directory, manifest, f"{start:%Y-%m}", at.now())
        start = _following(f"{start:%Y-%m}")
    given.remember(REMEMBERED, {"directory": str(directory)})
    return manifest


def incomplete(given: store.Store, directory: Path, months: Iterable[str]) -> list[str]:
    """Those of these months of whose events Postgres knows more than the history, or whose files cannot be read."""
    manifest = read_manifest(directory)
    late, count = ((_SQL / f"{name}.sql").read_text("utf-8") for name in ("late_events", "n_events"))
    found = []
    for month in months:
        since = manifest.exported_at.get(month)
        bounds = {"since": _first(month), "until": _following(month)}
        if (
            since is None
            or month == manifest.placing
            or given.rows(late, {**bounds, "received": since - OVERLAP})
        ):
            found.append(month)
            continue
        *_, n_written = n_rows = [_n_rows(_part(directory, kind, month)) for kind in _KINDS]
        (row,) = given.rows(count, bounds)
        if n_written is None or None in n_rows or n_written < row["n_events"]:
            found.append(month)
    return found


def renew(
    given: store.Store, directory: Path, months: Iterable[str], at: clock.Clock = clock.SYSTEM
) -> list[str]:
    """Writes those of these months again that are exported and incomplete; returns them. No event that only the history has is lost."""
    manifest = _placed(directory, read_manifest(directory))
    known = [month for month in months if month in manifest.exported_at]
    written = incomplete(given, directory, known)
    for month in written:
        manifest = _export_month(given, directory, manifest, month, at.now())
    return written


def _export_month(
    given: store.Store, directory: Path, manifest: Manifest, month: str, now: datetime
) -> Manifest:
    start, end = _first(month), _following(month)
    uri = given.connection_uri()
    attempts = bulk.plain(sources.fetch(uri, "history_attempts", start, end))
    events = bulk.plain(sources.fetch(uri, "history_events", start, end))
    nodes = _Index(directory / "nodes.parquet", "node_idx", ("cluster", "node"))
    sorts = _Index(directory / "sorts.parquet", "sort_idx", _SORT)
    attempts = attempts.append_column("attempt_id", _numbers(month, attempts.num_rows))
    places = _places(attempts, nodes)
    keys = events.append_column("node_idx", nodes.of(events)).append_column("sort_idx", sorts.of(events))
    keys = keys.drop_columns(["cluster", "node", *_SORT])
    written = _part(directory, "events", month)
    if _n_rows(written) is not None:
        moved = sources.fetch(uri, "moved_events", start, end, start)
        keys = _with_dropped(keys, sources.unmoved(pq.ParquetFile(written).read(), moved))
    keys = keys.append_column("row", _numbers(month, keys.num_rows))
    nodes.save()
    sorts.save()
    for table, kind in zip((attempts, places, keys), _KINDS, strict=True):
        _write(_fresh(_part(directory, kind, month)), table)
    done = replace(manifest, exported_at={**manifest.exported_at, month: now}, placing=month)
    _write_manifest(directory, done)
    return _placed(directory, done)


def _placed(directory: Path, manifest: Manifest) -> Manifest:
    """The manifest, once the files of the month that is being placed are where readers find them."""
    if not manifest.placing:
        return manifest
    for kind in _KINDS:
        part = _part(directory, kind, manifest.placing)
        if _fresh(part).exists():
            _replace(_fresh(part), part)
            _sync(directory / kind)
    done = replace(manifest, placing="")
    _write_manifest(directory, done)
    return done


def _part(directory: Path, kind: str, month: str) -> Path:
    return directory / kind / f"month={month}" / "part.parquet"


def _fresh(path: Path) -> Path:
    """Where a file is written before it takes its place: no reader of the directory takes a hidden file for a part."""
    return path.with_name(f".{path.stem}.new")


def _n_rows(part: Path) -> int | None:
    """Rows of a file by its footer; None for one that is missing or has none, as a crash may leave it."""
    try:
        n_rows: int = pq.read_metadata(part).num_rows
    except (FileNotFoundError, pa.ArrowInvalid):
        return None
    return n_rows


def _numbers(month: str, n_rows: int) -> pa.Array:
    start = _first(month)
    first = ((start.year - 2000) * 12 + start.month - 1) * _ROWS_A_MONTH
    return pa.array(range(first, first + n_rows), pa.int64())


def _with_dropped(events: pa.Table, earlier: pa.Table) -> pa.Table:
    """The events of Postgres, and those of an earlier export that it no longer has; by time and id."""
    dropped = earlier.filter(pc.invert(pc.is_in(earlier["event_id"], value_set=events["event_id"])))
    both = pa.concat_tables([events, sources.in_schema(dropped, events.schema)])
    return both.sort_by([("at_us", "ascending"), ("event_id", "ascending")])


def _places(attempts: pa.Table, nodes: _Index) -> pa.Table:
    parents = pc.list_parent_indices(attempts["nodes"])
    flat = pc.list_flatten(attempts["nodes"])
    cluster = attempts["cluster"].take(parents)
    idx = nodes.of(pa.table({"cluster": cluster, "node": flat}))
    judged = pc.is_in(attempts["state"], value_set=pa.array(sorted(judge.JUDGED_STATES)))
    columns = {n: attempts[n].take(parents) for n in ("attempt_id", "start_us", "end_us")}
    return pa.table({**columns, "node_idx": idx, "judged": judged.take(parents)})


class _Index:
    """A growing list of distinct keys with fixed numbers."""

    def __init__(self, path: Path, number: str, columns: Iterable[str]) -> None:
        self._path, self._number, self._columns = path, number, tuple(columns)
        known = pq.read_table(path).to_pylist() if path.exists() else []
        self._known = {tuple(r[c] for c in self._columns): r[number] for r in known}

    def of(self, table: pa.Table) -> pa.Array:
        """Each row's number; new keys get the next ones."""
        distinct = table.group_by(list(self._columns)).aggregate([]).to_pylist()
        for row in sorted(distinct, key=lambda r: [str(r[c]) for c in self._columns]):
            self._known.setdefault(tuple(row[c] for c in self._columns), len(self._known))
        columns = [table[c].to_pylist() for c in self._columns]
        return pa.array([self._known[k] for k in zip(*columns, strict=True)], pa.int32())

    def save(self) -> None:
        """Writes the whole list."""
        rows = [{self._number: n, **dict(zip(self._columns, k, strict=True))} for k, n in self._known.items()]
        kinds = [pa.field(self._number, pa.int32())]
        kinds += [pa.field(c, pa.bool_() if c == "recovered" else pa.string()) for c in self._columns]
        _write(_fresh(self._path), pa.Table.from_pylist(rows, schema=pa.schema(kinds)))
        _replace(_fresh(self._path), self._path)


class HistoryAndPostgres:
    """The exported months and the newer rows of Postgres; no row twice, and Postgres wins."""

    def __init__(self, given: store.Store, directory: Path) -> None:
        self._uri, self._directory, self.cluster = given.connection_uri(), directory, given.cluster
        self._manifest = _as_read(directory, read_manifest(directory))

    def attempts(self, since: datetime, until: datetime, needed: sources.Needed = None) -> pa.Table:
        """See source.HistorySource."""
        key = ["cluster", "job_id", "submit_us"]
        return self._both("attempts", since, until, key, sources.ATTEMPT_SCHEMA, needed)

    def events(self, since: datetime, until: datetime, needed: sources.Needed = None) -> pa.Table:
        """See source.HistorySource."""
        return self._both("events", since, until, ["event_id"], sources.EVENT_SCHEMA, needed)

    def checks(self, since: datetime, until: datetime) -> pa.Table:
        """See source.CheckHistory; check results are not exported."""
        return sources.PostgresSource(self._uri, self.cluster).checks(since, until)

    def _both(
        self,
        kind: str,
        since: datetime,
        until: datetime,
        key: list[str],
        schema: pa.Schema,
        needed: sources.Needed,
    ) -> pa.Table:
        exported = {m: at for m, at in self._manifest.exported_at.items() if _following(m) > since}
        if not exported or self._manifest.until is None:
            live = sources.PostgresSource(self._uri)
            read = live.attempts if kind == "attempts" else live.events
            return read(since, until, needed)
        # All rows: a newer row that is not needed may replace an older one that was.
        needed = None if needed is None else sources.NeededPart(columns=needed.columns | {*key})
        span = (since, until, needed)
        firsts, lasts = [_first(m) for m in exported], [at - OVERLAP for at in exported.values()]
        bounds = (since, until, self._manifest.until, firsts, lasts)
        found = sources.fetch(self._uri, f"pg_{kind}", *bounds, further=f"and_{kind}_newer", needed=needed)
        newer = sources.in_schema(found, schema)
        past = sources.ParquetSource(self._directory)
        if kind == "attempts":
            older = past.attempts(*span)
        else:
            # What was corrected out of the span stands in the history with the time that it had.
            moved = sources.fetch(self._uri, "moved_events", since, until, min(lasts))
            older = sources.unmoved(past.events(*span), moved)
        known = newer.select(key).append_column("known", pa.array([True] * newer.num_rows, pa.bool_()))
        number = older.append_column("n", pa.array(range(older.num_rows), pa.int64())).select([*key, "n"])
        fresh = number.join(known, key, join_type="left anti")
        return pa.concat_tables([older.take(fresh["n"]), newer])


def _as_read(directory: Path, manifest: Manifest) -> Manifest:
    """What readers rely on: of a month whose files are not all in place, after a crash until the next export, all comes from Postgres."""
    month = manifest.placing
    if not month:
        return manifest
    if manifest.months == (month,) and any(_n_rows(_part(directory, kind, month)) is None for kind in _KINDS):
        return Manifest()
    return replace(manifest, exported_at={**manifest.exported_at, month: _first(month)})


class ReadOnce:
    """A store's records, each span read once and kept for many figures."""

    def __init__(self, given: store.Store) -> None:
        self._source = of(given)
        self.cluster = given.cluster
        self._locks = {"attempts": threading.Lock(), "events": threading.Lock()}
        self._known: dict[tuple[str, datetime, datetime], pa.Table] = {}

    def attempts(self, since: datetime, until: datetime, needed: sources.Needed = None) -> pa.Table:
        """See source.HistorySource; all columns, since the next figure may need them."""
        del needed
        return self._once("attempts", self._source.attempts, since, until)

    def events(self, since: datetime, until: datetime, needed: sources.Needed = None) -> pa.Table:
        """See source.HistorySource; all columns, for the same reason."""
        del needed
        return self._once("events", self._source.events, since, until)

    def checks(self, since: datetime, until: datetime) -> pa.Table:
        """See source.CheckHistory."""
        return self._source.checks(since, until)

    def _once(
        self, kind: str, read: Callable[[datetime, datetime], pa.Table], since: datetime, until: datetime
    ) -> pa.Table:
        with self._locks[kind]:
            key = (kind, since, until)
            if key not in self._known:
                self._known[key] = read(since, until)
            return self._known[key]


def of(given: store.Store) -> HistoryAndPostgres | sources.PostgresSource:
    """All records of a store: Postgres, and the history that it remembers."""
    where: Any = given.recall(REMEMBERED)
    if where and Path(where["directory"]).is_dir():
        return HistoryAndPostgres(given, Path(where["directory"]))
    return sources.PostgresSource(given.connection_uri(), given.cluster)


def _first(month: str) -> datetime:
    """The first instant of a month `2026-03`."""
    return datetime(int(month[:4]), int(month[5:7]), 1, tzinfo=UTC)


def _following(month: str) -> datetime:
    """The first instant after a month `2026-03`."""
    year, number = int(month[:4]), int(month[5:7])
    return datetime(year + number // 12, number % 12 + 1, 1, tzinfo=UTC)


def _write(path: Path, table: pa.Table) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as stream:
        pq.write_table(table, stream, compression="zstd")
        stream.flush()
        os.fsync(stream.fileno())


def _write_manifest(directory: Path, manifest: Manifest) -> None:
    plain: dict[str, Any] = {
        "exported_at": {month: at.isoformat() for month, at in manifest.exported_at.items()}
    }
    if manifest.placing:
        plain["placing"] = manifest.placing
    fresh = directory / "manifest.json.new"
    with fresh.open("w", encoding="utf-8") as stream:
        json.dump(plain, stream)
        stream.flush()
        os.fsync(stream.fileno())
    _replace(fresh, directory / "manifest.json")


def _replace(fresh: Path, path: Path) -> None:
    """Puts a file that is on the disk into its place, so that a loss of power leaves it there."""
    fresh.replace(path)
    _sync(path.parent)


def _sync(directory: Path) -> None:
    opened = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(opened)
    except OSError as exc:
        if exc.errno != errno.EINVAL:  # a file system that has no such call for directories
            raise
    finally:
        os.close(opened)
