"""The agent's one door to Postgres: one SQL call per batch, everything or nothing, safe to repeat.

Nothing is kept on the server between calls (no prepared statement, no session setting), so
PgBouncer in transaction mode may sit between. Every failure that waiting can cure is raised as
DatabaseUnavailable; a row that can never be stored is refused alone, counted, and holds up nothing.
"""

from __future__ import annotations

import dataclasses
import json
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import psycopg
from psycopg.adapt import AdaptersMap
from psycopg.types.json import Jsonb
from psycopg.types.numeric import FloatBinaryDumper, Int8BinaryDumper
from psycopg.types.string import StrBinaryDumper

from probing_cluster.core import errors, records

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

_CALL = (
    "SELECT probing.deliver(p_cluster => %(p_cluster)s::text, p_node => %(p_node)s::text, "
    + ", ".join(f"e_{name} => %(e_{name})b::{kind}[]" for name, kind in EVENT_FIELDS)
    + ", p_checks => %(p_checks)s, p_allocations => %(p_allocations)s, p_heartbeat => %(p_heartbeat)s::jsonb,"
    " p_acks => %(p_acks)b::uuid[], p_refused => %(p_refused)s)"
)

_TRANSIENT_DATA = (psycopg.errors.SerializationFailure, psycopg.errors.DeadlockDetected)
_OWN_FAULT = (psycopg.DataError, psycopg.IntegrityError, psycopg.ProgrammingError)
_UNSENDABLE = (UnicodeError, OverflowError, ValueError, TypeError, RecursionError)


@dataclass(frozen=True, kw_only=True)
class Request:
    """Something the control plane asks of this node."""

    request_id: uuid.UUID
    verb: str
    job_id: int | None
    expires_at: datetime
    detail: Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Ack:
    """What became of a delivery, in rows, and what the node is asked to do."""

    accepted: int = 0
    duplicates: int = 0
    rejected: int = 0
    requests: tuple[Request, ...] = ()
    reasons: Mapping[str, int] = field(default_factory=dict)
    """Why rows were refused on this side, with counts; the database holds them too."""


@dataclass(frozen=True, kw_only=True)
class _Load:
    """What one call carries."""

    events: Sequence[records.HealthEvent] = ()
    checks: Sequence[records.CheckResult] = ()
    allocations: Sequence[records.JobAllocation] = ()
    heartbeat: records.AgentHeartbeat | None = None
    acknowledged: Sequence[uuid.UUID] = ()
    refused: Sequence[Mapping[str, Any]] = ()

    def parts(self) -> list[_Load]:
        """The load in two or more smaller ones; a single row cannot be divided."""
        if len(self.events) > 1 or len(self.checks) > 1 or len(self.allocations) > 1:
            halves = [_half(rows) for rows in (self.events, self.checks, self.allocations)]
            return [
                _Load(events=e, checks=c, allocations=a)
                for e, c, a in zip(*halves, strict=True)
                if e or c or a
            ] + self._rest()
        singles = [_Load(events=self.events), _Load(checks=self.checks), _Load(allocations=self.allocations)]
        return [s for s in singles if s.rows()] + self._rest()

    def _rest(self) -> list[_Load]:
        return [
            load
            for load in (
                _Load(heartbeat=self.heartbeat),
                _Load(acknowledged=self.acknowledged),
                _Load(refused=self.refused),
            )
            if load.rows()
        ]

    def rows(self) -> int:
        """How many things it carries."""
        lists = (self.events, self.checks, self.allocations, self.acknowledged, self.refused)
        return sum(len(rows) for rows in lists) + (self.heartbeat is not None)


def _half(rows: Sequence[Any]) -> tuple[Sequence[Any], Sequence[Any]]:
    middle = (len(rows) + 1) // 2
    return rows[:middle], rows[middle:]


class Delivery:
    """A node's way to the database; opens its connection when needed and closes it on failure or on request."""

    def __init__(
        self,
        url: str,
        cluster: str,
        node: str,
        application_name: str = "probing-agent",
        connect_timeout_s: int = 5,
    ) -> None:
        self._url = url
        self._cluster = cluster
        self._node = node
        self._application_name = application_name
        self._connect_timeout_s = connect_timeout_s
        self._connection: psycopg.Connection[Any] | None = None

    def deliver(
        self,
        *,
        events: Sequence[records.HealthEvent] = (),
        checks: Sequence[records.CheckResult] = (),
        allocations: Sequence[records.JobAllocation] = (),
        heartbeat: records.AgentHeartbeat | None = None,
        acknowledged: Sequence[uuid.UUID] = (),
    ) -> Ack:
        """Store everything given, once, and bring back the node's open requests.

        When it returns, every row is stored or refused for good; when it raises DatabaseUnavailable,
        the caller must not assume either and delivers the same again later.
        """
        load = _Load(
            events=events,
            checks=checks,
            allocations=allocations,
            heartbeat=heartbeat,
            acknowledged=acknowledged,
        )
        try:
            return self._send(load)
        except psycopg.Error as exc:
            self.close()
            raise errors.DatabaseUnavailable(_first_line(exc)) from exc

    def close(self) -> None:
        """Give the connection back; the next delivery opens another."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def __enter__(self) -> Delivery:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _send(self, load: _Load) -> Ack:
        try:
            return self._call(load)
        except _TRANSIENT_DATA:
            raise
        except (*_OWN_FAULT, *_UNSENDABLE) as exc:
            if isinstance(exc, psycopg.ProgrammingError) and not isinstance(exc, _ROW_FAULTS):
                raise
            return self._divide(load, exc)

    def _divide(self, load: _Load, exc: Exception) -> Ack:
        """Send the halves apart, so that the row at fault is found and only it is refused."""
        parts = load.parts()
        if len(parts) > 1:
            return _sum([self._send(part) for part in parts])
        if load.refused or load.acknowledged:
            raise errors.DatabaseUnavailable(f"the delivery function failed: {exc}") from exc
        reason = f"{_what(load)}: {getattr(exc, 'sqlstate', None) or type(exc).__name__}"
        note = {"reason": reason, "n_rows": 1, "sample": ascii(str(exc))[:400]}
        ack = self._call(_Load(refused=[note]))
        return dataclasses.replace(ack, rejected=1, reasons={reason: 1})

    def _call(self, load: _Load) -> Ack:
        arguments: dict[str, Any] = {
            "p_cluster": self._cluster,
            "p_node": self._node,
            "p_checks": Jsonb([_jsonable(c) for c in load.checks], dumps=_dumps),
            "p_allocations": Jsonb([_jsonable(a) for a in load.allocations], dumps=_dumps),
            "p_heartbeat": None if load.heartbeat is None else Jsonb(_jsonable(load.heartbeat), dumps=_dumps),
            "p_acks": list(load.acknowledged),
            "p_refused": Jsonb(list(load.refused), dumps=_dumps),
        }
        for name, _ in EVENT_FIELDS:
            arguments[f"e_{name}"] = [getattr(event, name) for event in load.events]
        arguments["e_severity"] = [str(event.severity) for event in load.events]
        arguments["e_detail"] = [_dumps(event.detail) for event in load.events]
        row = self._open().execute(_CALL, arguments).fetchone()
        assert row is not None
        return _ack(row[0])

    def _open(self) -> psycopg.Connection[Any]:
        if self._connection is None or self._connection.closed:
            self._connection = psycopg.connect(
                self._url,
                autocommit=True,
                prepare_threshold=None,
                application_name=self._application_name,
                connect_timeout=self._connect_timeout_s,
                context=_adapters(),
            )
        return self._connection


_ROW_FAULTS = (
    psycopg.errors.DatatypeMismatch,
    psycopg.errors.CannotCoerce,
    psycopg.errors.InvalidTextRepresentation,
)


def _adapters() -> AdaptersMap:
    """One binary form per Python type: an array's type must not depend on the numbers in it."""
    adapters = AdaptersMap(psycopg.adapters)
    adapters.register_dumper(int, Int8BinaryDumper)
    adapters.register_dumper(float, FloatBinaryDumper)
    adapters.register_dumper(str, StrBinaryDumper)
    return adapters


def _ack(answer: Mapping[str, Any]) -> Ack:
    requests = tuple(
        Request(
            request_id=uuid.UUID(item["request_id"]),
            verb=item["verb"],
            job_id=item["job_id"],
            expires_at=datetime.fromisoformat(item["expires_at"]),
            detail=item["detail"],
        )
        for item in answer["requests"]
    )
    return Ack(
        accepted=answer["accepted"],
        duplicates=answer["duplicates"],
        rejected=answer["rejected"],
        requests=requests,
    )


def _sum(acks: Sequence[Ack]) -> Ack:
    reasons: dict[str, int] = {}
    for ack in acks:
        for reason, n in ack.reasons.items():
            reasons[reason] = reasons.get(reason, 0) + n
    return Ack(
        accepted=sum(a.accepted for a in acks),
        duplicates=sum(a.duplicates for a in acks),
        rejected=sum(a.rejected for a in acks),
        requests=acks[-1].requests,
        reasons=reasons,
    )


def _what(load: _Load) -> str:
    for name in ("events", "checks", "allocations"):
        if getattr(load, name):
            return name[:-1]
    return "heartbeat"


def _jsonable(record: Any) -> dict[str, Any]:
    return {f.name: getattr(record, f.name) for f in dataclasses.fields(record)}


def _dumps(value: Any) -> str:
    return json.dumps(value, default=_plain, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, uuid.UUID):
        return str(value)
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, set | frozenset):
        return sorted(value)
    raise TypeError(f"{type(value).__name__} cannot be stored")


def _first_line(exc: BaseException) -> str:
    return (str(exc).strip() or type(exc).__name__).splitlines()[0]
