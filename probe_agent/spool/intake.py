"""The one way in: sightings of every source become events, folded, remembered as faults, and durable with their cursor."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from probing_cluster.core import clock, records
from probing_cluster.probe_agent import identity
from probing_cluster.probe_agent.faults import faults, gpus, sighting
from probing_cluster.probe_agent.spool import coalesce, spool

RECENT = 512
DROP_REPORT_S = 10.0
"""Drops are counted at once and reported as an event at most this often."""


class Intake:
    """Takes sightings in on behalf of every source of one agent."""

    def __init__(
        self,
        *,
        identity: identity.Identity,
        spool: spool.Spool,
        faults: faults.Faults,
        clock: clock.Clock = clock.SYSTEM,
    ) -> None:
        self._identity = identity
        self._spool = spool
        self._faults = faults
        self._clock = clock
        self._folds = coalesce.Coalescer()
        self._drops_reported_s = 0.0
        self.recent: deque[records.HealthEvent] = deque(maxlen=RECENT)
        """The events taken in last, for whom they concern on this node."""
        self.inventory = gpus.Inventory.from_state(spool.state("gpus"))
        self.arrived = asyncio.Event()
        """Set when something waits for delivery."""
        self.urgent = asyncio.Event()
        """Set when something of high severity does."""

    def take(
        self,
        sightings: Iterable[sighting.Sighting],
        states: Mapping[str, Any] | None = None,
        rows: Sequence[spool.SpoolItem] = (),
    ) -> list[records.HealthEvent]:
        """Store the sightings together with the state that explains them; returns the events that were not folded.

        `rows` are further items that become durable with them or not at all.
        """
        now, now_s = self._clock.now(), self._clock.monotonic_s()
        items: list[spool.SpoolItem] = []
        events: list[records.HealthEvent] = []
        changed = False

        def make(one: sighting.Sighting) -> records.HealthEvent:
            return sighting.to_event(one, identity=self._identity, inventory=self.inventory, observed_at=now)

        for one in sightings:
            ready, event = self._folds.add(one, make, now_s=now_s)
            items += ready
            if event is not None:
                events.append(event)
                self.recent.append(event)
                changed |= one.latches and self._faults.fold(event, now=now)
        stored = dict(states or {})
        if changed:
            stored["faults"] = self._faults.to_state()
        self.store([*items, *rows, *self._folds.open_items()], stored)
        return events

    def store(self, items: Sequence[spool.SpoolItem], states: Mapping[str, Any] | None = None) -> None:
        """Make items and state durable, and wake delivery."""
        self._spool.totals.coalesced += self._folds.drain_count()
        if items or states:
            self._spool.commit(spool.SpoolWrite(items=items, states=states or {}))
        self._report_drops()
        if any(not i.open for i in items):
            self.arrived.set()
        # Allocations are ranked as high so that a full spool keeps them; they can wait the second others wait.
        grave = spool.RANK[records.Severity.HIGH]
        if any(i.lane == "event" and i.rank == grave and not i.open for i in items):
            self.urgent.set()

    def tick(self, *, everything: bool = False) -> None:
        """Close the folds whose window has passed (all of them at shutdown)."""
        ready = self._folds.due(self._clock.monotonic_s(), everything=everything)
        if ready:
            self.store(ready)

    @property
    def has_open(self) -> bool:
        """True while a fold waits for its window to pass."""
        return self._folds.has_open

    def learn(self, inventory: gpus.Inventory) -> None:
        """The node's GPUs as just seen; remembered when they differ."""
        if inventory != self.inventory:
            self.inventory = inventory
            self.store((), {"gpus": inventory.to_state()})

    def save_faults(self) -> None:
        """Persist the fault state after something other than an event changed it."""
        self.store((), {"faults": self._faults.to_state()})

    def _report_drops(self) -> None:
        dropped, now_s = self._spool.dropped_unreported, self._clock.monotonic_s()
        if not dropped or now_s - self._drops_reported_s < DROP_REPORT_S:
            return
        self._drops_reported_s = now_s
        self._spool.dropped_unreported = 0
        event = self._drop_event(dropped)
        self._spool.commit(spool.SpoolWrite(items=[coalesce.event_item(event)]))

    def _drop_event(self, dropped: int) -> records.HealthEvent:
        boot_id = self._identity.boot_id()
        drops = sighting.Sighting(
            source="agent",
            position=f"{boot_id}:dropped:{self._spool.totals.dropped}",
            at=self._clock.now(),
            kind="agent_dropped",
            code="spool",
            severity=records.Severity.LOW,
            message=f"the spool was full: {dropped} sightings of the lowest severity, oldest first, were dropped",
            measured=float(dropped),
            unit="count",
            detail={"dropped_total": self._spool.totals.dropped},
        )
        return sighting.to_event(
            drops, identity=self._identity, inventory=self.inventory, observed_at=self._clock.now()
        )
