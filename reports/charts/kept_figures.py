"""Drawings of a job's own tables and its time per step, from the kept tables of its last attempt or from given rows."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from probing_cluster.core import errors, records, settings
from probing_cluster.reports.charts import series

ALONG = ("step", "global_step", "iteration", "iter", "batch", "epoch")
"""Columns for the x axis; the first that a table has is used, else the row number."""
MAX_TABLES, MAX_COLUMNS, MAX_PLACES = 2, 3, 300
_PLACE = {"node", "rank", "pid", "at"}


@records.record
class KeptFigure:
    """One drawing."""

    title: str = records.doc("its heading")
    drawing: str = records.doc("SVG, escaped")


def of_job(config: settings.Settings, cluster: str, job_id: int) -> list[KeptFigure]:
    """The first of the caller's own tables and the time per step; none where nothing was kept of a job of theirs.

    Nothing is drawn on a host without pyarrow, and of files that are damaged.
    """
    if not config.kept.directory:
        return []
    try:
        from probing_cluster.attribution.history import kept
    except ImportError:
        return []
    directory = kept.directory_of(config.kept)
    try:
        found = kept.attempts(directory, cluster, job_id) if directory is not None else []
        return drawn(kept.tables(found[-1])) if found else []
    except (OSError, errors.MalformedInput):
        return []


def drawn(found: Mapping[tuple[str, str], Any]) -> list[KeptFigure]:
    """Drawings of Arrow tables by schema and name: the first of schema `python`, and the time per step of `torch.steps`."""
    return [
        KeptFigure(title=title, drawing=series.line(f"kept-{n}", title, places, "{:.4g}".format))
        for n, (title, places) in enumerate(_series(found))
    ]


def _series(found: Mapping[tuple[str, str], Any]) -> Iterator[tuple[str, list[series.SeriesPlace]]]:
    own = [(name, table) for (schema, name), table in found.items() if schema == "python"][:MAX_TABLES]
    steps = found.get(("torch", "steps"))
    if steps is not None:
        yield from _table("steps", steps, ("duration_s",), "seconds per step")
    yield from _utilisation(own, steps)
    for name, table in own:
        kinds = {f.name: str(f.type) for f in table.schema}
        along = next((a for a in ALONG if a in kinds), None)
        numbers = [
            c for c, kind in kinds.items() if kind in ("double", "int64") and c not in _PLACE | {along}
        ]
        yield from _table(name, table, numbers[:MAX_COLUMNS])


def _utilisation(
    own: Sequence[tuple[str, Any]], steps: Any
) -> Iterator[tuple[str, list[series.SeriesPlace]]]:
    """MFU of the training, from the first of the caller's tables with tokens and parameters."""
    from probing_cluster.attribution.reliability import mfu

    own_table = next((table for _, table in own if set(table.column_names) >= mfu.COLUMNS), None)
    if own_table is None:
        return
    wanted = mfu.COLUMNS | {mfu.PEAK, "rank", "duration_s"}
    rows = [
        t.select([c for c in t.column_names if c in wanted]).to_pylist()
        for t in (own_table, steps)
        if t is not None
    ]
    found = mfu.per_step(rows[0], rows[1] if len(rows) > 1 else [])
    known = [(float(f.step), f.mfu) for f in found if f.mfu is not None]
    if len(known) > 1:
        yield "model FLOPs utilisation (MFU), share of the GPUs' peak, along step", _places(known)
    elif len(found) > 1:
        yield (
            "model TFLOP/s per GPU along step (MFU needs a column peak_tflops)",
            _places([(float(f.step), f.tflops_per_gpu) for f in found]),
        )


def _table(
    name: str, table: Any, columns: Sequence[str], words: str = ""
) -> Iterator[tuple[str, list[series.SeriesPlace]]]:
    along = next((a for a in ALONG if a in table.column_names), None)
    at = table[along].to_pylist() if along is not None else list(range(table.num_rows))
    for column in columns:
        pairs = [
            (float(a), float(v))
            for a, v in zip(at, table[column].to_pylist(), strict=True)
            if series.finite(a) and series.finite(v)
        ]
        if len(pairs) > 1:
            title = words or f"{name}: {column}"
            title += f" along {along}" if along is not None else " by row"
            yield title, _places(pairs)


def _places(pairs: Sequence[tuple[float, float]]) -> list[series.SeriesPlace]:
    """At most MAX_PLACES, each of the values of all ranks in one stretch of the axis."""
    first, last = min(a for a, _ in pairs), max(a for a, _ in pairs)
    width = (last - first) / MAX_PLACES or 1.0
    parts: dict[int, list[tuple[float, float]]] = {}
    for at, value in pairs:
        parts.setdefault(min(int((at - first) / width), MAX_PLACES - 1), []).append((at, value))
    return [
        series.SeriesPlace(
            at=statistics.median(a for a, _ in part),
            middle=statistics.median(v for _, v in part),
            low=min(v for _, v in part),
            high=max(v for _, v in part),
        )
        for _, part in sorted(parts.items())
    ]
