"""A clock that stands where a test sets it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime


@dataclass
class SetClock:
    """`at` is the present until a test sets another."""

    at: datetime

    def now(self) -> datetime:
        return self.at

    def monotonic_s(self) -> float:
        return self.at.timestamp()
