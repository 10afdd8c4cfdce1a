"""How often GPUs are swapped: cards that replaced others in a node, by the UUIDs that jobs held."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from probing_cluster.attribution.reliability import mttf
from probing_cluster.attribution.reliability.fleet import base
from probing_cluster.db import store as db_store

MOST_ATTEMPTS = 100_000
"""Most attempts whose GPUs are read; of more, every k-th job is."""

UNHELD = 1e-5
"""Most probability that a card which was there all the time was held by none of the node's attempts, for the node to be judged. Two cards that
one-card jobs were given in different weeks are no swap: on drawn histories one judged node in two thousand has a false one."""


@dataclass(frozen=True, kw_only=True)
class NodeSwaps:
    """One node with swapped cards."""

    node: str
    n_swaps: int
    n_uuids: int
    """Distinct GPUs seen on it."""
    n_at_once: int
    """Most of them that were in it at the same time."""
    n_moved: int
    """GPUs that were also seen on another node."""


@dataclass(frozen=True, kw_only=True)
class GpuSwaps(base.Figure):
    """Swapped cards per node-day, with the exact Poisson interval."""

    nodes: tuple[NodeSwaps, ...]
    """Nodes with a swap, the most swaps first."""
    n_watched: int
    """Nodes with known GPUs of their jobs, enough of them to tell."""
    n_unclear: int
    """Nodes with more GPUs than were in them at once, and too few jobs to tell a swap from a card that seldom was anybody's; they are in no number here."""
    node_days: float
    """Days from each node's first such job to its last."""
    n_swaps: int
    per_node_day: float | None
    low_per_node_day: float | None
    high_per_node_day: float | None


def gpu_swaps(
    source: db_store.Store,
    since: datetime,
    until: datetime,
    partition: str | None = None,
    users: Iterable[str] | None = None,
    *,
    most: int = MOST_ATTEMPTS,
) -> GpuSwaps:
    """Counts the cards of a node beyond those in it at one time: each replaced another. A partition or users select the nodes on which they ran."""
    about = base.about(source, since, until, partition, users)
    given = about | {"users": None if about["users"] is None else list(about["users"]), "most": most}
    by_node: dict[tuple[str, str], list[dict[str, Any]]] = defaultdict(list)
    where: dict[str, set[tuple[str, str]]] = defaultdict(set)
    for row in source.rows(base.text("gpu_swaps"), given):
        by_node[row["cluster"], row["node"]].append(row)
        where[row["gpu"]].add((row["cluster"], row["node"]))
    judged = {place: rows for place, rows in by_node.items() if _is_clear(rows)}
    nodes = [
        NodeSwaps(
            node=node,
            n_uuids=len(rows),
            n_at_once=(at_once := _at_once(rows)),
            n_swaps=len(rows) - at_once,
            n_moved=sum(len(where[r["gpu"]]) > 1 for r in rows),
        )
        for (_, node), rows in judged.items()
    ]
    spans = ((max(r["last_at"] for r in rows) - min(r["first_at"] for r in rows)) for rows in judged.values())
    rate = mttf.poisson_rate(sum(n.n_swaps for n in nodes), sum(s.total_seconds() for s in spans) / 86400)
    return GpuSwaps(
        **about,
        nodes=tuple(sorted((n for n in nodes if n.n_swaps), key=lambda n: (-n.n_swaps, n.node))),
        n_watched=len(nodes),
        n_unclear=len(by_node) - len(judged),
        node_days=rate.exposure,
        n_swaps=rate.n_events,
        per_node_day=rate.rate,
        low_per_node_day=rate.low,
        high_per_node_day=rate.high,
    )


def _is_clear(rows: Sequence[dict[str, Any]]) -> bool:
    """Whether the node's attempts were enough to have held every card that was there, or no card is beyond those at once."""
    share = sum(r["n_held"] for r in rows) / (rows[0]["n_there"] * len(rows))
    return bool((1.0 - share) ** rows[0]["n_there"] <= UNHELD) or len(rows) == _at_once(rows)


def _at_once(rows: Sequence[dict[str, Any]]) -> int:
    """The largest number of cards whose first and last sighting enclose one instant."""
    edges = sorted([(r["first_at"], 0) for r in rows] + [(r["last_at"], 1) for r in rows])
    present = most = 0
    for _, is_end in edges:
        present += -1 if is_end else 1
        most = max(most, present)
    return most
