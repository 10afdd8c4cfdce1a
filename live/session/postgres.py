"""`ops.*` and `probing.*` of Postgres in the same session, for whoever may read the database: a live rank beside its node's history."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from probing_cluster.core import errors, settings
from probing_cluster.live.conditions import Condition
from probing_cluster.live.table import Scan

SCHEMAS = ("ops", "probing")
MAX_ROWS = 2_000_000
CONNECT_S = 3
ABSENT = "ops and probing are absent (the tables of the running job do not need them)"
_TIME = pa.timestamp("us", tz="UTC")
_TYPES: Mapping[str, tuple[pa.DataType, str]] = {
    "smallint": (pa.int64(), "bigint"),
    "integer": (pa.int64(), "bigint"),
    "bigint": (pa.int64(), "bigint"),
    "real": (pa.float64(), "double precision"),
    "double precision": (pa.float64(), "double precision"),
    "numeric": (pa.float64(), "double precision"),
    "boolean": (pa.bool_(), "boolean"),
    "timestamp with time zone": (_TIME, "timestamptz"),
}
"""Type in Postgres to Arrow's and to what the column is cast to; all others (JSON, UUID, arrays) come as text."""
_OPS = {"=": "=", "!=": "<>", "<": "<", "<=": "<=", ">": ">", ">=": ">="}
_ORDERS = frozenset({"<", "<=", ">", ">="})


class Postgres:
    """The database that the settings name; nothing is opened before a statement names one of its schemas."""

    schemas = SCHEMAS

    def __init__(self, config: settings.Settings) -> None:
        self._config = config
        self._reader: Any = None
        self._columns: dict[tuple[str, str], dict[str, str]] | None = None

    def names(self, schema: str) -> Sequence[str]:
        """The tables and views of a schema; none where the database cannot be read."""
        try:
            return sorted({name for found, name in self._known() if found == schema})
        except errors.ProbingError:
            return []

    def resolve(self, schema: str, name: str) -> pa.Schema | None:
        """The columns of a table or view; raises DatabaseUnavailable, NotPermitted."""
        found = self._known().get((schema, name))
        if found is None:
            return None
        return pa.schema([(column, _TYPES.get(kind, (pa.string(), ""))[0]) for column, kind in found.items()])

    def fetch(self, scan: Scan) -> pa.Table:
        """The rows that a scan wants; raises UsageError where they are too many to hold."""
        schema, _, name = scan.table.partition(".")
        kinds = self._known()[schema, name]
        wanted = [c for c in kinds if scan.columns is None or c in scan.columns]
        chosen = ", ".join(
            f"{_name(c)}::{_TYPES.get(kinds[c], (None, 'text'))[1]} AS {_name(c)}" for c in wanted
        )
        where = f" WHERE {_sql(scan.condition, kinds)}" if scan.condition is not None else ""
        most = MAX_ROWS + 1 if scan.limit is None else min(scan.limit, MAX_ROWS + 1)
        statement = f"SELECT {chosen} FROM {_name(schema)}.{_name(name)}{where} LIMIT {most}"  # noqa: S608  # names of the catalogue, quoted
        rows = self._ask(statement)
        if len(rows) > MAX_ROWS:
            raise errors.UsageError(
                f"{scan.table} has more than {MAX_ROWS:,} such rows: narrow it with WHERE"
            )
        types = self.resolve(schema, name)
        assert types is not None
        return rows.cast(pa.schema([types.field(c) for c in wanted]))

    def _known(self) -> dict[tuple[str, str], dict[str, str]]:
        if self._columns is None:
            statement = (
                "SELECT table_schema::text s, table_name::text t, column_name::text c, data_type::text d "
                "FROM information_schema.columns WHERE table_schema IN ('ops', 'probing') ORDER BY s, t, ordinal_position"
            )
            found: dict[tuple[str, str], dict[str, str]] = {}
            for row in self._ask(statement).to_pylist():
                found.setdefault((row["s"], row["t"]), {})[row["c"]] = row["d"]
            self._columns = found
        return self._columns

    def _ask(self, statement: str) -> pa.Table:
        try:
            if self._reader is None:
                # Loads SQLAlchemy: only a statement that names these schemas pays for it.
                from probing_cluster.db import arrow

                self._reader = arrow.ArrowReader(_uri(self._config))
            return self._reader.table(statement)
        except ModuleNotFoundError as exc:
            raise errors.DatabaseUnavailable(f"{ABSENT}: {exc.name} is not installed on this host") from exc
        except errors.DatabaseUnavailable as exc:
            raise errors.DatabaseUnavailable(f"{ABSENT}: {exc}") from exc


def _uri(config: settings.Settings) -> str:
    """The server that is there: an embedded one is not started for a question."""
    url = config.database.url
    if not url:
        # A driver costs a tenth of a second: only a statement about the database pays it.
        from probing_cluster.db.server import embedded

        directory = config.database.directory
        if not embedded.exists(directory) or not embedded.running(directory):
            raise errors.DatabaseUnavailable(f"no database runs in {directory}")
        url = embedded.url(directory)
    return f"{url}{'&' if '?' in url else '?'}connect_timeout={CONNECT_S}"


def _name(text: str) -> str:
    return '"' + text.replace('"', '""') + '"'


def _sql(condition: Condition, kinds: Mapping[str, str]) -> str:
    """The condition in Postgres' SQL; the asker filters once more."""
    op = condition["op"]
    if op in ("and", "or"):
        return "(" + f" {op} ".join(_sql(c, kinds) for c in condition["of"]) + ")"
    if op == "not":
        return f"(NOT {_sql(condition['of'][0], kinds)})"
    column = str(condition["column"])
    cast = _TYPES.get(kinds[column], (None, "text"))[1]
    left = f"{_name(column)}::{cast}"
    if op in ("null", "not null"):
        return f"({_name(column)} IS {op.upper()})"
    if op == "in":
        return f"({left} IN ({', '.join(_constant(v, cast) for v in condition['values'])}))"
    # DataFusion orders texts by their bytes; a server with a language's collation would keep rows back that it wants.
    ordered = ' COLLATE "C"' if cast == "text" and op in _ORDERS else ""
    return f"({left}{ordered} {_OPS[op]} {_constant(condition['value'], cast)})"


def _constant(value: Any, cast: str) -> str:
    if value is None:
        return "NULL"
    if isinstance(value, bool | int | float):
        return f"'{value}'::{cast}"
    return "'" + str(value).replace("'", "''") + f"'::{cast}"
