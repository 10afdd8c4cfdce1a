"""Who is at fault, on drawn fleets: our isolation beside DLRover's node check, and slow nodes beside its 2 x median.

    python -m benchmarks.diagnostics.isolation [--cases 1000]

The machines are drawn, the procedures are the product's own. DLRover's is written after its source (two rounds, the status
the OR and the time the MIN of both, a straggler above twice the median, nothing for three nodes or fewer).
"""

from __future__ import annotations

import argparse
import random
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from statistics import median

from probing_cluster.core import vocabulary
from probing_cluster.diagnostics import baseline, isolation, slowness, swap

Pair = isolation.Pair


@dataclass(kw_only=True)
class Fleet:
    """A drawn fleet: which nodes and links are bad, how slow each node and link is, and how noisy its times are."""

    names: tuple[str, ...]
    references: tuple[str, ...] = ()
    bad: frozenset[str] = frozenset()
    bad_links: frozenset[Pair] = frozenset()
    factors: dict[str, float] = field(default_factory=dict)
    link_factors: dict[Pair, float] = field(default_factory=dict)
    noise: float = 0.02
    chance: float = 0.0
    """Share of tests that fail for no fault."""
    shared: float = 0.0
    """Share of times that neighbours on the same processors lengthen, by a heavy-tailed factor; 0 for nodes of their own."""
    draw: random.Random = field(default_factory=lambda: random.Random(1))

    def passes(self, group: Sequence[str]) -> bool:
        pairs = {isolation.key(a, b) for a in group for b in group if a != b}
        if self.chance and self.draw.random() < self.chance:
            return False
        return not self.bad & set(group) and not self.bad_links & pairs

    def seconds(self, group: Sequence[str]) -> float:
        slowest = max(self.factors.get(node, 1.0) for node in group)
        links = [self.link_factors.get(isolation.key(a, b), 1.0) for a in group for b in group if a != b]
        # A pair is as quick as the slower of two, and either may be held up.
        held_up = max(self._held_up() for _ in group) if self.shared else 1.0
        return max([slowest, *links]) * max(0.5, self.draw.gauss(1.0, self.noise)) * held_up

    def _held_up(self) -> float:
        return 1.0 + 0.1 * self.draw.paretovariate(1.5) if self.draw.random() < self.shared else 1.0


def ours(fleet: Fleet, *, every_link: bool = False) -> tuple[set[str], set[Pair], int]:
    """Bad nodes and links as our procedure names them, and the rounds it took."""
    round_id = uuid.UUID(int=1)
    case = isolation.IsolationCase(round_id, fleet.names, fleet.references, every_link=every_link)
    rounds = 0
    while pairs := case.next_pairs():
        rounds += 1
        assert len({n for p in pairs for n in p}) == 2 * len(pairs), "a node in two pairs at once"
        case.add(isolation.PairResult(round_id=round_id, pair=p, passed=fleet.passes(p)) for p in pairs)
        assert rounds < 4 * len(fleet.names) + 20
    found = case.outcome()
    return set(found.bad_nodes), set(found.bad_links), rounds


def dlrover(fleet: Fleet) -> set[str]:
    """The nodes that DLRover would call faulty."""
    names = list(fleet.names)
    if len(names) <= 3:
        return set()
    groups = [names[i : i + 2] for i in range(0, len(names) - 1, 2)]
    if len(names) % 2:
        groups[-1].append(names[-1])
    failed, times = _dlrover_round(fleet, groups)
    if not failed:
        return set()
    order = sorted(names, key=lambda n: times[n])
    second = [[order[i], order[-1 - i]] for i in range(len(order) // 2)]
    if len(order) % 2:
        second[-1].append(order[len(order) // 2])
    again, _ = _dlrover_round(fleet, second)
    return failed & again


def _dlrover_round(fleet: Fleet, groups: Sequence[Sequence[str]]) -> tuple[set[str], dict[str, float]]:
    failed, times = set(), {}
    for group in groups:
        passed = fleet.passes(group)
        for node in group:
            times[node] = fleet.seconds([node]) if passed else 3600.0
            if not passed:
                failed.add(node)
    return failed, times


def slow_nodes(fleet: Fleet) -> tuple[set[str], set[Pair]]:
    """Slow nodes and links as ours names them by the network's times."""
    nodes, links = timed(fleet).outcome()
    return set(nodes), set(links)


def timed(fleet: Fleet) -> slowness.Timing:
    """The whole of our procedure on that fleet."""
    timing = slowness.Timing(fleet.names)
    while pairs := timing.next_pairs():
        for pair in pairs:
            timing.add(pair, fleet.seconds(pair))
    return timing


def dlrover_stragglers(fleet: Fleet) -> set[str]:
    """Above twice the median of times that sum compute and network."""
    times = {node: fleet.seconds([node]) for node in fleet.names}
    middle = median(times.values())
    return {node for node, value in times.items() if value > 2 * middle}


def drawn(n: int, k: int, draw: random.Random, *, links: int = 0, references: int = 0) -> Fleet:
    """A fleet of n nodes with k bad ones and some bad links between good ones."""
    names = tuple(f"n{i}" for i in range(n))
    bad = frozenset(draw.sample(names, k))
    good = [name for name in names if name not in bad]
    pairs = [isolation.key(a, b) for i, a in enumerate(good) for b in good[i + 1 :]]
    return Fleet(
        names=names,
        references=tuple(f"r{i}" for i in range(references)),
        bad=bad,
        bad_links=frozenset(draw.sample(pairs, links)),
        draw=random.Random(draw.random()),
    )


def table(cases: int, seed: int = 7) -> Iterator[str]:
    """One row per question: cases exact, of ours and of DLRover's."""
    draw = random.Random(seed)
    yield "| drawn | cases | ours exact | DLRover exact | DLRover: innocents named per case |"
    yield "|---|---|---|---|---|"
    plans: list[tuple[str, int, int, int]] = [
        (f"n = {n}, {k} bad", n, k, references)
        for n, k, references in (
            (1, 1, 1),
            (1, 1, 2),
            (1, 1, 3),
            (2, 1, 2),
            (3, 1, 0),
            (4, 1, 0),
            (4, 2, 0),
            (5, 1, 0),
            (8, 1, 0),
            (8, 2, 0),
            (16, 4, 0),
            (32, 8, 0),
            (64, 1, 0),
            (64, 16, 0),
        )
    ]
    for words, n, k, references in plans:
        yield _row(
            words + (f", {vocabulary.plural(references, 'reference')}" if references else ""),
            cases,
            lambda n=n, k=k, r=references: drawn(n, k, draw, references=r),
        )
    yield _row("n drawn from 2 to 64, one bad node", cases, lambda: _one(draw))
    yield _row("n drawn from 8 to 64, 0 to n/4 bad nodes", cases, lambda: _some(draw))
    exact = sum(_link_exact(draw) for _ in range(cases))
    yield f"| n drawn from 2 to 16, one bad link, every link tested | {cases} | {exact} | cannot | – |"


def _one(draw: random.Random) -> Fleet:
    n = draw.randint(2, 64)
    return drawn(n, 1, draw, references=2 if n < 3 else 0)


def _some(draw: random.Random) -> Fleet:
    n = draw.randint(8, 64)
    return drawn(n, draw.randint(0, n // 4), draw)


def _link_exact(draw: random.Random) -> bool:
    n = draw.randint(2, 16)
    fleet = drawn(n, 0, draw, links=1, references=2 if n < 3 else 0)
    nodes, links, _ = ours(fleet, every_link=True)
    return not nodes and links == set(fleet.bad_links)


def _row(words: str, cases: int, make) -> str:
    exact = theirs = innocents = 0
    for _ in range(cases):
        fleet = make()
        nodes, links, _ = ours(fleet)
        exact += nodes == set(fleet.bad) and not links
        named = dlrover(fleet)
        theirs += named == set(fleet.bad)
        innocents += len(named - fleet.bad)
    return f"| {words} | {cases} | {exact} | {theirs} | {innocents / cases:.2f} |"


def slow_table(fleets: int, seed: int = 11) -> Iterator[str]:
    """Slow nodes found, and healthy fleets accused, at 2 % noise."""
    draw = random.Random(seed)
    yield "| drawn, 2 % noise | fleets | ours | DLRover (2 x median) |"
    yield "|---|---|---|---|"
    for factor in (1.05, 1.1, 1.2, 2.0):
        found = theirs = 0
        for _ in range(fleets):
            fleet = drawn(draw.randint(4, 64), 0, draw)
            fleet.factors = {draw.choice(fleet.names): factor}
            found += slow_nodes(fleet) == (set(fleet.factors), set())
            theirs += dlrover_stragglers(fleet) == set(fleet.factors)
        yield f"| one node {factor:g} x slow: exactly it is named | {fleets} | {found} | {theirs} |"
    healthy = [drawn(draw.randint(4, 64), 0, draw) for _ in range(fleets)]
    accused = sum(slow_nodes(fleet) != (set(), set()) for fleet in healthy)
    theirs = sum(bool(dlrover_stragglers(fleet)) for fleet in healthy)
    yield f"| no node slow: fleets in which one is named | {fleets} | {accused} | {theirs} |"


def noisy_table(fleets: int, seed: int = 13) -> Iterator[str]:
    """The same where neighbours on shared processors hold some times up, by 10 % at least and several times at most."""
    draw = random.Random(seed)
    yield "| times held up by neighbours | fleets | healthy ones accused | 1.2 x slow named | speed not judged for noise |"
    yield "|---|---|---|---|---|"
    for share in (0.02, 0.05, 0.1, 0.2, 0.4, 0.8):
        accused = found = refused = 0
        for _ in range(fleets):
            fleet = drawn(draw.randint(4, 64), 0, draw)
            fleet.shared = share
            accused += slow_nodes(fleet) != (set(), set())
            fleet.factors = {draw.choice(fleet.names): 1.2}
            timing = timed(fleet)
            found += set(timing.outcome()[0]) == set(fleet.factors)
            refused += bool(timing.noise())
        yield f"| {share:.0%} | {fleets} | {accused} | {found} | {refused} |"


NOISES = {
    "0.5 %": (0.005, 0.0),
    "1 %": (0.01, 0.0),
    "2 %": (0.02, 0.0),
    "1 %, one in ten held up": (0.01, 0.1),
}
"""Noise of a figure, and the share of figures that neighbours hold up by 10 % and more."""


def drift_table(histories: int, seed: int = 17) -> Iterator[str]:
    """Steps in a node's daily figure, by how many days there are: found, and alarms where nothing changed."""
    yield "| noise | step | " + " | ".join(f"{days} days" for days in DAYS) + " |"
    yield "|---|---|" + "---|" * len(DAYS)
    for words, (noise, shared) in NOISES.items():
        for step, drawn_often in ((0.0, 10), (0.015, 1), (0.025, 1), (0.04, 1)):
            n = histories * drawn_often
            cells = (_drifts(n, days, step, noise, shared, seed) for days in DAYS)
            yield f"| {words} | {f'{step:.1%}' if step else 'none'} | " + " | ".join(cells) + " |"


DAYS = (14, 20, 28, 40, 60, 90)


def _drifts(histories: int, days: int, step: float, noise: float, shared: float, seed: int) -> str:
    """Share of histories with an alarm, changed half-way; in brackets that within two days of the change."""
    draw, start = random.Random(seed), datetime(2026, 1, 1, tzinfo=UTC)
    alarms = right = 0
    for _ in range(histories):
        fleet = Fleet(names=(), shared=shared, draw=draw, noise=noise)
        series = [
            (start + timedelta(days=n), (1.0 + step * (n >= days // 2)) * fleet.seconds(["n"]))
            for n in range(days)
        ]
        found = baseline.drift(series)
        alarms += found is not None
        right += found is not None and abs((found.at - start).days - days // 2) <= 2
    return f"{alarms / histories:.0%} ({right / histories:.0%})" if step else f"{alarms} of {histories}"


def swap_table(searches: int, seed: int = 19) -> Iterator[str]:
    """Swap search on drawn jobs: how often the node that it names with 95 % is the one."""
    yield "| nodes, spares | noise | jobs | right | wrong | mean probability said | mean replacements |"
    yield "|---|---|---|---|---|---|---|"
    draw = random.Random(seed)
    for n, spares in ((8, 2), (16, 4), (64, 8)):
        for noise in (0.005, 0.01, 0.015):
            ends = [_searched(n, spares, noise, draw) for _ in range(searches)]
            right, sure = sum(e[0] for e in ends), sum(e[1] for e in ends) / searches
            turns = sum(e[2] for e in ends) / searches
            yield f"| {n}, {spares} | {noise:.1%} | {searches} | {right} | {searches - right} | {sure:.1%} | {turns:.1f} |"


def _searched(n: int, spares: int, noise: float, draw: random.Random) -> tuple[bool, float, int]:
    """Whether the answer was right, how likely it called it, and after how many replacements; one in five times it is no node."""
    nodes = {f"n{i}" for i in range(n)}
    guilty = draw.choice(sorted(nodes)) if draw.random() > swap.PRIOR_NOBODY else swap.NOBODY
    fresh = iter(f"s{i}" for i in range(10_000))

    def ran() -> swap.Stretch:
        level = 1.05 if guilty in nodes or guilty == swap.NOBODY else 1.0
        return swap.Stretch(nodes=frozenset(nodes), step_s=level * draw.gauss(1, noise))

    stretches, turn = [ran()], 0
    plan = swap.plan(stretches, spares, 1.0, 1.05, noise_s=noise)
    while not plan.settled and turn < 200:
        turn += 1
        cleared = sorted(m for m in nodes if plan.probabilities.get(m, 0.0) < 0.001)
        nodes = (nodes - set(plan.replace)) | {next(fresh) for _ in plan.replace}
        nodes = (nodes - set(cleared[: len(plan.put_back)])) | set(plan.put_back)
        stretches.append(ran())
        plan = swap.plan(stretches, spares, 1.0, 1.05, noise_s=noise)
    name, likely = plan.suspect
    return name == guilty, likely, turn


def main() -> None:
    """Prints the tables."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--cases", type=int, default=1000)
    parser.add_argument("--fleets", type=int, default=300)
    options = parser.parse_args()
    for row in (
        *table(options.cases),
        "",
        *slow_table(options.fleets),
        "",
        *noisy_table(options.fleets),
        "",
        *drift_table(options.fleets),
        "",
        *swap_table(options.fleets),
    ):
        print(row)


if __name__ == "__main__":
    main()
