"""What one delivery carries, how it divides when a row in it cannot be stored, and what came of it."""

from __future__ import annotations

import dataclasses
import enum
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from probing_cluster.core import records
from probing_cluster.db import plain


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
    """Events of another node, malformed ones, and rows of any sort that cannot be stored."""
    requests: tuple[Request, ...] = ()
    reasons: Mapping[str, int] = field(default_factory=dict)
    """Why rows could not be stored, with counts; the table `rejection` holds them too."""


@dataclass(frozen=True, kw_only=True)
class DatabaseLoad:
    """What one call carries."""

    events: Sequence[records.HealthEvent] = ()
    checks: Sequence[records.CheckResult] = ()
    allocations: Sequence[records.JobAllocation] = ()
    heartbeat: records.AgentHeartbeat | None = None
    acknowledged: Sequence[uuid.UUID] = ()
    refused: Sequence[Mapping[str, Any]] = ()
    answers: Sequence[tuple[uuid.UUID, bytes]] = ()
    """What the node answers to requests, which are dealt with thereby."""

    def __len__(self) -> int:
        lists = (self.events, self.checks, self.allocations, self.acknowledged, self.refused, self.answers)
        return sum(len(rows) for rows in lists) + (self.heartbeat is not None)

    def parts(self) -> list[DatabaseLoad]:
        """The load in smaller ones; a single row comes back alone."""
        lists = ("events", "checks", "allocations", "acknowledged", "refused", "answers")
        alone = [DatabaseLoad(**{name: getattr(self, name)}) for name in lists]
        alone.append(DatabaseLoad(heartbeat=self.heartbeat))
        full = [load for load in alone if len(load)]
        return full if len(full) > 1 else [half for load in full for half in load.halves()]

    def halves(self) -> list[DatabaseLoad]:
        """Both halves of a load of one sort of rows."""
        for name in ("events", "checks", "allocations", "acknowledged", "refused", "answers"):
            rows = getattr(self, name)
            if len(rows) > 1:
                middle = len(rows) // 2
                return [DatabaseLoad(**{name: rows[:middle]}), DatabaseLoad(**{name: rows[middle:]})]
        return [self]

    def mended(self) -> DatabaseLoad:
        """The same with its text as Postgres can hold it."""
        return DatabaseLoad(
            events=[_mended(row) for row in self.events],
            checks=[_mended(row) for row in self.checks],
            allocations=[_mended(row) for row in self.allocations],
            heartbeat=None if self.heartbeat is None else _mended(self.heartbeat),
            acknowledged=self.acknowledged,
            refused=self.refused,
            answers=self.answers,
        )

    def sort(self) -> str:
        """What a load of one row holds: event, check, allocation, heartbeat …"""
        for name in ("events", "checks", "allocations", "answers"):
            if getattr(self, name):
                return name[:-1]
        return "heartbeat" if self.heartbeat is not None else "note"


def total(acks: Sequence[Ack]) -> Ack:
    """What several calls came to together; the requests are those of the last."""
    reasons: dict[str, int] = {}
    for ack in acks:
        for reason, n in ack.reasons.items():
            reasons[reason] = reasons.get(reason, 0) + n
    return Ack(
        accepted=sum(a.accepted for a in acks),
        duplicates=sum(a.duplicates for a in acks),
        rejected=sum(a.rejected for a in acks),
        requests=acks[-1].requests if acks else (),
        reasons=reasons,
    )


def _mended(record: Any) -> Any:
    changes = {}
    for item in dataclasses.fields(record):
        value = getattr(record, item.name)
        if isinstance(value, str | Mapping) and not isinstance(value, enum.Enum):
            changes[item.name] = plain.plain(value)
    return dataclasses.replace(record, **changes)
