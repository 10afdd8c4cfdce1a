"""Who returns to service and who is accused, on drawn repairs: one node under test beside references, some part of which fails at times.

    python -m benchmarks.diagnostics.returns [--repairs 2000]

Each repair is up to three rounds, as the workflow runs them. `often` is how often a test with the faulty part fails; besides,
each test fails by chance and gives no answer by chance. The procedure is the product's own.
"""

from __future__ import annotations

import argparse
import random
import uuid
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from probing_cluster.control_plane.repair import round_findings
from probing_cluster.diagnostics import isolation

NODE = "n"
MOST_ROUNDS = 3
OFTEN = (1.0, 0.7, 0.5, 0.3, 0.1)
SPOTS = (
    "the node",
    "its link to a reference",
    "a reference",
    "two references",
    "a link of references",
    "nothing",
)
"""Where the fault is."""
AT_LEAST = {
    "the node": 0,
    "its link to a reference": 1,
    "a reference": 1,
    "two references": 2,
    "a link of references": 2,
}
"""References that it takes for it."""


@dataclass(kw_only=True)
class Repair:
    """One drawn repair; each further round of it has as many further references, as in the workflow."""

    references: tuple[str, ...]
    bad: frozenset[str] = frozenset()
    bad_links: frozenset[isolation.Pair] = frozenset()
    often: float = 1.0
    noise: float = 0.0
    silence: float = 0.0
    draw: random.Random
    n_tests: int = 0
    accused: set[str] = field(default_factory=set)
    accused_links: set[isolation.Pair] = field(default_factory=set)

    def test(self, pair: isolation.Pair) -> bool | None:
        """Whether it passes; None without an answer."""
        self.n_tests += 1
        if self.draw.random() < self.silence:
            return None
        faults = len(self.bad & set(pair)) + (isolation.key(*pair) in self.bad_links)
        return self.draw.random() < (1 - self.noise) * (1 - self.often) ** faults

    def round(self, n: int) -> round_findings.Findings:
        """The n-th round, from one on."""
        round_id = uuid.UUID(int=n)
        references = tuple(f"r{i}" for i in range(len(self.references) * n))
        case = isolation.IsolationCase(round_id, (NODE,), references, passes=isolation.PROOF * n)
        while self.references and (pairs := case.next_pairs()):
            answers = {pair: self.test(pair) for pair in pairs}
            for pair in (p for p, passed in answers.items() if passed is None):
                case.void(pair)
            case.add(
                isolation.PairResult(round_id=round_id, pair=p, passed=passed)
                for p, passed in answers.items()
                if passed is not None
            )
        return found_by(case.outcome() if self.references else None)

    def end(self) -> str:
        """How it ends: accused, returned, or a ticket without an accusation."""
        for n in range(1, MOST_ROUNDS + 1):
            found = self.round(n)
            self.accused |= set(found.bad_nodes)
            self.accused_links |= set(found.bad_links)
            if round_findings.against(found, NODE):
                return "accused"
            if NODE not in found.open_nodes:
                return "returned"
        return "ticket"


def found_by(isolated: isolation.Isolation | None) -> round_findings.Findings:
    """What the workflow is given."""
    if isolated is None:
        return round_findings.Findings(results=())
    return round_findings.Findings(
        results=(),
        bad_nodes=isolated.bad_nodes,
        bad_links=isolated.bad_links,
        open_nodes=isolated.open_nodes,
        why=isolated.why,
    )


def drawn(spot: str, references: int, draw: random.Random, **given: float) -> Repair:
    """A repair with its fault there."""
    names = tuple(f"r{i}" for i in range(references))
    first, second = draw.sample(names, 2) if references > 1 else (*names, "", "")[:2]
    bad = {"the node": {NODE}, "a reference": {first}, "two references": {first, second}}.get(spot, set())
    links = {
        "its link to a reference": {isolation.key(NODE, first)},
        "a link of references": {isolation.key(first, second)},
    }
    return Repair(
        references=names,
        bad=frozenset(bad),
        bad_links=frozenset(links.get(spot, ())),
        draw=random.Random(draw.random()),
        **given,
    )


def table(repairs: int, noise: float, silence: float, seed: int = 23) -> Iterator[str]:
    """By where the fault is, how often it shows and the references: how the repairs end, in per cent."""
    yield "| fault | often | references | returns | accused | ticket, nobody accused | innocent node accused | well link accused | tests |"
    yield "|---|---|---|---|---|---|---|---|---|"
    for spot in SPOTS:
        for often in OFTEN if spot != "nothing" else (0.0,):
            for references in range(AT_LEAST.get(spot, 0), 4):
                draw = random.Random(seed)
                yield _row(
                    spot,
                    [
                        drawn(spot, references, draw, often=often, noise=noise, silence=silence)
                        for _ in range(repairs)
                    ],
                )


def _row(spot: str, repairs: list[Repair]) -> str:
    ends = Counter(repair.end() for repair in repairs)
    innocents = sum(bool(repair.accused - repair.bad) for repair in repairs)
    links = sum(bool(repair.accused_links - repair.bad_links) for repair in repairs)
    tests = sum(repair.n_tests for repair in repairs) / len(repairs)
    one = repairs[0]
    shares = [
        f"{n / len(repairs):.2%}"
        for n in (*(ends[e] for e in ("returned", "accused", "ticket")), innocents, links)
    ]
    return f"| {spot} | {one.often:.0%} | {len(one.references)} | {' | '.join(shares)} | {tests:.1f} |"


def main() -> None:
    """Prints the tables."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--repairs", type=int, default=2000)
    options = parser.parse_args()
    for noise, silence in ((0.01, 0.05), (0.0, 0.0), (0.03, 0.1)):
        print(f"{noise:.0%} of tests fail by chance, {silence:.0%} give no answer:\n")
        for row in table(options.repairs, noise, silence):
            print(row)
        print()


if __name__ == "__main__":
    main()
