"""Groups failed attempts into incidents: one fault is one failure, however many jobs it ended."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

TOGETHER_US = 600_000_000
"""Microseconds: ends of one cause on one node, at most this far apart, are one incident."""

SCHEMA = pa.schema(
    [
        ("incident", pa.int64()),
        ("is_first", pa.bool_()),
        ("end_us", pa.int64()),
        ("cause", pa.string()),
        ("component", pa.string()),
        ("fault_node", pa.string()),
        ("gpus", pa.int64()),
        ("gpu_s", pa.float64()),
        ("size", pa.int64()),
    ]
)
"""One failed attempt: its incident's number, and True for the incident's first."""

_NODE = frozenset({"node_lost", "node_reboot", "unjudged"})
"""Causes that all mean the loss of a node, known in more or less detail."""

COUNTED = "incidents that ended at least one job with GPUs; jobs ended together by one fault count once"
"""What every rate counts."""
COUNTED_ATTEMPTS = "attempts with GPUs that infrastructure ended, each one; r_f beside it counts incidents"
"""What a mean time to failure of jobs counts: each job that one fault ended has failed."""


def table(failed: Sequence[Mapping[str, Any]]) -> pa.Table:
    """Failed attempts (cluster, end_us, cause, component, fault_node, nodes, incident_id, gpus, gpu_s, size) in SCHEMA."""
    numbers = number(failed)
    first: dict[int, int] = {}
    for row in sorted(range(len(failed)), key=lambda i: failed[i]["end_us"]):
        first.setdefault(numbers[row], row)
    columns = {name: [r[name] for r in failed] for name in SCHEMA.names[2:]}
    flags = [first[n] == row for row, n in enumerate(numbers)]
    return pa.table({"incident": numbers, "is_first": flags, **columns}, schema=SCHEMA)


def number(failed: Sequence[Mapping[str, Any]]) -> list[int]:
    """Each row's incident: rows are joined by the verdict's incident id, and by node, cause and time."""
    parent = list(range(len(failed)))

    def root(row: int) -> int:
        while parent[row] != row:
            parent[row] = row = parent[parent[row]]
        return row

    by_id: dict[str, int] = {}
    last: dict[tuple[str, str, str], int] = {}
    # Rows that name the node come first: those that do not may join any of them.
    for row in sorted(range(len(failed)), key=lambda i: (failed[i]["end_us"], failed[i]["fault_node"] is None)):  # fmt: skip
        given = failed[row]
        if given["incident_id"] is not None:
            parent[root(row)] = root(by_id.setdefault(given["incident_id"], row))
        places = [(given["cluster"], node, _sort(given)) for node in _nodes(given)]
        near = (last[p] for p in places if p in last)
        joined = next((r for r in near if given["end_us"] - failed[r]["end_us"] <= TOGETHER_US), None)
        if joined is not None:
            parent[root(row)] = root(joined)
        last.update(dict.fromkeys(places, row))
    return [root(row) for row in range(len(failed))]


def _nodes(given: Mapping[str, Any]) -> Sequence[str]:
    return [given["fault_node"]] if given["fault_node"] is not None else given["nodes"] or []


def _sort(given: Mapping[str, Any]) -> str:
    cause = given["cause"] or "unjudged"
    return "node_lost" if cause in _NODE else str(cause)
