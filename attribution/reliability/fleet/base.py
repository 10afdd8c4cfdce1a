"""The base of every figure: the span's attempts in DataFusion, and results that become JSON."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Mapping, Sequence
from concurrent import futures
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar

import datafusion
import pyarrow as pa
import pyarrow.compute as pc

from probing_cluster.attribution.history import history
from probing_cluster.attribution.history import source as sources
from probing_cluster.attribution.reliability.fleet import failures
from probing_cluster.core import clock, records
from probing_cluster.core.ending import thread_limit
from probing_cluster.db import store

_SQL = Path(__file__).parents[1] / "sql"

Given = store.Store | sources.HistorySource | Path | str
"""Sources that a figure accepts."""

_OfNode = TypeVar("_OfNode", records.AgentHeartbeat, records.DiagnosticResult)

DAY_US = 86_400_000_000
GPUS_PER_NODE = 8
"""Where no attempt shows how many a node has."""
NEAR_S = 900.0
"""A preemptor starts within this time of the preemption."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Figure:
    """A figure's result: its span, its selection and its rows."""

    since: datetime
    until: datetime
    cluster: str | None = None
    """The cluster it is of; None = of every one that the source holds."""
    partition: str | None = None
    users: tuple[str, ...] | None = None

    def to_json(self) -> dict[str, Any]:
        """Plain values, ready for json.dumps."""
        plain: dict[str, Any] = json.loads(json.dumps(dataclasses.asdict(self), default=_plain))
        return plain


def _plain(value: object) -> object:
    return clock.iso_z(value) if isinstance(value, datetime) else str(value)


def about(
    source: object,
    since: datetime,
    until: datetime,
    partition: str | None,
    users: Iterable[str] | None,
) -> dict[str, Any]:
    """The first fields of a figure: its span and selection, and the cluster that its source is of."""
    wanted = tuple(sorted(users)) if users is not None else None
    cluster = getattr(source, "cluster", None)
    return {"since": since, "until": until, "cluster": cluster, "partition": partition, "users": wanted}


def apart(rows: Sequence[_OfNode]) -> Sequence[_OfNode]:
    """Rows about nodes as they are; where they are of several clusters, with each node's cluster before its name: `c:n1`."""
    if len({row.cluster for row in rows}) < 2:
        return rows
    return [dataclasses.replace(row, node=f"{row.cluster}:{row.node}") for row in rows]


class FleetSpan:
    """The attempts of one span and selection, ready for SQL."""

    n_node_events: int = 0
    """Events of the span that belong to a node; 0 if the figure reads no events."""

    def __init__(
        self,
        given: Given,
        since: datetime,
        until: datetime,
        partition: str | None = None,
        users: Iterable[str] | None = None,
        *,
        attempts: sources.Needed = None,
        events: sources.Needed = sources.NOTHING,
    ) -> None:
        """`attempts` and `events`: the parts that the figure's SQL needs; None means all."""
        self._source = _source(given)
        self.about = about(self._source, since, until, partition, users)
        self.cluster: str | None = self.about["cluster"]
        self.users: tuple[str, ...] | None = self.about["users"]
        self.since, self.until = since, until
        self.bounds = {"since_us": clock.to_us(since), "until_us": clock.to_us(until)}
        thread_limit.require()
        self._context = datafusion.SessionContext()
        with futures.ThreadPoolExecutor(1, "fleet-events") as beside:
            # On a connection of its own: each reading takes seconds of one processor.
            wanted = (
                None
                if events is sources.NOTHING
                else beside.submit(self._source.events, since, until, events)
            )
            if isinstance(self._source, sources.ParquetSource):
                self._source.register_attempts(self._context, "attempt")
            else:
                self._register("attempt", self._source.attempts(since, until, self._with_filters(attempts)))
            if wanted is not None:
                self._register_events(wanted.result())
        base = self._context.sql(text("fleet_base"), param_values=self.bounds)
        if self.cluster is not None:
            base = base.filter(datafusion.col("cluster") == datafusion.lit(self.cluster))
        # A selection's jobs are preempted by, and share nodes with, jobs that are not of it.
        self._context.register_view("everybody", base)
        if partition is not None:
            base = base.filter(datafusion.col("partition") == datafusion.lit(partition))
        if self.users is not None:
            self._register("only_user", pa.table({"name": pa.array(self.users, pa.string())}))
            base = base.join(self._context.table("only_user"), left_on="user", right_on="name", how="semi")
        self._context.register_view("base", base)

    def rows(self, name: str, **values: Any) -> list[dict[str, Any]]:
        """The rows of one figure's SQL file."""
        found: list[dict[str, Any]] = self._context.sql(text(name), param_values=values).to_pylist()
        return found

    def one(self, name: str, **values: Any) -> Mapping[str, Any]:
        """The only row of one figure's SQL file."""
        (row,) = self.rows(name, **values)
        return row

    def gpus_per_node(self) -> int:
        """GPUs that a node of the cluster has, by what its attempts held at once."""
        found = self.rows("fleet_gpus_per_node")
        return int(found[0]["gpus"]) if found else GPUS_PER_NODE

    def with_failures(self) -> None:
        """Registers the failed attempts, by incident, as table `failure`."""
        failed = self._context.sql(text("fleet_failed")).to_pylist()
        self._register("failure", failures.table(failed))

    def with_losses(self, cap_s: float) -> None:
        """Registers the work lost to infrastructure as view `lost`; `cap_s`: most loss per attempt, seconds."""
        values = {"cap_s": float(cap_s), "near_us": round(NEAR_S * 1e6)}
        self._context.register_view("lost", self._context.sql(text("fleet_lost"), param_values=values))

    def checks(self) -> list[dict[str, Any]]:
        """Every check: name, version, first_us, n_results, n_failed; empty if the source has no check results."""
        if not isinstance(self._source, sources.CheckHistory):
            return []
        found: list[dict[str, Any]] = self._source.checks(self.since, self.until).to_pylist()
        return found

    def _with_filters(self, needed: sources.Needed) -> sources.Needed:
        if needed is None:
            return None
        filters = {"cluster": self.cluster, "partition": self.about["partition"], "user": self.users}
        named = {name for name, value in filters.items() if value is not None}
        return dataclasses.replace(needed, columns=needed.columns | named)

    def _register_events(self, events: pa.Table) -> None:
        if self.cluster is not None:
            events = events.filter(pc.equal(events["cluster"], self.cluster))
        self._register("event", events)
        # An event's meaning needs its kind; figures that do not read kinds do not ask for it.
        if events.column("kind").null_count == 0:
            self._register("signature", sources.signature_table(events))
        self.n_node_events = pc.sum(pc.not_equal(events.column("node"), "")).as_py() or 0

    def _register(self, name: str, table: pa.Table) -> None:
        self._context.register_record_batches(name, [table.to_batches() or [_empty(table.schema)]])


def _source(given: Given) -> sources.HistorySource:
    """The source of a store (with the history it remembers), a URL, a history directory, or a source itself."""
    if isinstance(given, store.Store):
        return history.of(given)
    if isinstance(given, Path):
        return sources.ParquetSource(given)
    return sources.PostgresSource(given) if isinstance(given, str) else given


def text(name: str) -> str:
    """One SQL file of the room."""
    return (_SQL / f"{name}.sql").read_text("utf-8")


def _empty(schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array([], f.type) for f in schema], schema=schema)
