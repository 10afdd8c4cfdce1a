"""Finds the node at fault from the pairs of nodes that pass and fail a test together, again and again.

A fault need not show each time, a test may fail by chance, and a node that is held against may be the bad one. So one result
convicts nobody, and none clears a node of another result:

* A node is bad when it fails twice with each of two partners that are sound. Sound is who passed with others and hardly
  ever failed. Where it passes at times, it must fail often with both and pass with one of them: else its links may be it.
* A link is bad when it fails each time, and its two ends end alike each time with each other partner.
* A failed test that neither explains leaves both nodes open: they are not proven well, and not accused.

Results of one round only: another round's are refused, never mixed in.
"""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations

from probing_cluster.core import errors

Pair = tuple[str, str]
ENOUGH = 2
"""Sound partners with whom a node must fail to be called bad, and with whom one under test must pass where there are so many."""
TWICE = 2
"""Tests that must fail with each of them."""
FIRM = 4
"""Passes with others that make a partner sound, as many more for each failure; tests that a link must fail without a pass to be called bad."""
PROOF = 8
"""Passes in a row that prove a node well enough for service: of nodes that fail in half of their tests 0.4 % have them by luck."""
_MOST_WORDS = 4


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
    unsteady: tuple[str, ...]
    """Those of the bad nodes that passed at times."""
    bad_links: tuple[Pair, ...]
    proven: tuple[str, ...]
    """Nodes that passed with somebody, and are not bad."""
    open_nodes: tuple[str, ...]
    """Nodes that are proven neither bad nor well: what happened is in `why`."""
    why: str = ""


@dataclass(kw_only=True)
class Tally:
    """How one pair's tests ended."""

    passed: int = 0
    failed: int = 0
    void: int = 0

    @property
    def tests(self) -> int:
        """Those that gave an answer."""
        return self.passed + self.failed

    @property
    def is_failing(self) -> bool:
        """Whether it fails more often than by chance."""
        return self.failed >= FIRM and 4 * self.failed >= self.tests

    @property
    def is_over(self) -> bool:
        """Whether it is not asked again: it gave no answer too often, or has never passed."""
        return self.void >= TWICE + self.tests // FIRM or (not self.passed and self.failed >= FIRM)


class IsolationCase:
    """One question: which of `nodes` (and links between them) is bad; `references` are idle nodes that may be asked along."""

    def __init__(
        self,
        round_id: uuid.UUID,
        nodes: Sequence[str],
        references: Sequence[str] = (),
        *,
        every_link: bool = False,
        passes: int = TWICE,
    ) -> None:
        if set(nodes) & set(references):
            raise errors.UsageError("a node cannot be its own reference")
        self.round_id = round_id
        self.nodes = tuple(dict.fromkeys(nodes))
        self.references = tuple(dict.fromkeys(references))
        self.every_link = every_link
        self.passes = passes
        self.seconds: dict[Pair, list[float]] = {}
        self._everyone = (*self.nodes, *self.references)
        self._met: dict[str, dict[str, Tally]] = {node: {} for node in self._everyone}
        """By node and partner; both ends have the same tally."""
        self._n_chosen: Counter[str] = Counter()
        self._bad: set[str] = set()
        self._links: set[Pair] = set()

    def add(self, results: Iterable[PairResult]) -> None:
        """Takes in results of this very round; raises MalformedInput for another's."""
        for result in results:
            if result.round_id != self.round_id:
                raise errors.MalformedInput(
                    f"a result of round {result.round_id} is not one of {self.round_id}"
                )
            tally = self._tally(*result.pair)
            tally.passed += result.passed
            tally.failed += not result.passed
            if result.passed and result.seconds is not None:
                self.seconds.setdefault(key(*result.pair), []).append(result.seconds)
        self._bad, self._links = self._judged()

    def void(self, pair: Pair) -> None:
        """A pair that gave no answer: it says nothing."""
        self._tally(*pair).void += 1

    def _tally(self, a: str, b: str) -> Tally:
        tally = self._met[a].setdefault(b, Tally())
        self._met[b][a] = tally
        return tally

    @property
    def answered(self) -> bool:
        """Whether any pair gave an answer."""
        return any(tally.tests for met in self._met.values() for tally in met.values())

    @property
    def proven(self) -> set[str]:
        """Nodes that passed with somebody, and are not bad."""
        return {n for n in self._everyone if n not in self._bad and self._passes(n)}

    def _passes(self, node: str, besides: Collection[str] = ()) -> int:
        return sum(tally.passed for other, tally in self._met[node].items() if other not in besides)

    def _fails(self, node: str, besides: Collection[str] = ()) -> list[str]:
        """The partners with whom it failed."""
        return [other for other, tally in self._met[node].items() if tally.failed and other not in besides]

    def _judged(self) -> tuple[set[str], set[Pair]]:
        """Bad nodes and bad links; who is bad spoils nobody's word, so it is asked again until nothing is new."""
        bad: set[str] = set()
        while fresh := {n for n in self._everyone if n not in bad and self._is_bad(n, bad)}:
            bad |= fresh
        failed = [(a, b) for a in self._everyone for b in self._fails(a, bad)]
        ends = {(a, b) for a, b in failed if self._is_bad_link(a, b, bad)}
        return bad, {key(a, b) for a, b in ends if (b, a) in ends}

    def _is_bad(self, node: str, bad: set[str]) -> bool:
        is_dead = not self._passes(node)
        against = {
            n: t
            for n, t in self._met[node].items()
            if (t.failed >= TWICE if is_dead else t.is_failing) and self._is_sound(n, bad | {node})
        }
        return len(against) >= ENOUGH and (is_dead or any(t.passed for t in against.values()))

    def _is_sound(self, node: str, besides: set[str]) -> bool:
        """Whether what it says counts: it passed with others, and seldom failed with those that ever passed."""
        met = self._met[node]
        failed = sum(met[other].failed for other in self._fails(node, besides) if self._passes(other))
        return self._passes(node, besides) >= FIRM * (1 + failed)

    def _is_bad_link(self, node: str, other: str, bad: set[str]) -> bool:
        """As seen from one end: the pair never passes, and every other pair of the node always ends alike."""
        tally = self._met[node][other]
        if tally.passed or tally.failed < FIRM or node in bad:
            return False
        mixed = any(t.passed and t.failed for n, t in self._met[node].items() if n not in bad)
        return not mixed and self._passes(node, bad) >= FIRM + TWICE

    def _unexplained(self, node: str) -> list[str]:
        """Partners with whom it failed though neither is bad, nor is their link."""
        if node in self._bad:
            return []
        return [n for n in self._fails(node, self._bad) if key(node, n) not in self._links]

    def _partners(self, node: str) -> list[str]:
        """Whoever it can still be tested with."""
        met, none = self._met[node], Tally()
        return [
            n for n in self._everyone if n != node and n not in self._bad and not met.get(n, none).is_over
        ]

    def _lacks(self, node: str) -> bool:
        """Whether a node under test has passed too seldom, or with too few partners, to be proven well."""
        if node not in self.nodes or node in self._bad:
            return False
        if self._passes(node, self._bad) < self.passes:
            return True
        passed = sum(1 for n, t in self._met[node].items() if t.passed and n not in self._bad)
        return passed < ENOUGH and passed < len(self._partners(node))

    def next_pairs(self) -> tuple[Pair, ...]:
        """The pairs to test now, side by side; empty when nothing that could be tested would tell more."""
        if not self._n_chosen and len(self.nodes) > 1:
            chosen = [(self.nodes[i], self.nodes[i + 1]) for i in range(0, len(self.nodes) - 1, 2)]
        else:
            chosen = list(self._for_the_unsettled())
            if self.every_link:
                unmet = (p for p in combinations(self.nodes, 2) if p[1] not in self._met[p[0]])
                chosen += apart(unmet, {node for pair in chosen for node in pair})
        self._n_chosen.update(node for pair in chosen for node in pair)
        return tuple(chosen)

    def _for_the_unsettled(self) -> Iterator[Pair]:
        """A partner for each node about which nobody can tell yet: those first whose word may count soon, then who was asked least."""
        taken, proven = set[str](), self.proven
        most = self.passes + 3 * FIRM + len(self.nodes) * self.every_link
        for node in sorted(self._everyone, key=lambda n: (not self._is_promising(n), self._n_chosen[n])):
            doubted = self._unexplained(node)
            if node in taken or self._n_chosen[node] >= most or not (doubted or self._lacks(node)):
                continue
            found = next((n for n in self._order(node, doubted, proven) if n not in taken), None)
            if found is not None:
                taken |= {node, found}
                yield node, found

    def _is_promising(self, node: str) -> bool:
        """Whether it passed, though not so often that its word counts."""
        return 0 < self._passes(node, self._bad) < FIRM

    def _order(self, node: str, doubted: Sequence[str], proven: Collection[str]) -> list[str]:
        """Its partners, the most telling first: new ones; where it failed, those it failed with in turn with one that is well."""
        met, none = self._met[node], Tally()
        partners = sorted(self._partners(node), key=lambda n: (met.get(n, none).tests, n not in proven))
        clean = [n for n in partners if n not in doubted and n in met and met[n].passed]
        useful = [n for n in partners if n in doubted and n in proven]
        if doubted and self._is_promising(node):
            return [*clean, *(n for n in partners if n not in clean)]
        useful += clean[-max(1, ENOUGH - len(useful)) :]
        return partners if not doubted or len(useful) < ENOUGH else sorted(useful, key=partners.index)

    def outcome(self) -> Isolation:
        """What is proven by now."""
        bad = [n for n in self._everyone if n in self._bad]
        still_open = [n for n in self._everyone if self._unexplained(n) or self._lacks(n)]
        return Isolation(
            bad_nodes=tuple(bad),
            unsteady=tuple(n for n in bad if self._passes(n)),
            bad_links=tuple(sorted(self._links)),
            proven=tuple(n for n in self._everyone if n in self.proven),
            open_nodes=tuple(still_open),
            why=self._missing(still_open) if still_open else "",
        )

    def _missing(self, still_open: Sequence[str]) -> str:
        pairs = {
            key(node, other): self._met[node][other]
            for node in still_open
            for other in self._unexplained(node)
        }
        words = [f"{a}-{b} failed {t.failed} of {t.tests} times" for (a, b), t in sorted(pairs.items())]
        words += [
            f"{node} passed {self._passes(node, self._bad)} of {self.passes} tests with others"
            for node in still_open
            if not self._unexplained(node)
        ]
        listed = "; ".join(words[:_MOST_WORDS]) + (" …" if len(words) > _MOST_WORDS else "")
        if len(self.proven - set(still_open)) < ENOUGH:
            return f"{listed}; an idle node as reference would tell (--reference NODE)"
        return listed


def key(a: str, b: str) -> Pair:
    """A pair in one order."""
    return (a, b) if a <= b else (b, a)


def apart(pairs: Iterable[Pair], taken: Iterable[str] = ()) -> list[Pair]:
    """The pairs that share no node with each other or with `taken`: they can be tested at the same time."""
    made, taken = [], set(taken)
    for a, b in pairs:
        if a not in taken and b not in taken:
            taken |= {a, b}
            made.append((a, b))
    return made
