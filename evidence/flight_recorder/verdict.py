"""The verdict across ranks: a missing rank, a mismatch, a GPU that stands still, or none.

The order of the questions matters. A mismatch explains everything after it. Gloo retires what timed out and counts it as
completed, so of Gloo only the host's side is read: a rank whose process is gone explains every other one that waits. A rank that issued less than
its peers and waits for nothing itself is why they wait. When every rank waits, the one whose device
finished least, or never started what its peers started, is suspect; where they wait for each other in different groups, they came in
different order. Only then the fabric. Sequence numbers are compared within one group only, and
groups that send point to point are never compared by count: pipeline stages differ legitimately. A send and its
receive are compared: a rank that posted no half of it and waits for nothing is why the other one waits.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from probing_cluster.evidence.flight_recorder import gang_dumps, mismatch
from probing_cluster.evidence.flight_recorder.flight_verdict import HARDWARE, SOFTWARE, USER, FlightVerdict
from probing_cluster.evidence.flight_recorder.model import Entry, RankDump


def _missing(gang: gang_dumps.GangDumps) -> FlightVerdict | None:
    """Ranks that did not issue what their peers wait for, and wait for nothing themselves."""
    behind = gang_dumps.behind(gang)
    at_fault = sorted(r for r in behind if not gang_dumps.waits_for_others(gang, r))
    at_fault = [r for r in at_fault if not gang_dumps.met_nobody(gang, r)] or at_fault
    if not at_fault:
        return None
    group, seq = behind[at_fault[0]]
    peer = next(
        (
            e
            for d in gang.dumps.values()
            for e in d.entries
            if e.group == group and e.seq == seq and not e.is_p2p
        ),
        None,
    )
    last = gang.last(at_fault[0])
    waiting = tuple(sorted(r for r in gang_dumps.present(gang, group) if r not in at_fault))
    op = peer.op if peer else None
    names = ", ".join(map(str, at_fault))
    return FlightVerdict(
        kind="missing_rank",
        ranks=tuple(at_fault),
        domains=(USER, SOFTWARE, HARDWARE),
        group=group,
        seq=seq,
        op=op,
        timeout_ms=peer.timeout_ms if peer else None,
        waiting=waiting,
        doing=last.frames if last else (),
        meaning=f"Rank {names} did not issue {op or 'the collective'} number {seq} of group {group} and waits for nothing: its host side is stuck, slow or gone.",
    )


def _late(gang: gang_dumps.GangDumps) -> FlightVerdict | None:
    """Ranks of a Gloo group that came to a collective only after its timeout, by each rank's own clock.

    All work is retired by then, and every rank has issued the same; only the times show which rank was late.
    """
    for group in sorted(g for g in gang.members if gang.is_gloo(g)):
        gaps: dict[int, dict[int, tuple[int, Entry]]] = {}
        for rank in gang_dumps.present(gang, group):
            before = None
            for entry in gang.dumps[rank].entries:
                if entry.group != group or entry.is_p2p or not entry.created_ns:
                    continue
                if before is not None and entry.seq == before.seq + 1:
                    gaps.setdefault(entry.seq, {})[rank] = (entry.created_ns - before.created_ns, entry)
                before = entry
        for seq in sorted(gaps):
            late = {
                r: e for r, (gap, e) in gaps[seq].items() if e.timeout_ms and gap >= e.timeout_ms * 1_000_000
            }
            if late and len(late) < len(gaps[seq]):
                return _came_late(group, seq, late, tuple(sorted(set(gaps[seq]) - set(late))))
    return None


def _came_late(group: str, seq: int, late: Mapping[int, Entry], waiting: tuple[int, ...]) -> FlightVerdict:
    ranks = tuple(sorted(late))
    first = late[ranks[0]]
    return FlightVerdict(
        kind="missing_rank",
        ranks=ranks,
        domains=(USER, SOFTWARE, HARDWARE),
        group=group,
        seq=seq,
        op=first.op,
        timeout_ms=first.timeout_ms,
        waiting=waiting,
        doing=first.frames,
        meaning=f"Rank {', '.join(map(str, ranks))} issued {first.op} number {seq} of group {group} only after its timeout: its host side was stuck or slow.",
    )


def _crossed(gang: gang_dumps.GangDumps) -> FlightVerdict | None:
    """Ranks that wait for each other in a circle: they went through the groups in different order.

    Each waits in one collective of a group for ranks that wait elsewhere. The minority is at fault, or all without a majority.
    Ranks that only wait for a member of the circle are not in it.
    """
    places: dict[gang_dumps.Place, set[int]] = {}
    for rank in gang.dumps:
        if (place := gang_dumps.place_of(gang, rank)) is not None:
            places.setdefault(place, set()).add(rank)
    if len(places) < 2:
        return None
    waits_for = {
        (group, seq): {
            other
            for other, there in places.items()
            if other != (group, seq)
            and any(r in gang.members[group] and 0 <= gang_dumps.came(gang, r, group) < seq for r in there)
        }
        for group, seq in places
    }
    circle = next((c for p in sorted(places) if (c := gang_dumps.circle_of(p, waits_for))), None)
    if circle is None:
        return None
    (common, most), *rest = sorted(
        ((p, len(places[p])) for p in circle), key=lambda found: (-found[1], found[0])
    )
    tie = rest[0][1] == most
    odd = tuple(sorted(r for p in circle if tie or p != common for r in places[p]))
    group, seq = next(p for p in sorted(circle) if odd[0] in places[p])
    entry = next((e for e in gang.dumps[odd[0]].entries if e.group == group and e.seq == seq), None)
    names = ", ".join(map(str, odd))
    return FlightVerdict(
        kind="mismatch_op",
        ranks=odd,
        domains=(USER,),
        group=group,
        seq=seq,
        op=entry.op if entry else None,
        timeout_ms=entry.timeout_ms if entry else None,
        waiting=tuple(sorted(set(gang.dumps) - set(odd))),
        doing=entry.frames if entry else (),
        meaning=f"Ranks wait for each other in different groups: rank {names} came to number {seq} of group {group} first, others to number {common[1]} of group {common[0]}; the groups are called in different order.",
    )


def _not_started(gang: gang_dumps.GangDumps) -> FlightVerdict | None:
    """Ranks that issued a collective that their peers' devices have started, while their own device started none of its pending work."""
    for group in sorted(gang.members):
        if group in gang.p2p or gang.is_gloo(group):
            continue
        here = gang_dumps.present(gang, group)
        first = {
            r: next((e for e in gang.outstanding(r) if e.group == group and not e.is_p2p), None) for r in here
        }
        begun = {e.seq for e in first.values() if e is not None and e.state == "started"}
        low = {
            r: e
            for r, e in first.items()
            if e is not None
            and e.seq in begun
            and all(o.state == "scheduled" and not o.is_p2p for o in gang.outstanding(r))
        }
        if low:
            return _device_stuck(gang, tuple(sorted(low)), group, min(e.seq for e in low.values()), "start")
    return None


def _stuck(gang: gang_dumps.GangDumps) -> FlightVerdict | None:
    """Among ranks that all issued the work, those whose device finished least; point-to-point groups left out."""
    least: dict[int, tuple[str, int]] = {}
    for group in sorted(gang.members):
        if group in gang.p2p or gang.is_gloo(group):
            continue
        done = {
            r: s.completed
            for r in gang_dumps.present(gang, group)
            if (s := gang.dumps[r].status.get(group)) and s.completed >= 0
        }
        if len(done) < 2 or len(set(done.values())) < 2:
            continue
        low = min(done.values())
        for rank, count in done.items():
            if count == low and gang.outstanding(rank):
                least.setdefault(rank, (group, count + 1))
    if not least:
        return None
    ranks = tuple(sorted(least))
    group, seq = least[ranks[0]]
    return _device_stuck(gang, ranks, group, seq, "finish")


def _device_stuck(
    gang: gang_dumps.GangDumps, ranks: tuple[int, ...], group: str, seq: int, verb: str
) -> FlightVerdict:
    entry = next((e for e in gang.dumps[ranks[0]].entries if e.group == group and e.seq == seq), None)
    return FlightVerdict(
        kind="device_stuck",
        ranks=ranks,
        domains=(HARDWARE, SOFTWARE),
        group=group,
        seq=seq,
        op=entry.op if entry else None,
        timeout_ms=entry.timeout_ms if entry else None,
        waiting=tuple(sorted(set(gang.dumps) - set(ranks))),
        doing=entry.frames if entry else (),
        meaning=f"All ranks issued their work, but on rank {', '.join(map(str, ranks))} number {seq} of group {group} did not {verb} that its peers {verb}ed: the GPU or its links stand still.",
    )


def _timed_out(gang: gang_dumps.GangDumps, entry: Entry) -> bool:
    """Whether a Gloo collective that this rank still waits for has ended on another one, as a timeout ends it."""
    ended = (
        e
        for d in gang.dumps.values()
        for e in d.entries
        if (e.group, e.seq, e.is_p2p) == (entry.group, entry.seq, False) and e.retired
    )
    return entry.backend == "gloo" and any(ended)


def _inside(gang: gang_dumps.GangDumps) -> FlightVerdict | None:
    """All ranks entered and none came out: the network, or the ranks of one group that the others wait for.

    Names the earliest collective to which every member came: one that lacks a member only waits for a place further on.
    """
    stuck = [e for r in gang.dumps for e in gang.outstanding(r) if not e.is_p2p and not _timed_out(gang, e)]
    whole = [e for e in stuck if _is_whole(gang, e)]
    stuck = whole or stuck or [e for r in gang.dumps for e in gang.outstanding(r) if e.is_p2p]
    if not stuck:
        return None
    first = min(stuck, key=lambda e: (e.created_ns or 1 << 62, e.group, e.seq))
    waiting = tuple(sorted(r for r in gang.dumps if gang.outstanding(r)))
    inner = _waited_for(gang, whole)
    ranks = gang_dumps.present(gang, first.group) if whole else []
    entered = "Every rank that left a dump"
    if whole and len(ranks) < len(gang.dumps):
        entered = f"Every rank of the group ({', '.join(map(str, ranks[:16]))}{', …' if ranks[16:] else ''})"
    rest = ", and the others wait for them" if inner else ""
    return FlightVerdict(
        kind="all_inside",
        ranks=inner,
        domains=(HARDWARE, SOFTWARE),
        group=first.group,
        seq=first.seq,
        op=first.op,
        timeout_ms=first.timeout_ms,
        waiting=tuple(r for r in waiting if r not in inner),
        meaning=f"{entered} entered {first.op} number {first.seq} of group {first.group} and none came out{rest}: look at the network between them.",
    )


def _is_whole(gang: gang_dumps.GangDumps, entry: Entry) -> bool:
    """Whether every member of the group that left a dump came to this collective."""
    here = gang_dumps.present(gang, entry.group) if entry.group in gang.members else []
    return bool(here) and all(gang_dumps.came(gang, r, entry.group) >= entry.seq for r in here)


def _waited_for(gang: gang_dumps.GangDumps, whole: Iterable[Entry]) -> tuple[int, ...]:
    """The ranks inside the only group that is complete in a collective, where every other rank waits in one that lacks some of them."""
    groups = {e.group for e in whole}
    if len(groups) != 1:
        return ()
    inner = gang_dumps.present(gang, *groups)
    others = [r for r in gang.dumps if r not in inner]
    for rank in others:
        place = gang_dumps.place_of(gang, rank)
        if place is None or not any(
            r in gang.members[place[0]] and 0 <= gang_dumps.came(gang, r, place[0]) < place[1] for r in inner
        ):
            return ()
    return tuple(inner) if others else ()


def _unposted(gang: gang_dumps.GangDumps) -> FlightVerdict | None:
    """The ranks that others wait for in a send or receive, and that neither posted their half of it nor wait themselves."""
    found = gang_dumps.unposted(gang)
    if not found:
        return None
    ranks = tuple(sorted(found))
    first = min((e for r in ranks for e in found[r]), key=lambda e: (e.created_ns or 1 << 62, e.seq))
    entries = gang.dumps[ranks[0]].entries
    names = ", ".join(map(str, ranks))
    return FlightVerdict(
        kind="missing_rank",
        ranks=ranks,
        domains=(USER, SOFTWARE, HARDWARE),
        group=first.group,
        seq=first.seq,
        op=first.op,
        timeout_ms=first.timeout_ms,
        waiting=tuple(sorted(r for r in gang.dumps if gang.outstanding(r))),
        doing=entries[-1].frames if entries else (),
        meaning=f"Rank {names} waits for nothing and did not post its half of {first.op} in group {first.group}, in which another rank waits: its host side is stuck, slow or gone.",
    )


def _idle(gang: gang_dumps.GangDumps) -> FlightVerdict | None:
    """Of a group that sends point to point, the few ranks that wait for nothing while all the others wait.

    Counts of issued work cannot be compared there, but a rank that waits for nothing is not held up by the others.
    """
    for group in sorted(g for g in gang.p2p if not gang.is_gloo(g)):
        here = gang_dumps.present(gang, group)
        waiting = tuple(sorted(r for r in here if gang.outstanding(r)))
        idle = tuple(sorted(set(here) - set(waiting)))
        if not idle or len(idle) >= len(waiting):
            continue
        held_up = [e for r in waiting for e in gang.outstanding(r) if e.group == group]
        if not held_up:
            continue
        first = min(held_up, key=lambda e: (e.created_ns or 1 << 62, e.seq))
        last = gang.last(idle[0])
        names = ", ".join(map(str, idle))
        return FlightVerdict(
            kind="missing_rank",
            ranks=idle,
            domains=(USER, SOFTWARE, HARDWARE),
            group=group,
            seq=first.seq,
            op=first.op,
            timeout_ms=first.timeout_ms,
            waiting=waiting,
            doing=last.frames if last else (),
            meaning=f"Rank {names} waits for nothing, and every other rank of group {group} that left a dump waits: its host side is stuck, slow or gone.",
        )
    return None


def _no_dump(gang: gang_dumps.GangDumps) -> FlightVerdict | None:
    gone = tuple(sorted(gang.expected - set(gang.dumps)))
    if not gone:
        return None
    return FlightVerdict(
        kind="no_dump",
        ranks=gone,
        domains=(USER, SOFTWARE, HARDWARE),
        waiting=tuple(sorted(r for r in gang.dumps if gang.outstanding(r))),
        meaning=f"Rank {', '.join(map(str, gone[:16]))} left no dump: its process ended before it could write one; look for an OOM kill, an Xid or a signal.",
    )


def judge(
    dumps: Iterable[RankDump],
    *,
    members: Mapping[str, Iterable[int]] | None = None,
    world_size: int | None = None,
) -> FlightVerdict:
    """The verdict over all dumps of a job; the order they come in does not matter.

    `members` (group name to global ranks) is needed where dumps do not carry it (Gloo) and groups other than
    the first matter; `world_size` makes a rank without a dump visible.
    """
    by_rank = {d.rank: d for d in sorted(dumps, key=lambda d: d.rank)}
    if not by_rank:
        return FlightVerdict(kind="unknown", ranks=(), domains=("unknown",), meaning="No rank left a dump.")
    gang = gang_dumps.gather(by_rank, members or {}, world_size)
    gone = _no_dump(gang)
    found = mismatch.earliest(gang) or _missing(gang)
    if found and gone and found.kind == "missing_rank" and gang.is_gloo(found.group or ""):
        found = gone  # Ranks that wait for a dead rank fail at once, wherever they are.
    # If a process is gone, the device that finished least is not at fault: the others may have stopped at different places.
    found = (
        found
        or _crossed(gang)
        or gone
        or _stuck(gang)
        or _not_started(gang)
        or _late(gang)
        or _unposted(gang)
        or _idle(gang)
        or _inside(gang)
    )
    if found is None:
        return FlightVerdict(
            kind="healthy", ranks=(), domains=("unknown",), meaning="No rank waits for anything."
        )
    missing = gone.ranks if gone else ()
    return replace(found, missing_dumps=missing, group_desc=gang.descriptions.get(found.group or "", ""))
