"""Time as the product knows it: UTC instants, and one seam through which tests move them."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from typing import Protocol

from probing_cluster.core.errors import MalformedInput


class Clock(Protocol):
    """The source of time; tests pass their own."""

    def now(self) -> datetime:
        """The present instant, UTC."""
        ...

    def monotonic_s(self) -> float:
        """Seconds that never go backwards, from an arbitrary origin."""
        ...


class SystemClock:
    """The machine's own clock."""

    def now(self) -> datetime:
        return datetime.now(UTC)

    def monotonic_s(self) -> float:
        return time.monotonic()


SYSTEM: Clock = SystemClock()


def require_utc(name: str, value: datetime) -> datetime:
    """`value` in UTC; raises MalformedInput when it carries no zone, naming the field."""
    if value.tzinfo is None:
        raise MalformedInput(f"{name} is a naive datetime ({value.isoformat()}); give it a time zone")
    try:
        return value.astimezone(UTC)
    except OverflowError as exc:
        raise MalformedInput(f"{name} ({value.isoformat()}) is no time in UTC; years are 1 to 9999") from exc


def from_epoch_s(seconds: float) -> datetime:
    """The UTC instant `seconds` after 1970-01-01T00:00:00Z."""
    return datetime.fromtimestamp(seconds, UTC)


EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
ONE_US = timedelta(microseconds=1)


def to_us(at: datetime) -> int:
    """Microseconds since 1970, exactly."""
    return (at - EPOCH) // ONE_US


def from_us(us: int) -> datetime:
    """The UTC instant `us` microseconds after 1970-01-01T00:00:00Z."""
    return EPOCH + timedelta(microseconds=us)


def span_us(span: timedelta) -> int:
    """A span in whole microseconds."""
    return span // ONE_US


def iso_z(at: datetime) -> str:
    """`at` as `2026-01-31T14:02:11.123456Z`, the form used in every JSON we print."""
    return at.astimezone(UTC).isoformat().replace("+00:00", "Z")
