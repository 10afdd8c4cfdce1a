"""History as monthly Parquet beside the recent records in Postgres: written once by the service, read as one.

    nodes.parquet          node_idx, cluster, node
    sorts.parquet          sort_idx, kind, code, severity, source, recovered: every sort of event ever seen
    attempts/month=…       ended attempts with their verdict, by end
    attempt_nodes/month=…  attempt_id, node_idx, start_us, end_us, judged
    events/month=…         events by time; node and sort as small integers, `row` their number in the history
    manifest.json          what was exported, up to when

Small integers make the joins cheap; the current rules give each sort of event its meaning.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
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


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """The contents of a history directory."""

    months: tuple[str, ...] = ()
    exported_at: datetime | None = None
    """When the last export began."""
    n_attempts: int = 0
    n_events: int = 0

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
    return Manifest(
        months=tuple(raw["months"]),
        exported_at=datetime.fromisoformat(raw["exported_at"]),
        n_attempts=raw["n_attempts"],
        n_events=raw["n_events"],
    )


def export(
    given: store.Store, directory: Path, *, before: datetime, since: datetime, at: clock.Clock = clock.SYSTEM
) -> Manifest:
    """Exports every month from `since` (or after the last exported one) that ended by `before`. Returns the new manifest.

    A month appears whole or not at all. The store records the directory, so that figures read both.
    """
    directory.mkdir(parents=True, exist_ok=True)
    manifest = read_manifest(directory)
    month = manifest.months[-1] if manifest.months else None
    start = _following(month) if month else datetime(since.year, since.month, 1, tzinfo=UTC)
    while _following(f"{start:%Y-%m}") <= before:
        manifest = _export_month(given, directory, manifest, start, at.now())
        start = _following(f"{start:%Y-%m}")
    given.remember(REMEMBERED, {"directory": str(directory)})
    return manifest


def _export_month(
    given: store.Store, directory: Path, manifest: Manifest, start: datetime, now: datetime
) -> Manifest:
    name, end = f"{start:%Y-%m}", _following(f"{start:%Y-%m}")
    uri = given.connection_uri()
    attempts = bulk.plain(sources.fetch(uri, "history_attempts", start, end))
    events = bulk.plain(sources.fetch(uri, "history_events", start, end))
    nodes = _Index(directory / "nodes.parquet", "node_idx", ("cluster", "node"))
    sorts = _Index(directory / "sorts.parquet", "sort_idx", _SORT)
    ids = pa.array(range(manifest.n_attempts, manifest.n_attempts + attempts.num_rows), pa.int64())
    attempts = attempts.append_column("attempt_id", ids)
    places = _places(attempts, nodes)
    keys = events.append_column("node_idx", nodes.of(events)).append_column("sort_idx", sorts.of(events))
    rows = pa.array(range(manifest.n_events, manifest.n_events + events.num_rows), pa.int64())
    keys = keys.append_column("row", rows).drop_columns(["cluster", "node", *_SORT])
    nodes.save()
    sorts.save()
    for table, kind in ((attempts, "attempts"), (places, "attempt_nodes"), (keys, "events")):
        _write(directory / kind / f"month={name}" / "part.parquet", table)
    done = Manifest(
        months=(*manifest.months, name),
        exported_at=now,
        n_attempts=manifest.n_attempts + attempts.num_rows,
        n_events=manifest.n_events + events.num_rows,
    )
    _write_manifest(directory, done)
    return done


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
        _write(self._path, pa.Table.from_pylist(rows, schema=pa.schema(kinds)))


class HistoryAndPostgres:
    """The exported months and the newer rows of Postgres; no row twice, and Postgres wins."""

    def __init__(self, given: store.Store, directory: Path) -> None:
        self._uri, self._directory, self.cluster = given.connection_uri(), directory, given.cluster
        self._manifest = read_manifest(directory)

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
        if self._manifest.until is None or self._manifest.exported_at is None:
            live = sources.PostgresSource(self._uri)
            read = live.attempts if kind == "attempts" else live.events
            return read(since, until, needed)
        # All rows: a newer row that is not needed may replace an older one that was.
        needed = None if needed is None else sources.NeededPart(columns=needed.columns | {*key})
        span = (since, until, needed)
        bounds = (since, until, self._manifest.until, self._manifest.exported_at - OVERLAP)
        found = sources.fetch(self._uri, f"pg_{kind}", *bounds, further=f"and_{kind}_newer", needed=needed)
        newer = sources.in_schema(found, schema)
        past = sources.ParquetSource(self._directory)
        older = past.attempts(*span) if kind == "attempts" else past.events(*span)
        known = newer.select(key).append_column("known", pa.array([True] * newer.num_rows, pa.bool_()))
        number = older.append_column("n", pa.array(range(older.num_rows), pa.int64())).select([*key, "n"])
        fresh = number.join(known, key, join_type="left anti")
        return pa.concat_tables([older.take(fresh["n"]), newer])


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


def _following(month: str) -> datetime:
    """The first instant after a month `2026-03`."""
    year, number = int(month[:4]), int(month[5:7])
    return datetime(year + number // 12, number % 12 + 1, 1, tzinfo=UTC)


def _write(path: Path, table: pa.Table) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_name(f"{path.name}.new")
    pq.write_table(table, fresh, compression="zstd")
    fresh.replace(path)


def _write_manifest(directory: Path, manifest: Manifest) -> None:
    assert manifest.exported_at is not None
    plain = {
        "months": list(manifest.months),
        "exported_at": manifest.exported_at.isoformat(),
        "n_attempts": manifest.n_attempts,
        "n_events": manifest.n_events,
    }
    fresh = directory / "manifest.json.new"
    with fresh.open("w", encoding="utf-8") as stream:
        json.dump(plain, stream)
        stream.flush()
        os.fsync(stream.fileno())
    fresh.replace(directory / "manifest.json")
