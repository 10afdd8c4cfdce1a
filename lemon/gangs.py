"""Failures without a named node: how much likelier each node of the gang makes them.

A gang of two says much about either node; one of five hundred says nothing and is left out. The other nodes count, too:
beside a certainly bad node the others are acquitted (mean field: the others' rates are those of the round before).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from probing_cluster.lemon import episodes

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

LARGEST = 32
"""Nodes of the largest gang whose failures count. A larger gang's failure says next to nothing about one node, and small
errors in the assumed rates of hundreds of nodes would add up to false evidence."""


@dataclass(frozen=True)
class Gangs:
    """Unnamed failures of gangs up to LARGEST, as flat (event, node) pairs."""

    event: Ints
    node: Ints
    other_odds: Floats
    """Per event: odds that it was no hardware."""
    size: Floats
    """Per event: number of nodes."""
    age_days: Floats
    """Per event: days before the end of the window."""
    included_frac: float
    """Share of these among all unnamed failures, weighted by the probability of hardware."""
    hardware: float
    """Expected number of hardware failures among all unnamed ones."""

    @classmethod
    def of(cls, gangs: Sequence[tuple[Ints, float]], age_days: Floats | None) -> Gangs:
        """From (node indices, probability of hardware); without ages all failures count as new.

        A set of nodes counts once, however often its nodes fail together; a single node counts once per episode.
        """
        all_hardware = float(sum(hardware for _, hardware in gangs))
        ages = np.zeros(len(gangs)) if age_days is None else np.asarray(age_days, np.float64)
        kept = _distinct(gangs, ages)
        every = sum(gangs[i][1] for i in kept)
        kept = kept[[gangs[i][0].size <= LARGEST for i in kept]]
        gangs, ages = [gangs[i] for i in kept], ages[kept]
        sizes = np.array([nodes.size for nodes, _ in gangs], np.int64)
        hardware = np.clip(np.array([w for _, w in gangs], np.float64), 0.01, 0.99)
        return cls(
            event=np.repeat(np.arange(sizes.size), sizes),
            node=np.concatenate([n for n, _ in gangs]) if gangs else np.zeros(0, np.int64),
            other_odds=(1 - hardware) / hardware,
            size=sizes.astype(np.float64),
            age_days=ages,
            hardware=all_hardware,
            included_frac=sum(w for _, w in gangs) / every if every else 1.0,
        )

    def rate_beside(self, mean: Floats, noise: float) -> Floats:
        """Per pair: failures per day from the gang's other nodes and from other causes than hardware.

        `mean`: each node's unnamed hardware failures per day. `noise`: failures per node-day from other causes, on average; it
        is divided among events by their odds against hardware.
        """
        if self.event.size == 0:
            return np.zeros(0)
        total = np.bincount(self.event, weights=mean[self.node], minlength=self.size.size)
        other = noise * self.other_odds / self.other_odds.mean()
        beside: Floats = (total + other * self.size)[self.event] - mean[self.node]
        return np.maximum(beside, 1e-9)

    def hint(self, nodes: int) -> Floats:
        """Per node: how much unnamed failures can say about it; a failure of a gang of k nodes counts 1/k²."""
        hints: Floats = np.bincount(self.node, weights=(self.size**-2.0)[self.event], minlength=nodes).astype(
            np.float64
        )
        return hints

    def share_out(self, mean: Floats, noise: float, nodes: int) -> Floats:
        """Per node: its expected share of the unnamed failures."""
        if self.event.size == 0:
            return np.zeros(nodes)
        own = mean[self.node]
        parts = own / (own + self.rate_beside(mean, noise))
        shares: Floats = np.bincount(self.node, weights=parts, minlength=nodes).astype(np.float64)
        return shares


def _distinct(gangs: Sequence[tuple[Ints, float]], ages: Floats) -> Ints:
    """Indices of the failures to keep, oldest first."""
    last: dict[bytes, float] = {}
    kept = []
    for row in np.argsort(-ages, kind="stable"):
        nodes = gangs[row][0]
        key = np.sort(nodes).tobytes()
        before = last.get(key)
        if before is None or (nodes.size == 1 and before - ages[row] > episodes.EPISODE_DAYS):
            kept.append(row)
            last[key] = float(ages[row])
    return np.array(kept, np.int64)
