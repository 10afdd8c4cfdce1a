"""A gang's mesh as a drawing: a box for each group of the innermost axis, in rows and columns by the others."""

from __future__ import annotations

from markupsafe import Markup

from probing_cluster.attribution.gang import mesh, stacks
from probing_cluster.reports.charts import svg

MOST_CELLS = 4096
"""More ranks than this are drawn a cell a group, which shows the worst of its ranks."""
ORDER = ("dead", "awaited", "waiting", "runs", "unknown")
"""Worst first."""
MEANING = {
    "dead": "dead", "awaited": "waited for", "waiting": "waits", "runs": "inside no collective", "unknown": "not heard",
}  # fmt: skip
LEFT, TOP, GAP, MOST_COLUMNS = 64.0, 22.0, 6.0, 64
LEAST_WIDTH = 220.0
"""For the words above it."""


def draw(found: mesh.Mesh) -> Markup:
    """The picture; the lists beside it say the same in words."""
    inner = found.axes[0].size if found.axes else min(found.world_size, 16)
    folded = found.world_size > MOST_CELLS
    groups = _groups(found, inner)
    columns = found.axes[1].size if len(found.axes) > 1 else min(len(groups), 16)
    columns = max(1, min(columns, MOST_COLUMNS))
    cell = 10.0 if folded else 22.0 if found.world_size <= 64 else 12.0
    box = cell if folded else cell * min(inner, 8)
    deep = cell if folded else cell * -(-inner // 8)
    drawn = []
    for at, ranks in enumerate(groups):
        row, column = divmod(at, columns)
        x, y = LEFT + column * (box + GAP), TOP + row * (deep + GAP)
        states = [found.states.get(r, "unknown") for r in ranks]
        if folded:
            worst = min(states, key=ORDER.index)
            shapes = [_cell(x, y, cell, worst)]
        else:
            shapes = [
                _cell(x + n % 8 * cell, y + n // 8 * cell, cell - 1.5, state)
                for n, state in enumerate(states)
            ]
        drawn.append(svg.titled(_title(found, ranks, states), *shapes))
        if column == 0:
            words = _row_words(found, row)
            drawn.append(svg.element("text", text=words, x=2, y=y + 10, **{"class": "tick"}))
    n_rows = -(-len(groups) // columns)
    width, height = max(LEFT + columns * (box + GAP), LEAST_WIDTH), TOP + n_rows * (deep + GAP) + 4
    head = f"{found.axes[1].name} from left to right" if len(found.axes) > 1 else "groups from left to right"
    drawn.append(svg.element("text", text=head, x=LEFT, y=13, **{"class": "tick"}))
    options = {
        "class": "mesh", "viewBox": f"0 0 {width:g} {height:g}", "width": f"{width:g}", "height": f"{height:g}", "role": "img",
        "aria-label": f"Mesh of {found.world_size} ranks; the lists below say who waits for whom",
    }  # fmt: skip
    return Markup(svg.element("svg", *drawn, **options))  # noqa: S704 - svg escapes its own values


def _groups(found: mesh.Mesh, inner: int) -> list[list[int]]:
    """Ranks by the innermost axis; the axes lie row by row as their strides do."""
    return [list(range(at, min(at + inner, found.world_size))) for at in range(0, found.world_size, inner)]


def _cell(x: float, y: float, size: float, state: str) -> str:
    return svg.element("rect", x=x, y=y, width=size, height=size, rx=1.5, **{"class": f"rank {state}"})


def _title(found: mesh.Mesh, ranks: list[int], states: list[str]) -> str:
    place = found.place(ranks[0])
    where = ", ".join(f"{a.name} {at}" for a, at in zip(found.axes[1:], place[1:], strict=True))
    parts = [
        f"{stacks.ranges(r for r, s in zip(ranks, states, strict=True) if s == state)} {MEANING[state]}"
        for state in ORDER
        if state in states
    ]
    return f"{where + ': ' if where else ''}rank {'; '.join(parts)}"


def _row_words(found: mesh.Mesh, row: int) -> str:
    """`PP 1`, or with four axes `PP 1 · EP 0`."""
    rest = found.axes[2:]
    words = []
    for axis in rest:
        words.append(f"{axis.name} {row % axis.size}")
        row //= axis.size
    return " · ".join(reversed(words))[:12] if rest else ""
