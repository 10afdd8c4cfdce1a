"""Decides which deaths among a job's ranks on this node are reported, and when."""

from __future__ import annotations

from datetime import timedelta

from probing_cluster.core import clock
from probing_cluster.probe_agent.faults.sighting import Sighting
from probing_cluster.probe_agent.ranks import deaths, rank_events
from probing_cluster.probe_agent.ranks.ranks import Rank, WatchedJob

MAX_DEATH_EVENTS = 64
"""Deaths reported of one attempt on one node in an hour, and as many at its end: a user may start and kill processes for ever."""
_HOUR_S = 3600.0


def judge(
    watched: WatchedJob,
    rank_events: rank_events.RankEvents,
    clock: clock.Clock,
    *,
    settled: bool = False,
) -> list[Sighting]:
    """The deaths that are news now; with `settled` nothing is waited for, since the attempt has ended."""
    now_s = clock.monotonic_s()
    gone = [r for r in watched.ranks.values() if r.was_alive and not r.alive and r.is_rank]
    for rank in gone:
        if rank.died_s is None:
            noticed = rank.watched.died_s if rank.watched is not None else None
            rank.died_s = now_s if noticed is None else noticed
    recent = watched.deaths_reported_s
    while recent and now_s - recent[0] >= _HOUR_S:
        recent.popleft()
    if settled:
        recent.clear()  # what ended the attempt may come after many deaths that it outlived
    sightings = []
    for rank in (r for r in gone if not r.death_reported):
        fate = _settle(watched, rank, now_s, settled=settled)
        if fate is None:
            continue
        rank.death_reported = True
        if fate is not deaths.EndMeaning.NOTHING:
            rank.died_first = True
            if len(recent) < MAX_DEATH_EVENTS:
                recent.append(now_s)
                at_s = now_s - _ended(rank).died_s
                when = clock.now() - timedelta(seconds=max(0.0, at_s))
                together = fate is deaths.EndMeaning.TOGETHER
                sightings.append(rank_events.dead(watched.job, rank.page, when, together=together))
    return sightings


def _settle(watched: WatchedJob, rank: Rank, now_s: float, *, settled: bool) -> deaths.EndMeaning | None:
    """What a death says, now that the fate of the others is known; None while it is not."""
    end = _ended(rank)
    passed_s = now_s - end.died_s
    if not settled and passed_s < deaths.SETTLE_S:
        return None
    # Of two with one number: a launcher ends soon after its rank, and a program that goes on has lost a helper.
    above = [r for r in watched.alike(rank) if r.page.pid in rank.ancestors]
    if any((r.end.died_s if r.end is not None else now_s) - end.died_s > deaths.BECAUSE_S for r in above):
        return deaths.EndMeaning.NOTHING
    if not settled and any(r.alive for r in above):
        return None
    # A launcher outlives its ranks by seconds, and a helper may; neither waits for anybody.
    others = [r for r in watched.ranks.values() if r is not rank and r.was_alive and r.is_rank]
    # Who has been started since (by torchrun, or by the script's next srun) says nothing about this end.
    before = [r.end for r in others if r.started_s is None or r.started_s <= end.died_s]
    fate = deaths.fate(end, before)
    if fate is not deaths.EndMeaning.TOGETHER:
        return fate
    if settled or (len(before) < len(others) and any(r.alive for r in others)):
        return deaths.EndMeaning.NOTHING
    # Slurm ends all of a job's tasks so, and then runs the Epilog; it has not where the job still runs.
    return None if passed_s < deaths.TEARDOWN_S else fate


def _ended(rank: Rank) -> deaths.RankEnd:
    assert rank.end is not None
    return rank.end
