"""Finds the node at fault from the pairs of nodes that pass and fail a test together.

A pair that passes proves both nodes and their link. A node is bad when it passes with nobody and fails with two partners
that are proven. A failing pair whose two nodes are both proven is a bad link. Whoever cannot be told apart is named as open. Results of one round only: another round's are refused, never mixed in.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations

from probing_cluster.core import errors

Pair = tuple[str, str]
ENOUGH = 2
"""Proven partners with whom a node must fail to be called bad."""


@dataclass(frozen=True, kw_only=True)
class PairResult:
    """One pair's test in one round."""

    round_id: uuid.UUID
    pair: Pair
    passed: bool
    seconds: float | None = None
    """How long it took; None when it failed."""


@dataclass(frozen=True, kw_only=True)
class Isolation:
    """What the results prove."""

    bad_nodes: tuple[str, ...]
    bad_links: tuple[Pair, ...]
    proven: tuple[str, ...]
    """Nodes that passed with somebody."""
    open_nodes: tuple[str, ...]
    """Nodes that could be at fault, and nobody can tell: what is missing is in `why`."""
    why: str = ""


class IsolationCase:
    """One question: which of `nodes` (and links between them) is bad; `references` are idle nodes that may be asked along."""

    def __init__(
        self,
        round_id: uuid.UUID,
        nodes: Sequence[str],
        references: Sequence[str] = (),
        *,
        every_link: bool = False,
    ) -> None:
        if set(nodes) & set(references):
            raise errors.UsageError("a node cannot be its own reference")
        self.round_id = round_id
        self.nodes = tuple(dict.fromkeys(nodes))
        self.references = tuple(dict.fromkeys(references))
        self.every_link = every_link
        self.results: dict[Pair, bool] = {}
        self.seconds: dict[Pair, list[float]] = {}
        self._void: set[Pair] = set()

    def add(self, results: Iterable[PairResult]) -> None:
        """Takes in results of this very round; raises MalformedInput for another's."""
        for result in results:
            if result.round_id != self.round_id:
                raise errors.MalformedInput(
                    f"a result of round {result.round_id} is not one of {self.round_id}"
                )
            pair = key(*result.pair)
            # One pass proves both; what failed once and passed later did not fail for good.
            self.results[pair] = self.results.get(pair, False) or result.passed
            if result.passed and result.seconds is not None:
                self.seconds.setdefault(pair, []).append(result.seconds)

    def void(self, pair: Pair) -> None:
        """A pair that gave no answer: it says nothing, and is not asked again."""
        self._void.add(key(*pair))

    @property
    def proven(self) -> set[str]:
        """Nodes that passed with somebody."""
        return {node for pair, passed in self.results.items() if passed for node in pair}

    def fails_of(self, node: str) -> list[str]:
        """The partners with whom it failed."""
        return [partner(pair, node) for pair, passed in self.results.items() if not passed and node in pair]

    def next_pairs(self) -> tuple[Pair, ...]:
        """The pairs to test now, side by side; empty when nothing that could be tested would tell more."""
        if not self.results and not self._void and len(self.nodes) > 1:
            return tuple((self.nodes[i], self.nodes[i + 1]) for i in range(0, len(self.nodes) - 1, 2))
        chosen = list(self._for_the_open())
        taken = {node for pair in chosen for node in pair}
        if self.every_link:
            chosen += apart(
                [
                    p
                    for p in combinations(self.nodes, 2)
                    if key(*p) not in self.results and key(*p) not in self._void
                ],
                taken,
            )
        return tuple(chosen)

    def _for_the_open(self) -> Iterator[Pair]:
        """A partner for each node about which nobody can tell yet: a proven one, else whoever it has not met."""
        proven, taken = self.proven, set[str]()
        waiting = sorted(
            (n for n in self.nodes if n not in proven),
            key=lambda n: (len(self.fails_of(n)), self.nodes.index(n)),
        )
        for node in waiting:
            if node in taken:
                continue
            met = set(self.fails_of(node))
            if len(met & proven) >= ENOUGH:
                continue
            met |= {partner(pair, node) for pair in self._void if node in pair}
            partners = [p for p in (*self.nodes, *self.references) if p in proven and p not in met]
            if not partners:
                # Nobody is proven that it could be held against: any pair that passes proves two at once.
                partners = [
                    p
                    for p in (*waiting, *(r for r in self.references if r not in waiting))
                    if p != node and p not in met
                ]
            found = next((p for p in partners if p not in taken), None)
            if found is not None:
                taken |= {node, found}
                yield node, found

    def _involved(self) -> tuple[str, ...]:
        """The nodes, and the references that were asked along: one of those may be bad, too."""
        tested = {node for pair in self.results for node in pair}
        return (*self.nodes, *(r for r in self.references if r in tested))

    def outcome(self) -> Isolation:
        """What is proven by now."""
        proven = self.proven
        bad: list[str] = []
        still_open: list[str] = []
        for node in self._involved():
            if node in proven:
                continue
            # With one proven partner in the whole world a node and a link explain it equally: then nobody is accused.
            enough = len(set(self.fails_of(node)) & proven) >= ENOUGH
            (bad if enough else still_open).append(node)
        links = [pair for pair, passed in self.results.items() if not passed and set(pair) <= proven]
        return Isolation(
            bad_nodes=tuple(bad),
            bad_links=tuple(sorted(links)),
            proven=tuple(n for n in self._involved() if n in proven),
            open_nodes=tuple(still_open),
            why=self._missing(still_open) if still_open else "",
        )

    def _missing(self, still_open: Sequence[str]) -> str:
        if len(self.proven) >= ENOUGH:
            return f"not every test between {', '.join(still_open)} and the proven nodes was run"
        return (
            f"{', '.join(still_open)}: no two nodes passed with each other that they could be held against; "
            "an idle node as reference would tell (--reference NODE)"
        )


def key(a: str, b: str) -> Pair:
    """A pair in one order."""
    return (a, b) if a <= b else (b, a)


def partner(pair: Pair, node: str) -> str:
    """The other one."""
    return pair[1] if pair[0] == node else pair[0]


def apart(pairs: Iterable[Pair], taken: Iterable[str] = ()) -> list[Pair]:
    """The pairs that share no node with each other or with `taken`: they can be tested at the same time."""
    made, taken = [], set(taken)
    for a, b in pairs:
        if a not in taken and b not in taken:
            taken |= {a, b}
            made.append((a, b))
    return made
