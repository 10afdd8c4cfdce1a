"""Colour for terminals that support it; colour never carries meaning alone."""

from __future__ import annotations

import os
from typing import TextIO

_RED, _GREEN, _YELLOW = "31", "32", "33"
_STATES = {
    "COMPLETED": _GREEN,
    "RUNNING": _GREEN,
    "PENDING": _YELLOW,
    "SUSPENDED": _YELLOW,
    "REQUEUED": _YELLOW,
    "PREEMPTED": _YELLOW,
    "CANCELLED": _YELLOW,
}


class Brush:
    """Paints lines, or leaves them as they are."""

    def __init__(self, colour: bool) -> None:
        self._colour = colour

    def _paint(self, code: str, text: str) -> str:
        return f"\x1b[{code}m{text}\x1b[0m" if self._colour and text else text

    def bold(self, text: str) -> str:
        return self._paint("1", text)

    def faint(self, text: str) -> str:
        return self._paint("2", text)

    def state(self, line: str, state: str) -> str:
        """`line` with the word `state` in it painted."""
        return line.replace(state, self._paint(_STATES.get(state, _RED), state), 1) if state else line


def wanted(choice: str, stream: TextIO) -> bool:
    """Whether `choice` (auto, always, never) means colour on this stream; NO_COLOR is respected."""
    if choice != "auto":
        return choice == "always"
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
