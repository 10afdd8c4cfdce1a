"""Counters over time: what moved since the last reading, what was reset, and what can no longer move."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, kw_only=True)
class CounterChange:
    """How one counter moved between two readings."""

    value: int
    delta: int = 0
    was_reset: bool = False
    """It went down: someone reset it, or the device did; counting begins anew."""
    saturated: bool = False
    """It stands at its ceiling: whatever happens from now on cannot be seen in it."""
    resets: int = 0
    """Times it was reset before in this boot."""

    @property
    def position(self) -> str:
        """What tells this value from the same value before a reset; part of an event's identity."""
        return f"{self.resets}:{self.value}" if self.resets else str(self.value)


@dataclass(kw_only=True)
class Baseline:
    """The last values of many counters by name; a counter seen for the first time has not moved."""

    values: dict[str, int] = field(default_factory=dict)

    @classmethod
    def of(cls, memory: Mapping[str, Any], boot_id: str) -> Baseline:
        """The values remembered in this boot; after a reboot every counter is new."""
        if memory.get("boot_id") != boot_id:
            return cls()
        return cls(values=dict(memory.get("counters", {})))

    def move(self, name: str, value: int | None, *, ceiling: int | None = None) -> CounterChange | None:
        """How the counter moved; None when it could not be read, and then its old value is kept."""
        if value is None:
            return None
        before = self.values.get(name)
        self.values[name] = value
        full = ceiling is not None and value >= ceiling
        resets = self.values.get(f"{name}#resets", 0)
        if before is not None and value < before:
            self.values[f"{name}#resets"] = resets + 1
            return CounterChange(value=value, delta=value, was_reset=True, saturated=full, resets=resets + 1)
        return CounterChange(
            value=value, delta=0 if before is None else value - before, saturated=full, resets=resets
        )


@dataclass(kw_only=True)
class Streaks:
    """How many readings in a row something has been so."""

    counts: dict[str, int] = field(default_factory=dict)

    def at_least(self, name: str, needed: int, *, holds: bool) -> bool:
        """True when it holds now for at least the `needed`-th time in a row."""
        if not holds:
            self.counts.pop(name, None)
            return False
        self.counts[name] = min(self.counts.get(name, 0) + 1, 1_000_000)
        return self.counts[name] >= needed


def decade(value: int) -> int:
    """The power of ten a count has reached: a slow counter is reported at 1, 10, 100 …, not at every step."""
    return 0 if value <= 0 else len(str(value))
