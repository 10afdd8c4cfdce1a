"""A fleet small enough to check by hand: attempts, events and notes of four weeks, said in days."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa

from probing_cluster.core import clock
from probing_cluster.lemon import gather

UNTIL = datetime(2026, 11, 21, tzinfo=UTC)
SINCE = UNTIL - timedelta(days=28)

Row = dict[str, Any]


def us(day: float) -> int:
    """`day` days after the window's start, microseconds."""
    return clock.to_us(SINCE + timedelta(days=day))


def attempt(job_id: int, start: float, end: float | None, *nodes: str, **changes: Any) -> Row:
    """An attempt of 8 GPUs a node that completed."""
    values: Row = {
        "job_id": job_id, "attempt": 1, "start_us": us(start), "end_us": None if end is None else us(end),
        "state": "COMPLETED", "nodes": list(nodes), "n_nodes": len(nodes), "n_gpus": 8 * len(nodes),
        "user": "alice", "run_key": str(job_id), "attested": False,
    }  # fmt: skip
    return values | changes


def failed(job_id: int, start: float, end: float, *nodes: str, by: str, **changes: Any) -> Row:
    """An attempt that its verdict lays at `by`."""
    blamed: Row = {
        "state": "FAILED", "cause": "gpu_lost", "domain": "hardware", "component": "gpu", "fault_node": by,
        "device": "gpu3", "confidence": "certain", "attested": True, "summary": f"GPU 3 of {by} was lost.",
    }  # fmt: skip
    return attempt(job_id, start, end, *nodes, **(blamed | changes))


def unexplained(job_id: int, start: float, end: float, *nodes: str, **changes: Any) -> Row:
    """An attempt that failed and whose verdict is unknown."""
    verdict: Row = {"state": "FAILED", "cause": "unknown", "domain": "unknown", "confidence": "unknown"}
    return attempt(job_id, start, end, *nodes, **(verdict | changes))


def event(node: str, day: float, kind: str, **changes: Any) -> Row:
    """An event from the node's kernel."""
    values: Row = {
        "node": node,
        "at_us": us(day),
        "kind": kind,
        "severity": "high",
        "source": "kernel",
        "n": 1,
    }
    return values | changes


def note(node: str, day: float, action: str, **changes: Any) -> Row:
    """A person's note."""
    values: Row = {"node": node, "at_us": us(day), "action": action, "author": "eve", "note": "", "about_lemon": False}  # fmt: skip
    return values | changes


def facts(
    attempts: list[Row],
    events: list[Row] | None = None,
    outages: list[Row] | None = None,
    notes: list[Row] | None = None,
    exclusions: list[Row] | None = None,
) -> gather.LemonFacts:
    """These rows as the facts of the window."""

    def table(rows: list[Row] | None, schema: pa.Schema) -> pa.Table:
        whole: list[Mapping[str, Any]] = [
            {name: row.get(name) for name in schema.names} for row in rows or []
        ]
        return pa.Table.from_pylist(whole, schema=schema)

    return gather.LemonFacts(
        since=SINCE,
        until=UNTIL,
        attempts=table(attempts, gather.ATTEMPT),
        events=table(events, gather.EVENT),
        outages=table(outages, gather.OUTAGE),
        notes=table(notes, gather.NOTE),
        exclusions=table(exclusions, gather.EXCLUSION),
        outages_by_slurm=True,
    )
