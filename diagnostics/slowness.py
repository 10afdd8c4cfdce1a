"""Slow nodes and links among passing ones: compute and network judged apart, by median + max(5 MAD, 3 %), and again.

Of nodes each has one figure of compute. Of pairs each time belongs to two nodes and a link, so a node's is the least of its
times with different partners. What stands out is measured again with others, and only what stands out again and again is
named. Where the figures of the round itself are spread more widely the limit lies higher, and where it lies so high that a
node of 1.2 times would not show, speed is not judged at all: nodes that share processors are not slow for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import TypeVar

from probing_cluster.diagnostics import isolation

_Name = TypeVar("_Name")

FLOOR = 0.03
MADS = 5.0
FEWEST = 4
"""Fewer figures than this have no median worth the name: idle nodes join as references."""
ROUNDS = 3
"""Partners that every node is timed with."""
_SMALL = 8
"""Fewer nodes are timed with each other twice as often: so few figures have no steady median."""
_FEWEST_TIMES = 7
CONFIRMING = 9
"""Further times that what stands out is timed, each with another partner where there is one; all but one must stand out, too."""
_QUARTERS = 4.0
"""Distances of the upper quartile from the median: above the 3 % and the 5 MAD only where the figures have a heavy tail."""
TOO_NOISY = 0.20
"""A limit further above the median than this judges nobody: what it would name cannot be told from noise."""


SMALL_REPEATS = 200
"""All-reduces of a pair that is timed by small ones."""
_SMALL_S = 0.010
"""What one of those takes at most: a neighbour's turn on the processors lengthens few of so many so short ones."""
_SMALLEST = 1 << 14


def small_bytes(size: int, seconds: Iterable[float]) -> int:
    """The bytes, `size` or a half or quarter … of it, of which an all-reduce is short, by the least that one of `size` took between pairs."""
    taken = min(seconds, default=0.0)
    while taken > _SMALL_S and size > _SMALLEST:
        size, taken = size // 2, taken / 2
    return size


@dataclass(frozen=True, kw_only=True)
class Limit:
    """The bound at which a node counts as slow."""

    middle: float
    slow_from: float

    @property
    def noisy(self) -> bool:
        """Whether the figures' own spread is wider than what is looked for."""
        return self.slow_from > (1 + TOO_NOISY) * self.middle


def limit(values: Iterable[float]) -> Limit | None:
    """The limit of figures of which less is better; None for too few of them."""
    given = sorted(values)
    if len(given) < FEWEST:
        return None
    middle = median(given)
    spread = median(abs(value - middle) for value in given)
    # Up to a quarter of the figures may be slow nodes' own: those do not move this quartile.
    tail = given[(3 * len(given) - 1) // 4] - middle if len(given) > FEWEST else 0.0
    return Limit(middle=middle, slow_from=middle + max(MADS * spread, _QUARTERS * tail, FLOOR * middle))


def slow(values: Mapping[_Name, float]) -> set[_Name]:
    """The names whose figure lies above the limit; none where the figures are too noisy."""
    found = limit(values.values())
    if found is None or found.noisy:
        return set()
    return {name for name, value in values.items() if value > found.slow_from}


class Timing:
    """Network times of nodes that pass: which pairs to time next, and who is slow."""

    def __init__(self, nodes: Sequence[str]) -> None:
        self.nodes = tuple(nodes)
        self.times: dict[isolation.Pair, list[float]] = {}
        self._rounds = ROUNDS if len(nodes) >= _SMALL else 2 * ROUNDS
        self._turn = 0
        self._odd: isolation.Pair | None = None
        self._accused: dict[str, list[float]] = {}
        self._accused_links: dict[isolation.Pair, list[float]] = {}
        self._controls: list[float] = []

    def add(self, pair: isolation.Pair, seconds: float) -> None:
        """One time of one pair."""
        pair = isolation.key(*pair)
        if self._turn > self._rounds:
            for node in set(pair) & set(self._accused):
                self._accused[node].append(seconds)
            if pair in self._accused_links:
                self._accused_links[pair].append(seconds)
            elif not set(pair) & set(self._accused):
                self._controls.append(seconds)
        else:
            self.times.setdefault(pair, []).append(seconds)

    def of_nodes(self) -> dict[str, float]:
        """Each node's least time with any partner."""
        found: dict[str, float] = {}
        for pair, times in self.times.items():
            for node in pair:
                found[node] = min(found.get(node, float("inf")), *times)
        return {node: found[node] for node in self.nodes if node in found}

    def next_pairs(self) -> tuple[isolation.Pair, ...]:
        """Pairs to time now, side by side; empty when the times are in."""
        if len(self.nodes) < FEWEST:
            return ()
        if self._odd is not None:
            odd, self._odd = self._odd, None
            return (odd,)
        self._turn += 1
        if self._turn <= self._rounds:
            return tuple(self._fast_with_slow())
        if self._turn == self._rounds + 1:
            self._accuse()
        return tuple(self._again()) if self._turn <= self._rounds + CONFIRMING else ()

    def _fast_with_slow(self) -> Iterable[isolation.Pair]:
        """The slowest with the fastest that it has met least; at first as they stand."""
        known = self.of_nodes()
        order = sorted(self.nodes, key=lambda n: (known.get(n, 0.0), self.nodes.index(n)))
        if not known:
            order = [*self.nodes[::2], *reversed(self.nodes[1::2])]
        left = list(order)
        while len(left) > 1:
            slowest = left.pop()
            chosen = min(left, key=lambda n: len(self.times.get(isolation.key(n, slowest), ())))
            left.remove(chosen)
            yield isolation.key(slowest, chosen)
        if left:
            # The odd one out is timed with the fastest, after the others.
            others = [n for n in order if n != left[0]]
            other = min(others, key=lambda n: len(self.times.get(isolation.key(n, left[0]), ())))
            self._odd = isolation.key(left[0], other)

    def _accuse(self) -> None:
        nodes = slow(self.of_nodes())
        best = {pair: min(times) for pair, times in self.times.items() if not set(pair) & nodes}
        self._accused = {node: [] for node in nodes}
        self._accused_links = {pair: [] for pair in slow(best)}

    def _again(self) -> Iterable[isolation.Pair]:
        taken: set[str] = set()
        known = self.of_nodes()
        for pair in sorted(self._accused_links, key=lambda p: len(self._accused_links[p])):
            if not taken & set(pair):
                taken |= set(pair)
                yield pair
        healthy = [n for n in sorted(known, key=known.__getitem__) if n not in self._accused]
        for node in sorted(self._accused, key=lambda n: len(self._accused[n])):
            partners = [h for h in healthy if h not in taken]
            if partners:
                turn = (self._turn + len(taken)) % len(partners)
                taken |= {partners[turn], node}
                yield isolation.key(node, partners[turn])
        if taken:
            # Timed in the same moments: how much the times of healthy ones differ just then.
            yield from self._controls_beside([h for h in healthy if h not in taken])

    @staticmethod
    def _controls_beside(healthy: Sequence[str]) -> Iterable[isolation.Pair]:
        for first, second in zip(healthy[::2], healthy[1::2], strict=False):
            yield isolation.key(first, second)

    def outcome(self) -> tuple[tuple[str, ...], tuple[isolation.Pair, ...]]:
        """Nodes and links that stood out, and whose later times stand out among single times as well."""
        found = self._single()
        if found is None or found.noisy:
            return (), ()

        def stays(times: Sequence[float]) -> bool:
            above = sum(time > found.slow_from for time in times)
            return above >= _FEWEST_TIMES and above >= len(times) - (len(times) == CONFIRMING)

        nodes = sorted(node for node, times in self._accused.items() if stays(times))
        links = sorted(pair for pair, times in self._accused_links.items() if stays(times))
        return tuple(nodes), tuple(links)

    def noise(self) -> str:
        """Why speed was not judged, in words; empty when it was, or when there was too little to judge by."""
        found = self._single()
        return noise_of(found) if found is not None else ""

    def _single(self) -> Limit | None:
        if self._turn <= self._rounds:
            return None
        single = [
            t for pair, times in self.times.items() if not set(pair) & set(self._accused) for t in times
        ]
        return limit([*single, *self._controls])


def noise_of(found: Limit) -> str:
    """Why a limit judges nobody, in words; empty for one that judges."""
    if not found.noisy:
        return ""
    above = found.slow_from / found.middle - 1
    return f"too noisy to judge speed: less than {above:.0%} above the median is noise of this round"
