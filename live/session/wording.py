"""What DataFusion says of a statement, in words that a person can act on: the nearest names, and where the rest is listed."""

from __future__ import annotations

import difflib
import re
from collections.abc import Container, Iterable, Sequence

from probing_cluster.core import sanitize

HINT = "information_schema.tables lists the tables, information_schema.columns what they hold"
N_NEAREST = 3
MAX_CHARS = 600
_NO_FIELD = re.compile(
    r"No field named (?P<name>.+?)\.(?:\s+Did you mean '.*?'\?)?\s+Valid fields are (?P<fields>.+)\.",
    re.DOTALL,
)
_NO_TABLE = re.compile(r"table '(?P<name>[^']+)' not found")
_ABOUT_NAMES = re.compile(r"\bSHOW\b|Invalid qualifier")
"""Refusals of other kinds that the lists of tables and columns help with."""
_SYNTAX = re.compile(r'SQL error: ParserError\("(?P<words>.*)"\)$', re.DOTALL)


def misses_table(exc: Exception) -> bool:
    """True if a statement names a table that is not there."""
    return _NO_TABLE.search(str(exc)) is not None


def words(
    exc: Exception,
    tables: Iterable[str] = (),
    reasons: Iterable[str] = (),
    *,
    written: Iterable[str] = (),
    of_running: Container[str] = (),
) -> str:
    """A sentence with the way out.

    `tables`: the full names that there are; `written`: those of them that the job's program writes itself; `reasons`: why nodes did
    not answer; `of_running`: tables that an ended job no longer has.
    """
    text = str(exc).removeprefix("DataFusion error: ").strip()
    known = list(tables)
    if (found := _NO_FIELD.search(text)) is not None:
        return sanitize.clean(_no_column(found["name"], found["fields"].split(", "), known), MAX_CHARS)
    if (found := _NO_TABLE.search(text)) is not None:
        name = found["name"].removeprefix("live.").removeprefix("kept.").removeprefix("datafusion.")
        if name in of_running:
            left = f"; kept of it: {', '.join(_nearest(name, known))}" if known else ""
            gone = f"no table {name}: it is there only while the job runs{left}; information_schema.tables lists them"
            return sanitize.clean(gone, MAX_CHARS)
        return sanitize.clean(_no_table(name, known, list(reasons), list(written)), MAX_CHARS)
    if (found := _SYNTAX.search(text)) is not None:
        text = f"this is no SQL that is understood: {found['words']}"
    more = "; ".join(list(reasons)[:3])
    hint = f"; {HINT}" if _ABOUT_NAMES.search(text) else ""
    return f"{sanitize.clean(text, MAX_CHARS)}{f' ({more})' if more else ''}{hint}"


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


def _no_table(wanted: str, tables: Sequence[str], reasons: Sequence[str], written: Sequence[str]) -> str:
    near = _nearest(wanted, tables)
    own = [name for name in written if name not in near][:N_NEAREST]
    why = [r for r in reasons if not r.startswith("no table ")]
    first = f"no table {wanted}{' (' + '; '.join(why[:3]) + ')' if why else ''}"
    second = f"; the nearest: {', '.join(near)}" if near else ""
    third = f"; the job's own: {', '.join(own)}" if own else ""
    return f"{first}{second}{third}; information_schema.tables lists them"


def _nearest(wanted: str, names: Sequence[str]) -> list[str]:
    """The names most like it, the likest first; where none is, those of its schema, else the first ones there are."""
    lowered = {n.lower(): n for n in names}
    near = difflib.get_close_matches(wanted.lower(), lowered, N_NEAREST, cutoff=0.6)
    # A name without a schema was looked up in one, and may be of another.
    last = wanted.lower().rpartition(".")[2]
    near = [*(n for n in lowered if n.rpartition(".")[2] == last), *near]
    within = [n for n in lowered if wanted.lower() in n]
    schema = wanted.lower().rpartition(".")[0]
    beside = [n for n in lowered if schema and n.rpartition(".")[0] == schema]
    others = difflib.get_close_matches(wanted.lower(), beside, N_NEAREST, cutoff=0.0) or list(lowered)
    chosen = (list(dict.fromkeys([*near, *within])) or others)[:N_NEAREST]
    return [lowered[n] for n in chosen]


def _bare(name: str) -> str:
    return name.strip().replace('"', "")
