"""Tests whether nodes that failed together share a place, against chance.

Fisher's exact test: k of the nodes with a place of this kind failed; how likely are x or more of them among the m nodes of
one place by chance (upper tail of the hypergeometric distribution)? All places of all kinds are tested, so each result is
multiplied by their number (Bonferroni). For many incidents or places side by side, `discoveries` bounds the share of
false ones (Benjamini and Hochberg 1995, doi:10.1111/j.2517-6161.1995.tb02031.x).
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from probing_cluster.attribution.places import layout

ODDS = 0.02
"""Highest probability with which chance alone would name any place."""
LEAST = 3
"""Least failed nodes in a named place."""
_NEAR = 10.0
"""Places whose odds differ by a smaller factor are indistinguishable."""


@dataclass(frozen=True, kw_only=True)
class SharedPlace:
    """A place that failed nodes share more often than chance explains."""

    kind: str
    name: str
    n_failed: int
    """Failed nodes in it."""
    n_nodes: int
    """Nodes in it."""
    n_all: int
    """Failed nodes with a place of this kind."""
    odds: float
    """Probability that chance shows any place as strongly, 0..1, corrected for the number of places."""
    others: tuple[layout.Place, ...] = ()
    """Other places that explain the same failures as well."""

    @property
    def sentence(self) -> str:
        """`7 of the 9 nodes of leaf leaf12 (all 7 that failed); p = 2e-09`."""
        alike = "".join(f" or {kind} {name}" for kind, name in self.others)
        rest = "all that failed" if self.n_failed == self.n_all else f"{self.n_all} failed in all"
        return f"{self.n_failed} of the {self.n_nodes} nodes of {self.kind} {self.name}{alike} ({rest}; p = {self.odds:.0e})"


_NAME = re.compile(r"\d+ of the \d+ nodes of (.+?) \(")


def name_in(sentence: str) -> str:
    """`leaf leaf12` from a text with a sentence of SharedPlace; empty if it names no place."""
    found = _NAME.search(sentence)
    return found[1] if found else ""


def tail(n: int, m: int, k: int, x: int) -> float:
    """P(X >= x), with X the number of k nodes drawn without replacement from n that are among m; 0..1."""
    if x <= max(0, k + m - n):
        return 1.0
    last = min(m, k)
    if x > last:
        return 0.0
    logs = [_log_choose(m, i) + _log_choose(n - m, k - i) for i in range(x, last + 1)]
    highest = max(logs)
    return min(1.0, math.exp(highest - _log_choose(n, k)) * math.fsum(math.exp(v - highest) for v in logs))


def _log_choose(n: int, k: int) -> float:
    return math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)


def shared(failed: Collection[str], where: layout.NodeLayout) -> SharedPlace | None:
    """The place that best explains which nodes failed; None if chance does."""
    counts = Counter(p for node in set(failed) for p in where.of_node.get(node, ()))
    n_failed = {kind: len(nodes & set(failed)) for kind, nodes in where.placed.items()}
    found = [
        SharedPlace(
            kind=kind,
            name=name,
            n_failed=x,
            n_nodes=(m := len(where.members[kind, name])),
            n_all=n_failed[kind],
            odds=min(1.0, tail(len(where.placed[kind]), m, n_failed[kind], x) * where.n_candidates),
        )
        for (kind, name), x in counts.items()
        if x >= LEAST
    ]
    good = [s for s in found if s.odds <= ODDS]
    if not good:
        return None
    # Equal odds are decided by more failures; of places that hold them all, the smallest has the lowest odds.
    best, *rest = sorted(good, key=lambda s: (s.odds, -s.n_failed, s.kind, s.name))
    alike = tuple(
        (s.kind, s.name) for s in rest if s.odds <= best.odds * _NEAR and s.n_failed == best.n_failed
    )
    return SharedPlace(**{**best.__dict__, "others": alike})


def job_explains(
    place: SharedPlace, failed: Collection[str], job_nodes: Collection[str], where: layout.NodeLayout
) -> bool:
    """True if one job's nodes explain the failures as well as the place: then the job's load may be the reason."""
    placed = where.placed.get(place.kind, frozenset())
    hit, mine = set(failed) & placed, set(job_nodes) & placed
    odds = tail(len(placed), len(mine), len(hit), len(hit & mine)) * where.n_candidates
    return len(hit & mine) >= place.n_failed and odds <= place.odds * _NEAR


def discoveries(p_values: Sequence[float], rate: float) -> list[bool]:
    """Which tests to accept, so that on average at most `rate` of the accepted are false (Benjamini-Hochberg)."""
    order = sorted(range(len(p_values)), key=p_values.__getitem__)
    last = max((i for i, j in enumerate(order, 1) if p_values[j] <= rate * i / len(order)), default=0)
    believed = set(order[:last])
    return [i in believed for i in range(len(p_values))]


def excess(
    counts: Iterable[tuple[layout.Place, int, float]], rate: float
) -> list[tuple[layout.Place, int, float, float]]:
    """Places whose nodes fail more than others, from (place, failures, node-days): accepted (…, expected, p).

    The failures of a place are compared with those of its kind by its share of node-days (exact binomial test).
    """
    rows = list(counts)
    totals: Counter[str] = Counter()
    days: Counter[str] = Counter()
    for (kind, _), n, node_days in rows:
        totals[kind] += n
        days[kind] += node_days  # type: ignore[assignment]
    tested = []
    for place, n, node_days in rows:
        share = node_days / days[place[0]] if days[place[0]] else 0.0
        tested.append((place, n, totals[place[0]] * share, _binomial_tail(totals[place[0]], share, n)))
    return [row for row, good in zip(tested, discoveries([p for *_, p in tested], rate), strict=True) if good]


def _binomial_tail(n: int, share: float, x: int) -> float:
    if x <= 0 or share >= 1.0:
        return 1.0
    if share <= 0.0:
        return 0.0
    logs = [_log_choose(n, i) + i * math.log(share) + (n - i) * math.log1p(-share) for i in range(x, n + 1)]
    highest = max(logs)
    return min(1.0, math.exp(highest) * math.fsum(math.exp(v - highest) for v in logs))
