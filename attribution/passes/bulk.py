"""Joins millions of failed attempts with the events in their windows, by equality of keys.

A range join on (node, time) is too slow. One integer key, of node and a time bucket as long as the window, makes it an
equality: a window touches exactly two buckets, an event lies in one. Months are joined one by one, which bounds memory
(hash joins do not spill).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import datafusion
import pyarrow as pa
import pyarrow.dataset as ds

from probing_cluster.attribution.verdict import case as cases
from probing_cluster.attribution.verdict import claims, evidence_view, judge, signatures, taxonomy
from probing_cluster.attribution.verdict.rules import user_error
from probing_cluster.core import clock, records, vocabulary
from probing_cluster.core.catalogue import unlisted
from probing_cluster.core.ending import thread_limit

_SQL = Path(__file__).parent / "sql"
_TABLES = ("attempts", "attempt_nodes", "events")


@dataclass(frozen=True, kw_only=True)
class Slice:
    """A half-open span of ends, microseconds since 1970."""

    since_us: int
    until_us: int


def month_slices(since: datetime, until: datetime) -> Iterator[Slice]:
    """The calendar months (UTC) that cover a span, cut to it."""
    at = since
    while at < until:
        first = datetime(at.year, at.month, 1, tzinfo=UTC)
        following = datetime(first.year + first.month // 12, first.month % 12 + 1, 1, tzinfo=UTC)
        end = min(until, following)
        yield Slice(since_us=clock.to_us(at), until_us=clock.to_us(end))
        at = end


def context(memory_bytes: int | None = None, partitions: int | None = None) -> datafusion.SessionContext:
    """A session with the measured settings: perfect-hash joins on the dense key, the small side collected."""
    settings = {
        "datafusion.execution.perfect_hash_join_min_key_density": "0.005",
        "datafusion.optimizer.hash_join_single_partition_threshold": "10000000000",
        "datafusion.optimizer.hash_join_single_partition_threshold_rows": "1000000000",
    }
    if partitions:
        settings["datafusion.execution.target_partitions"] = str(partitions)
    thread_limit.require()
    runtime = datafusion.RuntimeEnvBuilder()
    if memory_bytes:
        runtime = runtime.with_disk_manager_os().with_fair_spill_pool(memory_bytes)
    return datafusion.SessionContext(datafusion.SessionConfig(settings), runtime)


class Bulk:
    """A history directory (see `history`), read slice by slice."""

    def __init__(
        self,
        directory: Path,
        policy: cases.WindowPolicy | None = None,
        *,
        memory_bytes: int | None = None,
        partitions: int | None = None,
    ) -> None:
        self.policy = policy or cases.WindowPolicy()
        self._context = context(memory_bytes, partitions)
        for name in _TABLES:
            where = directory / name
            self._context.register_parquet(name, str(where), table_partition_cols=[("month", pa.string())])
        sorts = ds.dataset(directory / "sorts.parquet").to_table()
        self._sorts: dict[int, dict[str, Any]] = {r["sort_idx"]: r for r in sorts.to_pylist()}
        rated = ranked(sorts)
        none = [pa.RecordBatch.from_pylist([], schema=rated.schema)]  # for a history without events
        self._context.register_record_batches("sort", [rated.to_batches() or none])
        names = ds.dataset(directory / "nodes.parquet").to_table().sort_by("node_idx")
        self.nodes: list[str] = names["node"].to_pylist()

    def sort(self, sort_idx: int) -> dict[str, Any]:
        """One sort of event: kind, code, severity, source, recovered."""
        return self._sorts[sort_idx]

    def strongest(self, part: Slice) -> pa.Table:
        """attempt_id, key (smallest rank << 40 | row) and n, for each failed attempt of the slice with an event in its window."""
        return self._run("bulk_strongest", part)

    def attempts(self, part: Slice) -> pa.Table:
        """The attempts of the slice that get a verdict."""
        found = self._run("bulk_attempts", part, states=",".join(sorted(judge.JUDGED_STATES)))
        return found.drop_columns([f.name for f in found.schema if pa.types.is_nested(f.type)])

    def summary(self, part: Slice) -> pa.Table:
        """attempt_id, n_root, last_own_row, for each failed attempt of the slice with such an event in its window."""
        return self._run(
            "bulk_summary",
            part,
            slack_us=clock.span_us(evidence_view.SLACK),
            own_us=clock.span_us(user_error.NEAR),
        )

    def candidates(
        self, part: Slice, attempt_ids: Iterable[int], earlier: timedelta = timedelta()
    ) -> pa.Table:
        """Every event in the windows of these attempts, by attempt and time; the windows begin earlier by `earlier`."""
        return self._chosen("bulk_candidates", part, attempt_ids, earlier)

    def around(self, attempt_id: int, end_us: int, since_us: int, until_us: int) -> pa.Table:
        """Every event on one attempt's nodes in the given window."""
        month = _month(end_us)
        part = Slice(since_us=since_us, until_us=until_us)
        return self._run("bulk_around", part, attempt_id=attempt_id, first_month=month, last_month=month)

    def places(self, part: Slice, attempt_ids: Iterable[int]) -> pa.Table:
        """attempt_id and node_idx of these attempts."""
        return self._chosen("bulk_places", part, attempt_ids)

    def _chosen(
        self, name: str, part: Slice, attempt_ids: Iterable[int], earlier: timedelta = timedelta()
    ) -> pa.Table:
        # A batch keeps its schema when it is empty; a table does not.
        chosen = pa.record_batch({"attempt_id": pa.array(attempt_ids, pa.int64())})
        self._context.register_record_batches("chosen", [[chosen]])
        try:
            return self._run(name, part, earlier)
        finally:
            self._context.deregister_table("chosen")

    def _run(self, name: str, part: Slice, earlier: timedelta = timedelta(), **more: Any) -> pa.Table:
        text = (_SQL / f"{name}.sql").read_text("utf-8")
        before, after = round(self.policy.before_s * 1e6), round(self.policy.after_s * 1e6)
        before += clock.span_us(earlier)
        values: dict[str, Any] = {
            "before_us": before,
            "after_us": after,
            "bucket_us": before + after,
            "n_nodes": len(self.nodes),
            "since_us": part.since_us,
            "until_us": part.until_us,
            "first_month": _month(part.since_us),
            "last_month": _month(part.until_us),
            "first_event_month": _month(part.since_us - before),
            "last_event_month": _month(part.until_us + after),
            **more,
        }
        return plain(self._context.sql(text, param_values=values).to_arrow_table())


def plain(table: pa.Table) -> pa.Table:
    """The table with ordinary strings: Arrow's joins accept no views and no dictionaries."""
    odd = (pa.types.is_string_view, pa.types.is_dictionary)
    fields = [pa.field(f.name, pa.string()) if any(o(f.type) for o in odd) else f for f in table.schema]
    return table.cast(pa.schema(fields))


def ranked(sorts: pa.Table) -> pa.Table:
    """The sorts of events (sort_idx, kind, code, severity, recovered) with rank (smaller = stronger), root, own and cause."""
    found = [
        signatures.find(r["kind"], r["code"], records.Severity(r["severity"]), recovered=r["recovered"])
        for r in sorts.to_pylist()
    ]
    # Job-side events may move the window, so their attempts need the judge.
    # What no table lists convicts nothing, but makes another verdict less sure.
    judged = [
        r["source"] in vocabulary.JOB_SIDE_SOURCES or unlisted.is_unlisted(r["kind"], r["code"])
        for r in sorts.to_pylist()
    ]
    job_side = [r["source"] in vocabulary.JOB_SIDE_SOURCES for r in sorts.to_pylist()]
    columns = {
        "rank": pa.array([rank(s) for s in found], pa.int64()),
        "root": pa.array([j or can_convict(s) for s, j in zip(found, judged, strict=True)], pa.bool_()),
        "own": pa.array(
            [s.role is signatures.Role.USER and not t for s, t in zip(found, job_side, strict=True)],
            pa.bool_(),
        ),
        "cause": pa.array([s.cause for s in found], pa.string()),
    }
    for name, column in columns.items():
        sorts = sorts.append_column(name, column)
    return sorts


def can_convict(signature: signatures.Signature) -> bool:
    """True if an event of this sort can reach "possible" without the job's side."""
    arguing = signature.role in (signatures.Role.ROOT, signatures.Role.WEAK)
    return arguing and signature.lethality >= claims.POSSIBLE


def rank(signature: signatures.Signature) -> int:
    """0 for the strongest: by role, then lethality, then the severity and specificity of its cause."""
    cause = taxonomy.cause(signature.cause)
    role = list(signatures.Role).index(signature.role)
    severity = [records.Severity.HIGH, records.Severity.LOW, records.Severity.INFO].index(cause.severity)
    return ((role * 100 + round((1.0 - signature.lethality) * 99)) * 3 + severity) * 10 + (
        9 - cause.specificity
    )


def _month(us: int) -> str:
    return clock.from_us(us).strftime("%Y-%m")
