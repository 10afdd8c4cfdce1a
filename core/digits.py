"""Numbers out of untrusted text, and out of values that a job's owner can forge (details of events, pages).

`str.isdigit` is true of `²` and `³`, which `int` refuses, and of digits of every script. No other module asks it
(tests/core/test_digits.py); files that run outside this package compare with ASCII themselves.
"""

from __future__ import annotations

import sys

MAX_DIGITS = 20
"""The longest 64-bit number. `int` itself refuses text of more than 4,300 digits."""


def is_number(text: str | bytes) -> bool:
    """Whether `text` is 1 to 20 ASCII digits and nothing else: no sign, no blank, no underscore."""
    return text.isascii() and text.isdigit() and len(text) <= MAX_DIGITS


def number(value: object) -> float | None:
    """The value as a float; None if it is no finite number from 0 on (`True` is none)."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return float(value) if 0 <= value <= sys.float_info.max else None


def index(value: object) -> int | None:
    """The value, if it can be a rank, a code or a sequence number (an integer of 63 bits); else None."""
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**63 else None
