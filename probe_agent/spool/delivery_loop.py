"""Brings the spool to Postgres: high severity at once, the rest soon, a heartbeat on time, and no haste when it is down."""

from __future__ import annotations

import asyncio
import enum
import logging
import math
import random
import uuid
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Protocol

from probing_cluster.core import clock, errors, records
from probing_cluster.db import delivery
from probing_cluster.probe_agent.spool import codec, intake, spool

BATCH = 1000
GATHER_S = 1.0
"""How long events of no urgency are gathered before they are sent."""
BACKOFF_FIRST_S = 0.5
BACKOFF_MOST_S = 30.0
CALL_S = 60.0
"""A call that has not come back by then is given up; the connection is dropped."""
OVER_QUOTA_S = 300.0
"""How long a node whose rows of the hour are used up sends what is grave only, before it tries the rest again."""
_REMEMBERED_REQUESTS = 1000
_ANSWER_S = 60.0
"""How long an answer waits for a database that is away: nobody waits for it any longer."""
_MAX_ANSWERS = 8
_PROMPT_S = 20.0
_PROMPT_BEAT_S = 1.0
"""Longest time between deliveries while somebody asks questions: the next one often follows at once."""

_log = logging.getLogger(__name__)


class Door(Protocol):
    """db.delivery.Delivery, or a stand-in."""

    def deliver(
        self,
        *,
        events: Sequence[records.HealthEvent] = (),
        checks: Sequence[records.CheckResult] = (),
        allocations: Sequence[records.JobAllocation] = (),
        heartbeat: records.AgentHeartbeat | None = None,
        acknowledged: Sequence[uuid.UUID] = (),
        answers: Sequence[tuple[uuid.UUID, bytes]] = (),
    ) -> delivery.Ack: ...

    def close(self) -> None: ...


@dataclass(kw_only=True)
class DeliveryLoad:
    """One batch, decoded; what cannot be read any more is counted, not delivered."""

    items: list[spool.SpoolItem] = field(default_factory=list)
    lanes: dict[str, list[Any]] = field(default_factory=lambda: {lane: [] for lane in codec.LANES})
    unreadable: int = 0

    @classmethod
    def of(cls, items: list[spool.SpoolItem]) -> DeliveryLoad:
        load = cls(items=items)
        for item in items:
            try:
                load.lanes[item.lane].append(codec.decode(item.body, codec.LANES[item.lane]))
            except errors.MalformedInput:
                load.unreadable += 1
        return load


class Sending(enum.Enum):
    """What is sent now; the spool keeps the rest."""

    ALL = enum.auto()
    GRAVE = enum.auto()
    """Events of high severity and heartbeats: the node's rows of the hour are used up, and the database has a reserve for these."""
    HEARTBEATS = enum.auto()
    """Nothing else: the reserve is used up, too."""


class DeliveryLoop:
    """The agent's one conversation with the database; a single call is under way at any time."""

    def __init__(
        self,
        *,
        door: Callable[[], Door] | None,
        spool: spool.Spool,
        intake: intake.Intake,
        heartbeat: Callable[[], records.AgentHeartbeat],
        beat_s: Callable[[], float],
        on_request: Callable[[delivery.Request], None],
        clock: clock.Clock = clock.SYSTEM,
    ) -> None:
        """`door` makes a Delivery; None = no database is configured and everything stays in the spool."""
        self.beats = True
        """Whether heartbeats are sent; each promises the next one."""
        self._make_door = door
        self._door: Door | None = None
        self._spool = spool
        self._intake = intake
        self._heartbeat = heartbeat
        self._beat_s = beat_s
        self._on_request = on_request
        self._clock = clock
        self._failures = 0
        self._sending, self._reduced_until_s = Sending.ALL, -math.inf
        """What is sent until then; after it, all."""
        self._refused = False
        """Whether the database has just refused what is sent least."""
        self._beaten_s = -math.inf
        self._request_ids: OrderedDict[uuid.UUID, bool] = OrderedDict()
        self._to_acknowledge: set[uuid.UUID] = set()
        self._answers: dict[uuid.UUID, tuple[float, bytes]] = {}
        self._request_s = -math.inf
        self.error: str | None = None if door is not None else "no database is configured"
        self.delivered_at: datetime | None = None
        self.delivered_total = 0
        self.duplicates_total = 0

    async def run(self) -> None:
        """Deliver until cancelled."""
        if self._make_door is None:
            await asyncio.Event().wait()
        while True:
            more = await self.once()
            if not more:
                await self._wait()

    async def once(self, *, beat: bool = False) -> bool:
        """One delivery if there is anything to say; True when more waits and the database is well."""
        now_s = self._clock.monotonic_s()
        self._intake.arrived.clear()
        urgent = self._intake.urgent.is_set()
        self._intake.urgent.clear()
        load = DeliveryLoad.of(self._batch(now_s))
        # An urgent event travels with a heartbeat: the service acts only on a fault the latest one confirms.
        with_beat = self.beats and (beat or urgent or self._beat_left_s() <= 0.0)
        if not load.items and not with_beat and not self._answers:
            return False
        ack = await self._deliver(load, self._heartbeat() if with_beat else None)
        if ack is None:
            if urgent:
                self._intake.urgent.set()
            return False
        if with_beat:
            self._beaten_s = now_s
        self._settle(load, ack)
        return len(load.items) >= BATCH

    def _batch(self, now_s: float) -> list[spool.SpoolItem]:
        """The next items that the database takes now."""
        if now_s >= self._reduced_until_s:
            self._sending = Sending.ALL
        if self._sending is Sending.ALL:
            return self._spool.batch(BATCH)
        if self._sending is Sending.HEARTBEATS:
            return []
        # Allocations are ranked as high too, but the reserve takes events only: together they would be refused.
        return self._spool.batch(BATCH, lane="event", least_rank=spool.RANK[records.Severity.HIGH])

    async def drain(self, deadline_s: float) -> bool:
        """Deliver what waits, at shutdown; True when the spool is empty."""
        if self._make_door is None:
            return self._spool.depth == 0
        try:
            async with asyncio.timeout(deadline_s):
                while self._spool.depth and self._failures == 0:
                    if not await self.once(beat=True) and self._spool.depth:
                        break
        except TimeoutError:
            _log.warning("shutting down with %d items still in the spool", self._spool.depth)
        return self._spool.depth == 0

    def close(self) -> None:
        """Give the connection back."""
        if self._door is not None:
            self._door.close()
            self._door = None

    def beat_now(self) -> None:
        """Let the next delivery carry a heartbeat, without delay: the fault state has changed."""
        self._beaten_s = -math.inf
        self._intake.urgent.set()

    def ask_often(self) -> None:
        """Deliver every second for a while: a job has left a node with a hard fault, and its log will be asked for."""
        self._request_s = self._clock.monotonic_s()

    def acknowledge(self, request_id: uuid.UUID) -> None:
        """Tell the service, at once, that a request has been dealt with: a restart waits for it."""
        self._to_acknowledge.add(request_id)
        self._intake.urgent.set()

    def forget(self, request_id: uuid.UUID) -> None:
        """Take a request that failed up again when the service sends it again: it does so until it is acknowledged."""
        self._request_ids.pop(request_id, None)

    def answer(self, request_id: uuid.UUID, body: bytes) -> None:
        """Bring the answer to a request with the next delivery, at once; that acknowledges it, too."""
        now_s = self._clock.monotonic_s()
        self._request_s = now_s
        self._answers = {k: v for k, v in self._answers.items() if now_s - v[0] < _ANSWER_S}
        while len(self._answers) >= _MAX_ANSWERS:
            del self._answers[next(iter(self._answers))]
        self._answers[request_id] = now_s, body
        self._intake.urgent.set()

    async def _deliver(
        self, load: DeliveryLoad, heartbeat: records.AgentHeartbeat | None
    ) -> delivery.Ack | None:
        assert self._make_door is not None
        if self._door is None:
            self._door = self._make_door()
        acknowledged = tuple(self._to_acknowledge)
        answers = tuple((request_id, body) for request_id, (_, body) in self._answers.items())
        more: dict[str, Any] = {"answers": answers} if answers else {}
        try:
            async with asyncio.timeout(CALL_S):
                ack = await asyncio.to_thread(
                    self._door.deliver,
                    events=load.lanes["event"],
                    checks=load.lanes["check"],
                    allocations=load.lanes["allocation"],
                    heartbeat=heartbeat,
                    acknowledged=acknowledged,
                    **more,
                )
        except errors.OverQuota as exc:
            self._refused = self._sending is Sending.HEARTBEATS
            # A heartbeat by itself that came too soon says nothing about the reserve for faults.
            if load.items or self._sending is Sending.ALL:
                self._send_less(str(exc))
            return None
        except (errors.DatabaseUnavailable, TimeoutError) as exc:
            self._failed(str(exc) or f"no answer within {CALL_S:g} s", abandon=isinstance(exc, TimeoutError))
            return None
        self._to_acknowledge.difference_update(acknowledged)
        for request_id, _ in answers:
            self._answers.pop(request_id, None)
        return ack

    def _send_less(self, why: str) -> None:
        """Send less for a while: the database takes no more rows of this node in this hour."""
        if self._sending is Sending.ALL:
            _log.warning("only faults and heartbeats are sent for now, the rest stays in the spool: %s", why)
        self._sending = Sending.GRAVE if self._sending is Sending.ALL else Sending.HEARTBEATS
        self._reduced_until_s = self._clock.monotonic_s() + OVER_QUOTA_S

    def _failed(self, why: str, *, abandon: bool) -> None:
        self._failures += 1
        if self.error is None:
            _log.warning("delivery failed, everything stays in the spool: %s", why)
        self.error = why
        if abandon:
            self._door = None  # its thread ends when the network gives up

    def _settle(self, load: DeliveryLoad, ack: delivery.Ack) -> None:
        self._spool.ack(load.items)
        self._spool.totals.rejected += load.unreadable + ack.rejected
        if self.error is not None:
            _log.warning("delivery works again, %d items waiting", self._spool.depth)
        self._failures, self.error = 0, None
        self.delivered_at = self._clock.now()
        self.delivered_total += len(load.items)
        self.duplicates_total += ack.duplicates
        for request in ack.requests:
            if request.request_id not in self._request_ids:
                self._request_ids[request.request_id] = True
                self._begin(request)
        while len(self._request_ids) > _REMEMBERED_REQUESTS:
            self._request_ids.popitem(last=False)

    def _begin(self, request: delivery.Request) -> None:
        """Hand a request over; whatever it does wrong ends neither delivery nor the agent."""
        try:
            self._on_request(request)
        except Exception:  # noqa: BLE001 - what is asked of a node must not end its agent
            _log.exception("request %s (%s) failed", request.request_id, request.verb)

    def _beat_left_s(self) -> float:
        """Seconds until the next heartbeat; computed each time, since a job that starts shortens the interval."""
        now_s = self._clock.monotonic_s()
        beat_s = (
            min(self._beat_s(), _PROMPT_BEAT_S) if now_s - self._request_s < _PROMPT_S else self._beat_s()
        )
        return max(0.0, self._beaten_s + beat_s - now_s)

    async def _wait(self) -> None:
        """Waits for a reason to deliver: the heartbeat, an urgent item, any item; or until the back-off has passed."""
        if self._failures:
            most_s = min(BACKOFF_MOST_S, BACKOFF_FIRST_S * 2 ** min(self._failures, 10))
            # Full jitter: after an outage two thousand agents must not return in the same second.
            await asyncio.sleep(random.uniform(0.25, 1.0) * most_s)
            return
        if self._refused:
            # A fault that comes meanwhile calls for a heartbeat at once, and another, each of them too soon.
            self._refused = False
            await asyncio.sleep(_PROMPT_BEAT_S)
            return
        left_s = self._beat_left_s()
        waiting = [asyncio.create_task(e.wait()) for e in (self._intake.urgent, self._intake.arrived)]
        try:
            await asyncio.wait(waiting, timeout=left_s, return_when=asyncio.FIRST_COMPLETED)
            if not self._intake.urgent.is_set() and self._intake.arrived.is_set():
                await asyncio.wait(waiting[:1], timeout=min(GATHER_S, left_s))
        finally:
            for task in waiting:
                task.cancel()
