"""Sources of records: Postgres over ADBC for recent ones, Parquet for history, or both as one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import datafusion
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from probing_cluster.attribution.verdict import signatures
from probing_cluster.core import clock, records
from probing_cluster.db import arrow

_SQL = Path(__file__).parent / "sql"

ATTEMPT_SCHEMA = pa.schema(
    [
        ("cluster", pa.string()),
        ("job_id", pa.int64()),
        ("attempt", pa.int64()),
        ("submit_us", pa.int64()),
        ("eligible_us", pa.int64()),
        ("start_us", pa.int64()),
        ("end_us", pa.int64()),
        ("suspended_s", pa.float64()),
        ("state", pa.string()),
        ("nodes", pa.list_(pa.string())),
        ("n_nodes", pa.int32()),
        ("n_gpus", pa.int64()),
        ("user", pa.string()),
        ("account", pa.string()),
        ("partition", pa.string()),
        ("run_key", pa.string()),
        ("priority", pa.int64()),
        ("cause", pa.string()),
        ("domain", pa.string()),
        ("component", pa.string()),
        ("fault_node", pa.string()),
        ("confidence", pa.string()),
        ("evidence", pa.list_(pa.string())),
        ("incident_id", pa.string()),
        ("stalled_us", pa.int64()),
        ("ran_until_us", pa.int64()),
    ]
)
"""One attempt with its current verdict."""

EVENT_SCHEMA = pa.schema(
    [
        ("event_id", pa.string()),
        ("cluster", pa.string()),
        ("node", pa.string()),
        ("at_us", pa.int64()),
        ("kind", pa.string()),
        ("code", pa.string()),
        ("severity", pa.string()),
        ("source", pa.string()),
        ("device", pa.string()),
        ("gpu_uuid", pa.string()),
        ("pci_bus_id", pa.string()),
        ("job_id", pa.int64()),
        ("recovered", pa.bool_()),
    ]
)
"""One node event, for the figures and the bulk join."""


SIGNATURE_SCHEMA = pa.schema(
    [
        ("kind", pa.string()),
        ("code", pa.string()),
        ("severity", pa.string()),
        ("recovered", pa.bool_()),
        ("cause", pa.string()),
        ("root", pa.bool_()),
        ("role", pa.string()),
        ("lethality", pa.float64()),
        ("scope", pa.string()),
    ]
)
"""The signature table as a joined table: one row per sort of event."""


@dataclass(frozen=True, kw_only=True)
class NeededPart:
    """The part of a table that is needed: a source may leave other columns null and other rows out."""

    columns: frozenset[str]
    rows: str = ""
    """Name of the SQL file that selects the needed rows from rows `q` of all columns; empty: all rows."""


NOTHING = NeededPart(columns=frozenset())
Needed = NeededPart | None
"""A part of a table; None for all of it."""


class HistorySource(Protocol):
    """Attempts (with verdicts) and events of a span, as Arrow."""

    def attempts(self, since: datetime, until: datetime, needed: Needed = None) -> pa.Table:
        """Attempts that ran in the span, in ATTEMPT_SCHEMA."""
        ...

    def events(self, since: datetime, until: datetime, needed: Needed = None) -> pa.Table:
        """Events with since <= at < until, in EVENT_SCHEMA."""
        ...


@runtime_checkable
class CheckHistory(Protocol):
    """A source that also has check results; a directory of exported months does not."""

    def checks(self, since: datetime, until: datetime) -> pa.Table:
        """Every check by name and version: first_us, n_results and n_failed in the span (pg_checks.sql)."""
        ...


class PostgresSource:
    """A database with our schema, for one of its clusters or for all (None): whoever computes keeps to that cluster's rows."""

    def __init__(self, uri: str, cluster: str | None = None) -> None:
        self._uri = uri
        self.cluster = cluster

    def attempts(self, since: datetime, until: datetime, needed: Needed = None) -> pa.Table:
        """See HistorySource."""
        found = fetch(self._uri, "pg_attempts", since, until, needed=needed)
        return in_schema(found, ATTEMPT_SCHEMA)

    def events(self, since: datetime, until: datetime, needed: Needed = None) -> pa.Table:
        """See HistorySource."""
        return in_schema(fetch(self._uri, "pg_events", since, until, needed=needed), EVENT_SCHEMA)

    def checks(self, since: datetime, until: datetime) -> pa.Table:
        """See CheckHistory."""
        return fetch(self._uri, "pg_checks", since, until, cluster=self.cluster)


class ParquetSource:
    """A directory written by `history.export`; `cluster`: see PostgresSource."""

    def __init__(self, directory: Path, cluster: str | None = None) -> None:
        self._directory = directory
        self.cluster = cluster

    def attempts(self, since: datetime, until: datetime, needed: Needed = None) -> pa.Table:
        """See HistorySource; all rows."""
        inside = (ds.field("start_us") < clock.to_us(until)) & (ds.field("end_us") >= clock.to_us(since))
        wanted = [name for name in ATTEMPT_SCHEMA.names if needed is None or name in needed.columns]
        found = self._months("attempts", ATTEMPT_SCHEMA).to_table(columns=wanted, filter=inside)
        return in_schema(found, ATTEMPT_SCHEMA)

    def events(self, since: datetime, until: datetime, needed: Needed = None) -> pa.Table:
        """See HistorySource; all rows and columns, since most are small integers."""
        del needed
        inside = (ds.field("at_us") >= clock.to_us(since)) & (ds.field("at_us") < clock.to_us(until))
        given = ["event_id", "at_us", "device", "gpu_uuid", "pci_bus_id", "job_id", "node_idx", "sort_idx"]
        found = self._months("events").to_table(columns=given, filter=inside)
        found = self._named(found, "nodes", "node_idx", ("cluster", "node"))
        found = self._named(found, "sorts", "sort_idx", ("kind", "code", "severity", "source", "recovered"))
        return found.select(EVENT_SCHEMA.names).cast(EVENT_SCHEMA)

    def register_attempts(self, context: datafusion.SessionContext, name: str) -> None:
        """Registers the attempts in DataFusion, which then reads only the columns that a query needs."""
        where = str(self._directory / "attempts")
        context.register_parquet(
            name, where, table_partition_cols=[("month", pa.string())], schema=ATTEMPT_SCHEMA
        )

    def _months(self, name: str, schema: pa.Schema | None = None) -> Any:
        """All months as one; a column that an older month lacks is null there."""
        return ds.dataset(self._directory / name, schema=schema, format="parquet", partitioning="hive")

    def _named(self, table: pa.Table, file: str, number: str, columns: Sequence[str]) -> pa.Table:
        """`table` with the columns that its small integers stand for."""
        names = ds.dataset(self._directory / f"{file}.parquet").to_table().sort_by(number)
        for column in columns:
            table = table.append_column(
                column, names[column].combine_chunks().take(table[number].combine_chunks())
            )
        return table


def unmoved(events: pa.Table, moved: pa.Table) -> pa.Table:
    """`events` without the rows whose times were corrected since: `moved` has their event_id, and at_us as it is now."""
    if not moved.num_rows:
        return events
    now = moved.select(["event_id"]).append_column("now_us", moved["at_us"].cast(pa.int64()))
    number = events.select(["event_id", "at_us"]).append_column(
        "n", pa.array(range(events.num_rows), pa.int64())
    )
    both = number.join(now, "event_id", join_type="inner")
    stale = both.filter(pc.not_equal(both["at_us"], both["now_us"]))["n"]
    return events.filter(pc.invert(pc.is_in(number["n"], value_set=stale.combine_chunks())))


def in_schema(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """`table` in `schema`; a missing column becomes null."""
    columns = [
        table[field.name] if field.name in table.column_names else pa.nulls(table.num_rows, field.type)
        for field in schema
    ]
    return pa.table(columns, names=schema.names).cast(schema)


def fetch(
    uri: str,
    name: str,
    *given: datetime | Sequence[datetime],
    further: str = "",
    needed: Needed = None,
    cluster: str | None = None,
) -> pa.Table:
    """The rows of one SQL file of the room, with the conditions of `further`, over ADBC; raises DatabaseUnavailable.

    Only what is `needed` is computed and sent: a column costs the server and this process as much as a row does.

    `given` instants, or arrays of them, and the cluster where a file asks for one, are written into the text: a query without parameters is streamed, so the server reads while this
    process decodes, and neither holds all rows twice.
    """
    query = "".join(_text(part) for part in (name, further) if part)
    if needed is not None:
        names = ", ".join(f'q."{column}"' for column in sorted(needed.columns))
        parts = {"$columns": names, "$query": query, "$rows": _text(needed.rows) if needed.rows else ""}
        query = _text("only_needed")
        for word, value in parts.items():
            query = query.replace(word, value)
    literal = "NULL" if cluster is None else "'" + cluster.replace("'", "''") + "'"
    query = query.replace("$cluster", literal)
    for number, instants in reversed(tuple(enumerate(given, 1))):
        query = query.replace(f"${number}", _literal(instants))
    with arrow.reading(uri, query) as reader:
        return reader.read_all()


def _literal(given: datetime | Sequence[datetime]) -> str:
    if isinstance(given, datetime):
        return f"'{given.astimezone(UTC).isoformat()}'::timestamptz"
    return f"ARRAY[{', '.join(map(_literal, given))}]"


def _text(name: str) -> str:
    return (_SQL / f"{name}.sql").read_text("utf-8")


def signature_table(events: pa.Table) -> pa.Table:
    """The signature of each sort of event in `events`: kind, code ('' = none), severity, recovered, cause, root, role, lethality, scope."""
    keys = events.group_by(["kind", "code", "severity", "recovered"]).aggregate([])
    rows = []
    for key in keys.to_pylist():
        severity = records.Severity(key["severity"])
        found = signatures.find(key["kind"], key["code"], severity, recovered=key["recovered"])
        rows.append(
            {
                **key,
                "code": key["code"] or "",
                "cause": found.cause,
                "root": found.role is signatures.Role.ROOT,
                "role": str(found.role),
                "lethality": found.lethality,
                "scope": str(found.scope),
            }
        )
    return pa.Table.from_pylist(rows, schema=SIGNATURE_SCHEMA)
