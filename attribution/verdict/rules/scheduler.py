"""Ended by Slurm or a person: time limit, preemption, cancellation, requeue, a refused node."""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import datetime, timedelta

from probing_cluster.attribution.verdict import (
    claims,
    evidence_view,
    findings,
    node_faults,
    phrases,
    recovery,
    signatures,
)
from probing_cluster.attribution.verdict.rules import gpu_lost
from probing_cluster.core import digits, records, vocabulary

_REFUSAL = timedelta(seconds=120)
_ANSWERED_LATE = timedelta(seconds=30)
"""The agent may refuse a start of no length this long after its recorded end."""
_CLOCKS_DIFFER = timedelta(seconds=30)
"""A node's clock may be behind by so much before it counts as wrong, and its events get the server's time."""
_LONGEST_PROLOG = timedelta(seconds=60)
"""A start that lasted longer was past its Prolog, where nothing but a drain, which names no job, speaks of one."""
_AT_ONCE = timedelta(seconds=15)
"""Slurm drains a node this soon before it ends the start whose Prolog failed."""
_SLURMS_ENDS = frozenset({"REQUEUED", "NODE_FAIL", "BOOT_FAIL"})
"""States in which Slurm leaves a start whose Prolog failed, where it starts the job again or gives up the node."""
_OF_THE_LAUNCH = frozenset({"slurm_launch_failed", "srun_error"})
"""Findings that a job's output may hold though its program never began."""
_BESIDE_A_FAULT = 0.93
"""Weight of a cancellation beside a fault: the reason is not recorded, so it is likely at most."""
_OTHER_LIMIT = 0.9
"""Weight of a TIMEOUT well within the recorded limit: likely at most."""
_KILL, _TERM = 9, 15
_ENDS_OF_A_STEP = frozenset({_KILL, _TERM})
"""Slurm ends a step at its limit by SIGTERM, then SIGKILL."""
_BY_OTHER_CODE = 0.7
"""Weight of a step's limit where the script ended with another code: a program may handle SIGTERM, or a later command failed."""
_OF_STEPS = re.compile(r"\s*(?:srun|slurmstepd[\w.-]{0,64}): ")
"""Slurm's own lines about a step's tasks: after its limit they report SIGTERM and SIGKILL."""
_ENDED_BY_SHELL = re.compile(r": line \d{1,7}: +\d{1,10} (?:Killed|Terminated)\b(?!.{0,40}\bsrun\b)")
"""The shell's line about another command of the script that a signal ended."""
_EXPLAINING = frozenset({findings.FindingRole.OWN, findings.FindingRole.PROXIMAL, findings.FindingRole.HINT})
"""Roles of findings that report a failure; Slurm's lines about a cancellation do not."""


def rule(view: evidence_view.EvidenceView) -> Iterable[claims.Claim]:
    """Claims that follow from Slurm's state; evidence from the hardware may outweigh them (`rank_claims`)."""
    refused = _by_agent(view) or _by_action(view) or _by_slurmd(view)
    if refused is not None:
        yield refused
        return
    made = _BY_STATE.get(view.state)
    if made is not None:
        yield from made(view)
    if view.state == "FAILED":
        yield from _step_limit(view)
    if view.never_launched:
        prolog = view.attempt.reason == _PROLOG
        yield claims.Claim(
            cause="system_services",
            # A Prolog fails for any of the site's checks: a service, a GPU, a full disk.
            weight=0.7 if prolog else 0.85,
            at=view.end_at,
            rule="scheduler",
            words="could not be started: its Prolog failed, and the accounting does not say why"
            if prolog
            else f"could not be started by Slurm ({view.attempt.reason})",
        )


_PROLOG = "Prolog"


def _refusals(view: evidence_view.EvidenceView) -> list[records.HealthEvent]:
    """Events of a refused node during this start, oldest first, if it ended soon after: a start that ran on was not refused."""
    first, last = (
        max(view.start_at - evidence_view.SLACK, view.end_at - _REFUSAL),
        view.end_at + evidence_view.SLACK,
    )
    found = [s for s in view.of("node_refused") if first <= s.at <= last]
    return [s.event for s in sorted(found, key=lambda s: (s.event.at, s.event.event_id))]


def _by_agent(view: evidence_view.EvidenceView) -> claims.Claim | None:
    """The agent's event that it refused this start of the job; of a start whose program ran, only one shortly before its end."""
    restarts = view.attempt.restart_count
    # The count may be a later start's, where Slurm wrote that into the same row; then the time alone tells them apart.
    # With the same count, the node's clock may be behind by what nobody corrects.
    # Slurm may date the end of a start that never began to its begin, before the Prolog's answer, or to when it
    # was put back in the queue, long after it.
    last = view.end_at + (_ANSWERED_LATE if _never_began(view) else evidence_view.SLACK)
    began = _began(view)
    ran_until = view.end_at - _REFUSAL if began else None
    clocks_differ = restarts is not None and not began
    mine = [
        e
        for e in view.case.events
        if (e.kind, e.code, e.source) == ("check", "prolog_refused", "agent")
        and e.job_id == view.attempt.job_id
        and e.node in view.attempt.nodes
        and (restarts is None or _count(e) <= restarts)
        and (ran_until is None or ran_until <= e.at)
        and e.at
        >= view.start_at
        - (_CLOCKS_DIFFER if clocks_differ and restarts == _count(e) else evidence_view.SLACK)
        and e.at <= last
    ]
    one = min(mine, key=lambda e: (e.at, e.event_id), default=None)
    if one is None:
        return None
    fault = one.detail.get("fault")
    made = _refused(one.node, one.at, fault if isinstance(fault, str) else one.message, (one,))
    # A site's own Prolog may ask ours and let the job begin: what a limit or a person ended had begun, and what met a fault later, too.
    later = any(s.at > one.at + _LONGEST_PROLOG and s.at <= view.end_at for s in view.disturbances)
    return claims.replace_claim(made, proven=not (began or later) and _ended_by_slurm(view))


def _count(refusal: records.HealthEvent) -> int:
    """How often the job had been started again, as the agent that refused it knew."""
    return digits.index(refusal.detail.get("restart_count")) or 0


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


def _began(view: evidence_view.EvidenceView) -> bool:
    """Whether anything shows that the job's own program ran: no Prolog of this start failed then."""
    attempt = view.attempt
    failed_launch = any(f.event.kind == "slurm_launch_failed" for f in view.findings)
    wrote = any(
        f.event.kind not in _OF_THE_LAUNCH and f.signature.role is not findings.FindingRole.SCHEDULER
        for f in view.findings
    )
    # With the state NODE_FAIL the code is Slurm's own, as it is where Slurm could not launch the job.
    slurms_code = view.state == "NODE_FAIL" or view.never_launched or failed_launch
    exited = bool(attempt.exit_code or attempt.exit_signal) and not slurms_code
    return wrote or exited or bool(view.stalls) or view.case.last_progress_at is not None


def _ended_by_slurm(view: evidence_view.EvidenceView) -> bool:
    """Whether the start ended as one whose Prolog failed does: not by a person, a limit or its own program."""
    if view.state == "CANCELLED":
        return view.attempt.cancelled_by is None or view.cancelled_by_root
    return view.state in _SLURMS_ENDS or view.state == "FAILED"


def _by_slurmd(view: evidence_view.EvidenceView) -> claims.Claim | None:
    """The site's Prolog failed: slurmd's syslog names this job, or Slurm drained the node as it ended this start."""
    if not _ended_by_slurm(view) or _began(view):
        return None
    failed = [e for e in _refusals(view) if e.kind == "slurmd"]
    first = next((e for e in failed if e.detail.get("job") == view.attempt.job_id), None)
    if first is None and view.state != "CANCELLED" and view.end_at - view.start_at <= _LONGEST_PROLOG:
        # A drain names no job: the failed Prolog may have been another's on that node.
        first = next((e for e in failed if e.source == "slurm" and view.end_at - e.at <= _AT_ONCE), None)
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
        # Any user who may log on the node could have written it.
        cap=records.Confidence.LIKELY,
        sentence=f"The Prolog of {first.node} failed before the job began there{why}",
        # A Prolog fails for any of the site's checks: a service, a GPU, a full disk.
        domain=None if lost else records.Domain.UNKNOWN,
        next_step=""
        if lost
        else f"Run the site's Prolog by hand on {first.node}, and read the node's log of that time; the job itself had not begun there.",
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
    # Signs of a hang lower the confidence, so the verdict names them.
    hung = tuple(f.event for f in view.findings if f.signature.onset)
    # Well before the recorded limit, another limit ended it; which one is unknown.
    sure = 0.97 if view.state == "DEADLINE" or not view.within_limit else _OTHER_LIMIT
    limit = _of(
        view,
        "time_limit",
        min(0.6 if hung or view.left_waiting else sure, _beside_lost_gpu(view), _beside_a_stall(view)),
    )
    # It may have hung or failed, or it writes rarely: more time would help only the last.
    signs = [e for e in (view.output_stall, recovery.last_error(view)) if e is not None]
    if signs:
        limit = claims.replace_claim(limit, weight=min(limit.weight, _BESIDE_A_FAULT))
    beside = (*hung, *view.stalls[:1], *_log_stall(view), *signs)
    yield claims.replace_claim(limit, evidence=beside)


def _step_limit(view: evidence_view.EvidenceView) -> Iterable[claims.Claim]:
    """A step that reached a limit of its own: at the job's limit, Slurm would not call the job FAILED."""
    first = next((f.event for f in view.findings if f.event.detail.get("first_cause") is True), None)
    step = findings.step_at_its_limit(first, view.attempt.job_id) if first is not None else ""
    code = view.attempt.exit_code or 0
    ended = {view.signal, code, code - vocabulary.BY_SIGNAL} & _ENDS_OF_A_STEP
    if first is None or not step or not (ended or code):
        return
    errors = [f for f in (*view.findings, *view.further_errors) if f.signature.role in _EXPLAINING]
    if ended:
        if _killed_later(view, first, killed=_KILL in ended):
            return  # the script went on, and a later command was killed
        beside = any(not _OF_STEPS.match(f.event.message) for f in errors)
        sure = _BY_OTHER_CODE if beside else _OTHER_LIMIT
    else:
        if not all(f.event.detail.get(vocabulary.LACKS_FILE) is True for f in errors):
            return  # the script went on, and a later command failed by itself
        sure = _OTHER_LIMIT if errors else _BY_OTHER_CODE
    hung = any(f.signature.onset for f in view.findings) or view.left_waiting
    yield claims.Claim(
        cause="time_limit",
        # The limit may have ended a step that a fault had stopped, and nothing dates that to before it.
        weight=min(0.6 if hung else sure, _beside_lost_gpu(view), _beside_a_stall(view)),
        at=view.end_at,
        rule="scheduler",
        evidence=(first, *([] if ended else (f.event for f in errors[:1]))),
        cap=records.Confidence.LIKELY,
        sentence=f"Step {step} of the job reached its own time limit (srun --time), not the job's",
        next_step="Give that step more time with srun's own --time (-t, or SLURM_TIMELIMIT), or leave it out: a step then has the job's whole limit. More time for the job would not help",
        explains=frozenset({"user_error", "rank_killed"}),
    )


def _killed_later(view: evidence_view.EvidenceView, limit: records.HealthEvent, *, killed: bool) -> bool:
    """Whether a process was ended by a signal after the step, by the log's lines, or the kernel sent SIGKILL for memory (`killed`: the job ended by it)."""
    last = digits.index(limit.detail.get("line")) or 0
    later = [
        f.event
        for f in (*view.findings, *view.further_errors)
        if (digits.index(f.event.detail.get("line")) or 0) > last
    ]
    memory = bool(view.of("oom_host")) or any(findings.find(e) is findings.named("slurm_oom") for e in later)
    return (killed and memory) or any(_ENDED_BY_SHELL.search(e.message) for e in later)


def _cancelled(view: evidence_view.EvidenceView) -> Iterable[claims.Claim]:
    by = view.attempt.cancelled_by
    # A hang is a likely reason for a cancellation.
    hung = tuple(f.event for f in view.findings if f.signature.onset) if view.hung_since else ()
    # Slurm's own cancellations are in root's name, or in none.
    person = by is not None and not view.cancelled_by_root
    sure = 0.6 if hung else 0.97 if person else 0.85
    weight = min(sure, _beside_lost_gpu(view), _beside_a_stall(view))
    if view.active_at_the_end or any(f.signature.role in _EXPLAINING for f in view.findings):
        # A fault on a node or in the log may be the reason for the cancellation.
        weight = min(weight, _BESIDE_A_FAULT)
    made = _of(view, "user_cancelled", weight, f"was cancelled by {by}" if by else "")
    yield claims.replace_claim(made, evidence=(*hung, *view.stalls[:1], *_log_stall(view)))


def _log_stall(view: evidence_view.EvidenceView) -> tuple[records.HealthEvent, ...]:
    return () if view.log_stall is None else (view.log_stall,)


def _beside_a_stall(view: evidence_view.EvidenceView) -> float:
    """Upper bound of the weight of a time limit or cancellation; below 1 if a stall, a fault that stayed or came back, an error that no table lists, or a silent log precedes the end.

    Also for a component of a heterogeneous job: what the others met is not in its case, and they end together.
    """
    beside = view.stalls or view.left_behind or view.returning or view.log_stall
    waited = node_faults.silent_mounts(view) or node_faults.blocked_tasks(view)
    doubtful = beside or waited or node_faults.unlisted(view) or view.attempt.het_job_id is not None
    return _BESIDE_A_FAULT if doubtful else 1.0


def _beside_lost_gpu(view: evidence_view.EvidenceView) -> float:
    """The same, for a GPU that was lost before the end."""
    if not view.lost_gpus:
        return 1.0
    needed = [
        s for s in view.lost_gpus if not gpu_lost.need_not_hold(view, s) and not recovery.is_outlived(view, s)
    ]
    return 0.75 if any(claims.weigh(s) >= claims.LIKELY for s in needed) else 0.9


def _preempted(view: evidence_view.EvidenceView) -> Iterable[claims.Claim]:
    yield _of(view, "preempted", 0.99)


def _requeued(view: evidence_view.EvidenceView) -> Iterable[claims.Claim]:
    if not view.own_actions:
        made = _of(view, "requeued_by_user", 0.85 if view.fully_watched else 0.6)
        # Slurm names nobody, and requeues by itself after a failed Prolog or node: without a watch, neither is excluded.
        yield made if view.fully_watched else claims.replace_claim(made, component="requester")
        return
    requeue = next((a for a in view.own_actions if a.action == "requeue"), None)
    act = requeue or view.own_actions[0]
    if _never_began(view):
        yield _refused_by_policy(view, act)
        return
    # A drain ends no job.
    how = "requeued by us" if requeue else f"requeued as we drained {act.node}"
    yield claims.replace_claim(
        _of(view, "unknown", 0.55),
        component="policy",
        sentence=f"The job was {view.requeued_by_us or f'{how} ({act.reason})'}; nothing shows that it felt a fault",
        next_step="Nothing for the job: it was put back in the queue, and did not end by itself",
    )


def _never_began(view: evidence_view.EvidenceView) -> bool:
    return view.state == "REQUEUED" and view.ran_s <= evidence_view.SLACK.total_seconds()


def _refused_by_policy(view: evidence_view.EvidenceView, act: records.Drain) -> claims.Claim:
    """Our requeue or drain as the start began: of a refusal, Slurm's drain of the node may be all that is on record."""
    found = sorted((e for e in view.case.events if e.event_id in act.event_ids), key=lambda e: e.at)
    faults = tuple(e for e in found if e.node == act.node)
    how = view.requeued_by_us or f"requeued by Slurm as {act.node} was refused and drained ({act.reason})"
    return claims.Claim(
        cause="node_refused",
        weight=claims.ANSWERED,
        at=act.at,
        rule="scheduler",
        node=act.node,
        evidence=faults,
        n_sources=1,
        sentence=f"The job was {how} before it began; {phrases.starts_again(())}",
        explains=frozenset({"gpu_lost", *(signatures.of(e).cause for e in faults)}),
    )


_BY_STATE = {
    "TIMEOUT": _time_limit,
    "DEADLINE": _time_limit,
    "CANCELLED": _cancelled,
    "PREEMPTED": _preempted,
    "REQUEUED": _requeued,
}
