"""What DataFusion says of a statement, in words that a person can act on: the nearest names, and where the rest is listed."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Sequence

from probing_cluster.core import sanitize

HINT = "information_schema.tables lists the tables, information_schema.columns what they hold"
N_NEAREST = 3
MAX_CHARS = 600
_NO_FIELD = re.compile(
    r"No field named (?P<name>.+?)\.(?:\s+Did you mean '.*?'\?)?\s+Valid fields are (?P<fields>.+)\.",
    re.DOTALL,
)
_NO_TABLE = re.compile(r"table '(?P<name>[^']+)' not found")
_SYNTAX = re.compile(r'SQL error: ParserError\("(?P<words>.*)"\)$', re.DOTALL)


def words(exc: Exception, tables: Iterable[str] = (), reasons: Iterable[str] = ()) -> str:
    """A sentence with the way out. `tables`: the full names that there are; `reasons`: why nodes did not answer."""
    text = str(exc).removeprefix("DataFusion error: ").strip()
    known = list(tables)
    if (found := _NO_FIELD.search(text)) is not None:
        return sanitize.clean(_no_column(found["name"], found["fields"].split(", "), known), MAX_CHARS)
    if (found := _NO_TABLE.search(text)) is not None:
        return sanitize.clean(_no_table(found["name"], known, list(reasons)), MAX_CHARS)
    if (found := _SYNTAX.search(text)) is not None:
        text = f"this is no SQL that is understood: {found['words']}"
    more = "; ".join(list(reasons)[:3])
    return f"{sanitize.clean(text, MAX_CHARS)}{f' ({more})' if more else ''}; {HINT}"


def _no_column(name: str, fields: Sequence[str], known: Sequence[str]) -> str:
    """`fields` as DataFusion has them: `table.column`, where a table may be an alias or none."""
    wanted = _bare(name.rpartition(".")[2])
    places = {_bare(f): (_bare(f.rpartition(".")[0]), _bare(f.rpartition(".")[2])) for f in fields}
    tables = list(dict.fromkeys(table for table, _ in places.values() if table))
    shown = {column: full if len(tables) > 1 else column for full, (_, column) in places.items()}
    near = [shown[n] for n in _nearest(wanted, list(shown))]
    where = f" in {' and '.join(tables)}" if tables else ""
    described = [t for t in tables if t in known or any(k.rpartition(".")[2] == t for k in known)]
    way = (
        "; ".join(f"DESCRIBE {t}" for t in described)
        if described == tables and tables
        else "information_schema.columns"
    )
    return f"no column {wanted}{where}; the nearest: {', '.join(near)}; {way} lists all {len(fields)}"


def _no_table(name: str, tables: Sequence[str], reasons: Sequence[str]) -> str:
    wanted = name.removeprefix("live.").removeprefix("kept.").removeprefix("datafusion.")
    near = _nearest(wanted, tables)
    why = [r for r in reasons if not r.startswith("no table ")]
    first = f"no table {wanted}{' (' + '; '.join(why[:3]) + ')' if why else ''}"
    second = f"; the nearest: {', '.join(near)}" if near else ""
    return f"{first}{second}; information_schema.tables lists them"


def _nearest(wanted: str, names: Sequence[str]) -> list[str]:
    """The names most like it, the likest first; where none is, those of its schema, else the first ones there are."""
    lowered = {n.lower(): n for n in names}
    near = difflib.get_close_matches(wanted.lower(), lowered, N_NEAREST, cutoff=0.6)
    within = [n for n in lowered if wanted.lower() in n]
    schema = wanted.lower().rpartition(".")[0]
    beside = [n for n in lowered if schema and n.rpartition(".")[0] == schema]
    others = difflib.get_close_matches(wanted.lower(), beside, N_NEAREST, cutoff=0.0) or list(lowered)
    chosen = (list(dict.fromkeys([*near, *within])) or others)[:N_NEAREST]
    return [lowered[n] for n in chosen]


def _bare(name: str) -> str:
    return name.strip().replace('"', "")
