"""What a table is: its name, its columns and where its rows come from. Shared by the nodes and the asker."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

Kind = Literal["int", "float", "text", "bool", "time"]
"""What a column holds: 64-bit integers, 64-bit floats, text, booleans, instants (nanoseconds since 1970, UTC)."""
KINDS: tuple[Kind, ...] = ("int", "float", "text", "bool", "time")

Row = Mapping[str, Any]
"""One row by column name; a column that is missing or None is null."""


@dataclass(frozen=True, kw_only=True)
class Column:
    """One column of a table."""

    name: str
    kind: Kind
    meaning: str


NODE = Column(name="node", kind="text", meaning="Slurm's name of the node")
RANK = Column(name="rank", kind="int", meaning="number of the rank in its job; null where it has none")
PID = Column(name="pid", kind="int", meaning="process id on the node")
AT = Column(name="at", kind="time", meaning="when the row was read, UTC")
PLACE = (NODE, RANK, PID, AT)
"""What every row about a process begins with."""
NODE_PLACE = (NODE, AT)
"""What every row about a node begins with."""


@dataclass(frozen=True, kw_only=True)
class Scan:
    """What one statement wants of one table."""

    table: str
    """`schema.name`."""
    columns: tuple[str, ...] | None = None
    """None for all."""
    condition: Mapping[str, Any] | None = None
    """Rows that do not fulfil it need not be sent (see conditions); the asker filters again."""
    limit: int | None = None
    """More rows than this of one node are not needed."""
    describe: bool = False
    """Only the columns are wanted, of a table whose columns are known to the node alone."""
    make_live: bool = False
    """Processes that were not started live are made so before they evaluate, where their Python can."""

    def to_json(self) -> dict[str, Any]:
        """The scan as it travels to a node."""
        return {
            "table": self.table,
            "columns": list(self.columns) if self.columns is not None else None,
            "condition": self.condition,
            "limit": self.limit,
            "describe": self.describe,
            "make_live": self.make_live,
        }

    @classmethod
    def of_json(cls, raw: Mapping[str, Any]) -> Scan:
        """The scan that `to_json` wrote."""
        columns = raw.get("columns")
        return cls(
            table=str(raw["table"]),
            columns=tuple(map(str, columns)) if columns is not None else None,
            condition=raw.get("condition"),
            limit=int(raw["limit"]) if raw.get("limit") is not None else None,
            describe=raw.get("describe") is True,
            make_live=raw.get("make_live") is True,
        )


@dataclass(frozen=True, kw_only=True)
class Columns:
    """Rows as columns: what a node sends of one table."""

    names: tuple[str, ...]
    kinds: tuple[Kind, ...]
    values: tuple[Sequence[Any], ...]
    """One sequence per name, all of one length; None is null."""
    whole: bool = True
    """False where only names and kinds are known and the rows must be asked for."""

    @property
    def n_rows(self) -> int:
        """How many rows there are."""
        return len(self.values[0]) if self.values else 0


class Missing(Exception):
    """Something of a table is not here; its text says what and why, and becomes a row of `cluster.missing`."""

    def __init__(self, reason: str, *, rank: int | None = None) -> None:
        super().__init__(reason)
        self.rank = rank


Rows = Callable[[Any, Scan], Iterable[Row]]
"""The rows on one node: of a node view (node.view.NodeView) and a scan. May report parts as missing by `view.miss`."""


@dataclass(frozen=True, kw_only=True)
class Table:
    """One table with columns that are known beforehand."""

    schema: str
    name: str
    meaning: str
    columns: tuple[Column, ...]
    rows: Rows
    source: str
    """Where the rows come from, for the manual."""

    @property
    def full_name(self) -> str:
        """`schema.name`."""
        return f"{self.schema}.{self.name}"


@dataclass(frozen=True, kw_only=True)
class LazySchema:
    """Tables that exist once a statement names them: the node resolves the name to rows."""

    schema: str
    meaning: str
    resolve: Callable[[Any, str, Scan], Columns | None]
    """Of a node view, the table's name as the statement writes it, and the scan; None where the node has no such table.

    For the name `*`: one column `name` with the tables that this node knows now, for information_schema and completion.
    """
    source: str


Registered = Table | LazySchema


def columns_of(rows: Iterable[Row], wanted: Sequence[Column]) -> Columns:
    """The wanted columns of some rows."""
    kept = list(rows)
    return Columns(
        names=tuple(c.name for c in wanted),
        kinds=tuple(c.kind for c in wanted),
        values=tuple([row.get(c.name) for row in kept] for c in wanted),
    )
