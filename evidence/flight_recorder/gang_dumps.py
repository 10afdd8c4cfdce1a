"""All dumps of one job: members of groups, progress of ranks, and which ranks wait for which."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet

from probing_cluster.core.record import doc, record
from probing_cluster.evidence.flight_recorder.model import Entry, RankDump

Place = tuple[str, int]
"""A collective: its group and its number there."""


@record
class GangDumps:
    """All dumps with the membership of every group, by rank and by group."""

    dumps: Mapping[int, RankDump] = doc("rank to dump")
    members: Mapping[str, frozenset[int]] = doc("group to global ranks")
    p2p: frozenset[str] = doc("groups with point-to-point operations")
    descriptions: Mapping[str, str] = doc("group to description")
    expected: frozenset[int] = doc("ranks that should have a dump")

    def enqueued(self, rank: int, group: str) -> int:
        """The last collective this rank issued in `group`; 0 for none, -1 when its dump cannot tell."""
        dump = self.dumps[rank]
        recorded = [e.seq for e in dump.entries if e.group == group and not e.is_p2p]
        status = dump.status.get(group)
        best = max([*recorded, status.enqueued if status else -1])
        # A dump that lists the group with -1 has issued nothing there; a dump without the group may have been cut.
        is_whole = status is not None or dump.entries or not dump.status
        return best if best >= 0 else 0 if is_whole else -1

    def is_gloo(self, group: str) -> bool:
        """Whether `group` uses Gloo."""
        return any(e.backend == "gloo" for d in self.dumps.values() for e in d.entries if e.group == group)

    def last(self, rank: int) -> Entry | None:
        """The rank's latest collective."""
        entries = [e for e in self.dumps[rank].entries if not e.is_p2p]
        return max(entries, key=lambda e: (e.created_ns, e.seq), default=None)

    def outstanding(self, rank: int) -> list[Entry]:
        """Operations for which the rank still waits."""
        return [e for e in self.dumps[rank].entries if e.outstanding]


def _observed(dumps: Iterable[RankDump]) -> dict[str, set[int]]:
    """Group to the ranks that recorded in it."""
    ranks_of: dict[str, set[int]] = {}
    for dump in dumps:
        for entry in dump.entries:
            ranks_of.setdefault(entry.group, set()).add(dump.rank)
    return ranks_of


def gather(
    dumps: Mapping[int, RankDump], members: Mapping[str, Iterable[int]], world_size: int | None
) -> GangDumps:
    """All dumps with members of groups: the caller's, else the dumps' own, else the ranks that recorded in the group (all for the first)."""
    found: dict[str, frozenset[int]] = {}
    for dump in dumps.values():
        for name, ranks in dump.members.items():
            found[name] = found.get(name, frozenset()) | ranks
    everyone = frozenset(dumps) | frozenset(range(min(world_size or 0, 1 << 20)))
    for ranks in found.values():
        everyone |= ranks
    descriptions = {n: d for dump in dumps.values() for n, d in dump.descriptions.items()}
    for name, observed in _observed(dumps.values()).items():
        whole = name == "0" or descriptions.get(name) == "default_pg"
        found.setdefault(name, everyone if whole else frozenset(observed))
    found.update({name: frozenset(ranks) for name, ranks in members.items()})
    if any(e.backend == "gloo" for d in dumps.values() for e in d.entries[-1:]):
        # Gloo names no members, but ranks leave no gaps: from 0 where most dumps are at hand, else (one node's dumps) from the first.
        first = 0 if min(dumps) < len(dumps) else min(dumps)
        everyone |= frozenset(range(first, max(dumps)))
    for ranks in found.values():
        everyone |= ranks
    p2p = frozenset(e.group for d in dumps.values() for e in d.entries if e.is_p2p)
    return GangDumps(dumps=dumps, members=found, p2p=p2p, descriptions=descriptions, expected=everyone)


def present(gang: GangDumps, group: str) -> list[int]:
    """Ranks of a group that left a dump, ascending."""
    return sorted(r for r in gang.members[group] if r in gang.dumps)


def unposted(gang: GangDumps) -> dict[int, list[Entry]]:
    """Ranks that wait for nothing and did not post their half of a send or receive, each with the entries of ranks that wait for it.

    Both ends name each other, so their counts compare where the group's do not.
    """
    found: dict[int, list[Entry]] = {}
    for rank in gang.dumps:
        for entry in gang.outstanding(rank):
            pair = _PAIR.fullmatch(entry.op) if entry.is_p2p else None
            peer = _global(gang, entry.group, int(pair["peer"])) if pair else None
            if pair is None or peer is None or peer not in gang.dumps or gang.outstanding(peer):
                continue
            back, arrow = ("recv", "<-") if pair["verb"] == "send" else ("send", "->")
            half = f"{back} {pair['peer']}{arrow}{pair['own']}"
            if _count(gang, peer, entry.group, half) < _count(gang, rank, entry.group, entry.op):
                found.setdefault(peer, []).append(entry)
    return found


_PAIR = re.compile(r"(?P<verb>send|recv) (?P<own>\d{1,7})(?:->|<-)(?P<peer>\d{1,7})")


def _count(gang: GangDumps, rank: int, group: str, op: str) -> int:
    return sum(e.group == group and e.op == op for e in gang.dumps[rank].entries)


def _global(gang: GangDumps, group: str, number: int) -> int | None:
    """The global rank of the group's rank `number`."""
    ranks = sorted(gang.members.get(group, ()))
    return ranks[number] if number < len(ranks) else None


def waits_for_others(gang: GangDumps, rank: int) -> bool:
    """Whether the rank's own last collective lacks a peer, so that it is held up itself.

    Retired work is no evidence (Gloo retires collectives that timed out), so the peers' counts decide.
    """
    waiting = [e for e in gang.outstanding(rank) if not e.is_p2p]
    if waiting:
        return True
    if any(e.outstanding for e in gang.dumps[rank].entries):
        return True
    last = gang.last(rank)
    if last is None or last.group in gang.p2p or last.group not in gang.members:
        return False
    peers = [r for r in present(gang, last.group) if r != rank]
    return any(0 <= gang.enqueued(r, last.group) < last.seq for r in peers)


def met_nobody(gang: GangDumps, rank: int) -> bool:
    """Whether the rank's last collective is in a group of Gloo's that no other rank recorded in: it may have waited there in vain.

    Gloo names no members, so a peer that never came is not known to belong to the group.
    """
    last = gang.last(rank)
    return last is not None and gang.is_gloo(last.group) and gang.members[last.group] == {rank}


def behind(gang: GangDumps) -> dict[int, tuple[str, int]]:
    """Ranks that issued less than a peer in some group, with the group and the number they did not issue."""
    found: dict[int, tuple[str, int]] = {}
    for group in sorted(gang.members, key=lambda g: (g != "0", g)):
        if group in gang.p2p:
            continue
        counts = {r: n for r in present(gang, group) if (n := gang.enqueued(r, group)) >= 0}
        top = max(counts.values(), default=0)
        for rank, count in counts.items():
            if count < top:
                found.setdefault(rank, (group, count + 1))
    return found


def _timed(gang: GangDumps, rank: int) -> bool:
    """Whether the rank's dump records when its device began an operation."""
    dump = gang.dumps[rank]
    return any(e.state == "started" for e in dump.entries)


def came(gang: GangDumps, rank: int, group: str) -> int:
    """The last collective of `group` that this rank has joined: its device began it where that is recorded, else its host issued it.

    0 for none, -1 when its dump cannot tell.
    """
    if not _timed(gang, rank):
        return gang.enqueued(rank, group)
    begun = [
        e.seq
        for e in gang.dumps[rank].entries
        if e.group == group and not e.is_p2p and e.state != "scheduled"
    ]
    status = gang.dumps[rank].status.get(group)
    return max([0, *begun, status.started if status else 0])


def place_of(gang: GangDumps, rank: int) -> Place | None:
    """The collective in which the rank waits; None where it waits for none, or point to point, where counts say nothing."""
    timed = _timed(gang, rank)
    waiting = [e for e in gang.outstanding(rank) if e.state == "started" or not timed]
    first = min(waiting, key=lambda e: (e.created_ns, e.seq), default=None)
    last = gang.last(rank)
    if first is None and not gang.outstanding(rank) and last is not None and gang.is_gloo(last.group):
        first = last if waits_for_others(gang, rank) else None
    if first is None or first.is_p2p or first.group in gang.p2p or first.group not in gang.members:
        return None
    return first.group, first.seq


def circle_of(start: Place, waits_for: Mapping[Place, AbstractSet[Place]]) -> frozenset[Place] | None:
    """The places that wait for `start` and that it waits for, itself among them; None where it waits in no circle."""
    forth = _reached(start, waits_for)
    if start not in forth:
        return None
    return frozenset(p for p in forth if start in _reached(p, waits_for))


def _reached(start: Place, waits_for: Mapping[Place, AbstractSet[Place]]) -> set[Place]:
    found, todo = set[Place](), [start]
    while todo:
        for place in waits_for.get(todo.pop(), ()):
            if place not in found:
                found.add(place)
                todo.append(place)
    return found
