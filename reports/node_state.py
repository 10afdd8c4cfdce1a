"""The present state of a job's nodes: agents, active faults, drains, later test results; and the actions on an attempt and its nodes."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta

from probing_cluster.core import hostlist, records, sanitize, vocabulary
from probing_cluster.core.catalogue import fault_names
from probing_cluster.reports import phrase

_LEAST_SILENCE_S = 15.0
"""Without the server's time of the reading: its clock and the reader's may differ by seconds; no agent counts as silent before this."""
_MOST_FAULTS = 4
_SURE = (records.Confidence.CERTAIN, records.Confidence.LIKELY)
_AFTERMATH = timedelta(minutes=10)
"""An action on its nodes up to this long after an attempt's end still belongs to its report."""
_SHORTLY = timedelta(minutes=1)
"""A drain of ours that names no event may be because of an attempt that failed so shortly before; a person's says nothing of it."""
_OURS = "probing"
_NOT_DONE = frozenset({"denied", "skipped"})
_DECIDED_LATER = frozenset({vocabulary.GPUS_UNKNOWN, vocabulary.DECIDED_ANEW})
_UNDER_WAY = timedelta(seconds=vocabulary.UNDER_WAY_S)


def sentences(
    attempt: records.JobAttempt,
    heartbeats: Iterable[records.AgentHeartbeat],
    drains: Iterable[records.Drain],
    now: datetime,
    listening_since: datetime | None = None,
    read_at: datetime | None = None,
) -> tuple[str, ...]:
    """One sentence for each node with a problem, one for all others; none once the attempt has ended.

    `read_at`: when the rows were read, by the clock that also says when each agent was heard; `now` is the reader's.
    """
    if attempt.end_at is not None or not attempt.nodes:
        return ()
    now, least_s = (now, _LEAST_SILENCE_S) if read_at is None else (read_at, 0.0)
    beats = {beat.node: beat for beat in heartbeats}
    drains = tuple(drains)
    open_drains = {d.node: d for d in drains if d.action == "drain" and d.state == "done" and not d.ended_at}
    why_not = {node: _why_not_requeued(attempt, drain, drains) for node, drain in open_drains.items()}
    notes = {
        node: list(_notes(node, beats.get(node), open_drains.get(node), now, listening_since, least_s, why_not.get(node, "")))
        for node in attempt.nodes
    }  # fmt: skip
    unwatched = [node for node in attempt.nodes if node not in beats]
    well = [node for node, texts in notes.items() if not texts and node in beats]
    lines = [sentence for texts in notes.values() for sentence in texts]
    if unwatched:
        lines.append(f"{hostlist.compress(unwatched)}: no agent has ever reported; the state is not known.")
    if well:
        lines.append(
            f"{hostlist.compress(well)}: the agent reports no active fault; not drained by Probing Cluster."
        )
    return tuple(lines)


_MOST_TESTS = 4
"""Tests of one node that are listed; the node's own page has the rest."""


def tested(attempt: records.JobAttempt, found: Iterable[records.HealthEvent]) -> tuple[str, ...]:
    """One sentence for each node that failed our tests after the attempt ended."""
    if attempt.end_at is None:
        return ()
    by_node: dict[str, list[records.HealthEvent]] = {}
    for event in found:
        if event.node in attempt.nodes and event.at > attempt.end_at:
            by_node.setdefault(event.node, []).append(event)
    lines = []
    for node, events in sorted(by_node.items()):
        words = [
            f"{sanitize.clean(e.code or 'test', 40)}{f' on {sanitize.clean(e.device, 40)}' if e.device else ''}: {sanitize.clean(e.message, 160)}"
            for e in events
        ]
        words = list(dict.fromkeys(words))
        more = f"; and {len(words) - _MOST_TESTS} more" if len(words) > _MOST_TESTS else ""
        lines.append(
            f"{node} failed our tests {phrase.span((events[0].at - attempt.end_at).total_seconds())} after this job ended "
            f"({'; '.join(words[:_MOST_TESTS])}{more}). The tests show its state then, not during the job."
        )
    return tuple(lines)


def _notes(
    node: str,
    beat: records.AgentHeartbeat | None,
    drain: records.Drain | None,
    now: datetime,
    listening_since: datetime | None,
    least_s: float,
    why_not: str,
) -> Iterator[str]:
    if beat is not None:
        silent_s = (now - max(beat.at, listening_since or beat.at)).total_seconds()
        if silent_s > max(vocabulary.MISSED_BEATS * beat.beat_s, least_s):
            yield (
                f"{node} has not been heard for {phrase.span((now - beat.at).total_seconds())}: the node, its network or its agent is down."
                " If it is the node, Slurm ends this attempt as NODE_FAIL within its SlurmdTimeout."
            )
        faults = [fault.words for fault in fault_names.named(beat.faults)]
        if faults:
            more = f" and {len(faults) - _MOST_FAULTS} more" if len(faults) > _MOST_FAULTS else ""
            yield f"{node} has an active fault: {', '.join(faults[:_MOST_FAULTS])}{more}."
    if drain is not None:
        goes_on = (
            "while its fault stands we may put this job back in the queue"
            if not why_not and _may_requeue(beat, drain, now)
            else f"this job continues{f' ({sanitize.clean(why_not, 160)})' if why_not else ''}"
        )
        yield (
            f"{node} is drained since {phrase.stamp_z(drain.at)} ({sanitize.clean(drain.reason, 120)}):"
            f" {goes_on}, and no new job starts there."
        )


def _why_not_requeued(
    attempt: records.JobAttempt, drain: records.Drain, decisions: Sequence[records.Drain]
) -> str:
    """Why we decided to leave the job where it is despite this drain's fault; empty if nothing is decided for good."""
    made = [
        d
        for d in decisions
        if d.action == "requeue"
        and (d.job_id, d.node) == (attempt.job_id, drain.node)
        and (d.at >= drain.at or not set(d.event_ids).isdisjoint(drain.event_ids))
        and (attempt.start_at is None or d.at >= attempt.start_at)
    ]
    last = max(made, key=lambda d: d.at, default=None)
    is_final = last is not None and last.state == "skipped" and last.why_state not in _DECIDED_LATER
    return last.why_state if last is not None and is_final else ""


def _may_requeue(beat: records.AgentHeartbeat | None, drain: records.Drain, now: datetime) -> bool:
    """True for a fresh drain of ours for a hard fault that stands: whether its jobs are requeued is decided only then."""
    stands = beat is not None and any(
        isinstance(fault, Mapping) and fault.get("severity") == records.Severity.HIGH.value
        for fault in beat.faults.values()
    )
    ours = drain.owner == _OURS and drain.severity is records.Severity.HIGH
    return ours and stands and now - drain.at <= _AFTERMATH


def last_seen(attempt: records.JobAttempt, beats: Iterable[records.AgentHeartbeat]) -> datetime | None:
    """When an agent last reported the running attempt; None if none did, or it has ended."""
    if attempt.end_at is not None:
        return None
    return max((b.at for b in beats if b.node in attempt.nodes and attempt.job_id in b.jobs), default=None)


def is_back(drain: records.Drain) -> bool:
    """True for a restart that we skipped because Slurm had requeued the job itself."""
    skipped = drain.action == "restart" and drain.state == "skipped"
    return skipped and vocabulary.is_back_already(drain.why_state)


def has_come_back(last: records.JobAttempt, drains: Iterable[records.Drain]) -> bool:
    """Whether we found the job back in the queue, or running again, when we were about to restart it after its last start."""
    return any(is_back(d) and d.job_id == last.job_id and acted_on(last, d, None) for d in drains)


def as_shown(drains: Iterable[records.Drain], now: datetime) -> tuple[records.Drain, ...]:
    """The decisions as people are shown them: what was begun a short while ago is under way, and has not failed."""
    return tuple(
        dataclasses.replace(
            d,
            state=vocabulary.UNDER_WAY,
            why_state=d.why_state.removeprefix(vocabulary.BEGUN).removeprefix(": "),
        )
        if d.state == "failed" and d.why_state.startswith(vocabulary.BEGUN) and now - d.at < _UNDER_WAY
        else d
        for d in drains
    )


def worth_a_line(actions: Sequence[records.Drain]) -> tuple[records.Drain, ...]:
    """The actions to list: all that were done, each refused one once, none that was skipped because it was done already.

    A line "not drained" below "drained" would contradict it.
    """
    out: set[str] = set()
    refused: set[tuple[str, ...]] = set()
    kept = []
    for drain in actions:
        if drain.action == "drain" and drain.state == "skipped" and drain.node in out:
            continue
        if is_back(drain):
            continue
        if drain.state in _NOT_DONE:
            words = (drain.action, drain.node, drain.state, drain.why_state)
            if words in refused:
                continue
            refused.add(words)
        if drain.action == "drain" and drain.state in {"done", vocabulary.UNDER_WAY}:
            out.add(drain.node)
        kept.append(drain)
    return tuple(kept)


def acted_on(attempt: records.JobAttempt, drain: records.Drain, until: datetime | None) -> bool:
    """Whether the action fell into the attempt or its aftermath, before `until`."""
    if attempt.start_at is None or drain.at < attempt.start_at or (until and drain.at > until):
        return False
    return attempt.end_at is None or drain.at <= attempt.end_at + _AFTERMATH


def concerns(
    attempt: records.JobAttempt,
    drain: records.Drain,
    verdict: records.Verdict | None,
    returned_at: datetime | None = None,
) -> bool:
    """Whether an action belongs to an attempt: it concerns the job, or the verdict's evidence, or a node of it while it ran or right after.

    `returned_at`: when the drain's node came back from the repair of what the attempt met; what befell it later is another fault.
    """
    if drain.job_id == attempt.job_id:
        return True
    evidence = set(verdict.evidence) if verdict else set()
    if evidence.intersection(drain.event_ids):
        return True
    if drain.job_id is not None or drain.node not in attempt.nodes:
        return False
    if attempt.end_at is not None and drain.at > attempt.end_at:
        if returned_at is not None and attempt.end_at < returned_at < drain.at:
            return False
        return _after_the_end(attempt, drain, verdict, drain.at - attempt.end_at)
    return not evidence or not drain.event_ids or drain.state not in _NOT_DONE


def _after_the_end(
    attempt: records.JobAttempt, drain: records.Drain, verdict: records.Verdict | None, later: timedelta
) -> bool:
    """Whether what befell a node of an attempt so much later, for no event of its evidence, may still be because of it."""
    if attempt.state == "COMPLETED" or drain.state in _NOT_DONE:
        return False
    if not drain.event_ids:
        return drain.owner == _OURS and later <= _SHORTLY
    if verdict is None:
        return True
    # A fault after the end that no evidence names matters only at the accused node, or while the verdict is unsure.
    return drain.node == verdict.node if verdict.evidence else verdict.confidence not in _SURE
