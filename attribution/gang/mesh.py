"""The mesh of a gang's process groups: its axes, named by torch or else guessed from the groups' ranks.

A rank's place is a mixed-radix number: on an axis of stride s and size n it is `rank // s % n`. Groups without this
pattern are no axis. A guessed name ends in `?`.
"""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from probing_cluster.attribution.gang import align, views

MOST_AXES = 5


@dataclass(frozen=True, kw_only=True)
class MeshAxis:
    """Process groups of one kind."""

    name: str
    """TP, PP, DP, … as DeviceMesh or Megatron names the groups; with `?` if guessed from the ranks."""
    size: int
    stride: int
    named: bool
    n_groups: int
    """Groups that were seen; 0 for an axis that was filled in."""


@dataclass(frozen=True, kw_only=True)
class Wait:
    """One collective in which ranks wait for others."""

    axis: str
    group: str
    op: str
    seq: int
    waiting: tuple[int, ...]
    awaited: tuple[int, ...]
    """Empty if all members are inside, or if not all members are known."""
    complete: bool
    """True if every member of the group is known."""


@dataclass(frozen=True, kw_only=True)
class Mesh:
    """A gang's axes, innermost first, each rank's state, and who waits for whom."""

    world_size: int
    axes: tuple[MeshAxis, ...]
    states: Mapping[int, str]
    """State of each known rank: dead, awaited, waiting or runs."""
    waits: tuple[Wait, ...]
    roots: tuple[int, ...]
    """Ranks that all others finally wait for."""
    cycle: tuple[int, ...]
    """Ranks that wait for each other in a cycle."""

    def place(self, rank: int) -> tuple[int, ...]:
        """The rank's coordinate on every axis."""
        return tuple(rank // a.stride % a.size for a in self.axes)


def of(ranks: Sequence[views.RankView], world_size: int | None) -> Mesh:
    """The mesh of ranks, from their last calls."""
    world = world_size or max((r.rank for r in ranks), default=-1) + 1
    world = min(world, align.MOST_RANKS)
    callers: dict[str, list[views.RankView]] = defaultdict(list)
    for view in ranks:
        for group in {c.group for c in view.calls}:
            callers[group].append(view)
    axis_of, axes = _axes(callers, world)
    found = [
        one
        for group in sorted(callers)
        if (one := align.meeting(group, _concerned(group, callers[group], ranks, world), world))
    ]
    roots, cycle = align.roots(ranks, found)
    waits = [
        Wait(
            axis=axis_of.get(m.group, ""), group=m.group, op=m.op, seq=m.seq, waiting=m.present, awaited=m.missing,
            complete=m.members_known,
        )
        for m in found
    ]  # fmt: skip
    return Mesh(
        world_size=world,
        axes=axes,
        states=_states(ranks, found),
        waits=tuple(sorted(waits, key=lambda w: (not w.awaited, -len(w.awaited), w.group))),
        roots=tuple(sorted(roots)),
        cycle=tuple(sorted(cycle)),
    )


def _concerned(
    group: str, calling: Sequence[views.RankView], ranks: Sequence[views.RankView], world: int
) -> Sequence[views.RankView]:
    """All ranks for a group as large as the world, else its callers: with thousands of small groups this saves most work."""
    size = max((c.group_size for r in calling for c in r.calls if c.group == group), default=0)
    return ranks if size == world else calling


def _states(ranks: Sequence[views.RankView], found: Sequence[align.OpenCollective]) -> dict[int, str]:
    awaited = {r for m in found for r in m.missing}
    waiting = {r for m in found for r in m.present}
    states = dict.fromkeys(awaited, "awaited")
    for view in ranks:
        states[view.rank] = (
            "dead" if not view.alive else "awaited" if view.rank in awaited and view.rank not in waiting
            else "waiting" if view.rank in waiting else "runs"
        )  # fmt: skip
    return states


def _axes(
    callers: Mapping[str, Sequence[views.RankView]], world: int
) -> tuple[dict[str, str], tuple[MeshAxis, ...]]:
    """Group to its axis, and the axes; a group of the whole world has none."""
    kinds: dict[tuple[int, int], list[str]] = defaultdict(list)
    names: dict[tuple[int, int], Counter[str]] = defaultdict(Counter)
    p2p: set[tuple[int, int]] = set()
    for group, members in callers.items():
        pattern = _pattern(group, members)
        if pattern is None or pattern[1] >= world:
            continue
        kinds[pattern].append(group)
        names[pattern] += Counter(c.role for r in members for c in r.calls if c.group == group)
        if any(c.is_p2p for r in members for c in r.calls if c.group == group):
            p2p.add(pattern)
    chosen = _fitting(sorted(kinds), world)
    axes = []
    for at, (stride, size) in enumerate(chosen):
        known = kinds.get((stride, size), [])
        word = names[stride, size].most_common(1)[0][0].upper() if known else ""
        guess = _guess(at, len(chosen), (stride, size) in p2p, known)
        axes.append(
            MeshAxis(name=word or guess, size=size, stride=stride, named=bool(word), n_groups=len(known))
        )
    axis_of = {g: a.name for a in axes for g in kinds.get((a.stride, a.size), ())}
    return axis_of, tuple(axes)


def _pattern(group: str, members: Sequence[views.RankView]) -> tuple[int, int] | None:
    """(stride, size) of a group with equally spaced ranks; None for any other."""
    ranks = sorted({r.rank for r in members})
    size = max((c.group_size for r in members for c in r.calls if c.group == group), default=0)
    if len(ranks) < 2 or size != len(ranks):
        return None
    stride = ranks[1] - ranks[0]
    even = all(b - a == stride for a, b in itertools.pairwise(ranks))
    return (stride, size) if even else None


def _fitting(patterns: Sequence[tuple[int, int]], world: int) -> list[tuple[int, int]]:
    """Axes that together number every rank, innermost first; unseen ones between or above are filled in."""
    found: list[tuple[int, int]] = []
    stride = 1
    for at, size in patterns:
        if at < stride or at % stride or world % (at * size) or len(found) >= MOST_AXES:
            continue  # it overlaps an axis chosen before
        if at > stride:
            found.append((stride, at // stride))
        found.append((at, size))
        stride = at * size
    if found and stride < world:
        found.append((stride, world // stride))
    return found


def _guess(at: int, n_axes: int, p2p: bool, groups: Sequence[str]) -> str:
    """A name by the usual order of tensor, data and pipeline groups; ends in `?`."""
    if p2p:
        return "PP?"
    if at == 0 and n_axes > 1:
        return "TP?"
    return "DP?" if groups or n_axes == 2 else "rest"
