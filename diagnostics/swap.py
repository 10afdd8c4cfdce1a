"""Swap search: which node of a job makes it slow, when every test of every node passes alone.

Nodes are replaced by spares, some at once, and the job's own step time says whether the slow one was among them. At
most one node is taken to be at fault. Each observation is one stretch of the job on one set of nodes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from probing_cluster.core import errors

NOBODY = ""
"""Stands for: none of the nodes (the program, the file system, the network)."""
PRIOR_NOBODY = 0.2
LEAST_NOISE = 0.01
LEAST_OF_GAP = 0.1
"""A stretch that is a tenth of the slow-down off says all the same which of both levels it is at."""
_LEAST_DOUBT = 0.001


@dataclass(frozen=True, kw_only=True)
class Stretch:
    """The job's step time while it ran on these nodes."""

    nodes: frozenset[str]
    step_s: float


@dataclass(frozen=True, kw_only=True)
class SwapPlan:
    """The suspects so far, and which nodes to replace next."""

    probabilities: Mapping[str, float]
    """By node; under the empty name that it is none of them."""
    replace: tuple[str, ...]
    """Nodes to replace next; empty when it is settled."""
    put_back: tuple[str, ...]
    """Replaced nodes that come back next, in place of nodes that are cleared; empty while the slow one is still in the job."""
    rounds_left: int
    """Expected further replacements with these spares."""

    settled: bool = False
    """Whether it is known which node it is, or that it is none."""

    @property
    def suspect(self) -> tuple[str, float]:
        """The likeliest (a node, or nobody) and how likely."""
        return max(self.probabilities.items(), key=lambda item: (item[1], item[0]))


def probabilities(
    stretches: Sequence[Stretch], good_s: float, slow_s: float, noise_s: float = 0.0
) -> dict[str, float]:
    """How likely each node is the slow one, by the step times seen; raises UsageError where they allow no answer.

    `good_s` is the step time before the job slowed, `slow_s` since then.
    """
    if not stretches or slow_s <= good_s or good_s <= 0:
        raise errors.UsageError(
            "swap search needs a step time before the job slowed that is less than the one since"
        )
    noise = max(noise_s, LEAST_NOISE * good_s, LEAST_OF_GAP * (slow_s - good_s))
    nodes = sorted(set().union(*(s.nodes for s in stretches)))
    prior = (1 - PRIOR_NOBODY) / len(nodes)
    logs = {NOBODY: math.log(PRIOR_NOBODY), **dict.fromkeys(nodes, math.log(prior))}
    for suspect in logs:
        for stretch in stretches:
            # Where nobody is at fault it stays slow, whoever is replaced.
            expected = slow_s if suspect == NOBODY or suspect in stretch.nodes else good_s
            # One odd stretch is not proof: beyond four deviations it counts no more.
            logs[suspect] -= min(((stretch.step_s - expected) / noise) ** 2, 16.0) / 2
    most = max(logs.values())
    weights = {name: math.exp(value - most) for name, value in logs.items()}
    total = sum(weights.values())
    return {name: weight / total for name, weight in weights.items()}


def plan(
    stretches: Sequence[Stretch],
    spares: int,
    good_s: float,
    slow_s: float,
    *,
    sure: float = 0.95,
    noise_s: float = 0.0,
) -> SwapPlan:
    """The nodes to replace next: as near to half of the doubt as the spares allow; nothing once one is likelier than `sure`."""
    if spares < 1:
        raise errors.UsageError("swap search needs a spare node at least (--spares)")
    found = probabilities(stretches, good_s, slow_s, noise_s)
    name, likely = max(found.items(), key=lambda item: (item[1], item[0]))
    here = stretches[-1].nodes
    uncleared = any(p > _LEAST_DOUBT for n, p in found.items() if n)
    # That it is nobody is said only once every node was replaced: the likeliest of many is not the likely one.
    if likely >= sure and (name != NOBODY or not uncleared):
        settled = (name,) if name in here else ()
        return SwapPlan(
            probabilities=found, replace=settled, put_back=(), rounds_left=1 if settled else 0, settled=True
        )
    inside = {n: p for n, p in found.items() if n in here and p > _LEAST_DOUBT}
    outside = {n: p for n, p in found.items() if n and n not in here and p > _LEAST_DOUBT}
    if sum(outside.values()) > sum(inside.values()) + found[NOBODY]:
        # It went with those that were replaced: some of them come back, in place of nodes that are cleared.
        put_back = _half(outside, max(1, min(spares, len(outside) - 1)))
        return SwapPlan(
            probabilities=found, replace=(), put_back=put_back, rounds_left=_halvings(len(outside))
        )
    chosen = _half(inside, spares)
    doubtful = len(inside) + len(outside)
    first = math.ceil(doubtful / spares / 2) if spares * 2 < doubtful else 0
    return SwapPlan(
        probabilities=found,
        replace=chosen,
        put_back=(),
        rounds_left=first + _halvings(min(doubtful, 2 * spares)),
    )


def _half(doubts: Mapping[str, float], most: int) -> tuple[str, ...]:
    """The likeliest of these, one at least and `most` at most, up to half of their doubt."""
    chosen: list[str] = []
    doubt, whole = 0.0, sum(doubts.values())
    for node in sorted(doubts, key=lambda n: (-doubts[n], n)):
        if len(chosen) == most or (chosen and doubt + doubts[node] > whole / 2 + 1e-9):
            break
        chosen.append(node)
        doubt += doubts[node]
    return tuple(chosen)


def _halvings(n: int) -> int:
    return math.ceil(math.log2(max(n, 2)))
