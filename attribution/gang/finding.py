"""The finding on a stopped gang: its kinds, its record, and phrases about ranks."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from probing_cluster.attribution.gang import stacks, views
from probing_cluster.core import vocabulary
from probing_cluster.core.records import Confidence, Domain

GPU_FAULTS = vocabulary.GPU_KINDS
LINK_FAULTS = vocabulary.LINK_KINDS
STORAGE_FAULTS = vocabulary.STORAGE_KINDS

Ranks = Sequence[views.RankView]
Faults = Mapping[str, Collection[str]]
"""Node to the kinds of its events from trusted sources."""

KINDS = {
    "rank_dead": "a rank ended out of order while the others went on",
    "rank_ended": "a rank left its program in order while the others went on",
    "rank_stopped": "a rank was stopped by a signal and never continued",
    "stopped_itself": "a rank was stopped by a signal that its own program sent, or is held by a debugger, and never continued",
    "uneven_input": "a rank's data loader came to its end before the others'",
    "collective_mismatch": "ranks called different collectives, or one with different sizes, at the same place",
    "deadlock": "ranks wait for each other in different collectives or point-to-point calls",
    "checkpoint_io": "a rank is writing a checkpoint that does not end",
    "storage_io": "a rank, or its data loader's worker, sleeps uninterruptibly in the kernel",
    "dataloader": "a rank waits for its data loader",
    "gil_held": "a rank is in C code that holds the GIL",
    "python_loop": "a rank runs Python code elsewhere in the user's program",
    "user_code": "a rank is elsewhere in the user's program; whether in Python or in C code was not seen",
    "missing": "a rank did not arrive, and it or its stack could not be seen",
    "gpu_lost": "a rank did not arrive and a GPU of its node failed",
    "link_down": "a rank did not arrive and a network link of its node went down",
    "inside_collective": "every rank is inside the same collective and none leaves it",
    "busy": "the others wait for a rank that compiles, validates or saves, within what its own history allows",
    "unknown": "no rank stands out",
}
"""Every kind of finding and its meaning (docs/probe.md)."""
PATIENT = frozenset({"busy"})
"""Kinds that are no stall."""


@dataclass(frozen=True, kw_only=True)
class GangFinding:
    """The reason for which a gang stopped."""

    kind: str
    """A word of KINDS."""
    ranks: tuple[int, ...]
    nodes: tuple[str, ...]
    domain: Domain
    confidence: Confidence
    summary: str
    where: str = ""
    """The line of the user's program in which the first culprit with a known stack is."""
    proof: tuple[str, ...] = ()


def make(
    kind: str,
    culprits: Ranks,
    domain: Domain,
    confidence: Confidence,
    summary: str,
    proof: Sequence[str],
) -> GangFinding:
    """A finding about these ranks, with the program line of the first one whose stack is known."""
    frame = next((f for f in (stacks.user_frame(r.stack) for r in culprits) if f is not None), None)
    return GangFinding(
        kind=kind,
        ranks=tuple(r.rank for r in culprits),
        nodes=tuple(dict.fromkeys(r.node for r in culprits)),
        domain=domain,
        confidence=confidence,
        summary=summary,
        where=str(frame) if frame is not None else "",
        proof=tuple(proof),
    )


def names(culprits: Ranks) -> str:
    """`ranks 4-5 on n2`."""
    word = "rank" if len(culprits) == 1 else "ranks"
    nodes = ", ".join(dict.fromkeys(r.node for r in culprits))
    return f"{word} {stacks.ranges(r.rank for r in culprits)} on {nodes}"


def waiting(ranks: Ranks) -> list[str]:
    """For each rank inside a call: the call that it waits in."""
    return [f"rank {r.rank} waits in {c.op} at group {c.group} #{c.seq}" for r in ranks if (c := r.inside())]
