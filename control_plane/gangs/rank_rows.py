"""The training ranks of a job as its nodes' heartbeats tell of them: the users' word, checked and bounded here."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from probing_cluster.attribution.gang import slow
from probing_cluster.core import records, sanitize

MAX_WORDS = 64
_KEY = re.compile(r"(?P<job>[0-9]{1,10}):(?:(?P<rank>[0-9]{1,10})|pid[0-9]{1,10})")


@dataclass(frozen=True, kw_only=True)
class RankNow:
    """One rank at the last heartbeat of its node."""

    job_id: int
    rank: int | None
    """None before its process group is up and no other source has named it."""
    node: str
    pid: int
    alive: bool
    state: str = ""
    """Process state letter of /proc; empty when not read."""
    phase: str = "none"
    phase_age_s: float | None = None
    steps: int = 0
    step_age_s: float | None = None
    """Since the last optimizer step; None before the first."""
    inside: str = ""
    """The collective it is in: `all_reduce 0#41`; empty when in none."""
    inside_s: float | None = None
    checkpoints: int = 0
    world_size: int | None = None
    stalled: bool = False
    """It has not got on for longer than its own history allows."""
    beat_age_s: float = 0.0
    """Age of the heartbeat: every other age is as of then."""
    silent: bool = False
    """Its node's agent is silent: the row is of the past."""
    window: slow.PaceWindow | None = None

    @property
    def name(self) -> str:
        """Its number, or its process."""
        return f"pid {self.pid}" if self.rank is None else str(self.rank)


def of_heartbeats(
    beats: Iterable[records.AgentHeartbeat],
    ages_s: Mapping[str, float] | None = None,
    job_id: int | None = None,
) -> list[RankNow]:
    """Every rank in some heartbeats (of one job), by job and rank; rows that are none are left out."""
    beat_ages_s = ages_s or {}
    found = [
        row
        for beat in beats
        for key, entry in beat.ranks.items()
        if (row := _row(beat.node, key, entry, beat_ages_s.get(beat.node, 0.0))) is not None
        and (job_id is None or row.job_id == job_id)
    ]
    return sorted(found, key=lambda r: (r.job_id, r.rank is None, r.rank or 0, r.node, r.pid))


def by_job(rows: Iterable[RankNow]) -> dict[int, list[RankNow]]:
    """The ranks of each job, in the order given."""
    jobs: dict[int, list[RankNow]] = {}
    for row in rows:
        jobs.setdefault(row.job_id, []).append(row)
    return jobs


def on_own_nodes(
    jobs: Mapping[int, Sequence[RankNow]], nodes: Mapping[int, Collection[str]]
) -> dict[int, list[RankNow]]:
    """The ranks of each job on its `nodes`, as Slurm gave them; all of a job whose nodes are not known.

    Whoever holds a node's certificate may name ranks of any job in its heartbeat.
    """
    own = {job_id: frozenset(nodes.get(job_id) or ()) for job_id in jobs}
    return {
        job_id: [r for r in rows if not own[job_id] or r.node in own[job_id]] for job_id, rows in jobs.items()
    }


def to_json(row: RankNow) -> dict[str, Any]:
    """A rank's row with stable keys."""
    plain = {name: getattr(row, name) for name in _JSON}  # asdict copies deeply: a second for 16,000 ranks
    return plain if row.window is None else plain | {"window": dataclasses.asdict(row.window)}


_JSON = tuple(f.name for f in dataclasses.fields(RankNow) if f.name != "job_id")


def from_json(job_id: int, plain: Mapping[str, Any]) -> RankNow:
    """The row that `to_json` made."""
    values = records.known_fields(RankNow, plain) | {"job_id": job_id}
    if window := values.get("window"):
        values["window"] = slow.PaceWindow(**records.known_fields(slow.PaceWindow, window))
    return RankNow(**values)


def _row(node: str, key: str, entry: object, beat_age_s: float) -> RankNow | None:
    named = _KEY.fullmatch(key)
    if named is None or not isinstance(entry, Mapping):
        return None
    try:
        return RankNow(
            job_id=int(named["job"]),
            rank=int(named["rank"]) if named["rank"] else None,
            node=node,
            pid=int(entry.get("pid") or 0),
            alive=entry.get("alive") is True,
            state=_word(entry.get("state"))[:1],
            phase=_word(entry.get("phase")) or "none",
            phase_age_s=_seconds(entry.get("phase_age_s")),
            steps=int(entry.get("steps") or 0),
            step_age_s=_seconds(entry.get("step_age_s")),
            inside=_word(entry.get("inside")),
            inside_s=_seconds(entry.get("inside_s")),
            checkpoints=int(entry.get("checkpoints") or 0),
            world_size=int(entry["world_size"]) if entry.get("world_size") else None,
            stalled=entry.get("stalled") is True,
            beat_age_s=round(beat_age_s, 3),
            window=slow.PaceWindow.from_row(entry.get("window")),
        )
    except (TypeError, ValueError, OverflowError):
        return None


def _word(value: object) -> str:
    return sanitize.clean(str(value), MAX_WORDS) if value is not None else ""


def _seconds(value: Any) -> float | None:
    if value is None:
        return None
    seconds = float(value)
    return seconds if math.isfinite(seconds) else None
