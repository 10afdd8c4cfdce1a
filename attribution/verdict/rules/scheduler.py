"""Ended by Slurm or a person: time limit, preemption, cancellation, requeue, a refused node."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta

from probing_cluster.attribution.verdict import claims, evidence_view, findings, phrases
from probing_cluster.attribution.verdict.rules import gpu_lost
from probing_cluster.core import records

_REFUSAL = timedelta(seconds=120)
_ROOT = frozenset({"0", "root"})
_BESIDE_A_FAULT = 0.93
"""Weight of a cancellation beside a fault: who cancelled is known, and why is not, so the verdict is likely at most."""
_OTHER_LIMIT = 0.9
"""Weight of a TIMEOUT well within the limit that is recorded: likely at most."""
_EXPLAINING = frozenset({findings.FindingRole.OWN, findings.FindingRole.PROXIMAL, findings.FindingRole.HINT})
"""Findings that speak of a failure; what Slurm writes of every cancellation does not."""


def rule(view: evidence_view.EvidenceView) -> Iterable[claims.Claim]:
    """The state names it; evidence from the hardware may still outweigh it (see `rank`)."""
    refused = _by_agent(view) or _by_action(view) or _by_slurmd(view)
    if refused is not None:
        yield refused
        return
    made = _BY_STATE.get(view.state)
    if made is not None:
        yield from made(view)
    if view.never_launched:
        prolog = view.attempt.reason == _PROLOG
        yield claims.Claim(
            cause="system_services",
            # A Prolog fails for whatever the site has it check: a service, a GPU, a full disk.
            weight=0.7 if prolog else 0.85,
            at=view.end_at,
            rule="scheduler",
            words="could not be started: its Prolog failed, and the accounting does not say why"
            if prolog
            else f"could not be started by Slurm ({view.attempt.reason})",
        )


_PROLOG = "Prolog"


def _by_agent(view: evidence_view.EvidenceView) -> claims.Claim | None:
    """The agent's own event: it refused this start of the job."""
    restarts = view.attempt.restart_count
    mine = [
        s.event
        for s in view.of("node_refused")
        if s.event.job_id == view.attempt.job_id
        and s.event.source == "agent"
        and restarts in (None, s.event.detail.get("restart_count", restarts))
        and view.start_at - evidence_view.SLACK <= s.at <= view.end_at + evidence_view.SLACK
        # A start that went on was not the one refused.
        and view.end_at - s.at <= _REFUSAL
    ]
    first = min(mine, key=lambda e: (e.at, e.event_id), default=None)
    if first is None:
        return None
    fault = first.detail.get("fault")
    words = fault if isinstance(fault, str) else first.message
    return _refused(first.node, first.at, words, (first,))


def _by_action(view: evidence_view.EvidenceView) -> claims.Claim | None:
    mine = [
        a
        for a in view.case.actions
        if a.action == "refuse"
        and a.state == "done"
        and a.job_id == view.attempt.job_id
        and view.start_at - _REFUSAL <= a.at <= view.end_at + _REFUSAL
    ]
    first = min(mine, key=lambda a: (a.at, a.drain_id), default=None)
    return None if first is None else _refused(first.node, first.at, first.reason)


def _by_slurmd(view: evidence_view.EvidenceView) -> claims.Claim | None:
    """The site's Prolog failed there: slurmd said so of this job in the node's syslog, or Slurm drained the node for it just then."""
    mine = [
        s.event
        for s in view.of("node_refused")
        if s.event.kind == "slurmd"
        and (s.event.source == "slurm" or s.event.detail.get("job") == view.attempt.job_id)
        and view.start_at - evidence_view.SLACK <= s.at <= view.end_at + evidence_view.SLACK
        and view.end_at - s.at <= _REFUSAL
    ]
    first = min(mine, key=lambda e: (e.at, e.event_id), default=None)
    if first is None:
        return None
    lost = [s.event for s in view.lost_gpus if s.event.node == first.node]
    why = f"; the node had lost a GPU before ({phrases.what(lost[0])})" if lost else ", and does not say why"
    return claims.Claim(
        cause="node_refused",
        weight=claims.LIKELY,
        at=first.at,
        rule="scheduler",
        node=first.node,
        evidence=(first, *lost),
        n_sources=1,
        # Whoever may log on the node could have written it.
        cap=records.Confidence.LIKELY,
        sentence=f"The Prolog of {first.node} failed before the job began{why}",
        # A Prolog fails for whatever the site has it check: a service, a GPU, a full disk.
        domain=None if lost else records.Domain.UNKNOWN,
        next_step=""
        if lost
        else f"Run the site's Prolog by hand on {first.node}, and look at what the node's log says just before; the job itself did nothing.",
        explains=frozenset({"gpu_lost"}),
    )


def _refused(
    node: str, at: datetime, words: str, evidence: tuple[records.HealthEvent, ...] = ()
) -> claims.Claim:
    return claims.Claim(
        cause="node_refused",
        weight=0.98,
        at=at,
        rule="scheduler",
        node=node,
        evidence=evidence,
        n_sources=1,
        words=words,
    )


def _of(view: evidence_view.EvidenceView, cause: str, weight: float, words: str = "") -> claims.Claim:
    return claims.Claim(cause=cause, weight=weight, at=view.end_at, rule="scheduler", words=words)


def _time_limit(view: evidence_view.EvidenceView) -> Iterable[claims.Claim]:
    # What says that the job hung is why this is less sure: the verdict shows it.
    hung = tuple(f.event for f in view.findings if f.signature.onset)
    # Which limit ended it well before the recorded one nobody knows.
    sure = 0.97 if view.state == "DEADLINE" or not view.within_limit else _OTHER_LIMIT
    limit = _of(
        view,
        "time_limit",
        min(0.6 if hung or view.left_waiting else sure, _beside_lost_gpu(view), _beside_a_stall(view)),
    )
    yield claims.replace_claim(limit, evidence=(*hung, *view.stalls[:1], *_log_stall(view)))


def _cancelled(view: evidence_view.EvidenceView) -> Iterable[claims.Claim]:
    by = view.attempt.cancelled_by
    # Who cancels a job that hangs does so because of it.
    hung = tuple(f.event for f in view.findings if f.signature.onset) if view.hung_since else ()
    # Slurm's own cancellations carry root's name, or none.
    person = by is not None and by not in _ROOT
    sure = 0.6 if hung else 0.97 if person else 0.85
    weight = min(sure, _beside_lost_gpu(view), _beside_a_stall(view))
    if view.active_at_the_end or any(f.signature.role in _EXPLAINING for f in view.findings):
        # Who cancels a job whose node or log shows a fault may do so because of it.
        weight = min(weight, _BESIDE_A_FAULT)
    made = _of(view, "user_cancelled", weight, f"was cancelled by {by}" if by else "")
    yield claims.replace_claim(made, evidence=(*hung, *view.stalls[:1], *_log_stall(view)))


def _log_stall(view: evidence_view.EvidenceView) -> tuple[records.HealthEvent, ...]:
    return () if view.log_stall is None else (view.log_stall,)


def _beside_a_stall(view: evidence_view.EvidenceView) -> float:
    """Share of its weight that a time limit or a cancellation keeps.

    Less than 1 where the job waited for a file server or in the kernel, where a part of its nodes failed and did not come back,
    or where its log stood still: any of these may be why it was ended.
    """
    return _BESIDE_A_FAULT if view.stalls or view.left_behind or view.log_stall else 1.0


def _beside_lost_gpu(view: evidence_view.EvidenceView) -> float:
    """The same: less than 1 where a GPU was lost before the end."""
    if not view.lost_gpus:
        return 1.0
    weights = [0.0 if gpu_lost.need_not_hold(view, s) else claims.weigh(s) for s in view.lost_gpus]
    return 0.75 if max(weights) >= claims.LIKELY else 0.9


def _preempted(view: evidence_view.EvidenceView) -> Iterable[claims.Claim]:
    yield _of(view, "preempted", 0.99)


def _requeued(view: evidence_view.EvidenceView) -> Iterable[claims.Claim]:
    if not view.own_actions:
        # Slurm requeues by itself, too, what a Prolog or a node failed: where nobody watched, neither is ruled out.
        yield _of(view, "requeued_by_user", 0.85 if view.fully_watched else 0.6)
        return
    yield _of(view, "unknown", 0.55, f"was requeued by us ({view.own_actions[0].reason})")


_BY_STATE = {
    "TIMEOUT": _time_limit,
    "DEADLINE": _time_limit,
    "CANCELLED": _cancelled,
    "PREEMPTED": _preempted,
    "REQUEUED": _requeued,
}
