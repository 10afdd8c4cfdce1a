"""sacct's table as it prints it for people, without `-P`: columns by their place, values that did not fit cut short with a `+`."""

from __future__ import annotations

import re
from collections.abc import Sequence

from probing_cluster.slurm_plugins.accounting import sacct_fields, sacct_layout

DELIMITER = "\x1f"
"""What `parsable` puts between columns."""
_RULE = re.compile(r" *-+(?: -+)+ *")
_RULE_LINE = re.compile(rb"^ *-+(?: -+)+ *\r?$", re.MULTILINE)
_HEAD_BYTES = 65536
_STEP = re.compile(r"\d[\w\[\]+-]{0,80}\.[a-z]{1,12}\+")
_KEPT = frozenset({"jobname", "user", "account", "partition", "qos", "reason", "cluster"})
"""Columns of which a part still tells something; what is cut short in any other says nothing, or something else."""

Column = tuple[int, int]


def parsable(data: bytes) -> tuple[bytes, int] | None:
    """The same dump as `sacct -P` with this delimiter would print it, and how many values were cut short; None where it is no such table.

    A table's rule stands in its first bytes: a large dump with `-P` is not looked through. A row that does not fit under the rule stays as it is, and so does a job's number, a state or a time that was cut: whoever reads on
    completes it or sets the row aside.
    """
    if _RULE_LINE.search(data, 0, _HEAD_BYTES) is None:
        return None
    lines = sacct_layout.lines_of(data)
    made: list[str] = []
    columns: list[Column] = []
    names: list[str] = []
    cut = 0
    for number, raw in enumerate(lines):
        line = raw.rstrip("\r")
        if _RULE.fullmatch(line) and number and (found := _names(lines[number - 1], _columns(line))):
            columns, names = _columns(line), found
            made[-1] = DELIMITER.join(names)
            made.append("")
            continue
        values = _values(line, columns) if columns and line.strip() else None
        if values is None:
            made.append(line)
            continue
        whole = [
            _whole(name, value, columns[i]) for i, (name, value) in enumerate(zip(names, values, strict=True))
        ]
        cut += sum(a != b for a, b in zip(values, whole, strict=True))
        whole = [value.removesuffix("+") if _STEP.fullmatch(value) else value for value in whole]
        made.append(DELIMITER.join(whole))
    return ("\n".join(made).encode(), cut) if columns else None


def _columns(rule: str) -> list[Column]:
    return [m.span() for m in re.finditer(r"-+", rule)]


def _names(line: str, columns: Sequence[Column]) -> list[str]:
    """The columns' names above a rule; empty where they are not sacct's."""
    names = _values(line.rstrip("\r"), columns) or []
    return names if all(name.lower() in sacct_fields.KNOWN for name in names) else []


def _values(line: str, columns: Sequence[Column]) -> list[str] | None:
    """One text per column; None where a word stands under none of them."""
    if any(line[end : end + 1].strip() for _, end in columns) or line[: columns[0][0]].strip():
        return _shifted(line, columns)
    return [line[begin:end].strip() for begin, end in columns]


def _shifted(line: str, columns: Sequence[Column]) -> list[str] | None:
    """The same of a row that a wide character or a copy moved by a little: each word belongs to the column that it stands under most."""
    values: list[list[str]] = [[] for _ in columns]
    at = 0
    for word in re.finditer(r"\S+", line):
        under = [min(word.end(), end) - max(word.start(), begin) for begin, end in columns]
        best = max(range(len(columns)), key=lambda i: under[i])
        if under[best] <= 0 or best < at:
            return None
        at = best
        values[best].append(word[0])
    return [" ".join(words) for words in values]


def _whole(name: str, value: str, column: Column) -> str:
    """The value; without its `+` where sacct cut it short and a part of it would be taken for something else."""
    if not value.endswith("+") or len(value) < column[1] - column[0] or name.lower() in _KEPT:
        return value
    return value if name.lower() in sacct_layout.KEYS else ""
