"""Numbers out of what a job's owner can forge: details of events, pages, log lines."""

from __future__ import annotations

import sys


def number(value: object) -> float | None:
    """The value as a float; None if it is no finite number from 0 on (`True` is none)."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return float(value) if 0 <= value <= sys.float_info.max else None


def index(value: object) -> int | None:
    """The value, if it can be a rank, a code or a sequence number (an integer of 63 bits); else None."""
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**63 else None
