"""Attempts that shared a node with an attempt, and the attempt that took a preempted one's place."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from probing_cluster.attribution.verdict import case as cases
from probing_cluster.core import clock, records

NEAR = timedelta(minutes=15)
"""An attempt that starts within this time after a preemption may be the preemptor."""
_SLACK_US = 1_000_000
_NULL, _OPEN = (int(limit) for limit in (np.iinfo(np.int64).min, np.iinfo(np.int64).max))

Numbers = npt.NDArray[np.int64]


class CoResidents:
    """The attempts that ran in a span, from `sql/ran.sql`."""

    def __init__(self, ran: pa.Table) -> None:
        self._ran = ran
        nodes = ran["nodes"].combine_chunks()
        self._names = pc.unique(pc.list_flatten(nodes))
        node = ints(pc.index_in(pc.list_flatten(nodes), value_set=self._names))
        row = ints(pc.list_parent_indices(nodes))
        self._start = microseconds(ran["start_at"])
        # Of attempts that start at once, the one with the highest priority took the place.
        importance = -ints(pc.fill_null(ran["priority"], 0))
        self._job = ints(ran["job_id"])
        self._by_rank = np.lexsort((self._job, importance, self._start))
        rank = np.empty_like(self._by_rank)
        rank[self._by_rank] = np.arange(len(rank))
        order = np.argsort(node * (len(rank) + 1) + rank[row])
        self._node, self._rank = node[order], rank[row][order]
        self._submit, self._end = microseconds(ran["submit_at"]), microseconds(ran["end_at"])
        self._number = {name: i for i, name in enumerate(self._names.to_pylist())}
        self._known: dict[str, list[tuple[int, int, int, int]]] = {}

    def spans(
        self, attempt: records.JobAttempt, nodes: Iterable[str], since: datetime, until: datetime
    ) -> dict[str, tuple[cases.Span, ...]]:
        """Node to the times in the span at which attempts other than `attempt` ran there."""
        mine = (attempt.job_id, clock.to_us(attempt.submit_at))
        low, high = clock.to_us(since), clock.to_us(until)
        found = {node: self._over(node, mine, low, high) for node in nodes}
        return {node: spans for node, spans in found.items() if spans}

    def successors(
        self, ends: Sequence[int] | Numbers, jobs: Sequence[int] | Numbers, nodes: pa.Array
    ) -> list[int | None]:
        """For each attempt (its end in microseconds, its job id, its nodes as a list): the row that took its place."""
        end, job = np.asarray(ends, np.int64), np.asarray(jobs, np.int64)
        attempt = ints(pc.list_parent_indices(nodes))
        node = ints(pc.fill_null(pc.index_in(pc.list_flatten(nodes), value_set=self._names), -1))
        attempt, node = attempt[node >= 0], node[node >= 0]
        n = len(self._by_rank)
        best = np.full(len(end), n)
        if n:
            starts = self._start[self._by_rank]
            first = np.searchsorted(starts, end - _SLACK_US, "left")
            last = np.searchsorted(starts, end + clock.span_us(NEAR), "right")
            key = self._node * (n + 1) + self._rank
            at = np.searchsorted(key, node * (n + 1) + first[attempt], "left")
            until = np.searchsorted(key, node * (n + 1) + last[attempt], "left")
            jobs_there = self._job[self._by_rank[self._rank]]
            while True:
                # A job that starts again is not its own preemptor.
                own = (at < until) & (jobs_there[np.minimum(at, len(key) - 1)] == job[attempt])
                if not own.any():
                    break
                at = at + own
            found = at < until
            np.minimum.at(best, attempt[found], self._rank[at[found]])
        return [int(self._by_rank[rank]) if rank < n else None for rank in best]

    def rows(self, indices: Sequence[int]) -> list[dict[str, Any]]:
        """Rows of these attempts: job_id, submit_at, attempt."""
        chosen = self._ran.select(["job_id", "attempt", "submit_at"]).take(pa.array(indices, pa.int64()))
        submit = instants(chosen["submit_at"])
        plain = chosen.drop_columns(["submit_at"]).to_pylist()
        return [{**row, "submit_at": at} for row, at in zip(plain, submit, strict=True)]

    def _over(self, node: str, mine: tuple[int, int], low: int, high: int) -> tuple[cases.Span, ...]:
        if node not in self._known:
            self._known[node] = self._on(node)
        # Plain numbers: a node has few attempts, and NumPy's calls cost more than that.
        return tuple(
            (_at(start), None if end == _OPEN else _at(end))
            for end, start, job, submit in self._known[node]
            if end >= low and start <= high and (job, submit) != mine
        )

    def _on(self, node: str) -> list[tuple[int, int, int, int]]:
        """The attempts on a node, by start: end and start (microseconds), job id, submit time (microseconds)."""
        number = self._number.get(node, -1)
        low, high = self._begins[number + 1], self._begins[number + 2]
        return list(zip(*(column[low:high].tolist() for column in self._there), strict=True))

    @functools.cached_property
    def _there(self) -> tuple[Numbers, ...]:
        """Columns over (node, attempt) pairs, by node and start: end, start (microseconds), job id, submit time (microseconds)."""
        rows = self._by_rank[self._rank]
        end = np.where(self._end == _NULL, _OPEN, self._end)
        return end[rows], self._start[rows], self._job[rows], self._submit[rows]

    @functools.cached_property
    def _begins(self) -> list[int]:
        """Index in `_there` at which each node's pairs begin; one empty entry for unknown nodes comes first."""
        numbers = np.arange(-1, len(self._names) + 1)
        begins: list[int] = np.searchsorted(self._node, numbers).tolist()
        return begins


def ints(column: pa.Array | pa.ChunkedArray) -> Numbers:
    """A column without nulls as 64-bit integers."""
    found: Numbers = np.asarray(column.to_numpy(), np.int64)
    return found


def microseconds(column: pa.ChunkedArray) -> Numbers:
    """Instants as microseconds since 1970; a null becomes the smallest number."""
    return ints(pc.fill_null(column.cast(pa.int64()), _NULL))


def instants(column: pa.ChunkedArray) -> list[datetime | None]:
    """Instants as datetimes; Arrow's own conversion looks up the time zone for each."""
    given = column.cast(pa.int64()).to_pylist()
    return [None if us is None else _at(us) for us in given]


@functools.lru_cache(maxsize=1 << 16)
def _at(us: int) -> datetime:
    return clock.from_us(us)
