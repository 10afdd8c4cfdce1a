"""docs/live.md, generated from the tables' registrations: `python -m probing_cluster.live.manual > docs/live.md`."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from probing_cluster.live import missing
from probing_cluster.live.table import NODE_PLACE, PLACE, Column, Table
from probing_cluster.live.tables import registry

_HEAD = Path(__file__).with_name("manual_head.md")


def manual() -> str:
    """The whole page."""
    return "\n".join([_HEAD.read_text(encoding="utf-8").rstrip(), "", *_tables()]) + "\n"


def _tables() -> Iterator[str]:
    yield "| every row about a process begins with | |"
    yield "|---|---|"
    yield from _columns(PLACE)
    yield ""
    yield "Rows about a node begin with `node` and `at`."
    for schema in registry.SCHEMAS:
        for name, one in registry.built_in().items():
            if one.schema == schema:
                yield ""
                yield from _table(name, one.meaning, one.source, _own(one))
            if name == "cluster.ranks" == f"{schema}.ranks":
                yield ""
                yield from _table(missing.NAME, missing.MEANING, "the asker", missing.COLUMNS)
        if (lazy := registry.lazy_schema(schema)) is not None:
            yield ""
            yield f"### {schema}: the program's own"
            yield ""
            yield lazy.meaning
            yield ""
            yield f"From: {lazy.source}."


def _own(table: Table) -> Sequence[Column]:
    """The columns after those that many tables begin with."""
    shared = PLACE if table.columns[: len(PLACE)] == PLACE else NODE_PLACE
    return table.columns[len(shared) :] if table.columns[: len(shared)] == shared else table.columns


def _table(name: str, meaning: str, source: str, columns: Sequence[Column]) -> Iterator[str]:
    yield f"### {name}"
    yield ""
    yield f"{meaning} From: {source}."
    yield ""
    yield "| column | type | meaning |"
    yield "|---|---|---|"
    yield from (f"| `{c.name}` | {c.kind} | {c.meaning} |" for c in columns)


def _columns(columns: Sequence[Column]) -> Iterator[str]:
    yield from (f"| `{c.name}` ({c.kind}) | {c.meaning} |" for c in columns)


if __name__ == "__main__":
    sys.stdout.write(manual())
