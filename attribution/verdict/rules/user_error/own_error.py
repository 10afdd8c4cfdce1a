"""The program's own error: a traceback, an assertion, a crash. Where it shows none, its exit (`bare_exit`)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from datetime import timedelta

from probing_cluster.attribution.verdict import (
    claims,
    evidence_view,
    findings,
    gpus,
    node_faults,
    phrases,
    signatures,
    taxonomy,
)
from probing_cluster.attribution.verdict.rules import memory_limit
from probing_cluster.attribution.verdict.rules.user_error import bare_exit
from probing_cluster.core import digits, records

MISMATCH = "collective_mismatch"
NEAR = timedelta(seconds=60)
"""The program's own GPU error ends it within this."""
_AGAIN = timedelta(minutes=15)
"""A start that fails within this may have failed on its predecessor's unfinished checkpoint."""
_ENDED_BY_ITSELF = frozenset({"FAILED", "OUT_OF_MEMORY", "TIMEOUT", "DEADLINE", "CANCELLED", "REQUEUED"})
_KILL = 9
_READER = re.compile(
    r"(?:/\S{0,80}/)?(?:cat|head|tail|wc|[ef]?grep|sort|cut|uniq|diff|stat|du|file|readlink|chmod|touch): "
)
"""Complaints of commands that look at a file and end with 1 or 2."""
_FAILURES = frozenset({findings.FindingRole.OWN, findings.FindingRole.EXIT, findings.FindingRole.HINT})
_WAITED = 0.5
"""Weight of an exception for a missing answer beside a fault of a held part."""


def rule(view: evidence_view.EvidenceView) -> Iterable[claims.Claim]:
    """Claims from findings. Without any, the exit code alone is likely the program's if the nodes were watched."""
    if view.state not in _ENDED_BY_ITSELF and node_faults.ended_before_loss(view) is None:
        return
    yield from claims.hints(view, MISMATCH, "user_error", findings.FindingRole.OWN)
    hints = claims.hints(view, bare_exit.CAUSE, "user_error", findings.FindingRole.OWN)
    hints += claims.hints(view, bare_exit.CAUSE, "user_error", findings.FindingRole.HINT)
    named = _names_a_machine(view)
    if not named:
        hints += claims.hints(view, bare_exit.CAUSE, "user_error", findings.FindingRole.PROXIMAL)
    xids = [
        s
        for s in view.of(bare_exit.CAUSE)
        if s.signature.role is signatures.Role.USER
        and s.when is evidence_view.EventPhase.RUNNING
        and not s.after_own_action
        and s.at >= view.onset_at - NEAR
    ]
    marked = {s.event.event_id: s.event for s in xids}
    otherwise = [c.evidence[0] for c in hints if _ended_unlike_exception(view, c.evidence[0])]
    for claim in (c for c in hints if c.evidence[0] not in otherwise):
        # A fault that the job outlived by hours is rarely the cause, but cannot be excluded.
        # Where an agent was silent nobody looked, and what silenced it may have ended the job.
        beside = view.disturbances or view.left_behind or view.unheard_nodes or _came_after_another(view)
        alone = findings.is_surely_own(claim.evidence[0]) and not beside
        sure = claim.cap if alone else records.Confidence.LIKELY
        sure = claims.less_confident(sure, _fits_the_end(view, claim.evidence[0]))
        if _may_follow_a_fault(view, claim.evidence[0]) or _refused_again(view, claim.evidence[0]):
            sure = records.Confidence.POSSIBLE
        waited = "unanswered_ms" in claim.evidence[0].detail and view.active_at_the_end
        yield claims.replace_claim(
            claim,
            weight=min(claim.weight, _WAITED) if waited else claim.weight,
            cap=claims.less_confident(claim.cap, sure),
            evidence=claim.evidence + tuple(marked.values()),
            sentence=_went_on_words(view, claim.evidence[0]),
        )
    if view.state == "FAILED" and hints and len(otherwise) == len(hints):
        yield from bare_exit.claims_of(view, otherwise[0])
    if hints or view.state != "FAILED":
        return
    if view.hung:
        # Such an error ends its process at once; a later one did not begin the hang.
        xids = [s for s in xids if s.at <= view.onset_at + NEAR]
    if xids:
        yield _by_xid(xids, 0.6 if view.hung or node_faults.unlisted(view) else 0.85)
    elif not (view.hung or named or view.never_launched):
        yield from bare_exit.claims_of(view)


def _refused_again(view: evidence_view.EvidenceView, first: records.HealthEvent) -> bool:
    """True if Slurm refused a step of a job that had started before: the same script asked for the same then."""
    return bool(view.attempt.n_restarts) and findings.is_refused_step(first)


def _fits_the_end(view: evidence_view.EvidenceView, first: records.HealthEvent) -> records.Confidence:
    """How well an exception fits the end: an uncaught one ends Python with code 1, and a caught one may be logged."""
    if first.detail.get("goes_on") is True:
        return records.Confidence.POSSIBLE
    if "exception" not in first.detail or view.state != "FAILED":
        return records.Confidence.CERTAIN
    if _is_alone(view, first) and view.signal == _KILL and memory_limit.reported_kills(view):
        return records.Confidence.POSSIBLE
    another = any(
        f.event.detail.get("exception") not in (None, first.detail["exception"])
        and not f.event.detail.get("chained")
        and f.event.detail.get("rank") == first.detail.get("rank")
        for f in view.further_errors
    )
    # What should have brought the package may be what failed.
    another = another or (first.kind == "import_error" and _complained_before(view, first))
    # A script's later commands may have decided the exit code: it printed more, or is one that goes on after a command that failed.
    goes_on = bool(first.detail.get("went_on")) or _outlived_a_command(view, first)
    went_on = first.detail.get("rank") is None and goes_on
    fits = view.attempt.exit_code in (None, 1) and not (view.signal or another or went_on)
    return records.Confidence.CERTAIN if fits else records.Confidence.LIKELY


def _complained_before(view: evidence_view.EvidenceView, first: records.HealthEvent) -> bool:
    """True if the log holds a failure of another command above `first`, which is no part of the same exception."""
    return any(f.signature.role in _FAILURES for f in _above(view, first))


def _outlived_a_command(view: evidence_view.EvidenceView, first: records.HealthEvent) -> bool:
    """True if a command of the script failed before `first`, as one does behind which `|| true` stands."""
    return any(
        f.signature.role in _FAILURES
        and "exception" not in f.event.detail
        and _OF_COMMAND.match(f.event.message)
        for f in _above(view, first)
    )


_OF_COMMAND = re.compile(
    r"(?:\S{1,300}: (?:line )?\d{1,6}: \S|(?:/\S{0,80}/)?(?:cp|mv|rm|ln|ls|cat|mkdir|cd|tar|unzip|rsync|scp|wget|curl|git|chmod|touch|find|sed|awk|grep): )"
)
"""Complaints of a shell and of commands that scripts call."""


def _above(
    view: evidence_view.EvidenceView, first: records.HealthEvent
) -> Iterator[evidence_view.CaseFinding]:
    """What the log holds above `first`, without what is part of the same exception."""
    line = digits.index(first.detail.get("line")) or 0
    for f in (*view.findings, *view.further_errors):
        if (digits.index(f.event.detail.get("line")) or line) < line and not f.event.detail.get("chained"):
            yield f


def _went_on_words(view: evidence_view.EvidenceView, first: records.HealthEvent) -> str:
    """The summary for an exception after which a job of one process printed more lines of its own; else empty."""
    last = phrases.clean(str(first.detail.get("went_on") or ""))
    if not last or view.state != "FAILED" or "exception" not in first.detail or not _is_alone(view, first):
        return ""
    code = view.attempt.exit_code
    how = f"exited with code {code}" if code and not view.signal else "failed"
    return f"The program {how}; its last line: {last}; the exception above it: {phrases.clean(first.message)}"


def _is_alone(view: evidence_view.EvidenceView, first: records.HealthEvent) -> bool:
    """True if no other node and no named rank can have printed the lines after it."""
    return len(view.attempt.nodes) == 1 and first.detail.get("rank") is None


def _ended_unlike_exception(view: evidence_view.EvidenceView, first: records.HealthEvent) -> bool:
    """True if a program alone on its node printed more after the exception and ended unlike it, or a small tool complained that ends otherwise."""
    if first.kind == "program_error" and _READER.match(first.message) and view.state == "FAILED":
        return bool(view.signal) or view.attempt.exit_code not in (None, 0, 1, 2)
    if not _is_alone(view, first) or "exception" not in first.detail or not first.detail.get("behind"):
        return False
    return view.state == "FAILED" and (bool(view.signal) or view.attempt.exit_code not in (None, 0, 1))


def _came_after_another(view: evidence_view.EvidenceView) -> bool:
    """True if it failed soon after an earlier start of the same job, perhaps on what that one left unfinished."""
    return view.attempt.attempt > 1 and view.end_at - view.start_at < _AGAIN


def _may_follow_a_fault(view: evidence_view.EvidenceView, first: records.HealthEvent) -> bool:
    """True if a part that the attempt may have held failed while it ran, or reported what no table lists, and that fault produces this error.

    On a shared node with unknown GPUs, a neighbour's GPU cannot be told from the attempt's.
    """
    signs = [f.signature for f in view.findings if f.event is first]
    doubtful = [
        s
        for s in view.sightings
        if s.hold is gpus.PartCertainty.MAYBE
        and s.signature.role is signatures.Role.ROOT
        and s.when is evidence_view.EventPhase.RUNNING
    ]
    doubtful += node_faults.unlisted(view)
    return any(sign.supports(s.cause) for s in doubtful for sign in signs)


def _names_a_machine(view: evidence_view.EvidenceView) -> bool:
    """True if the log names a machine's fault that explains its generic errors, and some node was not watched."""
    if not view.unwatched_nodes:
        return False
    named = {f.signature.cause for f in view.findings if f.signature.role is findings.FindingRole.HINT}
    machines = {c for c in named if taxonomy.cause(c).domain is records.Domain.HARDWARE}
    generic = [f.signature for f in view.findings if f.signature.role is findings.FindingRole.PROXIMAL]
    return any(s.cause == bare_exit.CAUSE and s.supports(c) for s in generic for c in machines)


def _by_xid(xids: list[evidence_view.CaseSighting], weight: float) -> claims.Claim:
    last = xids[-1]
    return claims.Claim(
        cause=bare_exit.CAUSE,
        weight=weight,
        at=last.at,
        rule="user_error",
        node=last.event.node,
        evidence=tuple(s.event for s in reversed(xids)),
        n_sources=1,
        words=f"made GPU code fail (Xid {last.event.code}), which is most often the program's own mistake",
    )
