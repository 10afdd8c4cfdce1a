"""Rows of a span, through the readers that the product itself has; what the columns mean is in docs/frames.md.

A notebook is a reader: its database role bounds what it gets, and nothing here writes.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self

import pandas as pd
import pyarrow as pa

from probing_cluster.attribution.history import history
from probing_cluster.attribution.reliability import fleet
from probing_cluster.core import clock, errors, records, settings
from probing_cluster.db import store
from probing_cluster.frames import columns

_ENDED = """
    FROM probing.job_attempt a WHERE a.end_at >= $1 AND a.end_at < $2 AND ($3 = '' OR a.cluster = $3)
    ORDER BY a.end_at, a.job_id, a.submit_at"""
_JUDGED = """
    FROM probing.verdict v
    JOIN probing.job_attempt a USING (cluster, job_id, submit_at)
    WHERE v.superseded_at IS NULL AND a.end_at >= $1 AND a.end_at < $2
      AND ($3 = '' OR a.cluster = $3)
    ORDER BY a.end_at, v.job_id, v.submit_at"""
_EVENTS = """
    FROM probing.health_event e WHERE e.at >= $1 AND e.at < $2 AND ($3 = '' OR e.cluster = $3)
    ORDER BY e.at, e.event_id"""
_SCORED = """
    FROM probing.lemon_score s WHERE s.day >= $1 AND s.day < $2 AND ($3 = '' OR s.cluster = $3)
    ORDER BY s.day, s.score DESC, s.node"""


def connect(where: str | Path | settings.Settings | None = None, *, cluster: str | None = None) -> Frames:
    """The rows of a database URL, or of the settings (None: `$PROBING_CONFIG`, else the file in /etc).

    Those of `cluster` only; where it is None, of the settings' cluster, and of a URL those of all.

    Raises DatabaseUnavailable, and UsageError for settings that cannot be read.
    """
    if isinstance(where, str) and "://" in where:
        return Frames(store.Store.open(where).of(cluster))
    config = where if isinstance(where, settings.Settings) else settings.load(Path(where) if where else None)
    opened = store.Store.open(config)
    return Frames(opened if cluster is None else opened.of(cluster))


class Frames:
    """What one database holds of a cluster, or of all; `with frames.connect() as cluster: cluster.verdicts(since=…)`.

    Each method gives a pandas DataFrame of Arrow's types, so that whole numbers with gaps stay whole; with
    `arrow=True` the `pyarrow.Table` itself. Spans are [since, until) in times with a zone; until = now.
    """

    def __init__(self, opened: store.Store) -> None:
        self._store = opened

    def verdicts(self, *, since: datetime, until: datetime | None = None, arrow: bool = False) -> Any:
        """The current verdict of every attempt that ended in the span."""
        return self._rows(records.Verdict, "v", _JUDGED, since, until, arrow=arrow)

    def attempts(self, *, since: datetime, until: datetime | None = None, arrow: bool = False) -> Any:
        """Every attempt that ended in the span."""
        return self._rows(records.JobAttempt, "a", _ENDED, since, until, arrow=arrow)

    def events(self, *, since: datetime, until: datetime | None = None, arrow: bool = False) -> Any:
        """Every event that nodes delivered about the span."""
        return self._rows(records.HealthEvent, "e", _EVENTS, since, until, arrow=arrow)

    def lemon_scores(self, *, since: datetime, until: datetime | None = None, arrow: bool = False) -> Any:
        """Every node's score of every night in the span."""
        return self._rows(records.LemonScore, "s", _SCORED, since, until, arrow=arrow)

    def fleet(
        self,
        figure: str,
        *,
        since: datetime,
        until: datetime | None = None,
        arrow: bool = False,
        **options: Any,
    ) -> Any:
        """One fleet figure's rows, from Postgres and the exported months; `options` are the figure's own.

        What holds for the whole figure is in the DataFrame's `attrs`, and in the table's metadata as JSON (key `figure`).
        Raises UsageError for a figure or an option that is not there.
        """
        compute = _figure(figure, options)
        since, until = _span(since, until)
        until = min(until, self._store.recorded_until(clock.SYSTEM.now()))
        # Accounts of runs are stored; the other figures read attempts, exported months among them.
        stored = "Given" not in str(inspect.signature(compute).parameters["source"].annotation)
        found = compute(self._store if stored else history.of(self._store), since, until, **options)
        return _given(columns.figure_table(found), arrow=arrow)

    def close(self) -> None:
        """Give the connections back."""
        self._store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _rows(
        self,
        record: type[Any],
        alias: str,
        source: str,
        since: datetime,
        until: datetime | None,
        *,
        arrow: bool,
    ) -> Any:
        query = f"SELECT {columns.selected(record, alias)}{source}"
        found = self._store.arrow(query, *_span(since, until), self._store.cluster or "")
        return _given(found.cast(columns.of_record(record)), arrow=arrow)


def _figure(name: str, options: Mapping[str, Any]) -> Callable[..., Any]:
    word = name.replace("-", "_")
    if word not in fleet.__all__:
        raise errors.UsageError(f"there is no figure {name!r}; valid: {', '.join(fleet.__all__)}")
    compute: Callable[..., Any] = getattr(fleet, word)
    known = inspect.signature(compute).parameters.keys() - {"source", "since", "until"}
    if unknown := sorted(options.keys() - known):
        raise errors.UsageError(
            f"{name} has no option {', '.join(unknown)}; it has: {', '.join(sorted(known))}"
        )
    return compute


def _span(since: datetime, until: datetime | None) -> tuple[datetime, datetime]:
    end = clock.SYSTEM.now() if until is None else until
    for at in (since, end):
        if at.tzinfo is None:
            raise errors.UsageError(f"{at} has no time zone; give for instance datetime(…, tzinfo=UTC)")
    return since.astimezone(UTC), end.astimezone(UTC)


def _given(table: pa.Table, *, arrow: bool) -> Any:
    if arrow:
        return table
    frame = table.to_pandas(types_mapper=pd.ArrowDtype, ignore_metadata=True)
    for name in columns.json_columns(table.schema):
        frame[name] = [None if text is None else json.loads(text) for text in table[name].to_pylist()]
    frame.attrs.update(json.loads((table.schema.metadata or {}).get(b"figure", b"{}")))
    return frame
