"""Finds the rank at fault when a gang has stopped."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence

from probing_cluster.attribution.gang import align, finding, missing_ranks, stacks, views
from probing_cluster.core.records import Confidence, Domain


def judge(
    ranks: finding.Ranks,
    *,
    world_size: int | None = None,
    node_faults: finding.Faults | None = None,
) -> finding.GangFinding:
    """The finding for one snapshot of a stalled job.

    `node_faults`: node to the kinds of events from trusted sources (kernel, NVML, sysfs, mounts) in the window. Job-side
    pages alone never make a hardware finding.
    """
    ordered = sorted(ranks, key=lambda r: r.rank)
    faults = node_faults or {}
    for rule in (_mismatch, _stopped, _dead, _ended, _missing, _apart, _inside):
        found = rule(ordered, world_size, faults)
        if found is not None:
            return found
    return finding.make(
        "unknown", [], Domain.UNKNOWN, Confidence.UNKNOWN, "no rank stands out from the others", ()
    )


def weigh(
    gang_finding: finding.GangFinding, ranks: finding.Ranks, *, silent: Collection[str], stuck: bool
) -> finding.GangFinding:
    """The finding, changed by the nodes' load if no rank stands out.

    `silent`: nodes without traffic while all others have some. `stuck`: all GPUs only wait and no node has traffic.
    Both only name suspects, "possible" at most.
    """
    if gang_finding.kind == "unknown" and stuck:
        return finding.make(
            "inside_collective", [], Domain.UNKNOWN, Confidence.POSSIBLE,
            "the GPUs of every node only wait and no network adapter moves bytes: a collective does not end", gang_finding.proof,
        )  # fmt: skip
    if gang_finding.kind != "inside_collective" or gang_finding.nodes or not silent:
        return gang_finding
    found = [r for r in ranks if r.node in silent]
    words = f"all ranks are inside the same collective, and only {finding.names(found)} move nothing: suspect the network there"
    return finding.make(
        "inside_collective", found, Domain.UNKNOWN, Confidence.POSSIBLE, words, gang_finding.proof
    )


def _stopped(ranks: finding.Ranks, _world: int | None, _faults: finding.Faults) -> finding.GangFinding | None:
    stopped = [r for r in ranks if r.alive and r.state in {"T", "t"}]
    found = [r for r in stopped if not _stopped_itself(r)]
    if not stopped:
        return None
    if not found:
        return finding.make(
            "stopped_itself",
            stopped,
            Domain.USER_PROGRAM,
            Confidence.LIKELY,
            f"{finding.names(stopped)} stopped by a signal from the program itself",
            [
                f"rank {r.rank}: pid {r.pid} in state {r.state}, inside {r.native[0].function} ({r.native[0].file})"
                for r in stopped
            ],
        )
    # The kernel keeps no sender of a signal: it may be the job's own script, its user at a shell, or the site.
    found = [r for r in found if r.state == "T"] or found
    traced = found[0].state == "t"
    own = traced and all(r.traced_by_owner for r in found)
    by = " of its own user" if own else ""
    how = f"held by a tracer{by}, such as a debugger or strace" if traced else "stopped by a signal"
    return finding.make(
        "rank_stopped",
        found,
        Domain.USER_PROGRAM if own else Domain.UNKNOWN,
        Confidence.LIKELY,
        f"{finding.names(found)} {how} (process state {found[0].state})",
        [f"rank {r.rank}: pid {r.pid} in state {r.state}" for r in found],
    )


_SENDING = frozenset(
    {"kill", "killpg", "raise", "os_kill", "os_killpg", "signal_raise_signal", "signal_pthread_kill"}
)
"""C functions, of libc and of Python, that send a signal: a process that stops inside one has stopped itself."""
_INNERMOST = 3


def _stopped_itself(rank: views.RankView) -> bool:
    return any(f.function in _SENDING and not f.is_scanned for f in rank.native[:_INNERMOST])


def _dead(ranks: finding.Ranks, world: int | None, faults: finding.Faults) -> finding.GangFinding | None:
    found = [r for r in ranks if not r.alive and r.phase != "ended"]
    # A rank's death is reported only if another rank outlived it: if all died, the first is unknown.
    if not found or len(found) >= max(len(ranks), world or 0):
        return None
    proof = [f"rank {r.rank}: pid {r.pid} is gone after step {r.steps} {r.exit_note}".rstrip() for r in found]
    kinds = {k for r in found for k in faults.get(r.node, ())}
    if kinds & finding.GPU_FAULTS:
        domain, confidence, tail = Domain.HARDWARE, Confidence.LIKELY, "; its node showed a GPU fault"
    elif "oom" in kinds:
        domain, confidence, tail = Domain.USER_PROGRAM, Confidence.LIKELY, "; the kernel killed it for memory"
    else:
        domain, confidence, tail = (
            Domain.UNKNOWN,
            Confidence.LIKELY,
            "",
        )  # it likely died first; the reason is unknown
    return finding.make(
        "rank_dead",
        found,
        domain,
        confidence,
        f"{finding.names(found)} died while the others went on{tail}",
        proof,
    )


def _ended(ranks: finding.Ranks, _world: int | None, _faults: finding.Faults) -> finding.GangFinding | None:
    """Some ranks left their program in order and the others wait, with NCCL for ever."""
    # A rank that ended because its collective failed is a victim.
    found = [r for r in ranks if r.phase == "ended" and not _raised(r)]
    waiting = [r for r in ranks if _waits_for_the_ended(r)]
    if not found or not waiting or len(found) > len(waiting):
        return None
    proof = [f"rank {r.rank}: ended after step {r.steps}" for r in found]
    if _uneven(found, ranks):
        return _uneven_finding(found, proof)
    return finding.make(
        "rank_ended",
        found,
        Domain.UNKNOWN,
        Confidence.POSSIBLE,
        f"{finding.names(found)} left the program while the others went on",
        proof,
    )


def _raised(rank: views.RankView) -> bool:
    return bool(rank.calls) and rank.calls[-1].raised


def _waits_for_the_ended(rank: views.RankView) -> bool:
    """True if it lives, or its last collective did not come to its end; of a rank without process state (torn down) only that counts."""
    lives = rank.alive and rank.phase != "ended"
    return _raised(rank) or (lives and (bool(rank.state) or rank.inside() is not None))


def _uneven(found: finding.Ranks, ranks: finding.Ranks) -> bool:
    """True if their data loaders ended another number of times than any other rank's."""
    theirs = {r.loader_ends for r in found}
    others = {r.loader_ends for r in ranks if r not in found}
    return None not in theirs | others and bool(others) and not theirs & others


def _uneven_finding(found: finding.Ranks, proof: Sequence[str]) -> finding.GangFinding:
    ended_loaders = [
        f"rank {r.rank}: its data loaders came to their end {r.loader_ends} times" for r in found
    ]
    return finding.make(
        "uneven_input",
        found,
        Domain.USER_PROGRAM,
        Confidence.LIKELY,
        f"{finding.names(found)} got another number of batches than the others",
        [*ended_loaders, *proof],
    )


def _mismatch(ranks: finding.Ranks, world: int | None, _faults: finding.Faults) -> finding.GangFinding | None:
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
        return finding.make(
            "collective_mismatch",
            found,
            Domain.USER_PROGRAM,
            Confidence.LIKELY,
            f"{finding.names(found)} called another collective or shape at group {meeting.group} #{meeting.seq}",
            proof,
        )
    return None


def _missing(ranks: finding.Ranks, world: int | None, faults: finding.Faults) -> finding.GangFinding | None:
    open_meetings = align.meetings(ranks, world)
    ends, cycle = align.roots(ranks, open_meetings)
    if cycle and not ends:
        found = [r for r in ranks if r.rank in cycle]
        return finding.make(
            "deadlock",
            found,
            Domain.USER_PROGRAM,
            Confidence.LIKELY,
            f"{finding.names(found)} wait for each other in different collectives",
            finding.waiting(found),
        )
    found = [r for r in ranks if r.rank in ends]
    unseen = sorted(ends - {r.rank for r in found})
    if unseen and not found:
        return _unseen(unseen, open_meetings)
    if not found:
        return None
    in_pairs = [r for r in found if (c := r.inside()) is not None and c.is_p2p]
    if len(in_pairs) > 1 and in_pairs == found:
        return finding.make(
            "deadlock",
            found,
            Domain.USER_PROGRAM,
            Confidence.POSSIBLE,
            f"{finding.names(found)} wait in point-to-point calls that nobody answers",
            finding.waiting(found),
        )
    if all((c := r.inside()) is not None and not c.is_p2p for r in found):
        return _each_inside(found, ranks)
    proof = _waiting_sentences(ranks, open_meetings)
    if _uneven(found, ranks):
        return _uneven_finding(found, proof)
    return missing_ranks.judge(found, faults, proof)


def _waiting_sentences(ranks: finding.Ranks, open_meetings: Sequence[align.OpenCollective]) -> list[str]:
    """Sentences: who waits in which collective, and who waited there until it was ended or gave up."""
    inside = {r.rank for r in ranks if r.alive and (c := r.inside()) is not None and not c.left}
    sentences = []
    for m in open_meetings:
        where = f"in {m.op} at group {m.group} #{m.seq}"
        here, gone = [p for p in m.present if p in inside], [p for p in m.present if p not in inside]
        sentences += [f"{_ranks(here)} wait{'s' if len(here) == 1 else ''} {where}"] if here else []
        sentences += (
            [f"{_ranks(gone)} waited {where}, and no longer {'does' if len(gone) == 1 else 'do'}"]
            if gone
            else []
        )
    return sentences


def _ranks(numbers: Sequence[int]) -> str:
    return f"rank{'' if len(numbers) == 1 else 's'} {stacks.ranges(numbers)}"


def _each_inside(found: finding.Ranks, ranks: finding.Ranks) -> finding.GangFinding:
    """The finding for awaited ranks that are themselves inside collectives of smaller groups."""
    inside = [c for r in found if (c := r.inside()) is not None]
    came = Counter((c.group, c.seq) for r in ranks for c in r.calls if not c.is_p2p)
    if all(came[c.group, c.seq] >= c.group_size for c in inside):
        return finding.make(
            "inside_collective",
            found,
            Domain.UNKNOWN,
            Confidence.POSSIBLE,
            f"{finding.names(found)} are all inside one collective that does not end: suspect the network between them",
            finding.waiting(found),
        )
    return finding.make(
        "deadlock",
        found,
        Domain.USER_PROGRAM,
        Confidence.LIKELY,
        f"{finding.names(found)} wait in collectives that ranks waiting for them have not entered",
        finding.waiting(found),
    )


def _unseen(unseen: Sequence[int], open_meetings: Sequence[align.OpenCollective]) -> finding.GangFinding:
    waiting = stacks.ranges(p for m in open_meetings for p in m.present)
    return finding.GangFinding(
        kind="missing",
        ranks=tuple(unseen),
        nodes=(),
        domain=Domain.UNKNOWN,
        confidence=Confidence.POSSIBLE,
        summary=f"there is no report on ranks {stacks.ranges(unseen)}, which the others wait for",
        proof=(f"ranks {waiting} wait",),
    )


def _apart(ranks: finding.Ranks, _world: int | None, faults: finding.Faults) -> finding.GangFinding | None:
    """Without visible collectives (gradients reduced inside backward), the few ranks that do not wait are at fault."""
    waiting = [
        r for r in ranks if r.alive and (r.inside() is not None or stacks.doing(r.stack) == "collective")
    ]
    others = [r for r in ranks if r.alive and r not in waiting and r.stack]
    if not waiting or not others or len(others) > len(waiting):
        return None
    lowest = min(r.steps for r in others)
    proof = [f"ranks {stacks.ranges(r.rank for r in waiting)} wait in a collective"]
    return missing_ranks.judge([r for r in others if r.steps == lowest], faults, proof)


def _inside(ranks: finding.Ranks, _world: int | None, faults: finding.Faults) -> finding.GangFinding | None:
    """All ranks are inside the same collective and none leaves it: the network, if there is evidence."""
    alive = [r for r in ranks if r.alive]
    if not alive or any(r.inside() is None and stacks.doing(r.stack) != "collective" for r in alive):
        return None
    bad = [r for r in alive if finding.LINK_FAULTS & set(faults.get(r.node, ()))]
    proof = finding.waiting(alive)
    if bad:
        return finding.make(
            "inside_collective", bad, Domain.HARDWARE, Confidence.LIKELY,
            f"all ranks are inside the collective; a link of {', '.join(dict.fromkeys(r.node for r in bad))} is down", proof,
        )  # fmt: skip
    return finding.make(
        "inside_collective", [], Domain.UNKNOWN, Confidence.POSSIBLE,
        "all ranks are inside the same collective and no node shows a link fault: suspect the network", proof,
    )  # fmt: skip
