"""One asker's session: statements over live tables, what was missing in each, and what was asked of the nodes."""

from __future__ import annotations

import contextlib
import functools
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import datafusion
import pyarrow as pa
from datafusion.catalog import Catalog

from probing_cluster.core import errors
from probing_cluster.core.ending import thread_limit
from probing_cluster.live import missing, plugins
from probing_cluster.live.session import catalogue, pushdown, unpacking, wording
from probing_cluster.live.table import Scan
from probing_cluster.live.tables import registry
from probing_cluster.live.ways import streams

CATALOG, DEFAULT_SCHEMA = "live", "cluster"
_MISSING_SCHEMA = pa.schema([(c.name, unpacking.TYPES[c.kind]) for c in missing.COLUMNS])
NULLS_LAST = ("datafusion.sql_parser.default_null_ordering", "nulls_last")
"""`ORDER BY seconds_inside DESC` begins with who is inside longest, not with everybody who is not."""
NAMES_KEPT_S = 10.0
MAX_RANKS = 1 << 17
_READING = datafusion.SQLOptions().with_allow_ddl(False).with_allow_dml(False).with_allow_statements(False)
"""Questions only: a statement that was pasted writes no file (COPY), reads none (CREATE EXTERNAL TABLE) and changes no setting."""


class Nodes(Protocol):
    """The nodes of a job, however they are asked."""

    @property
    def nodes(self) -> tuple[str, ...]:
        """All that belong to the job."""
        ...

    def ask(self, scans: Sequence[Scan], timeout_s: float) -> streams.Reply:
        """The frames that came before the time was over, and what did not answer."""
        ...


class OtherSchemas(Protocol):
    """Schemas of another source, such as a database, in the same session."""

    @property
    def schemas(self) -> tuple[str, ...]: ...

    def names(self, schema: str) -> Sequence[str]: ...

    def resolve(self, schema: str, name: str) -> pa.Schema | None: ...

    def fetch(self, scan: Scan) -> pa.Table: ...


@dataclass(frozen=True, kw_only=True)
class Result:
    """What came of a statement."""

    rows: pa.Table
    missing: tuple[streams.Missing, ...]
    from_nodes: bool
    """The nodes were asked: only then does `missing` mean something."""
    n_ranks: int = 0
    """Ranks that were found, dead ones included; 0 where no table of ranks was read."""
    world_size: int = 0
    """Ranks that the job has by their own word; 0 where none was found."""
    unprobed: bool = False
    """The nodes looked for pages of the probe, no process of the job has one, and nothing else was found either."""


@dataclass(kw_only=True)
class _Statement:
    """What one statement has asked so far."""

    missing: list[streams.Missing] = field(default_factory=list)
    from_nodes: bool = False
    held: dict[str, list[unpacking.Frame]] = field(default_factory=dict)
    """Tables whose rows came with their description."""
    ranks: set[int] = field(default_factory=set)
    world_size: int = 0
    pages_read: bool = False
    has_rows: bool = False


class Session:
    """A session of questions to one job; not for several threads."""

    def __init__(
        self,
        nodes: Nodes,
        *,
        timeout_s: float,
        beside: OtherSchemas | None = None,
        on_expression: Callable[[], None] | None = None,
    ) -> None:
        """`on_expression` is called before an expression goes to the processes."""
        self._nodes, self._beside = nodes, beside
        self._on_expression = on_expression
        self.timeout_s = timeout_s
        self._planned: list[catalogue.Fragment] = []
        self._schemas: dict[str, pa.Schema] = {}
        self._statement = _Statement()
        self._last_missing: tuple[streams.Missing, ...] = ()
        self._lazy_names: tuple[float, dict[str, list[str]]] = (-NAMES_KEPT_S, {})
        self._context = self._new_context()

    def sql(self, statement: str) -> Result:
        """Runs one statement; raises UsageError for one that is not understood, ProbingError for one that failed."""
        self._planned.clear()
        self._statement = _Statement()
        try:
            frame = self._context.sql_with_options(statement, _READING)
            kind = type(frame.logical_plan().to_variant()).__name__
            if kind == "Explain":
                return self._result(self._explained(frame))
            plan = frame.execution_plan()
            if self._planned:
                self._fetch(frame.optimized_logical_plan())
            batches = [
                batch.to_pyarrow()
                for i in range(plan.partition_count)
                for batch in self._context.execute(plan, i)
            ]
            schema = batches[0].schema if batches else frame.schema()
            return self._result(pa.Table.from_batches(batches, schema=schema))
        except (errors.ProbingError, MemoryError):
            raise
        except Exception as exc:
            # DataFusion's errors have no class of their own.
            raise errors.UsageError(self._words(exc)) from exc

    def _words(self, exc: Exception) -> str:
        known = [*registry.NAMES, missing.NAME, *(n for n in plugins.names() if not n.endswith("*"))]
        if self._beside is not None:
            # Only those that the statement is about: a database that cannot be reached is waited for.
            about = [s for s in self._beside.schemas if f"{s}." in str(exc)]
            known += [f"{schema}.{name}" for schema in about for name in self._beside.names(schema)]
        reasons = sorted({m.reason for m in self._statement.missing})
        # Of a schema of the nodes, they have been asked for that table just now.
        written = self._written() if self._statement.from_nodes and wording.misses_table(exc) else []
        return wording.words(exc, dict.fromkeys([*known, *written]), reasons, written=written)

    def _written(self) -> list[str]:
        """The tables that the job's program writes itself; none where a node did not answer: it would be waited for once more."""
        if any(m.rank is None and m.table is None for m in self._statement.missing):
            return []
        with contextlib.suppress(errors.ProbingError):
            return [f"{schema}.{name}" for schema in registry.LAZY for name in self._resolved_names(schema)]
        return []

    def _result(self, rows: pa.Table) -> Result:
        found = self._statement
        if found.from_nodes:
            self._last_missing = tuple(found.missing)
        return Result(
            rows=rows,
            missing=tuple(found.missing),
            from_nodes=found.from_nodes,
            n_ranks=len(found.ranks),
            world_size=found.world_size,
            unprobed=found.pages_read and not found.ranks and not found.world_size and not found.has_rows,
        )

    def _new_context(self) -> Any:
        config = (
            datafusion.SessionConfig()
            .with_information_schema(enabled=True)
            .with_default_catalog_and_schema(CATALOG, DEFAULT_SCHEMA)
            .with_target_partitions(2)
            .set(*NULLS_LAST)
        )
        thread_limit.require()
        context = datafusion.SessionContext(config)
        live = Catalog.memory_catalog()
        context.register_catalog_provider(CATALOG, live)
        for schema in self.schemas:
            live.register_schema(
                schema,
                catalogue.LiveSchema(
                    schema,
                    functools.partial(self._resolve, schema),
                    functools.partial(self.names, schema),
                    self._planned,
                ),
            )
        return context

    @property
    def over(self) -> bool:
        """No node answered the last statement that asked them."""
        silent = {m.node for m in self._last_missing if m.rank is None and m.table is None}
        return bool(self._nodes.nodes) and silent.issuperset(self._nodes.nodes)

    @property
    def schemas(self) -> tuple[str, ...]:
        """All schemas of the session."""
        others = [n.partition(".")[0] for n in plugins.names()]
        return tuple(
            dict.fromkeys([*registry.SCHEMAS, *others, *(self._beside.schemas if self._beside else ())])
        )

    def names(self, schema: str) -> list[str]:
        """The tables of a schema that can be known without a statement; of lazy ones those that the nodes know now."""
        if self._beside is not None and schema in self._beside.schemas:
            return list(self._beside.names(schema))
        known = [n.partition(".")[2] for n in registry.NAMES if n.startswith(f"{schema}.")]
        known += [missing.NAME.partition(".")[2]] if schema == DEFAULT_SCHEMA else []
        known += [
            n.partition(".")[2] for n in plugins.names() if n.startswith(f"{schema}.") and not n.endswith("*")
        ]
        return sorted({*known, *self._resolved_names(schema)})

    def _resolved_names(self, schema: str) -> list[str]:
        if schema not in registry.LAZY and f"{schema}.*" not in plugins.names():
            return []
        at_s, found = self._lazy_names
        if schema not in found or time.monotonic() - at_s > NAMES_KEPT_S:
            frames = self._ask([Scan(table=f"{schema}.*", describe=True)])
            columns = [f.rows["name"] for f in frames if "name" in f.rows.column_names]
            found = {**found, schema: sorted({str(v) for column in columns for v in column.to_pylist()})}
            self._lazy_names = (time.monotonic(), found)
        return found[schema]

    def _resolve(self, schema: str, name: str) -> pa.Schema | None:
        """The columns of a table; asks the nodes for what only they know."""
        full = f"{schema}.{name}"
        if schema == "python" and not name.isidentifier() and self._on_expression is not None:
            self._on_expression()
        if full == missing.NAME:
            found: pa.Schema | None = _MISSING_SCHEMA
        elif self._beside is not None and schema in self._beside.schemas:
            found = self._beside.resolve(schema, name)
        elif (table := registry.own(full)) is not None:
            found = pa.schema([(c.name, unpacking.TYPES[c.kind]) for c in table.columns])
        else:
            found = self._described(full)
        if found is not None:
            self._schemas[full] = found
        return found

    def _described(self, full: str) -> pa.Schema | None:
        frames = [f for f in self._ask([Scan(table=full, describe=True)]) if f.rows.num_columns]
        if not frames:
            return None
        if all(f.whole for f in frames):
            self._statement.held[full] = frames
        return unpacking.schema_of(frames)

    def _ask(self, scans: Sequence[Scan]) -> list[unpacking.Frame]:
        reply = self._nodes.ask(scans, self.timeout_s)
        self._statement.from_nodes = True
        self._statement.missing += reply.missing
        frames = []
        for node, data in reply.frames:
            try:
                frame = unpacking.unpack(data, node)
            except errors.MalformedInput as exc:
                self._statement.missing.append(streams.Missing(node=node, reason=str(exc)))
                continue
            frames.append(frame)
            self._statement.ranks |= frame.ranks
            self._statement.world_size = max(self._statement.world_size, frame.world_size)
            self._statement.pages_read |= frame.pages_read
            self._statement.has_rows |= frame.rows.num_rows > 0
            self._statement.missing += [
                streams.Missing(node=frame.node, rank=rank, table=frame.table, reason=why)
                for rank, why in frame.missing
            ]
        return frames

    def _scans(self, plan: Any) -> dict[str, Scan]:
        """One request per table that the statement reads."""
        readings = pushdown.read(plan, DEFAULT_SCHEMA)
        found = {}
        for name in dict.fromkeys(f.name for f in self._planned):
            planned = [f.columns for f in self._planned if f.name == name]
            columns, condition, limit = pushdown.together(readings.get(name, ()), planned)
            if columns is not None and not columns:
                columns = (self._schemas[name].names[0],)  # count(*): some column has to be counted
            found[name] = Scan(table=name, columns=columns, condition=condition, limit=limit)
        return found

    def _fetch(self, plan: Any) -> None:
        """Asks for everything that the planned statement reads, and gives each reading its rows."""
        scans = self._scans(plan)
        data: dict[str, pa.Table] = {}
        beside = self._beside.schemas if self._beside is not None else ()
        for name, scan in scans.items():
            if self._beside is not None and name.partition(".")[0] in beside:
                data[name] = self._beside.fetch(scan)
        held = self._statement.held
        live = [s for n, s in scans.items() if n not in data and n not in held and n != missing.NAME]
        about_missing = not live and not held and missing.NAME in scans and not self._last_missing
        if about_missing:
            live = [Scan(table="cluster.ranks", columns=("rank", "world_size"))]
        frames = self._ask(live) if live else []
        self._statement.pages_read &= not about_missing  # empty, that table is whole: nothing is missing
        for scan in live:
            came = [f for f in frames if f.table == scan.table and f.rows.num_columns]
            data[scan.table] = self._joined(came, self._narrow(scan))
        for name, kept in held.items():
            data[name] = self._joined(kept, self._schemas[name])
        self._miss_ranks()
        if missing.NAME in scans:
            data[missing.NAME] = missing_rows(
                self._statement.missing if self._statement.from_nodes else self._last_missing
            )
        for fragment in self._planned:
            fragment.data = data[fragment.name]

    def _joined(self, frames: Sequence[unpacking.Frame], schema: pa.Schema) -> pa.Table:
        """The rows of all nodes; one that sends values of another type is missing, and costs the others nothing."""
        fitting = []
        for frame in frames:
            try:
                fitting.append(unpacking.fitted(frame.rows, schema))
            except errors.MalformedInput as exc:
                lost = streams.Missing(node=frame.node, table=frame.table, reason=str(exc))
                self._statement.missing.append(lost)
        return unpacking.joined(fitting, schema)

    def _narrow(self, scan: Scan) -> pa.Schema:
        schema = self._schemas.get(scan.table)
        if schema is None:
            schema = self._resolve(*scan.table.split(".", 1))
            assert schema is not None
        return schema if scan.columns is None else pa.schema([f for f in schema if f.name in scan.columns])

    def _miss_ranks(self) -> None:
        """A row for every rank of the job that no node has a page of."""
        found = self._statement
        absent = sorted(set(range(min(found.world_size, MAX_RANKS))) - found.ranks)
        silent = any(m.rank is None and m.table is None for m in found.missing)
        why = "on none of the nodes that answered" if silent else "no node that was asked has a page of it"
        found.missing += [streams.Missing(node=None, rank=rank, reason=why) for rank in absent]

    def _explained(self, frame: Any) -> pa.Table:
        """DataFusion's plans, and what each node would be asked."""
        batches = [b for b in frame.collect()]  # noqa: C416
        rows = pa.Table.from_batches(batches, schema=batches[0].schema)
        inner = frame.optimized_logical_plan()
        scans = [pushdown.words(s) for s in self._scans(inner).values()]
        more = pa.table([["asked of every node"] * len(scans), scans], schema=rows.schema)
        return pa.concat_tables([rows, more])


class KeptSession:
    """Statements over tables that are all there, such as those kept of a job that is over."""

    over = False
    """What is kept does not end."""

    def __init__(self, context: Any, tables: Iterable[tuple[str, str]]) -> None:
        """`tables`: schema and name of each."""
        self._context, self._tables = context, sorted(tables)
        self.timeout_s = 0.0
        """Nothing is waited for."""

    @property
    def schemas(self) -> tuple[str, ...]:
        """All schemas of the session."""
        return tuple(dict.fromkeys(schema for schema, _ in self._tables))

    def names(self, schema: str) -> list[str]:
        """The tables of a schema."""
        return [name for found, name in self._tables if found == schema]

    def sql(self, statement: str) -> Result:
        """Runs one statement; raises UsageError for one that is not understood."""
        try:
            rows = self._context.sql_with_options(statement, _READING).to_arrow_table()
            return Result(rows=rows, missing=(), from_nodes=False)
        except MemoryError:
            raise
        except Exception as exc:
            names = [".".join(name) for name in self._tables]
            raise errors.UsageError(wording.words(exc, names, of_running=registry.NAMES)) from exc


def missing_rows(found: Sequence[streams.Missing]) -> pa.Table:
    """The rows of `cluster.missing`."""
    at = time.time_ns()
    rows = [{"node": m.node, "rank": m.rank, "table": m.table, "reason": m.reason, "at": at} for m in found]
    return pa.Table.from_pylist(rows, schema=_MISSING_SCHEMA)
