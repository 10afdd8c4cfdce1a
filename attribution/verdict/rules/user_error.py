"""The program's own error: a traceback, an assertion, a crash, or just an exit code with nothing beside it."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable
from datetime import timedelta

from probing_cluster.attribution.verdict import claims, evidence_view, findings, signatures, taxonomy
from probing_cluster.core import records

CAUSE, MISMATCH = "user_error", "collective_mismatch"
NEAR = timedelta(seconds=60)
"""A GPU error of the program's own ends it at once; one that came longer before did not."""

_ENDED_BY_ITSELF = frozenset({"FAILED", "OUT_OF_MEMORY", "TIMEOUT", "CANCELLED", "REQUEUED"})
_DOUBTFUL_SIGNALS = {9: 0.55, 15: 0.55, 7: 0.6, 6: 0.6, 53: 0.55}
"""Killed, terminated, bus error, abort: often somebody else's doing (a watchdog, a server, memory).

53 no program sends: Slurm writes it for a job that it could not set up, most often for an output file it cannot open.
"""
_NOT_SET_UP = 53
_NOT_ITS_OWN = "and the process that was killed for want of memory is not known to be its own"
_SURE_KINDS = frozenset({"cuda_device_assert", "syntax_error"})
_SURE = re.compile(
    r"(?:^|[\s.:])(?:KeyError|IndexError|LookupError|NameError|UnboundLocalError|AttributeError|TypeError|ValueError|AssertionError|"
    r"ZeroDivisionError|NotImplementedError|RecursionError|(?:Syntax|Indentation|Tab)Error|ImportError|ModuleNotFoundError|"
    r"UnicodeDecodeError|UnicodeEncodeError|StopIteration)\b"
)
"""Exceptions of the language itself."""
_OUTSIDE = re.compile(
    r"\b(?:nan\b|inf|overflow|cuda|gpu|nccl|rocm|hip|device|driver|node|host|server|service|socket|connect|network|peer\b|time[ds]?[ -]?out|"
    r"unreachable|unavailable|refused|reset|i/o|input/output|errno|stale|space|read-only|mount|disk|file|path|checksum|corrupt|truncat|"
    r"magic|header|central directory|checkpoint|heartbeat|memory|shared object|cannot open|undefined symbol)|\.so\b",
    re.IGNORECASE,
)
"""Words of the world outside: the language's own exceptions are often raised about that."""


def rule(case: evidence_view.Scene) -> Iterable[claims.Claim]:
    """Findings first; without any, the exit code alone is likely the program's, where somebody watched."""
    if case.state not in _ENDED_BY_ITSELF:
        return
    yield from claims.hints(case, MISMATCH, "user_error", findings.FindingRole.OWN)
    told = claims.hints(case, CAUSE, "user_error", findings.FindingRole.OWN)
    named = _names_a_machine(case)
    if not named:
        told += claims.hints(case, CAUSE, "user_error", findings.FindingRole.PROXIMAL)
    xids = [
        s
        for s in case.of(CAUSE)
        if s.signature.role is signatures.Role.USER
        and s.when is evidence_view.When.RUNNING
        and not s.ours
        and s.at >= case.onset_at - NEAR
    ]
    marked = {s.event.event_id: s.event for s in xids}
    for claim in told:
        alone = _is_surely_own(claim.evidence[0]) and not case.disturbances
        sure = claim.cap if alone else records.Confidence.LIKELY
        yield dataclasses.replace(
            claim, cap=claims.lower(claim.cap, sure), evidence=claim.evidence + tuple(marked.values())
        )
    if told or case.state != "FAILED":
        return
    if case.hung:
        # Such an error ends its process at once; one that came later did not begin the hang.
        xids = [s for s in xids if s.at <= case.onset_at + NEAR]
    if xids:
        yield _by_xid(xids, 0.6 if case.hung else 0.85)
    elif not case.hung and not named:
        yield from _by_exit(case)


def _names_a_machine(case: evidence_view.Scene) -> bool:
    """True when the log names a machine's fault that its generic errors would follow, and nobody watched to deny it."""
    if not case.unwatched_nodes:
        return False
    named = {f.signature.cause for f in case.findings if f.signature.role is findings.FindingRole.HINT}
    machines = {c for c in named if taxonomy.cause(c).domain is records.Domain.HARDWARE}
    generic = [f.signature for f in case.findings if f.signature.role is findings.FindingRole.PROXIMAL]
    return any(s.cause == CAUSE and s.supports(c) for s in generic for c in machines)


def _is_surely_own(first: records.HealthEvent) -> bool:
    """True for an error that nothing outside the program can raise: a wrong key, a bad argument, a failed CUDA assertion."""
    if first.kind in _SURE_KINDS:
        return True
    return bool(_SURE.search(first.message)) and not _OUTSIDE.search(first.message)


def _by_xid(xids: list[evidence_view.Sighting], weight: float) -> claims.Claim:
    last = xids[-1]
    return claims.Claim(
        cause=CAUSE,
        weight=weight,
        at=last.at,
        rule="user_error",
        node=last.event.node,
        evidence=tuple(s.event for s in reversed(xids)),
        n_sources=1,
        words=f"made GPU code fail (Xid {last.event.code}), which is most often the program's own mistake",
    )


def _by_exit(case: evidence_view.Scene) -> Iterable[claims.Claim]:
    signal = case.signal
    if not signal and not case.attempt.exit_code:
        return
    weight = _DOUBTFUL_SIGNALS.get(signal, 0.85)
    left = any(f.signature.role is findings.FindingRole.PROXIMAL for f in case.findings)
    if case.unwatched_nodes or (left and not case.crashed):
        weight = min(weight, 0.7)
    if any(f.signature.role is findings.FindingRole.HINT for f in case.findings):
        weight = min(weight, 0.6)
    others = [s for s in case.of("oom_host") if s.signature.role is signatures.Role.ROOT]
    if others:
        weight = min(weight, 0.7)
    exits = [f.event for f in case.findings if f.signature.role is findings.FindingRole.EXIT]
    how = f"was ended by signal {signal}" if signal else f"exited with code {case.attempt.exit_code}"
    if case.attempt.exit_signal == _NOT_SET_UP:
        how = "never ran: Slurm ended it with signal 53, most often because it could not open the job's output file"
    yield claims.Claim(
        cause=CAUSE,
        weight=weight,
        at=case.end_at,
        rule="user_error",
        evidence=tuple(exits),
        by_elimination=True,
        words=f"{how}, {_NOT_ITS_OWN if others else 'with no fault beside it'}",
    )
