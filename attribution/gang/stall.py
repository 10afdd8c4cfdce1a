"""Who is at fault when a gang has stopped: ranks in, one finding out, with its proof."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from probing_cluster.attribution.gang import align, stacks, views
from probing_cluster.core.records import Confidence, Domain

GPU_FAULTS = frozenset({"gpu_lost", "xid", "ecc", "row_remap", "gsp"})
LINK_FAULTS = frozenset({"ib_link", "eth_link"})
STORAGE_FAULTS = frozenset({"mount", "nfs", "lustre", "gpfs", "beegfs", "block_io", "filesystem"})


BUSY_PHASES = frozenset({"importing", "loading", "compiling", "checkpointing", "validating"})
"""What legitimately takes long, and has patience of its own."""
MIN_EVALUATING = 2
"""Samples in the interpreter's loop that show that Python code runs."""
MIN_SAMPLES = 20
"""Of fewer, all may lie in C code by chance."""
NATIVE_FRAC = 0.9
SLEEPING = frozenset({"S", "D", "I"})

KINDS = {
    "rank_dead": "a rank ended out of order while the others went on",
    "rank_ended": "a rank left its program in order while the others went on",
    "rank_stopped": "a rank was stopped by a signal and never continued",
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
"""Every kind of finding and its meaning; docs/probe.md tells them."""
PATIENT = frozenset({"busy"})
"""Findings that are no stall."""


@dataclass(frozen=True, kw_only=True)
class GangFinding:
    """What stopped a gang."""

    kind: str
    """A word of KINDS."""
    ranks: tuple[int, ...]
    nodes: tuple[str, ...]
    domain: Domain
    confidence: Confidence
    summary: str
    where: str = ""
    """The line of the user's program the (first) culprit is in."""
    proof: tuple[str, ...] = ()


def judge(
    ranks: Sequence[views.RankView],
    *,
    world_size: int | None = None,
    node_faults: Mapping[str, Collection[str]] | None = None,
) -> GangFinding:
    """The finding for one snapshot of a stalled job.

    `node_faults` maps node to the kinds of trusted events (kernel, NVML, sysfs, mounts) seen there in the
    window: job-side pages alone never make a hardware finding.
    """
    ordered = sorted(ranks, key=lambda r: r.rank)
    faults = node_faults or {}
    for rule in (_mismatch, _stopped, _dead, _ended, _missing, _apart, _inside):
        finding = rule(ordered, world_size, faults)
        if finding is not None:
            return finding
    return _finding(
        "unknown", [], Domain.UNKNOWN, Confidence.UNKNOWN, "no rank stands out from the others", ()
    )


def weigh(
    said: GangFinding, ranks: Sequence[views.RankView], *, silent: Collection[str], stuck: bool
) -> GangFinding:
    """The finding in the light of the nodes' load, where no rank stands out.

    `silent`: the nodes whose adapters move nothing while all others' do; `stuck`: every GPU only waits and no
    adapter of any node moves bytes. Both only make suspects, of whom the node is named, never more than possible.
    """
    if said.kind == "unknown" and stuck:
        return _finding(
            "inside_collective", [], Domain.UNKNOWN, Confidence.POSSIBLE,
            "the GPUs of every node only wait and no network adapter moves bytes: a collective does not end", said.proof,
        )  # fmt: skip
    if said.kind != "inside_collective" or said.nodes or not silent:
        return said
    found = [r for r in ranks if r.node in silent]
    words = f"all ranks are inside the same collective, and only {_names(found)} move nothing: suspect the network there"
    return _finding("inside_collective", found, Domain.UNKNOWN, Confidence.POSSIBLE, words, said.proof)


_Faults = Mapping[str, Collection[str]]
_Ranks = Sequence[views.RankView]


def _finding(
    kind: str,
    culprits: _Ranks,
    domain: Domain,
    confidence: Confidence,
    summary: str,
    proof: Sequence[str],
) -> GangFinding:
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


def _names(culprits: _Ranks) -> str:
    word = "rank" if len(culprits) == 1 else "ranks"
    nodes = ", ".join(dict.fromkeys(r.node for r in culprits))
    return f"{word} {stacks.ranges(r.rank for r in culprits)} on {nodes}"


def _stopped(ranks: _Ranks, _world: int | None, _faults: _Faults) -> GangFinding | None:
    found = [r for r in ranks if r.alive and r.state in {"T", "t"}]
    if not found:
        return None
    return _finding(
        "rank_stopped",
        found,
        Domain.SYSTEM_SOFTWARE,
        Confidence.LIKELY,
        f"{_names(found)} stopped by a signal (process state {found[0].state}) and never continued",
        [f"rank {r.rank}: pid {r.pid} in state {r.state}" for r in found],
    )


def _dead(ranks: _Ranks, world: int | None, faults: _Faults) -> GangFinding | None:
    found = [r for r in ranks if not r.alive and r.phase != "ended"]
    # Deaths are told where others lived on: of a gang whose every rank died, none is told from the others.
    if not found or len(found) >= max(len(ranks), world or 0):
        return None
    proof = [f"rank {r.rank}: pid {r.pid} is gone after step {r.steps} {r.exit_note}".rstrip() for r in found]
    kinds = {k for r in found for k in faults.get(r.node, ())}
    if kinds & GPU_FAULTS:
        domain, confidence, tail = Domain.HARDWARE, Confidence.LIKELY, "; its node showed a GPU fault"
    elif "oom" in kinds:
        domain, confidence, tail = Domain.USER_PROGRAM, Confidence.LIKELY, "; the kernel killed it for memory"
    else:
        domain, confidence, tail = (
            Domain.UNKNOWN,
            Confidence.LIKELY,
            "",
        )  # likely dead first; of what is unknown
    return _finding(
        "rank_dead", found, domain, confidence, f"{_names(found)} died while the others went on{tail}", proof
    )


def _ended(ranks: _Ranks, _world: int | None, _faults: _Faults) -> GangFinding | None:
    """Some have left their program in order, the others wait: with NCCL for ever."""
    # Who ended because a collective failed under it is a victim.
    found = [r for r in ranks if r.phase == "ended" and not (r.calls and r.calls[-1].raised)]
    waiting = [r for r in ranks if r.alive and r.phase != "ended"]
    if not found or not waiting or len(found) > len(waiting):
        return None
    proof = [f"rank {r.rank}: ended after step {r.steps}" for r in found]
    if _uneven(found, ranks):
        return _uneven_finding(found, proof)
    return _finding(
        "rank_ended",
        found,
        Domain.UNKNOWN,
        Confidence.POSSIBLE,
        f"{_names(found)} left the program while the others went on",
        proof,
    )


def _uneven(found: _Ranks, ranks: _Ranks) -> bool:
    """Their data loaders have come to their end as often as nobody else's."""
    theirs = {r.loader_ends for r in found}
    others = {r.loader_ends for r in ranks if r not in found}
    return None not in theirs | others and bool(others) and not theirs & others


def _uneven_finding(found: _Ranks, proof: Sequence[str]) -> GangFinding:
    said = [f"rank {r.rank}: its data loaders came to their end {r.loader_ends} times" for r in found]
    return _finding(
        "uneven_input",
        found,
        Domain.USER_PROGRAM,
        Confidence.LIKELY,
        f"{_names(found)} got another number of batches than the others",
        [*said, *proof],
    )


def _mismatch(ranks: _Ranks, world: int | None, _faults: _Faults) -> GangFinding | None:
    for meeting in align.meetings(ranks, world):
        if not meeting.mismatched:
            continue
        found = [r for r in ranks if r.rank in meeting.mismatched]
        proof = []
        for r in ranks:
            call = next(
                (c for c in r.calls if c.group == meeting.group and c.seq == meeting.seq and not c.is_p2p),
                None,
            )
            if call is not None:
                proof.append(
                    f"rank {r.rank}: {call.op} of {call.numel} elements at group {call.group} #{call.seq}"
                )
        if _uneven(found, ranks):
            return _uneven_finding(found, proof)
        return _finding(
            "collective_mismatch",
            found,
            Domain.USER_PROGRAM,
            Confidence.LIKELY,
            f"{_names(found)} called another collective or shape at group {meeting.group} #{meeting.seq}",
            proof,
        )
    return None


def _missing(ranks: _Ranks, world: int | None, faults: _Faults) -> GangFinding | None:
    open_meetings = align.meetings(ranks, world)
    ends, cycle = align.roots(ranks, open_meetings)
    if cycle and not ends:
        found = [r for r in ranks if r.rank in cycle]
        return _finding(
            "deadlock",
            found,
            Domain.USER_PROGRAM,
            Confidence.LIKELY,
            f"{_names(found)} wait for each other in different collectives",
            _waiting(found),
        )
    found = [r for r in ranks if r.rank in ends]
    unseen = sorted(ends - {r.rank for r in found})
    if unseen and not found:
        return _unseen(unseen, open_meetings)
    if not found:
        return None
    in_pairs = [r for r in found if (c := r.inside()) is not None and c.is_p2p]
    if len(in_pairs) > 1 and in_pairs == found:
        return _finding(
            "deadlock",
            found,
            Domain.USER_PROGRAM,
            Confidence.POSSIBLE,
            f"{_names(found)} wait in point-to-point calls that nobody answers",
            _waiting(found),
        )
    if all((c := r.inside()) is not None and not c.is_p2p for r in found):
        return _each_inside(found, ranks)
    waiting = sorted({p for m in open_meetings for p in m.present})
    proof = [
        f"ranks {stacks.ranges(waiting)} wait in {m.op} at group {m.group} #{m.seq}" for m in open_meetings
    ]
    if _uneven(found, ranks):
        return _uneven_finding(found, proof)
    return _absent(found, faults, proof)


def _each_inside(found: _Ranks, ranks: _Ranks) -> GangFinding:
    """Those that the others wait for wait themselves, in collectives of smaller groups."""
    inside = [c for r in found if (c := r.inside()) is not None]
    came = Counter((c.group, c.seq) for r in ranks for c in r.calls if not c.is_p2p)
    if all(came[c.group, c.seq] >= c.group_size for c in inside):
        return _finding(
            "inside_collective",
            found,
            Domain.UNKNOWN,
            Confidence.POSSIBLE,
            f"{_names(found)} are all inside one collective that does not end: suspect the network between them",
            _waiting(found),
        )
    return _finding(
        "deadlock",
        found,
        Domain.USER_PROGRAM,
        Confidence.LIKELY,
        f"{_names(found)} wait in collectives that others, who wait for them, have not entered",
        _waiting(found),
    )


def _unseen(unseen: Sequence[int], open_meetings: Sequence[align.Meeting]) -> GangFinding:
    waiting = stacks.ranges(p for m in open_meetings for p in m.present)
    return GangFinding(
        kind="missing",
        ranks=tuple(unseen),
        nodes=(),
        domain=Domain.UNKNOWN,
        confidence=Confidence.POSSIBLE,
        summary=f"nothing was told of ranks {stacks.ranges(unseen)}, which the others wait for",
        proof=(f"ranks {waiting} wait",),
    )


def _waiting(ranks: _Ranks) -> list[str]:
    return [f"rank {r.rank} waits in {c.op} at group {c.group} #{c.seq}" for r in ranks if (c := r.inside())]


def _apart(ranks: _Ranks, _world: int | None, faults: _Faults) -> GangFinding | None:
    """Without visible collectives (gradients reduced inside backward): the few that do not wait are the fault."""
    waiting = [
        r for r in ranks if r.alive and (r.inside() is not None or stacks.doing(r.stack) == "collective")
    ]
    others = [r for r in ranks if r.alive and r not in waiting and r.stack]
    if not waiting or not others or len(others) > len(waiting):
        return None
    lowest = min(r.steps for r in others)
    proof = [f"ranks {stacks.ranges(r.rank for r in waiting)} wait in a collective"]
    return _absent([r for r in others if r.steps == lowest], faults, proof)


def _absent(found: _Ranks, faults: _Faults, proof: list[str]) -> GangFinding:
    """Ranks that did not arrive: what were they doing, and does their node explain it?"""
    kinds = {k for r in found for k in faults.get(r.node, ())}
    if all(r.phase in BUSY_PHASES and r.stalled is False for r in found):
        doing = ", ".join(dict.fromkeys(r.phase for r in found))
        words = f"the others wait for {_names(found)}: {doing}, for no longer than its own history allows"
        return _finding("busy", found, Domain.UNKNOWN, Confidence.UNKNOWN, words, proof)
    kind, domain, confidence, words = _occupation(found[0], kinds)
    proof += [f"rank {r.rank}: {r.stack[0]}" for r in found if r.stack]
    proof += [f"rank {r.rank}: {_ran_words(r.ran)}" for r in found if r.ran is not None and r.ran.samples]
    return _finding(kind, found, domain, confidence, f"{_names(found)} did not arrive: {words}", proof)


def _occupation(rank: views.RankView, kinds: Collection[str]) -> tuple[str, Domain, Confidence, str]:
    busy = stacks.doing(rank.stack)
    if GPU_FAULTS & set(kinds):
        return "gpu_lost", Domain.HARDWARE, Confidence.LIKELY, "a GPU of its node failed"
    if LINK_FAULTS & set(kinds):
        return "link_down", Domain.HARDWARE, Confidence.LIKELY, "a network link of its node went down"
    if rank.phase == "checkpointing" or busy == "checkpoint":
        storage = bool(STORAGE_FAULTS & set(kinds)) or rank.state == "D"
        confidence = Confidence.LIKELY if storage else Confidence.POSSIBLE
        return (
            "checkpoint_io",
            Domain.SYSTEM_SOFTWARE,
            confidence,
            "it is writing a checkpoint that does not end",
        )
    if rank.state == "D" or (busy == "dataloader" and "D" in rank.workers):
        where = rank.wchan if rank.state == "D" else "a worker of its data loader"
        return (
            "storage_io",
            Domain.SYSTEM_SOFTWARE,
            Confidence.POSSIBLE,
            f"it sleeps in the kernel ({where or 'D state'})",
        )
    if busy == "dataloader":
        return "dataloader", Domain.USER_PROGRAM, Confidence.LIKELY, "it waits for its data loader"
    if not rank.stack:
        return "missing", Domain.UNKNOWN, Confidence.POSSIBLE, "what it is doing could not be seen"
    if _runs_python(rank):
        words = "it runs Python code elsewhere in the user's program"
        return "python_loop", Domain.USER_PROGRAM, Confidence.LIKELY, words
    # Whoever sleeps in Python lets go of the GIL: only C code sleeps while it holds it.
    if rank.holds_gil and (rank.state in SLEEPING or _runs_native(rank)):
        return "gil_held", Domain.USER_PROGRAM, Confidence.LIKELY, "it is in C code that holds the GIL"
    return "user_code", Domain.USER_PROGRAM, Confidence.POSSIBLE, "it is elsewhere in the user's program"


def _runs_python(rank: views.RankView) -> bool:
    """Its frames moved, or its program counter was seen where the interpreter runs Python code."""
    return rank.moved or (rank.ran is not None and rank.ran.evaluating >= MIN_EVALUATING)


def _runs_native(rank: views.RankView) -> bool:
    """Nearly all of its CPU went into libraries, none into Python code; the interpreter's own C code may be either."""
    ran = rank.ran
    if ran is not None and ran.samples >= MIN_SAMPLES:
        return not ran.evaluating and ran.elsewhere >= NATIVE_FRAC * ran.samples
    return ".so" in rank.stack[0].file


def _ran_words(ran: views.Ran) -> str:
    where = f", {ran.elsewhere} in libraries ({ran.where} most)" if ran.elsewhere else ""
    return f"of {ran.samples} samples of its CPU {ran.evaluating} lie in the interpreter's loop{where}"


def _inside(ranks: _Ranks, _world: int | None, faults: _Faults) -> GangFinding | None:
    """Everybody is inside the same collective and nobody leaves: the network, if anything shows it."""
    alive = [r for r in ranks if r.alive]
    if not alive or any(r.inside() is None and stacks.doing(r.stack) != "collective" for r in alive):
        return None
    bad = [r for r in alive if LINK_FAULTS & set(faults.get(r.node, ()))]
    proof = _waiting(alive)
    if bad:
        return _finding(
            "inside_collective", bad, Domain.HARDWARE, Confidence.LIKELY,
            f"all ranks are inside the collective; a link of {', '.join(dict.fromkeys(r.node for r in bad))} is down", proof,
        )  # fmt: skip
    return _finding(
        "inside_collective", [], Domain.UNKNOWN, Confidence.POSSIBLE,
        "all ranks are inside the same collective and no node shows a link fault: suspect the network", proof,
    )  # fmt: skip
