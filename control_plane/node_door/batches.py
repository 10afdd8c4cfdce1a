"""Deliveries of many nodes, gathered and handed to `probing.deliver_batch`, a few connections for all of them.

An answer is given only when the database has committed. What fails as a whole is answered as failed to every node of the
batch, and those go one by one for a while, so that a delivery that no server can take holds up its own node only.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import psycopg

from probing_cluster.core import errors
from probing_cluster.db import delivery, door_wire, driver_errors, network

MOST_DELIVERIES = 200
MOST_BYTES = 4 << 20
"""Of one batch; a delivery larger than that makes a batch of its own."""
ALONE_S = 60.0
"""How long a node whose delivery was refused by the database is kept out of others' batches."""
CALL_S = 60.0
URGENT = b'"severity":"high"'
"""In a delivery: it need not wait for others. A hint only, whatever else may hold these bytes."""
_CALL = "SELECT probing.deliver_batch(%b::text[], %b::text[])"
_UNREACHED = ("08", "53", "57", driver_errors.READ_ONLY)
"""SQLSTATE classes of a server that is away, full, stopping or read-only: no delivery's fault."""

LOG = logging.getLogger("probing.node_door")


@dataclass(frozen=True, kw_only=True, eq=False)
class Waiting:
    """One node's delivery, on its way."""

    role: str
    load: bytes
    answer: Callable[[bytes], None]
    """Called once, in the event loop."""


class DeliveryBatches:
    """Gathers deliveries in one event loop and sends them from `connections` threads."""

    def __init__(
        self, url: str, *, connections: int, gather_s: float, clock_s: Callable[[], float] = time.monotonic
    ) -> None:
        self._url = url
        self._gather_s = gather_s
        self._clock_s = clock_s
        self._idle: deque[_Connection] = deque(_Connection(url) for _ in range(connections))
        self._all = tuple(self._idle)
        self._threads = ThreadPoolExecutor(connections, thread_name_prefix="batch")
        self._waiting: deque[Waiting] = deque()
        self._due: asyncio.TimerHandle | None = None
        self._alone: dict[str, float] = {}
        self._under_way: set[asyncio.Future[None]] = set()
        self._delivering: set[str] = set()
        self.bytes_held = 0
        self.deliveries_total = 0
        self.batches_total = 0
        self.failed_total = 0

    def put(self, role: str, load: bytes, answer: Callable[[bytes], None]) -> None:
        """Take one delivery; what is no text, or a node's second one under way, is answered at once."""
        if b"\0" in load or not _is_text(load):
            answer(door_wire.failure("22021", "a delivery is UTF-8 JSON"))
            return
        if role in self._delivering:
            # It came again without waiting: one that is slow at the database must not have a connection for each try.
            answer(door_wire.failure("53300", "an earlier delivery of this node is not stored yet"))
            return
        self._delivering.add(role)
        self._waiting.append(Waiting(role=role, load=load, answer=answer))
        self.bytes_held += len(load)
        if URGENT in load or len(self._waiting) >= MOST_DELIVERIES or self._gather_s <= 0:
            self._send_now()
        elif self._due is None:
            self._due = asyncio.get_running_loop().call_later(self._gather_s, self._send_now)

    async def finish(self) -> None:
        """Send what waits, wait for every answer, and close the connections."""
        while self._waiting or self._under_way:
            self._send_now()
            if self._under_way:
                await asyncio.wait(self._under_way)
        self._threads.shutdown()
        for connection in self._all:
            connection.close()

    def _send_now(self) -> None:
        if self._due is not None:
            self._due.cancel()
            self._due = None
        while self._waiting and self._idle:
            batch, connection = self._next_batch(), self._idle.popleft()
            task = asyncio.ensure_future(self._send(connection, batch))
            self._under_way.add(task)
            task.add_done_callback(self._under_way.discard)

    def _next_batch(self) -> list[Waiting]:
        """The next deliveries, each node's once; one that is kept apart makes a batch by itself."""
        now_s = self._clock_s()
        self._alone = {role: until for role, until in self._alone.items() if until > now_s}
        batch: list[Waiting] = []
        n_bytes = 0
        while self._waiting and len(batch) < MOST_DELIVERIES:
            item = self._waiting[0]
            apart = item.role in self._alone
            if batch and (apart or n_bytes + len(item.load) > MOST_BYTES):
                break
            batch.append(self._waiting.popleft())
            n_bytes += len(item.load)
            if apart:
                break
        return batch

    async def _send(self, connection: _Connection, batch: list[Waiting]) -> None:
        loop = asyncio.get_running_loop()
        refused: list[str] = []
        try:
            answers = await loop.run_in_executor(self._threads, connection.call, batch)
            refused = [i.role for i, a in zip(batch, answers, strict=True) if door_wire.is_refusal(a)]
        except psycopg.Error as exc:
            answers = self._failed(exc, batch)
        except (ValueError, TypeError, AttributeError, RuntimeError, OSError) as exc:
            # A fault of ours: the agents of this batch wait all the same, without a deadline.
            answers = self._failed(psycopg.errors.InternalError_(f"{type(exc).__name__}: {exc}"), batch)
        finally:
            self._idle.append(connection)
            self._delivering.difference_update(item.role for item in batch)
            self.bytes_held -= sum(len(item.load) for item in batch)
        self.batches_total += 1
        self.deliveries_total += len(batch)
        self.failed_total += len(refused)
        self._alone |= dict.fromkeys(refused, self._clock_s() + ALONE_S)
        for item, answer in zip(batch, answers, strict=True):
            item.answer(answer.encode())
        if self._waiting:
            self._send_now()

    def _failed(self, exc: psycopg.Error, batch: list[Waiting]) -> list[str]:
        state = exc.sqlstate or "08006"
        text = (str(exc).strip() or type(exc).__name__).splitlines()[0]
        LOG.warning(
            "a batch failed", extra={"fields": {"n": len(batch), "sqlstate": exc.sqlstate, "why": text}}
        )
        if not state.startswith(_UNREACHED) or isinstance(exc, psycopg.errors.QueryCanceled):
            until_s = self._clock_s() + ALONE_S
            self._alone |= dict.fromkeys((item.role for item in batch), until_s)
        self.failed_total += len(batch)
        # Of the whole batch nobody knows whose fault it was: every node is told to come again, none that its rows are bad.
        state = state if state == driver_errors.READ_ONLY else "08006"
        return [door_wire.failure(state, text).decode()] * len(batch)


class _Connection:
    """One of the few to the database; opened when needed, used by one thread at a time."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._open: delivery.PatientConnection | None = None

    def call(self, batch: list[Waiting]) -> list[str]:
        """One answer per delivery, after the commit; raises psycopg.Error."""
        try:
            connection = self._connected()
            connection.end_at = time.monotonic() + CALL_S
            arguments = ([item.role for item in batch], [item.load.decode() for item in batch])
            row = connection.execute(_CALL, arguments).fetchone()
            assert row is not None
            answers: list[str] = row[0]
            for answer in answers:
                if f'"{driver_errors.READ_ONLY}"' in answer and door_wire.is_refusal(answer):
                    raise psycopg.errors.ReadOnlySqlTransaction(json.loads(answer)["error"])
        except psycopg.Error as exc:
            if exc.sqlstate in (None, driver_errors.READ_ONLY):
                self.close()
            raise
        return answers

    def close(self) -> None:
        """Give the connection back."""
        connection, self._open = self._open, None
        if connection is not None:
            connection.close()

    def _connected(self) -> delivery.PatientConnection:
        if self._open is None or self._open.closed:
            self._open = delivery.PatientConnection.connect(
                self._url,
                autocommit=True,
                prepare_threshold=None,
                application_name="probing-door",
                connect_timeout=5,
                **network.PATIENCE,
            )
        return self._open


def check_role(url: str) -> None:
    """Raises NotPermitted where the door's login may not hand over batches, DatabaseUnavailable where there is no database."""
    try:
        with psycopg.connect(url, autocommit=True, connect_timeout=5) as connection:
            connection.execute(_CALL, ([], []))
    except psycopg.errors.InsufficientPrivilege as exc:
        raise errors.NotPermitted(
            "the door's login may not hand over deliveries; probing-ctl db add-login NAME door makes one"
        ) from exc
    except psycopg.Error as exc:
        raise driver_errors.unreachable(exc) from exc


def _is_text(load: bytes) -> bool:
    try:
        load.decode()
    except UnicodeDecodeError:
        return False
    return True
