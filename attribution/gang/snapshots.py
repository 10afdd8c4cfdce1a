"""Finds the reason for which a gang stopped, from its nodes' events."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from probing_cluster.attribution.gang import finding, load, stall, views
from probing_cluster.core import digits, records

SNAPSHOT, DEAD, STALL = "rank_snapshot", "rank_dead", "rank_stall"
KINDS = (SNAPSHOT, DEAD, STALL)
LAST_STEP = "last_progress"
"""Kind of the event with the last step of an ended attempt on one node."""
BECAUSE = timedelta(seconds=30)
"""A rank that dies within this after another died because of it: Slurm ends a failed step, gloo's peers give up."""
TEARDOWN = timedelta(seconds=3)
"""Slurm ends a job's tasks up to this long before the job's end: ranks that die then were ended."""

GIVING_UP = timedelta(seconds=30)
"""Time that ranks with a timed-out collective may need to print the reason and end, on a slow machine."""

WOKEN = timedelta(seconds=40)
"""Slurm sends SIGCONT before it ends a job, and kills what still runs after KillWait (30 s): stopped ranks may go on for that time."""
WOKEN_STEPS, WOKEN_CALLS = 2, 16
"""Most steps, or collectives of a program without steps, for which ranks in that time still count as stalled."""


@dataclass(frozen=True, kw_only=True)
class Gang:
    """The agents' reports on a gang's ranks at one time."""

    ranks: tuple[views.RankView, ...]
    world_size: int | None
    evidence: tuple[records.HealthEvent, ...]
    """The last snapshot of every node, and the deaths."""
    nodes: frozenset[str]
    """Nodes with a snapshot."""
    onset_at: datetime
    """Time of its last progress."""
    longest_step: timedelta
    """`longest_step` of its stalls."""


_LONGEST_S = 30 * 86400.0
"""Longest credible stall: a larger number comes from a forged event."""


def gang(events: Iterable[records.HealthEvent], *, end_at: datetime | None = None) -> Gang | None:
    """The gang in its last snapshots before the teardown; None if no event reports its ranks."""
    reported = [e for e in events if e.source == "probe"]
    went_on = max(went_on_after(reported, end_at).values(), default=None)
    probe_events = [e for e in reported if e.kind in KINDS and (went_on is None or e.at > went_on)]
    if end_at is not None:
        before = [e for e in probe_events if e.at <= end_at - TEARDOWN]
        probe_events = before if any(e.kind == SNAPSHOT for e in before) else probe_events
    last = _last(probe_events)
    if end_at is not None:
        earlier = _last(e for e in probe_events if e.at <= end_at - GIVING_UP)
        last = earlier if _shows_more(earlier, last) else last
    alive_at = _alive_at(last)
    dropped = {e.event_id for e in probe_events if e.kind == DEAD and not _borne_out(e, alive_at)}
    probe_events = [e for e in probe_events if e.event_id not in dropped]
    if (dropped or went_on) and end_at is None and all(e.kind == SNAPSHOT for e in probe_events):
        return None  # a running gang without another sign of trouble
    deaths = [e for e in probe_events if e.kind == DEAD]
    ranks = _one_step(_with_deaths(_views(last), deaths))
    if not ranks:
        return None
    evidence = (*(last[n] for n in sorted(last)), *deaths)
    began = [
        e.at - timedelta(seconds=min(max(e.measured or 0.0, 0.0), _LONGEST_S))
        for e in probe_events
        if e.kind == STALL
    ]
    return Gang(
        ranks=tuple(ranks),
        world_size=_world((*last.values(), *deaths)),
        evidence=evidence,
        nodes=frozenset(last),
        onset_at=max(began) if began else min(e.at for e in evidence),
        longest_step=longest_step(probe_events),
    )


BOUND_STEPS = 3.0
"""A training rank's bound is at least this many of its longest steps (probe_agent/ranks/stall.py)."""
_LEARNT_AFTER = 5
"""Until a rank has made more steps than this, its bound rests on none."""
_LONGEST_STEP_S = 3600.0
"""Longest step, or validation between two steps, that counts: ranks report their bounds themselves."""


def longest_step(events: Iterable[records.HealthEvent]) -> timedelta:
    """How long the stalled ranks may have computed after their last step, as if nothing were wrong; zero if unknown.

    A stall's bound is learnt from the rank's own steps, so a step, or a validation between two steps, takes a third of it at most.
    """
    bounds_s = [
        digits.number(e.threshold) or 0.0
        for e in events
        if e.kind == STALL
        and e.detail.get("phase", "training") == "training"
        and (digits.index(e.detail.get("steps")) or 0) > _LEARNT_AFTER
    ]
    return timedelta(seconds=min(max(bounds_s, default=0.0) / BOUND_STEPS, _LONGEST_STEP_S))


def judge(
    found: Gang, node_faults: Mapping[str, Collection[str]], nodes: Sequence[str] = ()
) -> finding.GangFinding:
    """The finding on the gang; ranks without a report are assumed on those of the attempt's `nodes` without a snapshot."""
    gang_finding = stall.judge(found.ranks, world_size=found.world_size, node_faults=node_faults)
    last_snapshots = [e for e in found.evidence if e.kind == SNAPSHOT]
    gang_finding = stall.weigh(
        gang_finding,
        found.ranks,
        silent=load.silent(last_snapshots),
        stuck=found.nodes >= set(nodes) and load.is_stuck(last_snapshots),
    )
    gang_finding = replace(gang_finding, proof=(*gang_finding.proof, *load.proof(last_snapshots)))
    if gang_finding.kind != "missing" or gang_finding.nodes:
        return gang_finding
    silent = tuple(n for n in nodes if n not in found.nodes)
    why = f"no snapshot from {', '.join(silent)}" if silent else "each node sent a snapshot"
    return replace(gang_finding, nodes=silent, summary=f"{gang_finding.summary} ({why})")


@dataclass(frozen=True, kw_only=True)
class _Progress:
    """How far one process was when it was reported."""

    at: datetime
    steps: int
    seq: int
    """Highest sequence number of its collectives; 0 if not reported."""
    step_at: datetime
    """Time of its last step, not later than this if unknown."""
    stalled: bool
    """True if the agent found that it stood still."""


Process = tuple[str, int]
"""A node, and the pid of a process there."""


def process_of(event: records.HealthEvent) -> Process:
    """The process that a probe's event is about."""
    return (event.node, event.pid or 0)


def went_on_after(
    reported: Iterable[records.HealthEvent], end_at: datetime | None = None
) -> dict[Process, datetime]:
    """Process to the time of the probe's last report of it after which it made progress: its stalls reported until then have ended."""
    by_process: dict[Process, list[_Progress]] = {}
    for event in sorted(reported, key=_order):
        for pid, progress in _progress(event):
            by_process.setdefault((event.node, pid), []).append(progress)
    return {
        process: earlier.at
        for process, looks in by_process.items()
        for earlier, later in itertools.pairwise(looks)
        if _has_gone_on(earlier, later, end_at)
    }


def _progress(event: records.HealthEvent) -> Iterable[tuple[int, _Progress]]:
    """The processes that a probe's event reports, by pid, and how far they were."""
    if event.kind != SNAPSHOT:
        steps = digits.index(event.detail.get("steps"))
        if steps is not None:
            stalled, at = event.kind == STALL, event.at
            yield event.pid or 0, _Progress(at=at, steps=steps, seq=0, step_at=at, stalled=stalled)
        return
    # Of ten thousands of ranks, whole views with their stacks would take seconds.
    for entry in _list(event.detail.get("ranks")):
        if not isinstance(entry, dict) or digits.index(entry.get("rank")) is None:
            continue
        steps = digits.index(entry.get("steps")) or 0
        age_s = min(digits.number(entry.get("step_age_s")) or 0.0, _LONGEST_S)
        yield (
            digits.index(entry.get("pid")) or 0,
            _Progress(
                at=event.at,
                steps=steps,
                seq=0 if steps else _highest_seq(entry),
                step_at=event.at - timedelta(seconds=age_s),
                stalled=entry.get("stalled") is True,
            ),
        )


def _highest_seq(entry: Mapping[str, Any]) -> int:
    calls = (c for c in _list(entry.get("calls")) if isinstance(c, dict) and not c.get("is_p2p"))
    return max((digits.index(c.get("seq")) or 0 for c in calls), default=0)


def _has_gone_on(earlier: _Progress, later: _Progress, end_at: datetime | None) -> bool:
    """True if it made progress in between, other than when it was woken to be ended."""
    if end_at is not None and earlier.stalled and later.step_at - end_at > end_at - earlier.at:
        return False  # it stood still shortly before the end, and had longer to get on after it
    if not later.steps:
        return 0 < earlier.seq < later.seq - WOKEN_CALLS
    woken = end_at is not None and later.step_at >= end_at - WOKEN
    return later.steps > earlier.steps + (WOKEN_STEPS if woken else 0)


def stands_still(
    earlier: records.HealthEvent, later: records.HealthEvent, end_at: datetime | None = None
) -> bool:
    """True if the later of two snapshots of one node shows ranks of the earlier one, and none has made progress since."""
    then, now = dict(_progress(earlier)), dict(_progress(later))
    both = then.keys() & now.keys()
    return bool(both) and not any(_has_gone_on(then[pid], now[pid], end_at) for pid in both)


def _last(events: Iterable[records.HealthEvent]) -> dict[str, records.HealthEvent]:
    """Node to its last snapshot."""
    ordered = sorted((e for e in events if e.kind == SNAPSHOT), key=lambda e: (e.at, e.event_id))
    return {e.node: e for e in ordered}


def _shows_more(earlier: Mapping[str, records.HealthEvent], last: Mapping[str, records.HealthEvent]) -> bool:
    """True if the earlier snapshots show every rank at the same step, and only stacks tell who waits.

    Ranks that a timeout ended are leaving by then, and look like missing ones; their calls would tell the two apart.
    """
    then, now = _views(earlier), _views(last)
    steps = {r.pid: r.steps for r in then}
    return all(steps.get(r.pid) == r.steps and not r.calls for r in now)


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def _views(last: Mapping[str, records.HealthEvent]) -> list[views.RankView]:
    return [
        view
        for node, event in sorted(last.items())
        for entry in _list(event.detail.get("ranks"))
        if isinstance(entry, dict) and (view := views.from_snapshot(node, entry)) is not None
    ]


def _one_step(ranks: Sequence[views.RankView]) -> list[views.RankView]:
    """The ranks of the job step in trouble, each number once.

    Pages outlive their processes: those of an earlier step, or of ranks that a launcher restarted.
    """
    by_step: dict[int | None, dict[int, views.RankView]] = {}
    for rank in ranks:
        step = by_step.setdefault(rank.step_id, {})
        if rank.rank not in step or _now(rank) > _now(step[rank.rank]):
            step[rank.rank] = rank
    steps = [list(step.values()) for step in by_step.values()]
    return max(steps, key=_trouble, default=[])


def _now(rank: views.RankView) -> tuple[bool, bool, bool, float]:
    # A process that only helps a rank lives beside it with its number, makes no steps, and is younger.
    works = rank.alive and bool(rank.steps or rank.calls)
    return (rank.alive, rank.phase != "ended", works, -rank.phase_age_s)


def _trouble(step: Sequence[views.RankView]) -> tuple[int, int]:
    open_ranks = [r for r in step if r.phase != "ended"]
    return (sum(r.stalled is True for r in open_ranks), len(open_ranks))


def _alive_at(last: Mapping[str, records.HealthEvent]) -> dict[int | None, datetime]:
    """Job step to the time at which one of its ranks was last seen alive."""
    found: dict[int | None, datetime] = {}
    for node, event in last.items():
        for rank in _views({node: event}):
            if rank.alive and rank.phase != "ended":
                found[rank.step_id] = max(event.at, found.get(rank.step_id, event.at))
    return found


def _borne_out(death: records.HealthEvent, alive_at: Mapping[int | None, datetime]) -> bool:
    """False for ranks that died with all others of their node, unless a rank of their step was alive later.

    A step that its script restarts, or that Slurm ends before the job, loses its ranks in the same way.
    """
    if death.detail.get("together") is not True:
        return True
    step = death.detail.get("step_id")
    alive = alive_at.get(step) if step is None or isinstance(step, int) else None
    return alive is not None and alive >= death.at


def _with_deaths(
    ranks: Sequence[views.RankView], deaths: Sequence[records.HealthEvent]
) -> list[views.RankView]:
    """The ranks with the first death applied, also if it came after (or without) its node's snapshot.

    A rank that died soon after the first died because of it, and counts as waiting. If a node lost all its ranks at once,
    the first of them is unknown.
    """
    found = {(r.node, r.pid): r for r in ranks}
    first = min(deaths, key=_order, default=None)
    for event in sorted(deaths, key=_order):
        key = (event.node, event.pid or 0)
        if first is not None and first.at < event.at <= first.at + BECAUSE and not _with(first, event):
            if key in found:
                found[key] = replace(found[key], alive=True)
            continue
        known = found.get(key)
        rank = digits.index(event.detail.get("rank"))
        if known is not None:
            found[key] = replace(known, alive=False)
        elif rank is not None:
            found[key] = views.RankView(
                rank=rank,
                node=event.node,
                pid=event.pid or 0,
                alive=False,
                step_id=digits.index(event.detail.get("step_id")),
                phase=str(event.detail.get("phase") or "none"),
                steps=digits.index(event.detail.get("steps")) or 0,
            )
    return list(found.values())


def _order(event: records.HealthEvent) -> tuple[datetime, object]:
    return (event.at, event.event_id)


def _with(first: records.HealthEvent, event: records.HealthEvent) -> bool:
    """True if both died when their node lost all its ranks."""
    together = event.detail.get("together") is True and first.detail.get("together") is True
    return together and event.node == first.node


def _world(last: Iterable[records.HealthEvent]) -> int | None:
    sizes = [digits.index(s.detail.get("world_size")) for s in last]
    return max((s for s in sizes if s is not None), default=None)
