"""Whether text is a number that `int` accepts.

`str.isdigit` is true of `²` and `³`, which `int` refuses, and of digits of every script. No other module asks it
(tests/core/test_digits.py); files that run outside this package compare with ASCII themselves.
"""

from __future__ import annotations

MAX_DIGITS = 20
"""The longest 64-bit number. `int` itself refuses text of more than 4,300 digits."""


def is_number(text: str | bytes) -> bool:
    """Whether `text` is 1 to 20 ASCII digits and nothing else: no sign, no blank, no underscore."""
    return text.isascii() and text.isdigit() and len(text) <= MAX_DIGITS
