"""Aligns ranks by (group, sequence): missing ranks, mismatched calls, and who waits for whom."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from probing_cluster.attribution.gang import views

MOST_RANKS = 2**18
"""Largest credible gang: a larger number comes from a forged page, and would exhaust the memory."""


@dataclass(frozen=True, kw_only=True)
class OpenCollective:
    """One collective that a rank is inside of and that no rank has finished."""

    group: str
    seq: int
    op: str
    present: tuple[int, ...]
    missing: tuple[int, ...]
    mismatched: tuple[int, ...]
    """Ranks whose call at this sequence differs from the majority's (operation, elements or type)."""
    members_known: bool
    """True if the snapshots show every member of the group."""


def meetings(ranks: Sequence[views.RankView], world_size: int | None) -> list[OpenCollective]:
    """The open collective of each group with the lowest sequence number."""
    found = []
    for group in sorted({c.group for r in ranks for c in r.calls if not c.is_p2p}):
        one = meeting(group, ranks, world_size)
        if one is not None:
            found.append(one)
    return found


def meeting(group: str, ranks: Sequence[views.RankView], world_size: int | None) -> OpenCollective | None:
    """The open collective of one group with the lowest sequence number; None if no rank is inside one."""
    calls = {r.rank: {c.seq: c for c in r.calls if c.group == group and not c.is_p2p} for r in ranks}
    # Forged pages may hold a rank or a sequence number twice.
    stuck = [c for r in ranks if (c := r.inside(group)) is not None and c is calls[r.rank].get(c.seq)]
    if not stuck:
        return None
    seq = min(c.seq for c in stuck)
    members, known = _members(ranks, calls, world_size)
    at = {rank: calls[rank][seq] for rank in members if seq in calls.get(rank, {})}
    # A ring holds the last 64 calls: a rank with higher numbers only has passed this one.
    beyond = {rank for rank in members if rank not in at and max(calls.get(rank) or (0,)) > seq}
    majority = Counter(c.what for c in at.values()).most_common(1)[0][0]
    mismatched = tuple(sorted(rank for rank, c in at.items() if c.what != majority))
    return OpenCollective(
        group=group,
        seq=seq,
        op=majority[0],
        present=tuple(sorted(at)),
        missing=tuple(sorted(set(members) - set(at) - beyond)),
        mismatched=mismatched if not _tie(at.values()) else tuple(sorted(at)),
        members_known=known,
    )


def _tie(calls: object) -> bool:
    counted = Counter(c.what for c in calls).most_common(2)  # type: ignore[attr-defined]
    return len(counted) == 2 and counted[0][1] == counted[1][1]


def _members(
    ranks: Sequence[views.RankView],
    calls: Mapping[int, Mapping[int, views.Call]],
    world_size: int | None,
) -> tuple[set[int], bool]:
    """The ranks of a group, and True if they are all known: every rank if it is as large as the world, else those seen calling."""
    size = max((c.group_size for by_seq in calls.values() for c in by_seq.values()), default=0)
    calling = {rank for rank, by_seq in calls.items() if by_seq}
    everyone = {r.rank for r in ranks}
    if world_size is not None and size == world_size <= MOST_RANKS:
        return everyone | set(range(world_size)), True
    if size and len(calling) == size:
        return calling, True
    if size and size == len(everyone):
        return everyone, True
    return calling, False


def roots(
    ranks: Sequence[views.RankView], meeting_list: Sequence[OpenCollective]
) -> tuple[set[int], set[int]]:
    """(ranks that all others finally wait for, ranks that wait for each other in a cycle).

    A missing rank that waits in another collective is no root: the chain is followed to a rank that waits for none.
    A chain that returns to itself is a deadlock.
    """
    calls = {(m.group, m.seq): (frozenset(m.present), m.missing) for m in meeting_list}
    view = {r.rank: r for r in ranks}

    def following(rank: int) -> tuple[int, ...]:
        here = view.get(rank)
        inside = here.inside() if here is not None and here.alive else None
        if inside is None or inside.is_p2p:
            return ()
        present, missing = calls.get((inside.group, inside.seq), (frozenset[int](), ()))
        return missing if rank in present else ()

    ends: set[int] = set()
    cycle: set[int] = set()
    done: set[int] = set()
    for start in {m for meeting in meeting_list for m in meeting.missing}:
        _follow(start, [], following, ends, cycle, done)
    return ends, cycle


def _follow(
    rank: int,
    path: list[int],
    following: Callable[[int], tuple[int, ...]],
    ends: set[int],
    cycle: set[int],
    done: set[int],
) -> None:
    if rank in path:
        cycle.update(path[path.index(rank) :])
        return
    if rank in done:  # its chains and cycles are known
        return
    awaited = following(rank)
    if not awaited:
        ends.add(rank)
    for nxt in awaited:
        _follow(nxt, [*path, rank], following, ends, cycle, done)
    done.add(rank)
