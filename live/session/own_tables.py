"""The tables that a job's own program writes, and what its steps took: as much as drawings need, for two questions to its nodes."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from probing_cluster.core import errors
from probing_cluster.live.session import unpacking
from probing_cluster.live.table import Scan
from probing_cluster.live.ways import streams

if TYPE_CHECKING:
    import pyarrow as pa

    from probing_cluster.live.session import session

MOST_TABLES = 2
"""As many as are drawn, the first by name."""
MOST_RANKS = 64
"""Ranks whose rows are asked for, the first: their median and spread are the picture, and a ring holds up to 256 KiB."""
LIST = ("python", "tables")
STEPS = ("torch", "steps")
FIRST_RANKS = {
    "op": "or",
    "of": [
        {"op": "<", "column": "rank", "value": MOST_RANKS},
        {"op": "null", "column": "rank"},
    ],
}

Tables = dict[tuple[str, str], "pa.Table"]
"""By schema and name; LIST names all tables of the program."""


def read(nodes: session.Nodes, timeout_s: float) -> tuple[Tables, list[streams.Missing]]:
    """The list of tables, the rows of the first ones and the last steps; and who did not answer. Both questions share the time."""
    end_s = time.monotonic() + timeout_s
    found, missing = _replies(
        nodes,
        (
            Scan(table=".".join(LIST)),
            Scan(table=".".join(STEPS), columns=("rank", "step", "duration_s"), condition=FIRST_RANKS),
        ),
        timeout_s * 0.6,  # the second comes sooner: agents that were asked ask again every second
    )
    listed = set(found[LIST]["name"].to_pylist()) if LIST in found else set()
    # What is no name would be asked as an expression.
    names = sorted(n for n in listed if n.isidentifier() and n != LIST[1])[:MOST_TABLES]
    if names:
        scans = [Scan(table=f"{LIST[0]}.{name}", condition=FIRST_RANKS) for name in names]
        rows, more = _replies(nodes, scans, max(end_s - time.monotonic(), 1.0))
        found, missing = found | rows, missing + more
    return found, missing


def _replies(
    nodes: session.Nodes, scans: Sequence[Scan], timeout_s: float
) -> tuple[Tables, list[streams.Missing]]:
    reply = nodes.ask(scans, timeout_s)
    missing = list(reply.missing)
    frames: dict[str, list[Any]] = {}
    for node, data in reply.frames:
        try:
            frame = unpacking.unpack(data, node)
        except errors.MalformedInput as exc:
            missing.append(streams.Missing(node=node, reason=str(exc)))
            continue
        if frame.rows.num_columns:
            frames.setdefault(frame.table, []).append(frame)
        # A node whose processes do not write a table that others write is no gap.
        if frame.table in (".".join(LIST), ".".join(STEPS)) or frame.rows.num_columns:
            missing += [
                streams.Missing(node=frame.node, rank=rank, table=frame.table, reason=why)
                for rank, why in frame.missing
            ]
    tables = {}
    for name, came in frames.items():
        schema, _, rest = name.partition(".")
        tables[schema, rest] = unpacking.joined([f.rows for f in came], unpacking.schema_of(came))
    return tables, missing
