"""Ranks that did not arrive where the others wait: what they were doing, and whether their node explains it."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence

from probing_cluster.attribution.gang import finding, stacks, views
from probing_cluster.core.records import Confidence, Domain

BUSY_PHASES = frozenset({"importing", "loading", "compiling", "checkpointing", "validating"})
"""Phases that take long for good reasons and have limits of their own."""
MIN_EVALUATING = 2
"""Least samples in the interpreter's loop that show that Python code runs."""
MIN_SAMPLES = 20
"""Fewer samples may all lie in C code by chance."""
NATIVE_FRAC = 0.9
SLEEPING = frozenset({"S", "D", "I"})
NATIVE_KINDS = frozenset({"gil_held", "user_code"})
"""Kinds for which the C function says more than the Python line."""
_GLUE = re.compile(r"(lib)?python\d|libffi\.|_ctypes\.|ld-linux|\[vdso\]")
"""Libraries between Python and C code; named only if the stack has nothing else."""
_SHOWN_FUNCTIONS, _SHOWN_CHARS = 4, 80


def judge(found: finding.Ranks, faults: finding.Faults, proof: Sequence[str]) -> finding.GangFinding:
    """The finding about missing ranks; the first one decides its kind. `proof`: who waits, and where."""
    kinds = {k for r in found for k in faults.get(r.node, ())}
    if all(r.phase in BUSY_PHASES and r.stalled is False for r in found):
        doing = ", ".join(dict.fromkeys(r.phase for r in found))
        words = (
            f"the others wait for {finding.names(found)}: {doing}, for no longer than its own history allows"
        )
        return finding.make("busy", found, Domain.UNKNOWN, Confidence.UNKNOWN, words, proof)
    kind, domain, confidence, words = _occupation(found[0], kinds)
    at = [f"rank {r.rank}: {r.stack[0]}" for r in found if r.stack]
    ran = [f"rank {r.rank}: {_ran_words(r.ran)}" for r in found if r.ran is not None and r.ran.samples]
    return finding.make(
        kind,
        found,
        domain,
        confidence,
        f"{finding.names(found)} did not arrive: {words}",
        [*proof, *at, *ran, *(_native_words(found) if kind in NATIVE_KINDS else ())],
    )


def _occupation(rank: views.RankView, kinds: Collection[str]) -> tuple[str, Domain, Confidence, str]:
    busy = stacks.doing(rank.stack)
    if finding.GPU_FAULTS & set(kinds):
        return "gpu_lost", Domain.HARDWARE, Confidence.LIKELY, "a GPU of its node failed"
    if finding.LINK_FAULTS & set(kinds):
        return "link_down", Domain.HARDWARE, Confidence.LIKELY, "a network link of its node went down"
    if rank.phase == "checkpointing" or busy == "checkpoint":
        storage = bool(finding.STORAGE_FAULTS & set(kinds)) or rank.state == "D"
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
    # Python releases the GIL when it sleeps: only C code sleeps with it.
    if rank.holds_gil and (rank.state in SLEEPING or _runs_native(rank)):
        return "gil_held", Domain.USER_PROGRAM, Confidence.LIKELY, "it is in C code that holds the GIL"
    return "user_code", Domain.USER_PROGRAM, Confidence.POSSIBLE, "it is elsewhere in the user's program"


def _runs_python(rank: views.RankView) -> bool:
    """True if its frames moved, or its program counter was seen in the interpreter's loop."""
    return rank.moved or (rank.ran is not None and rank.ran.evaluating >= MIN_EVALUATING)


def _runs_native(rank: views.RankView) -> bool:
    """True if nearly all of its CPU time is in libraries and none in the interpreter's loop."""
    ran = rank.ran
    if ran is not None and ran.samples >= MIN_SAMPLES:
        return not ran.evaluating and ran.elsewhere >= NATIVE_FRAC * ran.samples
    return ".so" in rank.stack[0].file


def _native_words(found: finding.Ranks) -> list[str]:
    """Each rank's C functions: `rank 5: in C, clock_nanosleep (libc.so.6), called by sleep`."""
    words = []
    for rank in found:
        shown = [f for f in rank.native if not _GLUE.match(f.file)] or rank.native
        names = [f.function[-_SHOWN_CHARS:] for f in shown[:_SHOWN_FUNCTIONS]]
        if names:
            callers = f", called by {', '.join(names[1:])}" if names[1:] else ""
            words.append(f"rank {rank.rank}: in C, {names[0]} ({shown[0].file}){callers}")
    return words


def _ran_words(ran: views.CpuSamples) -> str:
    where = f", {ran.elsewhere} in libraries ({ran.where} most)" if ran.elsewhere else ""
    return f"of {ran.samples} samples of its CPU {ran.evaluating} lie in the interpreter's loop{where}"
