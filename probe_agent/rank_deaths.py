"""Which deaths among a job's ranks on this node are told, and when."""

from __future__ import annotations

from datetime import timedelta

from probing_cluster.core import clock
from probing_cluster.probe_agent import deaths, rank_events
from probing_cluster.probe_agent.ranks import Rank, Watched
from probing_cluster.probe_agent.sighting import Sighting

MAX_TOLD = 1024
"""Deaths told of one attempt on one node: a user may start and kill processes for ever."""


def judge(
    watched: Watched,
    watcher: deaths.DeathWatch,
    tell: rank_events.RankEvents,
    at: clock.Clock,
    *,
    settled: bool = False,
) -> list[Sighting]:
    """The deaths that are news now; with `settled` nothing is waited for, since the attempt has ended."""
    now_s = at.monotonic_s()
    gone = [r for r in watched.ranks.values() if r.was_alive and not r.alive]
    for rank in gone:
        if rank.died_s is None:
            rank.died_s = watcher.died_s(rank.page.pid) or now_s
    told = [r for r in gone if not r.dead_told and _is_told(watched, r, now_s, settled)]
    return [
        tell.dead(watched.job, r.page, at.now() - timedelta(seconds=max(0.0, now_s - _ended(r).died_s)))
        for r in told
    ]


def _is_told(watched: Watched, rank: Rank, now_s: float, settled: bool) -> bool:
    """Judges a death once the fate of the others is known."""
    end = _ended(rank)
    if not settled and now_s - end.died_s < deaths.SETTLE_S:
        return False
    rank.dead_told = True
    others = [r.end for r in watched.ranks.values() if r is not rank and r.was_alive]
    if not deaths.is_news(end, others):
        return False
    rank.died_first = True
    watched.deaths += 1
    return watched.deaths <= MAX_TOLD


def _ended(rank: Rank) -> deaths.End:
    assert rank.end is not None
    return rank.end
