"""Assigns the rows that a pass has read to the attempts they belong to."""

from __future__ import annotations

import dataclasses
import functools
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from probing_cluster.attribution.verdict import case as cases
from probing_cluster.attribution.verdict import (
    co_residency,
    evidence_view,
    gpus,
    signatures,
    view_builder,
    window,
)
from probing_cluster.attribution.verdict.rules import user_error
from probing_cluster.core import records, vocabulary

ACTIVE_FOR = timedelta(days=7)
"""How far back an active condition may have begun."""
STALLED = timedelta(days=1)
"""How far before the window a stall may have begun."""
STALLS: tuple[tuple[str, str | None], ...] = (
    ("nfs", "not_responding"),
    ("filesystem", "not_responding"),
    ("lustre", "connection_lost"),
    ("beegfs", "connection_lost"),
    ("gpfs", "connection_lost"),
    ("hung_task", None),
    ("xid", "154"),
)
"""Sorts (kind, code; None = any) of events that block a job for as long as they last."""
SHORT = timedelta(minutes=15)
"""Faults from before the start are ignored for attempts that ran longer than this, except lost GPUs."""

ActiveFaults = Mapping[str, Sequence[tuple[records.HealthEvent, datetime | None]]]
"""Node to its conditions, each with the time at which it was seen to end (None = still active)."""
Condition = tuple[records.HealthEvent, bool]
"""A severe condition, and True if it lasts until a reset."""


def span(attempts: Sequence[records.JobAttempt]) -> tuple[datetime, datetime]:
    """The time from a little before the first start to a little after the last end of these attempts."""
    starts = [a.start_at for a in attempts if a.start_at is not None]
    ends = [a.end_at for a in attempts if a.end_at is not None]
    return min(starts) - co_residency.NEAR, max(ends) + co_residency.NEAR


_CLOCKS_DIFFER = timedelta(minutes=1)
"""The clocks of a node and of the controller differ by this at most."""
_WHOLE_SECONDS = timedelta(seconds=1)
"""Slurm cuts its times to whole seconds: a job that ends in its first second has a Prolog after its end."""


def is_prolog_of(at: datetime, start_at: datetime, end_at: datetime) -> bool:
    """Whether a Prolog that ran at `at` was of the start from `start_at` to `end_at`; the database's `probing.is_prolog_of` is the same."""
    return start_at - _CLOCKS_DIFFER <= at < end_at + _WHOLE_SECONDS


def in_life(
    attempt: records.JobAttempt, found: Iterable[records.JobAllocation]
) -> tuple[records.JobAllocation, ...]:
    """The allocations of this start of a job: the last one on each node before its end."""
    assert attempt.end_at is not None
    assert attempt.start_at is not None
    last: dict[str, records.JobAllocation] = {}
    for row in sorted(found, key=lambda r: (r.at, r.node)):
        if is_prolog_of(row.at, attempt.start_at, attempt.end_at):
            last[row.node] = row
    return tuple(last.values())


def by_job_and_node(found: Iterable[records.Drain]) -> dict[object, list[records.Drain]]:
    """Our actions by node and by job id."""
    index: dict[object, list[records.Drain]] = defaultdict(list)
    for action in found:
        index[action.node].append(action)
        if action.job_id is not None:
            index[action.job_id].append(action)
    return index


def actions_for(
    attempt: records.JobAttempt, actions: Mapping[object, Sequence[records.Drain]]
) -> tuple[records.Drain, ...]:
    """The actions on the attempt's nodes or for its job, each once."""
    if not actions:
        return ()
    mine = {a.drain_id: a for k in (attempt.job_id, *attempt.nodes) for a in actions.get(k, ())}
    return tuple(mine.values())


_RESTARTS = timedelta(minutes=1)
"""An agent that is back so soon has watched its node throughout, as `evidence_view.unwatched_nodes` counts."""


class AgentWatch(NamedTuple):
    """The times at which an agent watched a node."""

    last: datetime
    """Time of the last report from the node."""
    gaps: tuple[tuple[datetime | None, datetime], ...] = ()
    """Times before `last` without an agent, oldest first; a gap from None has no earlier agent."""
    beats: bool = True
    """False for a node without an agent, of which only a log is known."""

    def until(self, at: datetime, least: timedelta = timedelta()) -> datetime | None:
        """Last instant at which the node was watched, for an attempt that ended at `at`; None before its first agent.

        Gaps shorter than `least` do not count.
        """
        for since, until in self.gaps:
            if at < until and (since is None or (since < at and until - since > least)):
                return since
        return self.last


def watched(
    attempt: records.JobAttempt, by_node: Mapping[str, AgentWatch], offsets_s: Mapping[str, float]
) -> dict[str, datetime]:
    """Last instant at which each of the attempt's nodes was watched; a node whose first agent came after its end is missing.

    So nodes of imported history, from before the site had agents, do not count as healthy. Neither does a node whose clock
    (`offsets_s`: seconds ahead) was never set, since nothing on it can be dated.
    """
    assert attempt.end_at is not None
    end_at = attempt.end_at
    # An agent that is started again at once reads what its node's kernel wrote meanwhile. Of a node that Slurm gave up, the
    # short gap shows that it went away.
    least = timedelta() if window.given_up(attempt) else _RESTARTS
    found: dict[str, datetime] = {}
    for node in attempt.nodes:
        undated = abs(offsets_s.get(node, 0.0)) > cases.CORRECTED_S
        watch = None if undated else by_node.get(node)
        at = None if watch is None else watch.until(end_at, least) if watch.gaps else watch.last
        if at is not None:
            found[node] = at
    return found


def away(attempt: records.JobAttempt, by_node: Mapping[str, AgentWatch]) -> frozenset[str]:
    """The attempt's nodes whose agent missed its beats at the end (else there is no gap), and was back too soon for `watched`."""
    end_at = attempt.end_at
    if end_at is None or window.given_up(attempt):
        return frozenset()
    gapped = ((n, w) for n in attempt.nodes if (w := by_node.get(n)) is not None and w.gaps)
    return frozenset(n for n, w in gapped if w.until(end_at) != w.until(end_at, _RESTARTS))


def silences(
    attempts: Sequence[records.JobAttempt], by_node: Mapping[str, AgentWatch]
) -> list[tuple[int, str, datetime, datetime]]:
    """The gaps in the watch of the attempts' nodes in which they ended: the attempt's index, the node, the last word and the next agent's start."""
    return [
        (i, node, since, until)
        for i, a in enumerate(attempts)
        for node in a.nodes
        if (watch := by_node.get(node)) is not None
        for since, until in watch.gaps
        if watch.beats and since is not None and a.end_at is not None and since < a.end_at < until
    ]


def by_log(by_node: Mapping[str, AgentWatch]) -> frozenset[str]:
    """The nodes that have a log and no agent."""
    return frozenset(n for n, watch in by_node.items() if not watch.beats)


def by_whole_log(attempt: records.JobAttempt, by_node: Mapping[str, AgentWatch]) -> frozenset[str]:
    """The attempt's agentless nodes whose log covers the time from before its start to after its end."""
    assert attempt.end_at is not None
    start_at, end_at = attempt.start_at or attempt.submit_at, attempt.end_at

    def is_whole(watch: AgentWatch) -> bool:
        # The end of the first gap is the log's begin: without gaps the begin is unknown.
        outside = all(to <= start_at or (since is not None and since >= end_at) for since, to in watch.gaps)
        return not watch.beats and bool(watch.gaps) and outside and watch.last >= end_at

    return frozenset(n for n in attempt.nodes if n in by_node and is_whole(by_node[n]))


def previous_failure_of(
    by: records.JobAttempt, starts: Iterable[records.JobAttempt], verdicts: Iterable[records.Verdict]
) -> records.Verdict | None:
    """The infrastructure failure of the preemptor's previous start, because of which it started again."""
    before = [a for a in starts if a.job_id == by.job_id and a.attempt < by.attempt and a.end_at is not None]
    last = max(before, key=lambda a: a.submit_at, default=None)
    if last is None:
        return None
    verdict = next((v for v in verdicts if (v.job_id, v.submit_at) == (last.job_id, last.submit_at)), None)
    faulty = (records.Domain.HARDWARE, records.Domain.SYSTEM_SOFTWARE)
    return verdict if verdict is not None and verdict.domain in faulty else None


def ended_by_own(event: records.HealthEvent, attempt: records.JobAttempt) -> bool:
    """True for a user-type GPU error close enough to the end to explain it."""
    assert attempt.end_at is not None
    return (
        attempt.state in ("FAILED", "REQUEUED", "CANCELLED", "TIMEOUT")
        and signatures.of(event).role is signatures.Role.USER
        and attempt.end_at - user_error.NEAR <= event.at <= attempt.end_at + evidence_view.SLACK
    )


def shared(
    co_residents: co_residency.CoResidents | None,
    attempt: records.JobAttempt,
    stretch: window.Window,
    mine: Iterable[records.HealthEvent],
) -> dict[str, tuple[cases.Span, ...]]:
    """Times at which other jobs ran on the nodes whose events may be a neighbour's."""
    wanted = neighbours_since(attempt, stretch, mine) if co_residents is not None else {}
    if co_residents is None or not wanted:
        return {}
    since = min(wanted.values()) - evidence_view.SLACK
    return co_residents.spans(attempt, wanted, since, stretch.end_at + evidence_view.SLACK)


def neighbours_since(
    attempt: records.JobAttempt, stretch: window.Window, mine: Iterable[records.HealthEvent]
) -> dict[str, datetime]:
    """Node with events that may be a neighbour's to the time from which its other jobs are needed."""
    assert attempt.start_at is not None
    contested = [e for e in mine if needs_neighbours(e, attempt)]
    begins = [neighbours_from(e, attempt.start_at, stretch.start_at) for e in contested]
    return dict.fromkeys((e.node for e in contested), min([stretch.start_at, *begins]))


def earliest(begins: Iterable[Mapping[str, datetime]]) -> dict[str, datetime]:
    """Node to the earliest of its instants."""
    found: dict[str, datetime] = {}
    for nodes in begins:
        found.update((node, min(at, found.get(node, at))) for node, at in nodes.items())
    return found


def active_faults_for(
    attempt: records.JobAttempt,
    stretch: window.Window,
    active_faults: ActiveFaults,
) -> tuple[records.HealthEvent, ...]:
    """Conditions that began before the attempt's window and were active at its end."""
    assert attempt.start_at is not None
    assert attempt.end_at is not None
    life = (attempt.start_at, attempt.end_at)
    return tuple(
        event
        for node in attempt.nodes
        for event, gone_at in active_faults.get(node, ())
        if was_active_at_end(event, gone_at, stretch.start_at, life)
    )


def was_active_at_end(
    event: records.HealthEvent,
    gone_at: datetime | None,
    window_start_at: datetime,
    life: tuple[datetime, datetime],
) -> bool:
    """True if a condition began before the window and was active at the attempt's end; `life` is its start and end.

    Of the last ACTIVE_FOR a lost GPU always counts, any other condition for a short attempt only: a long one outlived it.
    """
    if event.at < window_start_at - ACTIVE_FOR or (gone_at is not None and gone_at <= life[1]):
        return False
    return may_be_active(event, window_start_at, life)


def may_be_active(
    event: records.HealthEvent, window_start_at: datetime, life: tuple[datetime, datetime]
) -> bool:
    """`was_active_at_end` for a condition whose end has not been read yet, without the limit on its age."""
    start_at, end_at = life
    if signatures.is_until_reset(event):
        return event.at < max(window_start_at, start_at)
    return event.at < window_start_at and end_at - start_at <= SHORT


def stalls_for(
    attempt: records.JobAttempt, stretch: window.Window, stalls: ActiveFaults
) -> tuple[records.HealthEvent, ...]:
    """Stalls on the attempt's nodes that may be why a person or a limit ended it; none for other ends."""
    if (
        attempt.state not in vocabulary.ENDED_FROM_OUTSIDE
        or attempt.start_at is None
        or attempt.end_at is None
    ):
        return ()
    life = (attempt.start_at, attempt.end_at)
    return tuple(
        event
        for node in attempt.nodes
        for event, gone_at in stalls.get(node, ())
        if stalled(event, gone_at, stretch.start_at, life)
    )


def stalled(
    event: records.HealthEvent,
    gone_at: datetime | None,
    window_start_at: datetime,
    life: tuple[datetime, datetime],
) -> bool:
    """True if a stall began in the attempt's life (its start and end), before the window, and no event ended it by then."""
    start_at, end_at = life
    began = max(start_at, window_start_at - STALLED) <= event.at < window_start_at
    return began and (gone_at is None or gone_at > end_at)


def neighbours_from(event: records.HealthEvent, start_at: datetime, window_start_at: datetime) -> datetime:
    """The time from which the other jobs on the event's node are needed, for an attempt that started at `start_at`."""
    lasting = signatures.is_until_reset(event)
    return max(event.at, min(window_start_at, start_at) if lasting else window_start_at)


def may_need_neighbours(event: records.HealthEvent) -> bool:
    """`needs_neighbours` for an event before the end of an attempt whose GPUs are unknown."""
    signature = signatures.of(event)
    if signature.role is signatures.Role.CONTEXT:
        return False
    return event.kind == "oom" or view_builder.means_gpu(event, signature)


def needs_neighbours(event: records.HealthEvent, attempt: records.JobAttempt) -> bool:
    """True for an event that can only be assigned if the other attempts on its node are known."""
    signature = signatures.of(event)
    if signature.role is signatures.Role.CONTEXT:
        return False
    if attempt.end_at is not None and event.at > attempt.end_at + evidence_view.SLACK:
        return True  # it may be the next job's
    if event.kind == "oom":
        return event.job_id is None
    return view_builder.means_gpu(event, signature) and (
        attempt.gpus is None or event.node not in attempt.gpus or not event.gpu_uuid
    )


def past_faults(
    found: Iterable[Mapping[Any, Any]], now: Iterable[records.HealthEvent]
) -> Iterable[cases.PastFault]:
    """Older faults on the GPUs of the events `now` (not empty); `found` are rows of past_xids.sql."""
    own = next(iter(now))
    known = gpus.learn(now, ())

    @functools.cache
    def name_of(node: str, device: str | None, pci: str | None, uuid: str | None) -> str | None:
        met = dataclasses.replace(own, node=node, device=device, pci_bus_id=pci, gpu_uuid=uuid)
        return gpus.gpu_key(met, known.get(node, gpus.GpuMap()))

    for row in found:
        name = name_of(row["node"], row["device"], row["pci_bus_id"], row["gpu_uuid"])
        held = row["held"]
        if name is None or (held is not None and row["gpu_uuid"] and row["gpu_uuid"] not in held):
            continue
        yield cases.PastFault(
            node=row["node"],
            gpu=name,
            code=row["code"] or "",
            at=row["at"],
            job_id=row["job_id"],
            user=row["user"],
        )
