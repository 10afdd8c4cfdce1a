"""Divides a day's ended attempts, by column, into those with an event that may change their verdict and those without.

`event_weight.Weight` defines how each sort of event can change a verdict; a property test compares it with the judge.
The verdict of an attempt without such an event follows from how it ended (`no_evidence_verdict`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from probing_cluster.attribution.passes import (
    assign_rows,
    event_weight,
    event_windows,
    fetch,
    incidents,
    pending,
    preempted,
    watch_columns,
)
from probing_cluster.attribution.verdict import case as cases
from probing_cluster.attribution.verdict import (
    co_residency,
    eliminate,
    evidence_view,
    judge,
    signatures,
    window,
)
from probing_cluster.attribution.verdict.rules import user_error
from probing_cluster.core import clock, records, vocabulary
from probing_cluster.db import store

_SQL = Path(__file__).parent / "sql"
_DAY_US = 86_400_000_000

Flags = npt.NDArray[np.bool_]

_BY_NODE = frozenset({"NODE_FAIL", "BOOT_FAIL", "OUT_OF_MEMORY"})
"""States for which every event on the nodes matters."""


@dataclass(frozen=True, kw_only=True)
class PrefilterResult:
    """Which attempts of one cluster need the judge, and the columns that were read."""

    without_evidence: Flags
    """For each attempt: True if no record may change its verdict."""
    preemptors: Mapping[int, Mapping[str, Any]]
    """Index of a preempted attempt to its preemptor: job_id, attempt."""
    outside: Mapping[int, Sequence[str]]
    """Index of an attempt to its verdict's sentences about faults outside its window."""
    struck: Mapping[int, frozenset[str]]
    """Index of an attempt to the first words of the sentences to leave out (`eliminate.STRUCK`)."""
    cache: fetch.PassCache


def prefilter(source: store.Store, ended: pa.Table, policy: cases.WindowPolicy) -> PrefilterResult:
    """Divides attempts of one cluster that started and ended (columns of `sql/open_attempts.sql`)."""
    found = _Prefilter(source, ended, policy)
    return found.sorted()


class _Prefilter:
    """Attempts of one cluster that ended close together."""

    def __init__(self, source: store.Store, ended: pa.Table, policy: cases.WindowPolicy) -> None:
        self._source, self._ended, self._policy = source, ended, policy
        self._fetcher = fetch.Fetcher(source, policy)
        self._cluster = ended["cluster"][0].as_py()
        self._n = ended.num_rows
        self._start, self._end = (
            co_residency.microseconds(ended["start_at"]),
            co_residency.microseconds(ended["end_at"]),
        )
        self._from = self._end - round(policy.before_s * 1e6)
        self._to = self._end + round(policy.after_s * 1e6)
        self._since = _at(self._from.min()) - window.SLURMD_TIMEOUT
        """The earliest begin of a window, apart from those that a hang moves back."""
        self._lists = ended["nodes"].combine_chunks()
        flat = pc.list_flatten(self._lists)
        self._names = pc.unique(flat)
        self._attempt = co_residency.ints(pc.list_parent_indices(self._lists))
        """For each (attempt, node) pair: the attempt's index."""
        self._node = co_residency.ints(pc.index_in(flat, value_set=self._names))

    def sorted(self) -> PrefilterResult:
        names = self._names.to_pylist()
        ends = _at(self._end.min()), _at(self._end.max())
        watched = self._fetcher.watched(self._cluster, names, *ends)
        clocks, end = self._fetcher.clocks(self._cluster), self._end[self._attempt]
        unwatched = watch_columns.unwatched(names, watched, self._node, end)
        start, until = self._from[self._attempt], self._to[self._attempt]
        unwatched |= watch_columns.clock_was_off(names, clocks, self._node, start, until)
        to_judge = self._by_themselves() | self._any(unwatched)
        job_side = self._has_job_side_events()
        arguing, changes_preempted, mentionable, shared, outside = self._event_flags(names)
        active_faults, stood, lasting, conditions = self._active_faults(names)
        stalls, stalled = self._stalls(names, job_side)
        acted = self._acted(names)
        ran = self._ran(lasting)
        preemptors, again = self._preempted(ran)
        to_judge |= job_side | acted | again
        spared = self._states({"PREEMPTED"}) & ~to_judge & ~changes_preempted
        to_judge |= arguing | self._any(stood | stalled)
        struck = self._struck(conditions, np.flatnonzero(spared & to_judge), outside)
        to_judge[list(struck)] = False
        return PrefilterResult(
            without_evidence=~to_judge,
            preemptors=preemptors,
            outside=outside,
            struck=struck,
            cache=fetch.PassCache(
                since=self._since,
                watched=watched,
                active_faults=active_faults,
                stalls=stalls,
                co_residents=ran,
                shared=shared,
                depends_on_preemptor=frozenset(self._keys(np.flatnonzero(again))),
                places=self._places(
                    names,
                    mentionable | stood | stalled,
                    to_judge & ~job_side & ~acted & ~self._states(_BY_NODE),
                ),
            ),
        )

    def _by_themselves(self) -> Flags:
        """Attempts the columnar path cannot judge; they go to the judge one by one."""
        judged = self._states(judge.JUDGED_STATES - _BY_NODE)
        nowhere = co_residency.ints(pc.fill_null(pc.list_value_length(self._lists), 0)) == 0
        of_het = np.asarray(self._ended["of_het"], np.bool_)
        flags: Flags = ~judged | nowhere | of_het | (self._end < self._start)
        return flags

    def _states(self, states: Iterable[str]) -> Flags:
        flags: Flags = np.asarray(
            pc.is_in(self._ended["state"], value_set=pa.array(sorted(states), pa.string())), np.bool_
        )
        return flags

    def _any(self, places: Flags) -> Flags:
        """For each attempt: True if one of its pairs is flagged."""
        found: Flags = np.bincount(self._attempt[places], minlength=self._n) > 0
        return found

    def _has_job_side_events(self) -> Flags:
        """For each attempt: True if its job side (log, dumps, rank pages) reported an event."""
        jobs = self._ended["job_id"].to_pylist()
        given = {"job_ids": jobs, "since": _at(self._start.min()), "until": _at(self._to.max())}
        found = pa.array([r["job_id"] for r in self._rows("job_side_jobs", given)], pa.int64())
        flags: Flags = np.asarray(pc.is_in(self._ended["job_id"], value_set=found), np.bool_)
        return flags

    def _event_flags(
        self, names: Sequence[str]
    ) -> tuple[Flags, Flags, Flags, incidents.SharedIncidents, dict[int, list[str]]]:
        """Flags from node events, and what verdicts without evidence need of them.

        By attempt: events may change its verdict; events in its window may do so although it was preempted. By pair: a verdict
        may mention an event there. Then the times at which wide incidents may lie, and the sentences about faults outside the window.
        """
        kinds, codes = zip(*event_weight.inert_sorts(), strict=True)
        query = (_SQL / "weighed_events.sql").read_text("utf-8")
        first, last = _at(self._from.min()), _at(self._to.max())
        read = self._source.arrow(query, self._cluster, first, last, list(kinds), list(codes))
        sorts, of = event_weight.sorts_of(read)
        shared = incidents.SharedIncidents(event_weight.wide(read, sorts, of), first, last)
        events = event_windows.EventWindows(read, sorts, of, self._names)
        start, end = self._from[self._attempt], self._to[self._attempt]
        near = np.maximum(start, (self._end - clock.span_us(user_error.NEAR))[self._attempt])
        over = (self._end + clock.span_us(evidence_view.SLACK))[self._attempt]
        windows = events.between(self._node, start, end)
        argues = events.within(windows, events.weight == event_weight.Weight.ARGUES)
        own = events.within(events.between(self._node, near, over), events.weight == event_weight.Weight.USER)
        day_before = events.between(self._node, start - _DAY_US, start - 1)
        outside = events.within(day_before, events.root)
        begin = np.clip(self._start[self._attempt], start - _DAY_US, start)
        before_start = events.within(events.between(self._node, start - _DAY_US, begin - 1), events.root)
        left = events.within(events.between(self._node, begin, start - 1), events.root)
        reaching = events.reaching(day_before, start)
        faint = np.zeros(self._n, np.int64)
        some_faint = np.zeros(len(self._node), np.bool_)
        for channel in events.faint_by_channel():
            here = events.within(windows, channel)
            some_faint |= here
            faint += self._any(here)
        user = events.within(windows, events.weight == event_weight.Weight.USER)
        none_held = np.asarray(pc.fill_null(pc.equal(self._ended["n_gpus"], 0), False), np.bool_)
        without = none_held[self._attempt]
        mentioned: list[tuple[int, list[tuple[int, str]]]] = []
        for places, which in (
            (np.flatnonzero(outside & ~without), events.root),
            (np.flatnonzero(outside & without), events.root & ~events.of_gpu),
        ):
            there = events.what((day_before[0][places], day_before[1][places]), which)
            mentioned += zip(places.tolist(), there, strict=True)
        sentences, unordered = self._outside(names, mentioned)
        to_judge = self._any(argues | own | reaching | before_start) | (faint > 1) | unordered
        # Such a fault lowers the confidence in a time limit or cancellation.
        to_judge |= self._any(left) & self._states(vocabulary.ENDED_FROM_OUTSIDE)
        changes_preempted = self._any(events.within(windows, events.changes_preempted) | reaching) | unordered
        return to_judge, changes_preempted, argues | user | some_faint | outside | reaching, shared, sentences

    def _outside(
        self, names: Sequence[str], before: Iterable[tuple[int, Iterable[tuple[int, str]]]]
    ) -> tuple[dict[int, list[str]], Flags]:
        """Index of an attempt to its sentences about faults before its window (`before`: pair, times and names of events).

        Second: the attempts with two such faults at one instant, whose order is therefore unknown.
        """
        faults: dict[int, list[tuple[int, str, str]]] = {}
        for place, there in before:
            mine = faults.setdefault(int(self._attempt[place]), [])
            mine += [(at, what, names[self._node[place]]) for at, what in there]
        unordered = np.zeros(self._n, np.bool_)
        sentences = {}
        for i, mine in faults.items():
            unordered[i] = len({at for at, *_ in mine}) < len(mine)
            last = sorted(mine)[-eliminate.MAX_OUTSIDE :]
            made = (eliminate.outside(what, node, (self._end[i] - at) / 1e6) for at, what, node in last)
            sentences[i] = list(dict.fromkeys(made))
        return sentences, unordered

    def _active_faults(
        self, names: Sequence[str]
    ) -> tuple[assign_rows.ActiveFaults, Flags, dict[str, datetime], dict[int, list[records.HealthEvent]]]:
        """The active conditions, per place whether one concerns its attempt, and from when on it is to be known who ran on those nodes.

        Last: number of an attempt to the conditions that concern it.
        """
        end = _at(self._end.max())
        met = self._fetcher.conditions.since(self._cluster, names, self._since - assign_rows.ACTIVE_FOR, end)
        lasting = {n for n, found in met.items() if any(signatures.is_until_reset(e) for e, _ in found)}
        faulty, any_length = (
            np.isin(self._node, [i for i, name in enumerate(names) if name in some])
            for some in (met, lasting)
        )
        short = self._end - self._start <= clock.span_us(assign_rows.SHORT)
        places = {}
        near: list[assign_rows.Condition] = []
        for place in np.flatnonzero(faulty & (short[self._attempt] | any_length)):
            attempt, name = self._attempt[place], names[self._node[place]]
            since, life = _at(self._from[attempt]), (_at(self._start[attempt]), _at(self._end[attempt]))
            mine = [c for c in met[name] if assign_rows.may_be_active(c[0], since, life)]
            if mine:
                places[place] = name, since, life
                near += mine
        active_faults = self._fetcher.conditions.with_ends(self._cluster, near, end)
        flags = np.zeros(len(self._node), np.bool_)
        begins: dict[int, dict[str, datetime]] = {}
        of_attempt: dict[int, list[records.HealthEvent]] = {}
        for place, (name, since, life) in places.items():
            ends = active_faults[name]
            stood = [e for e, gone_at in ends if assign_rows.was_active_at_end(e, gone_at, since, life)]
            flags[place] = bool(stood)
            if stood:
                of_attempt.setdefault(int(self._attempt[place]), []).extend(stood)
            for event in filter(assign_rows.may_need_neighbours, stood):
                nodes = begins.setdefault(int(self._attempt[place]), {})
                begin = assign_rows.neighbours_from(event, life[0], since)
                nodes[name] = min(begin, nodes.get(name, begin))
        return active_faults, flags, _earliest(begins.values()), of_attempt

    def _struck(
        self,
        conditions: Mapping[int, Sequence[records.HealthEvent]],
        spared: npt.NDArray[np.intp],
        outside: Mapping[int, Sequence[str]],
    ) -> dict[int, frozenset[str]]:
        """Index of a preempted attempt, of `spared`, to the words that conditions strike; attempts that need the judge are missing."""
        rows = self._ended.select(["job_id", "n_gpus", "gpus_known"]).take(pa.array(spared)).to_pylist()
        given = {"cluster": self._cluster, "job_ids": [row["job_id"] for row in rows]}
        allocated = {r["job_id"] for r in self._rows("case_allocations", given)} if rows else set()
        found = {}
        for i, row in zip(spared.tolist(), rows, strict=True):
            mine = conditions.get(i, ())
            if mine and i in outside:
                continue  # the condition lies in the day before the window, and the judge must not call it outside
            known = row["gpus_known"] or row["job_id"] in allocated
            words = preempted.struck(mine, row["n_gpus"], gpus_known=known)
            if words is not None:
                found[i] = words
        return found

    def _stalls(self, names: Sequence[str], job_side: Flags) -> tuple[assign_rows.ActiveFaults, Flags]:
        """The stalls, and for each pair: True if a stall may be why a person or a limit ended the attempt."""
        flags = np.zeros(len(self._node), np.bool_)
        ended = self._states(vocabulary.ENDED_FROM_OUTSIDE)[self._attempt]
        if not ended.any():
            return {}, flags
        # For a job-side attempt, whose window a hang may move back, stalls are read from before all windows.
        oldest = np.where(job_side, clock.to_us(self._since), self._from) - clock.span_us(assign_rows.STALLED)
        begin = np.maximum(self._start, oldest)
        places = np.flatnonzero(ended & (begin < self._from)[self._attempt])
        spans = {i: (_at(begin[i]), _at(self._from[i])) for i in set(self._attempt[places].tolist())}
        lives = [
            (names[node], *spans[i])
            for node, i in zip(self._node[places].tolist(), self._attempt[places].tolist(), strict=True)
        ]
        stalls = self._fetcher.conditions.stalls(self._cluster, lives, _at(self._end.max()))
        faulty = np.isin(self._node, [i for i, name in enumerate(names) if name in stalls])
        for place in np.flatnonzero(faulty & ended):
            attempt, name = self._attempt[place], names[self._node[place]]
            since, life = _at(self._from[attempt]), (_at(self._start[attempt]), _at(self._end[attempt]))
            flags[place] = any(
                assign_rows.stalled(event, gone_at, since, life) for event, gone_at in stalls[name]
            )
        return stalls, flags

    def _acted(self, names: Sequence[str]) -> Flags:
        """Attempts on which, or on whose nodes, we acted."""
        given = {
            "cluster": self._cluster,
            "job_ids": self._ended["job_id"].to_pylist(),
            "nodes": list(names),
            "since": _at(self._start.min()) - 2 * fetch.NEAR,
            "until": _at(self._end.max()) + fetch.NEAR,
        }
        done = self._rows("case_actions", given)
        if not done:
            return np.zeros(self._n, np.bool_)
        jobs = pa.array([r["job_id"] for r in done if r["job_id"] is not None], pa.int64())
        own: Flags = np.asarray(pc.is_in(self._ended["job_id"], value_set=jobs), np.bool_)
        acted_on = {r["node"] for r in done}
        on = np.isin(self._node, [i for i, n in enumerate(names) if n in acted_on])
        return own | self._any(on)

    def _ran(self, lasting: Mapping[str, datetime]) -> co_residency.CoResidents:
        """The attempts that ran around these ends; on nodes in `lasting`, from an earlier instant on."""
        since, until = self._since - fetch.NEAR, _at(self._to.max()) + fetch.NEAR
        earlier = {node: at - fetch.NEAR for node, at in lasting.items()}
        return self._fetcher.co_residents(self._cluster, since, until, earlier)

    def _preempted(self, ran: co_residency.CoResidents) -> tuple[dict[int, Mapping[str, Any]], Flags]:
        """Index of a preempted attempt to its preemptor's row, and the attempts whose preemptor had started before."""
        mine = np.flatnonzero(self._states({"PREEMPTED"}))
        flags = np.zeros(self._n, np.bool_)
        jobs = co_residency.ints(self._ended["job_id"])[mine]
        found = ran.successors(self._end[mine], jobs, self._lists.take(pa.array(mine)))
        by = {int(i): row for i, row in zip(mine, found, strict=True) if row is not None}
        preemptors: dict[int, Mapping[str, Any]] = dict(zip(by, ran.rows(list(by.values())), strict=True))
        for i, row in preemptors.items():
            flags[i] = row["attempt"] > 1
        return preemptors, flags

    def _places(
        self, names: Sequence[str], mentionable: Flags, wanted: Flags
    ) -> dict[cases.Key, Sequence[str]]:
        """The nodes with events that a verdict may mention, for `wanted` attempts that have any; others are missing."""
        numbers = np.flatnonzero(wanted & self._any(mentionable))
        nodes: dict[int, list[str]] = {int(i): [] for i in numbers}
        for place in np.flatnonzero(mentionable & wanted[self._attempt]):
            nodes[int(self._attempt[place])].append(names[self._node[place]])
        return dict(zip(self._keys(numbers), nodes.values(), strict=True))

    def _keys(self, numbers: npt.NDArray[np.intp]) -> list[cases.Key]:
        """The keys of these attempts."""
        return pending.keys(self._ended.select(["cluster", "job_id", "submit_at"]).take(pa.array(numbers)))

    def _rows(self, name: str, given: Mapping[str, Any]) -> Sequence[Mapping[Any, Any]]:
        return self._source.rows((_SQL / f"{name}.sql").read_text("utf-8"), given)


def _earliest(begins: Iterable[Mapping[str, datetime]]) -> dict[str, datetime]:
    """Node to the earliest instant needed by any attempt; each attempt needs all its nodes from its own earliest instant on."""
    found: dict[str, datetime] = {}
    for nodes in begins:
        first = min(nodes.values())
        found.update((name, min(first, found.get(name, first))) for name in nodes)
    return found


def _at(us: Any) -> datetime:
    """The instant of a NumPy integer."""
    return clock.from_us(int(us))
