"""Reads every polled source in turn, judges it, and hands what it means to the intake and the fault state."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from probing_cluster.core import clock, processes, records
from probing_cluster.probe_agent import children, identity, self_watch
from probing_cluster.probe_agent.faults import conditions, faults
from probing_cluster.probe_agent.sources import polled
from probing_cluster.probe_agent.spool import intake, spool

STANDS_S = 60.0
"""How long the judgement of a reading in which nothing was amiss stands for readings equal to it.

Windows pass and grace periods end without any file changing, so it is judged again after this all the same.
"""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class _UnchangedReading:
    """A reading that said nothing and changed nothing, and what it was judged to be."""

    raw: Any
    judged: conditions.Judgement
    boot_id: str
    until_s: float

    def speaks_for(self, raw: Any, context: polled.PollContext, now_s: float) -> bool:
        must_read = context.closely or context.relearn or context.cleared
        return not must_read and now_s < self.until_s and context.boot_id == self.boot_id and raw == self.raw


class Poller:
    """The polled sources of one agent."""

    def __init__(
        self,
        *,
        sources: Sequence[polled.Polled],
        reader: polled.NodeReader,
        identity: identity.Identity,
        intake: intake.Intake,
        faults: faults.Faults,
        spool: spool.Spool,
        watch: self_watch.SelfWatch,
        context: Callable[[bool, bool, bool], polled.PollContext],
        on_change: Callable[[], None],
        clock: clock.Clock = clock.SYSTEM,
    ) -> None:
        """`context(closely, relearn, cleared)` makes the judges' context; `on_change` is called when the active faults have changed."""
        self._sources = tuple(sources)
        self._reader = reader
        self._identity = identity
        self._intake = intake
        self._faults = faults
        self._spool = spool
        self._watch = watch
        self._context = context
        self._on_change = on_change
        self._clock = clock
        self._trackers: dict[str, conditions.Tracker] = {}
        self._memory: dict[str, Mapping[str, Any]] = {}
        self._unchanged: dict[str, _UnchangedReading] = {}
        self.last: dict[str, Any] = {}
        """The last reading of every source, as it came."""
        self._round = 0
        self.first_round = asyncio.Event()
        """Set once every source has been tried."""
        self._busy = asyncio.Lock()

    async def poll(self, *, everything: bool = False, relearn: bool = False, cleared: bool = False) -> None:
        """One round: the sources whose turn it is, side by side; one that hangs delays no other."""
        async with self._busy:
            due = [s for s in self._sources if everything or self._round % s.every == 0]
            self._round += 1
            context = self._context(everything, relearn, cleared)
            # A group, not gather: cancelled, it waits until every source has ended its child.
            async with asyncio.TaskGroup() as group:
                for source in due:
                    group.create_task(self._one(source, context))
            self.first_round.set()

    async def _one(self, source: polled.Polled, context: polled.PollContext) -> None:
        memory = self._memory_of(source)
        began_s = self._clock.monotonic_s()
        try:
            raw = self.last[source.name] = await source.read(self._reader, memory, context)
            judged = self._judge(source, raw, memory, context)
        except children.ChildHung as exc:
            self._watch.failed(source.name, str(exc), state="hung")
            judged = _unseen(memory) if source.hung is None else source.hung(str(exc), memory)
        except processes.ChildFailed as exc:
            self._watch.failed(source.name, str(exc))
            judged = _unseen(memory)
        except Exception as exc:  # noqa: BLE001 - a source's own bug must not end the others
            _log.exception("source %s", source.name)
            self._watch.failed(source.name, f"{type(exc).__name__}: {exc}")
            judged = _unseen(memory)
        else:
            took_s = self._clock.monotonic_s() - began_s
            self._watch.read(source.name, self._clock.now(), state=judged.state, duration_s=took_s)
        self.settle(source, judged)

    def _judge(
        self, source: polled.Polled, raw: Any, memory: Mapping[str, Any], context: polled.PollContext
    ) -> conditions.Judgement:
        """What the reading means; an idle node says the same for hours and is not parsed for it each time."""
        known, now_s = self._unchanged.get(source.name), self._clock.monotonic_s()
        if known is not None and known.speaks_for(raw, context, now_s):
            return known.judged
        judged = source.judge(raw, memory, context)
        self._unchanged.pop(source.name, None)
        nothing = not (judged.present or judged.edges or judged.unknown or judged.reset or judged.inventory)
        if nothing and dict(judged.memory) == dict(memory):
            self._unchanged[source.name] = _UnchangedReading(
                raw=raw, judged=judged, boot_id=context.boot_id, until_s=now_s + STANDS_S
            )
        return judged

    def settle(self, source: polled.Polled, judged: conditions.Judgement) -> None:
        """Take a judgement in: its events, its conditions, and what the source wants to remember."""
        if judged.inventory is not None:
            self._intake.learn(judged.inventory)
        tracker = self._tracker_of(source)
        now = self._clock.now()

        def event_id(position: str) -> Any:
            return records.make_event_id(self._identity.cluster, self._identity.node, source.source, position)

        before = self._faults.rows().keys()
        sightings, _ = tracker.observe(judged, at=now, event_id=event_id)
        over = self._faults.observe(source.name, judged, tracker.active.values(), now)
        sightings += [faults.recovery(f, source.source, tracker.boot_id, now) for f in over]
        changed = self._faults.rows().keys() != before
        memory = dict(judged.memory)
        states: dict[str, Any] = {}
        if _lasting(memory) != _lasting(self._memory.get(source.name, {})):
            states[f"memory:{source.name}"] = memory
        self._memory[source.name] = memory
        if sightings:
            states[f"tracker:{source.name}"] = tracker.to_state()
        if changed:
            states["faults"] = self._faults.to_state()
        if sightings or states:
            self._intake.take(sightings, states)
        if changed:
            self._on_change()

    def _memory_of(self, source: polled.Polled) -> Mapping[str, Any]:
        if source.name not in self._memory:
            self._memory[source.name] = self._spool.state(f"memory:{source.name}") or {}
        return self._memory[source.name]

    def _tracker_of(self, source: polled.Polled) -> conditions.Tracker:
        boot_id = self._identity.boot_id()
        known = self._trackers.get(source.name)
        if known is None or known.boot_id != boot_id:
            state = self._spool.state(f"tracker:{source.name}")
            known = conditions.Tracker.from_state(source.source, boot_id, state)
            self._trackers[source.name] = known
        return known


def _lasting(memory: Mapping[str, Any]) -> dict[str, Any]:
    """The part of the state that is worth a write to the disk: without the number of the turn and the counts in a row."""
    return {k: v for k, v in memory.items() if k not in {"round", "streaks"}}


def _unseen(memory: Mapping[str, Any]) -> conditions.Judgement:
    """Records that nothing was read: active conditions are neither confirmed nor cleared."""
    return conditions.Judgement(unknown=frozenset({"*"}), memory=memory)
