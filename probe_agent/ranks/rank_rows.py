"""What the heartbeat tells of each rank: what it does, how far it is and what its steps take."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

from probing_cluster.probe_agent.ranks import pages, step_windows
from probing_cluster.probe_agent.ranks.ranks import Rank, WatchedJob

MAX_ROWS = 256
"""Ranks of all jobs of this node in one heartbeat: some 100 KB at most; a GPU node has eight."""


def rows(jobs: Mapping[int, WatchedJob], now_ns: int) -> dict[str, Any]:
    """`<job>:<rank>` (before it has one `<job>:pid<pid>`) to its row; `now_ns` by the monotonic clock."""
    of_users: dict[int | None, list[tuple[int, Rank]]] = {}
    for job_id, watched in jobs.items():
        of_users.setdefault(watched.job.uid, []).extend((job_id, rank) for rank in watched.chosen())
    # Users take turns: one with more ranks or forged pages than there is room for hides no other's.
    turns = itertools.zip_longest(*of_users.values())
    shown = (one for turn in turns for one in turn if one is not None)
    found: dict[str, Any] = {}
    for job_id, rank in itertools.islice(shown, MAX_ROWS):
        found.setdefault(
            f"{job_id}:{_name(rank.page)}", _row(rank, now_ns)
        )  # the first of a number, as chosen
    return found


def age_s(now_ns: int, then_ns: int | None) -> float | None:
    """Seconds since an instant of the page's clock; None where there is none."""
    return None if then_ns is None else round(max(0.0, (now_ns - then_ns) / 1e9), 3)


def _name(page: pages.ProbePage) -> str:
    return f"pid{page.pid}" if page.rank is None else str(page.rank)


def _row(rank: Rank, now_ns: int) -> dict[str, Any]:
    page = rank.page
    inside = page.inside()
    row = {
        "pid": page.pid,
        "alive": rank.alive,
        "state": rank.facts.state if rank.facts is not None else "",
        "phase": page.phase,
        "phase_age_s": age_s(now_ns, page.phase_since_ns),
        "steps": page.steps,
        "step_age_s": age_s(now_ns, page.step_ns),
        "inside": f"{inside.op} {inside.group}#{inside.seq}" if inside is not None else "",
        "inside_s": age_s(now_ns, inside.enter_ns) if inside is not None else None,
        "checkpoints": page.checkpoints,
        "world_size": page.world_size,
        "stalled": rank.stalled,
        "window": step_windows.latest(page.recent_steps),
    }
    return {name: value for name, value in row.items() if value not in (None, "", False) or name == "alive"}
