"""Whether the place that nodes share is found: drawn faults of a place and of nothing.

    python -m benchmarks.attribution.places [--draws 1000] [--seed 1]

`named` also counts draws where the true place is named with others that have the same failed nodes.
"""

from __future__ import annotations

import argparse
import random
import time

from probing_cluster.attribution.places import layout, scan

KINDS = ("leaf", "rack", "pdu", "spine", "storage")
_STORES = 4


def draw_layout(rng: random.Random) -> layout.NodeLayout:
    """A cluster of 64 to 2,000 nodes; racks, feeds and leaves overlap, file servers lie anywhere."""
    n, leaf, rack = rng.choice((64, 256, 512, 2000)), rng.choice((8, 16, 18, 32)), rng.choice((4, 8))
    pdu, row = rng.choice((6, 12)), rng.choice((64, 128))
    pairs = []
    for i in range(n):
        node = f"n{i}"
        pairs += [
            (node, ("leaf", f"leaf{i // leaf}")),
            (node, ("rack", f"r{i // rack}")),
            (node, ("row", f"row{i // row}")),
        ]
        pairs += [(node, ("pdu", f"pdu{(i + 3) // pdu}")), (node, ("spine", f"s{i // (leaf * 8)}"))]
        pairs.append((node, ("storage", f"fs{rng.randrange(_STORES)}")))
    return layout.NodeLayout(pairs)


def draw_fault(
    rng: random.Random, where: layout.NodeLayout, kind: str
) -> tuple[set[str], layout.Place | None]:
    """Failed nodes and the place at fault; None for nothing."""
    nodes = sorted(where.of_node)
    noise = set(rng.sample(nodes, rng.choice((0, 0, 1, 2))))
    if kind == "nothing":
        return set(rng.sample(nodes, rng.choice((3, 4, 6, 10, 20)))), None
    places = [p for p, m in where.members.items() if p[0] == kind and 4 <= len(m) < len(where.placed[kind])]
    if not places:
        return set(), None
    place = rng.choice(places)
    members = sorted(where.members[place])
    hit = rng.sample(members, max(scan.LEAST, round(rng.uniform(0.5, 1) * len(members))))
    return {*hit, *noise}, place


def run(kind: str, draws: int, seed: int) -> tuple[int, int, int, int]:
    """How many were right alone, right among places named together, wrong, and not named."""
    rng = random.Random(f"{seed} {kind}")
    right = together = wrong = unnamed = 0
    while right + together + wrong + unnamed < draws:
        where = draw_layout(rng)
        failed, true = draw_fault(rng, where, kind)
        if not failed:
            continue
        found = scan.shared(failed, where)
        if found is None:
            unnamed += 1
        elif (found.kind, found.name) == true:
            right += 1
        elif true in found.others:
            together += 1
        else:
            wrong += 1
    return right, together, wrong, unnamed


def main() -> None:
    """Prints a line per kind of place."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--draws", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    print(f"{'fault of':<10} {'right':>6} {'named':>6} {'wrong':>6} {'none':>6} {'ms each':>8}")
    for kind in (*KINDS, "nothing"):
        began = time.process_time()
        right, together, wrong, unnamed = run(kind, args.draws, args.seed)
        each = (time.process_time() - began) / args.draws * 1e3
        print(f"{kind:<10} {right:>6} {right + together:>6} {wrong:>6} {unnamed:>6} {each:>8.1f}")


if __name__ == "__main__":
    main()
