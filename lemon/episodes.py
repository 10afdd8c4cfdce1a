"""Groups failures blamed on nodes into episodes: repetitions within two days are one fault.

An unrepaired fault fails the next job, and the next: that is one bad day, not proof. So failures of a node within
`EPISODE_DAYS` of an episode's first belong to it. Three things weigh an episode: the verdict's confidence, whether it is
the same part again, and whether other nodes failed of the same cause at the same time (a switch, a file system or a bad
rollout makes no lemon).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

EPISODE_DAYS = 2.0
"""Failures of a node within this of an episode's first are the same episode."""
LEVELS = np.array([0.95, 0.75])
"""Lowest weights of "certain" and "likely" verdicts; below is "possible"."""
LEVEL_PRIOR = np.array([0.5, 0.35, 0.15])
"""Prior counts of verdicts by level: one verdict together, since a site whose failures only Slurm reports has no "certain" ones."""
OWN_PART = 0.7
"""Share of a lemon's failures that show its own bad part; the others look like an ordinary node's.

Our assumption. The root causes of 39 repaired lemons are one part each (arXiv 2410.21680, Table II), but
a bad PCIe contact shows as a lost GPU 43 % of the time (ibid., co-occurrence).
"""
HAS_OWN_PART = 0.85
"""Share of lemons with a bad part; BIOS, PSU and CPU, 15 % (ibid.), show in any part."""
PART_FLOOR = 1.0 / 32.0
"""Least share of a part, so that keys unique to a node (serial numbers) prove no more."""
PART_PRIOR = 16.0
"""Weight of that floor, in failures."""


@dataclass(frozen=True, kw_only=True)
class Failures:
    """Failures whose verdict names a node, in any order (arrays have one entry per failure)."""

    node: Ints
    """Index of the node."""
    age_days: Floats
    """Days before the end of the window."""
    weight: Floats
    """The verdict's confidence as a probability (0..1)."""
    part: Ints
    """The failed part, e.g. (component, slot), as a number with one meaning on every node; -1 unknown."""
    cause: Ints
    """The verdict's cause as a number; -1 unknown."""
    lasted_days: Floats | None = None
    """Of merged episodes: days from the first failure to the last; None before merging."""

    @classmethod
    def none(cls) -> Failures:
        """No failure at all."""
        i, f = np.zeros(0, np.int64), np.zeros(0)
        return cls(node=i, age_days=f, weight=f, part=i, cause=i)

    def take(self, rows: Ints) -> Failures:
        """These rows, in this order."""
        return Failures(
            node=self.node[rows],
            age_days=self.age_days[rows],
            weight=self.weight[rows],
            part=self.part[rows],
            cause=self.cause[rows],
        )


def merged(failures: Failures) -> Failures:
    """One row per episode, by node and from old to new: the surest verdict, at the episode's first day."""
    order = np.lexsort((-failures.weight, -failures.age_days, failures.node))
    rows = failures.take(order)
    kept: list[int] = []
    weight = rows.weight.copy()
    part = rows.part.copy()
    cause = rows.cause.copy()
    lasted = np.zeros(order.size)
    for i in range(order.size):
        first = kept[-1] if kept else -1
        if (
            first < 0
            or rows.node[i] != rows.node[first]
            or rows.age_days[first] - rows.age_days[i] > EPISODE_DAYS
        ):
            kept.append(i)
            continue
        lasted[first] = rows.age_days[first] - rows.age_days[i]
        if rows.weight[i] > weight[first]:
            weight[first] = rows.weight[i]
            part[first], cause[first] = (
                (rows.part[i], rows.cause[i]) if rows.part[i] >= 0 else (part[first], cause[first])
            )
    at = np.array(kept, np.int64)
    return Failures(
        node=rows.node[at],
        age_days=rows.age_days[at],
        weight=weight[at],
        part=part[at],
        cause=cause[at],
        lasted_days=lasted[at],
    )


def number(failed_at: Iterable[datetime]) -> int:
    """How many episodes the failures of one node are, as `merged` has them."""
    count, first = 0, None
    for at in sorted(failed_at):
        if first is None or at - first > timedelta(days=EPISODE_DAYS):
            count, first = count + 1, at
    return count


def level(weight: Floats) -> Ints:
    """0 certain, 1 likely, 2 possible."""
    answer: Ints = (weight[:, None] < LEVELS[None, :]).sum(axis=1)
    return answer


def hardware_mix(episodes: Failures) -> Floats:
    """Shares of the levels among hardware failures: all failures, each by its weight, with a prior."""
    right = np.bincount(level(episodes.weight), weights=episodes.weight, minlength=LEVEL_PRIOR.size)
    mix: Floats = (right + LEVEL_PRIOR) / (right + LEVEL_PRIOR).sum()
    return mix


def part_share(episodes: Failures) -> Floats:
    """For each episode: how common its part is among all nodes' failures (0..1); 1 if unknown.

    A node counts once per part and not for itself, so that a lemon does not make its own part look common.
    """
    known = episodes.part >= 0
    share = np.ones(episodes.node.size)
    if known.any():
        pairs = np.unique(np.stack([episodes.part[known], episodes.node[known]]), axis=1)
        parts, counts = np.unique(pairs[0], return_counts=True)
        others = counts - 1
        usual = (others + PART_PRIOR * PART_FLOOR) / (others.sum() + PART_PRIOR)
        share[known] = np.clip(usual[np.searchsorted(parts, episodes.part[known])], PART_FLOOR, 1.0)
    return share


def crowding(episodes: Failures, span_days: float, place: Ints | None) -> tuple[Floats, Floats]:
    """Other failures of the same cause within two days, for each episode: (surplus over the fleet >= 1, rate per node-day).

    The first multiplies the rate of ordinary nodes at that time. The second is to be added to it; it comes from the other
    nodes of the same place (rack, pod, switch), if places are known.
    """
    surplus, beside = np.ones(episodes.node.size), np.zeros(episodes.node.size)
    size = np.bincount(place, minlength=1) if place is not None else np.zeros(0)
    width = 2 * EPISODE_DAYS + 1.0
    for cause in np.unique(episodes.cause[episodes.cause >= 0]):
        rows = np.flatnonzero(episodes.cause == cause)
        ages, node = episodes.age_days[rows], episodes.node[rows]
        near = (np.abs(ages[:, None] - ages[None, :]) <= width / 2) & (node[:, None] != node[None, :])
        usual = np.unique(node).size * width / max(span_days, width)
        surplus[rows] = np.maximum(1.0, (near.sum(axis=1) + 1.0) / (usual + 1.0))
        if place is not None:
            same = near & (place[node][:, None] == place[node][None, :])
            peers = np.maximum(size[place[node]] - 1, 1)
            beside[rows] = same.sum(axis=1) / (peers * width)
    return surplus, beside


def repeats(episodes: Failures, nodes: int) -> Ints:
    """For each node: the largest number of episodes of one known part."""
    most = np.zeros(nodes, np.int64)
    known = episodes.part >= 0
    if known.any():
        pairs, counts = np.unique(
            np.stack([episodes.node[known], episodes.part[known]]), axis=1, return_counts=True
        )
        np.maximum.at(most, pairs[0], counts)
    return most
