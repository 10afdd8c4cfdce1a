"""The switches, racks and power feeds of nodes over time."""

from __future__ import annotations

import bisect
import functools
from collections import defaultdict
from collections.abc import Iterable, Mapping
from datetime import datetime

from probing_cluster.core import records

Place = tuple[str, str]
"""Kind and name: ("leaf", "leaf12"), ("rack", "r3")."""


class NodeLayout:
    """The places of every node at one instant."""

    def __init__(self, places: Iterable[tuple[str, Place]]) -> None:
        """`places`: (node, place), once for each place of a node."""
        members: dict[Place, set[str]] = defaultdict(set)
        of_node: dict[str, set[Place]] = defaultdict(set)
        kinds: dict[str, set[str]] = defaultdict(set)
        for node, place in places:
            members[place].add(node)
            of_node[node].add(place)
            kinds[place[0]].add(node)
        self.members: Mapping[Place, frozenset[str]] = {p: frozenset(n) for p, n in members.items()}
        self.of_node: Mapping[str, frozenset[Place]] = {n: frozenset(p) for n, p in of_node.items()}
        self.placed: Mapping[str, frozenset[str]] = {k: frozenset(n) for k, n in kinds.items()}
        """Kind to the nodes with a place of that kind."""

    @functools.cached_property
    def n_candidates(self) -> int:
        """Number of places that several nodes may share: with at least two nodes, but not all nodes of their kind."""
        return sum(2 <= len(nodes) < len(self.placed[kind]) for (kind, _), nodes in self.members.items())


class Places:
    """Every cluster's node places through time."""

    def __init__(self, rows: Iterable[records.NodePlace] = ()) -> None:
        self._rows: dict[str, list[records.NodePlace]] = defaultdict(list)
        for row in rows:
            self._rows[row.cluster].append(row)
        self._instants = {
            cluster: sorted({t for r in of for t in (r.since_at, r.until_at) if t is not None})
            for cluster, of in self._rows.items()
        }
        self._layouts: dict[tuple[str, int], NodeLayout] = {}

    def at(self, cluster: str, at: datetime) -> NodeLayout:
        """The layout at an instant; before the first known one, the first: places are older than our records."""
        instants = self._instants.get(cluster, [])
        part = max(bisect.bisect_right(instants, at), 1)
        if (cluster, part) not in self._layouts:
            now = instants[part - 1] if instants else at
            self._layouts[cluster, part] = NodeLayout(
                (row.node, (row.kind, row.place))
                for row in self._rows.get(cluster, ())
                if row.since_at <= now and (row.until_at is None or now < row.until_at)
            )
        return self._layouts[cluster, part]
