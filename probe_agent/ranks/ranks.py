"""The training ranks of one job on this node, as they were last seen."""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass, field

from probing_cluster.probe_agent import children
from probing_cluster.probe_agent.jobs import jobs, processes
from probing_cluster.probe_agent.ranks import deaths, pages, progress, stall

MAX_RANKS = 64
"""Ranks of one job on one node that are reported; more are counted."""


@dataclass
class Rank:
    """One process with a page."""

    page: pages.ProbePage
    facts: processes.ProcessFacts | None
    progress: stall.RankProgress | None = None
    death_reported: bool = False
    """Its death has been judged, and reported if it may have begun a failure."""
    was_alive: bool = False
    watched: deaths.WatchedProcess | None = None
    """The watch over its process; None until that was met, or without room for one more of its user."""
    started_s: float | None = None
    """When its process started, by the monotonic clock and /proc: its page may claim any time. None until that was met."""
    died_s: float | None = None
    """When it was found to have ended, by the monotonic clock."""
    ancestors: frozenset[int] = frozenset()
    """The processes it descended from when it was first seen."""
    launches: bool = False
    """It only starts ranks (torchrun, torch.multiprocessing) and is none, whatever number Slurm gave it."""
    helps: bool = False
    """It only helps a rank (pages.helps) and is none, though it has its number."""
    died_first: bool = False
    """Its death was news: it was not ended because of others."""

    @property
    def alive(self) -> bool:
        """The process that made the page still runs (a recycled pid has another start time)."""
        return self.facts is not None and self.facts.state != "Z"

    @property
    def is_rank(self) -> bool:
        """Neither a launcher nor a helper."""
        return not (self.launches or self.helps)

    @property
    def stalled(self) -> bool:
        """It has not got on for longer than its own history allows."""
        return self.progress is not None and self.progress.reported

    @property
    def end(self) -> deaths.RankEnd | None:
        """How it ended; None while it lives."""
        if self.died_s is None:
            return None
        in_order = self.page.phase == "ended"
        return deaths.RankEnd(
            died_s=self.page.phase_since_ns / 1e9 if in_order else self.died_s, in_order=in_order
        )


@dataclass
class WatchedJob:
    """One start of one job on this node."""

    job: jobs.NodeJob
    lane: children.Lane
    """The reader of its pages, running as its owner."""
    ranks: dict[str, Rank] = field(default_factory=dict)
    """By name of the page."""
    sought: Counter[tuple[str, int | None]] = field(default_factory=Counter)
    """How often the process of a page (and start time) in another PID namespace was looked for in vain."""
    unsearched: frozenset[int] = frozenset()
    """Processes that could not be asked in the last such look: the next one begins with them."""
    refused: int = 0
    """Files in its page directory that are no pages."""
    unanswered: Counter[str] = field(default_factory=Counter)
    """Pages whose process did not show itself in the last looks, or was not asked: how many looks."""
    silent: bool = False
    """The reader did not answer when it was asked last."""
    snapshot_s: float | None = None
    """When its last snapshot was taken, by the monotonic clock."""
    deaths_reported_s: deque[float] = field(default_factory=deque)
    """When deaths of the last hour were reported, by the monotonic clock."""
    reported: progress.ReportedProgress = field(default_factory=progress.ReportedProgress)

    def alike(self, rank: Rank) -> list[Rank]:
        """The processes above and below one that have its number, as long as nothing shows which of them is the rank."""
        if not rank.page.idle:
            return []
        return [
            r
            for r in self.ranks.values()
            if r.is_rank
            and r.page.number == rank.page.number
            and (r.page.pid in rank.ancestors or rank.page.pid in r.ancestors)
        ]

    def chosen(self) -> list[Rank]:
        """At most MAX_RANKS by number; pages whose process was never met come last, since anyone can write them.

        Of one number the likeliest comes first: one that lives before those that were started anew, one that works, or has worked most, before its
        launcher and its helpers.
        """
        ranked = sorted((r for r in self.ranks.values() if r.is_rank), key=_place)
        return ranked[:MAX_RANKS]


def _place(rank: Rank) -> tuple[float, ...]:
    page = rank.page
    works = rank.alive and page.works
    cpu_s = rank.facts.cpu_s if rank.facts is not None and not works else 0.0
    number = page.rank is None, page.rank or 0
    return (not rank.was_alive, *number, not rank.alive, not works, -cpu_s, -(page.start_ticks or 0))
