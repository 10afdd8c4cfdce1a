"""The catalogue that DataFusion sees: schemas whose tables come into being when a statement names them.

Planning asks a table for its columns only; what a statement reads is fetched between planning and execution, all
tables of it in one question, because DataFusion would otherwise ask in threads that a Ctrl-C cannot end.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from datafusion.catalog import SchemaProvider
from datafusion.catalog import Table as ProvidedTable

_INFINITY = re.compile(r"(?<![\w\"'])-?inf(?![\w\"'])")
_NUMBER = "\0number"
"""No column of a table is called so."""


class Fragment:
    """One reading of a table in one statement: first only planned, then with its rows."""

    def __init__(self, name: str, columns: Sequence[str] | None, condition: Any) -> None:
        self.name = name
        self.columns = list(columns) if columns is not None else None
        self._condition = condition
        self.data: pa.Table | None = None

    def scanner(self, schema: Any = None, columns: Any = None, filter: Any = None, **_: Any) -> Any:  # noqa: A002, ARG002
        """Called by DataFusion when it reads. What it handed over as a filter is its no longer: it is applied here."""
        assert self.data is not None
        if self._condition is None:
            return ds.dataset(self.data).scanner(columns=columns)
        return ds.dataset(self.data.take(_fulfilling(self.data, self._condition))).scanner(columns=columns)


def _fulfilling(rows: pa.Table, condition: Any) -> pa.Array:
    """The numbers of the rows that fulfil a condition of Arrow's as DataFusion would have it: NaN is greater than every number.

    Infinity stands for it, so a condition that names infinity keeps Arrow's answer, which finds no NaN.
    """
    finite = _INFINITY.search(str(condition)) is None
    for i, column in enumerate(rows.columns):
        if finite and pa.types.is_floating(column.type):
            whole = pc.if_else(pc.is_nan(column), pa.scalar(float("inf"), column.type), column)
            rows = rows.set_column(i, rows.schema.field(i), whole)
    rows = rows.append_column(_NUMBER, pa.array(range(rows.num_rows), pa.int64()))
    return ds.dataset(rows).to_table(columns=[_NUMBER], filter=condition)[_NUMBER]


class LiveTable(ds.Dataset):  # type: ignore[misc]
    """A table to DataFusion: a dataset that has no rows until a statement was planned."""

    def __init__(self, name: str, schema: pa.Schema, planned: list[Fragment]) -> None:
        self._name, self._columns, self._planned = name, schema, planned
        self._last: Fragment | None = None

    @property
    def schema(self) -> pa.Schema:
        """The columns."""
        return self._columns

    def scanner(self, columns: Any = None, filter: Any = None, **_: Any) -> Any:  # noqa: A002
        """Called once per reading while a statement is planned."""
        self._last = Fragment(self._name, columns, filter)
        self._planned.append(self._last)
        return ds.dataset(self._columns.empty_table()).scanner(columns=columns, filter=filter)

    def get_fragments(self, filter: Any = None) -> Iterator[Any]:  # noqa: A002, ARG002
        """The reading that was planned just now."""
        return iter([self._last])


Resolve = Callable[[str], pa.Schema | None]
"""The columns of the table of that name in one schema; None where there is none. May ask the nodes."""


class LiveSchema(SchemaProvider):
    """One schema of the catalogue."""

    def __init__(
        self, schema: str, resolve: Resolve, names: Callable[[], Sequence[str]], planned: list[Fragment]
    ) -> None:
        self._schema, self._resolve, self._names, self._planned = schema, resolve, names, planned

    @property
    def table_names(self) -> list[str]:  # type: ignore[override]  # as DataFusion calls it
        """For information_schema; a property, though the base class's hints say a method."""
        return list(self._names())

    def table_exist(self, name: str) -> bool:
        """Whether there is such a table; a lazy one says so when it is resolved."""
        return bool(name)

    def table(self, name: str) -> Any:
        """The table; None where there is none."""
        schema = self._resolve(name)
        return (
            None
            if schema is None
            else ProvidedTable(LiveTable(f"{self._schema}.{name}", schema, self._planned))
        )
