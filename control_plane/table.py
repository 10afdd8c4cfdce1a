"""Tables for a terminal: aligned, plain, the last column free to be long."""

from __future__ import annotations

from collections.abc import Sequence

from probing_cluster.core import sanitize


def render(
    heads: Sequence[str], rows: Sequence[Sequence[object]], *, right: frozenset[str] = frozenset()
) -> str:
    """Heads and rows as text; columns named in `right` are numbers; None is `-`."""
    cells = [[_text(value) for value in row] for row in rows]
    widths = [max(len(head), *(len(row[i]) for row in cells), 0) for i, head in enumerate(heads)]
    lines = []
    for row in [list(heads), *cells]:
        padded = [
            cell.rjust(width) if head in right else cell.ljust(width)
            for cell, width, head in zip(row, widths, heads, strict=True)
        ]
        lines.append("  ".join(padded).rstrip())
    return "\n".join(lines)


def _text(value: object) -> str:
    if value is None:
        return "-"
    return f"{value:.2f}" if isinstance(value, float) else sanitize.clean(str(value), 200)
