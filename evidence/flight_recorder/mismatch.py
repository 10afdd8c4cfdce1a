"""Ranks of one group that came to one place with another operation, or with other sizes or types."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from probing_cluster.evidence.flight_recorder import gang_dumps
from probing_cluster.evidence.flight_recorder.flight_verdict import USER, FlightVerdict
from probing_cluster.evidence.flight_recorder.model import Entry

_SIZES_DIFFER = frozenset({
    "all_to_all", "alltoall", "all_to_allv", "alltoall_base", "all_to_all_single", "gather", "scatter", "coalesced", "allgatherv",
    "all_gather_v", "reduce_scatter_v", "_all_gather_v", "_reduce_scatter_v", "barrier",
})  # fmt: skip


def _signature(entry: Entry, *, sizes: bool) -> tuple[object, ...]:
    if not sizes:
        return (entry.op,)
    if _is_list_gather(entry):
        # Ranks may bring different sizes, and all must expect the same result.
        return (entry.op, entry.dtypes, entry.output_sizes)
    return (entry.op, entry.dtypes, entry.input_sizes)


def _comparable(entry: Entry) -> bool:
    op = entry.op.lower().lstrip("_")
    return (
        bool(entry.op)
        and not entry.is_p2p
        and "coalesced" not in op
        and not any(op.startswith(s) for s in ("all_to_all", "alltoall"))
    )


def _may_differ(entry: Entry) -> bool:
    """Whether nothing can be said of the sizes that ranks bring to this operation, and take from it."""
    return entry.op.lower().lstrip("_") in _SIZES_DIFFER


def _is_list_gather(entry: Entry) -> bool:
    """Whether it is NCCL's list form of all_gather, which takes another size from each rank."""
    return entry.op.lower().lstrip("_") == "all_gather" and entry.backend != "gloo"


def _mismatch_at(group: str, seq: int, by_rank: Mapping[int, Entry]) -> FlightVerdict | None:
    """Whether the ranks at one place of one group do the same; the minority is at fault, all when there is none."""
    for kind, sizes in (("mismatch_op", False), ("mismatch_shape", True)):
        entries = dict(by_rank)
        if sizes and any(_may_differ(e) for e in entries.values()):
            continue
        signed = {r: _signature(e, sizes=sizes) for r, e in entries.items()}
        counts = Counter(signed.values())
        if len(counts) < 2:
            continue
        (common, most), *rest = counts.most_common()
        tie = any(n == most for _, n in rest)
        odd = tuple(sorted(r for r, s in signed.items() if tie or s != common))
        shown = "; ".join(
            f"rank {r}: {by_rank[r].op} {list(map(list, by_rank[r].input_sizes))}" for r in odd[:4]
        )
        what = "another operation" if not sizes else "another size or type"
        meaning = f"At number {seq} of group {group} {'the ranks disagree and none is in the majority' if tie else f'{len(odd)} of {len(signed)} ranks came with {what}'}: {shown}."
        first = by_rank[odd[0]]
        return FlightVerdict(
            kind=kind,
            ranks=odd,
            domains=(USER,),
            group=group,
            seq=seq,
            op=first.op,
            timeout_ms=first.timeout_ms,
            doing=first.frames,
            meaning=meaning,
        )
    return None


def _mismatch_in(group: str, seq: int, by_rank: Mapping[int, Sequence[Entry]]) -> FlightVerdict | None:
    """The first part of one place in which the ranks disagree: the operations of a coalesced one share its number."""
    parts = min(map(len, by_rank.values()))
    if any(len(entries) != parts for entries in by_rank.values()):
        return _mismatch_at(group, seq, {r: entries[-1] for r, entries in by_rank.items()})
    found = (
        _mismatch_at(group, seq, {r: entries[i] for r, entries in by_rank.items()}) for i in range(parts)
    )
    return next(filter(None, found), None)


def earliest(gang: gang_dumps.GangDumps) -> FlightVerdict | None:
    """The earliest place where ranks disagree; in each group only the first counts."""
    best: tuple[int, str, FlightVerdict] | None = None
    for group in sorted(gang.members):
        places: dict[int, dict[int, list[Entry]]] = {}
        for rank in gang_dumps.present(gang, group):
            for entry in gang.dumps[rank].entries:
                if entry.group == group and _comparable(entry) and entry.seq >= 0:
                    places.setdefault(entry.seq, {}).setdefault(rank, []).append(entry)
        for seq in sorted(places):
            if len(places[seq]) > 1 and (found := _mismatch_in(group, seq, places[seq])):
                at = min(entries[-1].created_ns for entries in places[seq].values())
                if best is None or (at, group) < best[:2]:
                    best = (at, group, found)
                break
    return best[2] if best else None
