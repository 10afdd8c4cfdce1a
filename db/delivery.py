"""The agent's one door to Postgres: one SQL call per batch, everything or nothing, safe to repeat.

Nothing is kept on the server between calls (no prepared statement, no session setting), so
PgBouncer in transaction mode may sit between. Every failure that waiting can cure is raised as
DatabaseUnavailable; a row that can never be stored is refused alone, counted, and holds up nothing.
"""

from __future__ import annotations

import dataclasses
import logging
import operator
import struct
import time
import uuid
from collections.abc import Generator, Mapping, Sequence
from datetime import datetime
from typing import Any, Self

import psycopg
from psycopg.adapt import AdaptersMap
from psycopg.types.json import Jsonb, set_json_loads

from probing_cluster.core import clock, errors, records
from probing_cluster.db import binary_arrays, driver_errors, network, plain, unreadable
from probing_cluster.db import load as load_module
from probing_cluster.db.load import Ack, DatabaseLoad, Request

LOG = logging.getLogger(__name__)
__all__ = ["EVENT_FIELDS", "Ack", "Delivery", "Request"]

EVENT_FIELDS: tuple[tuple[str, str], ...] = (
    ("event_id", "uuid"),
    ("cluster", "text"),
    ("node", "text"),
    ("at", "timestamptz"),
    ("observed_at", "timestamptz"),
    ("kind", "text"),
    ("code", "text"),
    ("severity", "text"),
    ("device", "text"),
    ("pci_bus_id", "text"),
    ("gpu_uuid", "text"),
    ("pid", "bigint"),
    ("process", "text"),
    ("job_id", "bigint"),
    ("count", "bigint"),
    ("last_at", "timestamptz"),
    ("source", "text"),
    ("message", "text"),
    ("measured", "double precision"),
    ("threshold", "double precision"),
    ("unit", "text"),
    ("detail", "text"),
)
"""The columns of an event in a delivery and their SQL types; a test holds them against the record."""

_NAMES = tuple(name for name, _ in EVENT_FIELDS)
_FIELDS = operator.attrgetter(*_NAMES)

_CALL = (
    "SELECT probing.deliver(p_cluster => %(p_cluster)s::text, p_node => %(p_node)s::text, "
    + ", ".join(f"e_{name} => %(e_{name})b::{kind}[]" for name, kind in EVENT_FIELDS)
    + ", p_checks => %(p_checks)s, p_allocations => %(p_allocations)s, p_heartbeat => %(p_heartbeat)s::jsonb,"
    " p_acks => %(p_acks)b::uuid[], p_refused => %(p_refused)s)"
)

_CALL_WITH_ANSWERS = (
    _CALL.removesuffix(")") + ", p_answered => %(p_answered)b::uuid[], p_answers => %(p_answers)b::bytea[])"
)
"""Only a database that hands out questions knows of answers: an older one is never sent these arguments."""

ROW_FAULT = (
    psycopg.DataError,
    psycopg.IntegrityError,
    psycopg.errors.DatatypeMismatch,
    psycopg.errors.CannotCoerce,
    psycopg.errors.ProgramLimitExceeded,
    psycopg.errors.StatementTooComplex,
    OverflowError,
    RecursionError,
    AttributeError,
    TypeError,
    struct.error,
    ValueError,  # UnicodeError among them
)
"""What says that a row, not the database, is at fault."""

FULL_BATCH = 500
"""A delivery of this many events means that more are waiting: the connection is kept for the next."""
CALL_EVENTS_MAX = 5000


class Delivery:
    """A node's way to the database.

    The connection is opened when needed and closed after each delivery that is not one of a
    burst, so that thousands of agents do not hold thousands of backends; behind PgBouncer, where
    a client costs nothing and a TLS handshake does, `keep_open` keeps it.
    """

    def __init__(
        self,
        url: str,
        cluster: str,
        node: str,
        application_name: str = "probing-agent",
        connect_timeout_s: int = 5,
        *,
        call_timeout_s: float = 60.0,
        keep_open: bool = False,
    ) -> None:
        self._url = url
        self._cluster = cluster
        self._node = node
        self._application_name = application_name
        self._connect_timeout_s = connect_timeout_s
        self._call_timeout_s = call_timeout_s
        self._keep_open = keep_open
        self._adapters = _adapters()
        self._connection: PatientConnection | None = None

    def deliver(
        self,
        *,
        events: Sequence[records.HealthEvent] = (),
        checks: Sequence[records.CheckResult] = (),
        allocations: Sequence[records.JobAllocation] = (),
        heartbeat: records.AgentHeartbeat | None = None,
        acknowledged: Sequence[uuid.UUID] = (),
        answers: Sequence[tuple[uuid.UUID, bytes]] = (),
    ) -> Ack:
        """Store everything given, once, and bring back the node's open requests.

        `acknowledged` names requests dealt with, which are not handed out again, nor are those of `answers`. When it returns,
        every row is stored or refused for good; when it raises DatabaseUnavailable, nothing may
        be assumed and the caller delivers the same again later. Raises OverQuota when this node has delivered its rows of the hour:
        a heartbeat, and high events of the node itself, may still fit.
        """
        loads = [
            DatabaseLoad(events=events[at : at + CALL_EVENTS_MAX])
            for at in range(0, len(events), CALL_EVENTS_MAX)
        ]
        first = loads[0] if loads else DatabaseLoad()
        rest = {
            "checks": checks,
            "allocations": allocations,
            "heartbeat": heartbeat,
            "acknowledged": acknowledged,
            "answers": answers,
        }
        loads[:1] = [dataclasses.replace(first, **rest)]  # type: ignore[arg-type]
        burst = self._keep_open or len(events) >= FULL_BATCH
        try:
            ack = load_module.total([self._send(load) for load in loads])
        except psycopg.errors.ConfigurationLimitExceeded as exc:
            raise errors.OverQuota(_first_line(exc)) from exc
        except psycopg.Error as exc:
            burst = False
            raise errors.DatabaseUnavailable(driver_errors.fact(exc)) from exc
        finally:
            if not burst:
                self._rest()
        return ack

    def _rest(self) -> None:
        """What is not kept between deliveries."""
        self.close()

    def close(self) -> None:
        """Give the connection back; the next delivery opens another."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _send(self, load: DatabaseLoad) -> Ack:
        try:
            return self._call(load)
        except ROW_FAULT as exc:
            parts = load.parts()
            if len(parts) > 1:
                return load_module.total([self._send(part) for part in parts])
            return self._mend_or_refuse(load, exc)

    def _mend_or_refuse(self, load: DatabaseLoad, exc: Exception) -> Ack:
        """A row Postgres cannot hold: stored with its text mended, else refused, counted and noted."""
        if load.sort() == "note":
            raise errors.DatabaseUnavailable(f"the delivery function failed: {_first_line(exc)}") from exc
        try:
            return self._call(load.mended())
        except ROW_FAULT as still:
            reason = f"{load.sort()}: {getattr(still, 'sqlstate', None) or type(still).__name__}"
            sample = ascii(_first_line(still))[:400]
            ack = self._call(DatabaseLoad(refused=[{"reason": reason, "n_rows": 1, "sample": sample}]))
            return dataclasses.replace(ack, rejected=1, reasons={reason: 1})

    def _call(self, load: DatabaseLoad) -> Ack:
        connection = self._open()
        connection.end_at = time.monotonic() + self._call_timeout_s
        call = _CALL_WITH_ANSWERS if load.answers else _CALL
        row = connection.execute(call, self._arguments(load)).fetchone()
        assert row is not None
        return ack(row[0])

    def _arguments(self, load: DatabaseLoad) -> dict[str, Any]:
        columns: dict[str, Sequence[Any]] = dict(
            zip(_NAMES, zip(*map(_FIELDS, load.events), strict=True), strict=False)
        )
        columns["detail"] = [plain.dumps(detail) for detail in columns.get("detail", ())]
        arguments: dict[str, Any] = {
            f"e_{name}": binary_arrays.ARRAYS[kind](columns.get(name, ())) for name, kind in EVENT_FIELDS
        }
        arguments["p_cluster"] = self._cluster
        arguments["p_node"] = self._node
        arguments["p_checks"] = _jsonb([_jsonable(check) for check in load.checks])
        arguments["p_allocations"] = _jsonb([_jsonable(allocation) for allocation in load.allocations])
        arguments["p_heartbeat"] = None if load.heartbeat is None else _jsonb(_jsonable(load.heartbeat))
        arguments["p_acks"] = list(load.acknowledged)
        arguments["p_refused"] = _jsonb(list(load.refused))
        if load.answers:
            arguments["p_answered"] = [request_id for request_id, _ in load.answers]
            arguments["p_answers"] = [body for _, body in load.answers]
        return arguments

    def _open(self) -> PatientConnection:
        if self._connection is None or self._connection.closed:
            opened = PatientConnection.connect(
                self._url,
                autocommit=True,
                prepare_threshold=None,
                context=self._adapters,
                application_name=self._application_name,
                connect_timeout=self._connect_timeout_s,
                **network.PATIENCE,
            )
            # What cannot be read of an answer is no fault of the rows that were sent.
            set_json_loads(unreadable.loads_or_value, opened)
            self._connection = opened
        return self._connection


class PatientConnection(psycopg.Connection[Any]):
    """A connection whose waits end: a server that hangs must not hang the agent."""

    end_at: float = float("inf")
    """When waiting stops, on the monotonic clock, seconds."""

    def wait(self, gen: Any, *args: Any, **kwargs: Any) -> Any:
        return super().wait(_until(gen, self.end_at), *args, **kwargs)


def _until(gen: Generator[Any, Any, Any], end_at: float) -> Generator[Any, Any, Any]:
    try:
        wanted = next(gen)
        while True:
            ready = yield wanted
            if not ready and time.monotonic() > end_at:
                raise psycopg.OperationalError("the server does not answer")
            wanted = gen.send(ready)
    except StopIteration as done:
        return done.value


def _adapters() -> AdaptersMap:
    adapters = AdaptersMap(psycopg.adapters)
    for array, dumper in binary_arrays.DUMPERS.items():
        adapters.register_dumper(array, dumper)
    return adapters


def _jsonb(value: Any) -> Jsonb:
    return Jsonb(value, dumps=plain.dumps)


def _jsonable(record: Any) -> dict[str, Any]:
    return {item.name: getattr(record, item.name) for item in dataclasses.fields(record)}


def ack(answer: Any) -> Ack:
    """What the database answered; a request that cannot be read is left out, and asked for again until it expires."""
    if not isinstance(answer, Mapping):
        raise errors.DatabaseUnavailable(
            "the delivery function's answer cannot be read; see probing-ctl db status"
        )
    given = answer.get("requests")
    requests = [_request(item) for item in given] if isinstance(given, list) else []
    return Ack(
        accepted=_count(answer.get("accepted")),
        duplicates=_count(answer.get("duplicates")),
        rejected=_count(answer.get("rejected")),
        requests=tuple(r for r in requests if r is not None),
    )


def _count(value: Any) -> int:
    return value if isinstance(value, int) else 0


def _request(item: Any) -> Request | None:
    try:
        expires_at = datetime.fromisoformat(item["expires_at"])
        request = Request(
            request_id=uuid.UUID(item["request_id"]),
            verb=item["verb"],
            job_id=item["job_id"],
            expires_at=clock.require_utc("a request's expires_at", expires_at),
            detail=item["detail"],
        )
    except (TypeError, ValueError, KeyError, AttributeError, OverflowError, errors.MalformedInput) as exc:
        LOG.warning("a request of the service cannot be read: %s", _first_line(exc)[:200])
        return None
    whole = isinstance(request.verb, str) and isinstance(request.detail, Mapping)
    return request if whole and isinstance(request.job_id, int | None) else None


def _first_line(exc: BaseException) -> str:
    return (str(exc).strip() or type(exc).__name__).splitlines()[0]
