"""Nodes by gangs: each node's own work in a step against that of the gang's other nodes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from statistics import median
from typing import Any

from probing_cluster.attribution.gang import slow
from probing_cluster.attribution.reliability.fleet import base
from probing_cluster.core import digits, records
from probing_cluster.db import store as db_store

_FEWEST = 3
"""Least nodes of a gang: of two, neither can be called slow."""
_MOST_GANGS = 12


@dataclass(frozen=True, kw_only=True)
class NodePace(base.Figure):
    """Nodes by gangs."""

    nodes: tuple[Mapping[str, Any], ...]
    """A row per node, a key per job: its ranks' own time in a step (compute and input) relative to the gang's median node."""
    n_gangs: int


def node_pace(
    source: db_store.Store,
    since: datetime,
    until: datetime,
    partition: str | None = None,
    users: Iterable[str] | None = None,
) -> NodePace:
    """The gangs of the span's latest heartbeats. Users' processes write these numbers, so they convict no node."""
    beats = base.apart([b for b in source.heartbeats(with_ranks=True) if since <= b.at < until])
    several = len({b.cluster for b in beats}) > 1
    gangs = _gangs(beats)
    chosen = sorted(gangs, key=lambda gang: (int(gang[1]), gang[0]))[-_MOST_GANGS:]
    heads = {gang: f"job {gang[1]}{f' of {gang[0]}' if several else ''}" for gang in chosen}
    cells: dict[str, dict[str, float]] = defaultdict(dict)
    for gang, head in heads.items():
        middle = median(gangs[gang].values())
        for node, own_s in gangs[gang].items():
            cells[node][head] = round(own_s / middle, 3)
    rows = tuple({"node": node, **{c: cells[node].get(c) for c in heads.values()}} for node in sorted(cells))
    return NodePace(
        **base.about(source, since, until, partition, users),
        nodes=rows,
        n_gangs=len(chosen),
    )


def _gangs(beats: Iterable[records.AgentHeartbeat]) -> dict[tuple[str, str], dict[str, float]]:
    """Cluster and job to node to its slowest rank's own time, in the step window that most ranks of the gang show."""
    shown: dict[tuple[str, str], dict[int, dict[str, float]]] = defaultdict(lambda: defaultdict(dict))
    for beat in beats:
        for key, rank in beat.ranks.items():
            job = key.partition(":")[0]
            window = slow.PaceWindow.from_row(rank.get("window")) if isinstance(rank, Mapping) else None
            if window is not None and digits.is_number(job):
                own = shown[beat.cluster, job][window.index]
                own[beat.node] = max(own.get(beat.node, 0.0), window.compute_s + window.input_s)
    found = {}
    for gang, windows in shown.items():
        nodes = max(windows.items(), key=lambda item: (len(item[1]), item[0]))[1]
        if len(nodes) >= _FEWEST and median(nodes.values()) > 0:
            found[gang] = nodes
    return found
