"""Undoes the wrapping of `rich`, whose log handler prints a message as a column between the level and the place in the source."""

from __future__ import annotations

import re
from collections.abc import Iterator

_HEAD = re.compile(
    r"(?P<before>(?:\[[^\[\]\n]{4,40}\] |\d[\d:.,/ -]{6,30} | {0,40})(?:ERROR {4}|CRITICAL ))(?P<words>\S.{0,400}?) {1,300}(?P<place>[\w./-]{1,120}\.py:\d{1,6})$"
)
_MOST_LINES, _MOST_CHARS = 400, 8192
_OWN_LINE = re.compile(r"Traceback \(|(?:[a-z_]\w{0,60}\.){0,8}[A-Z]\w{0,60}(?:Error|Exception)\b:?")
"""A line of a traceback that begins at its margin: no word of the line above it."""


class Columns:
    """Joins the lines of such a column to those that the program logged, in order; every other line stays as it is."""

    def __init__(self) -> None:
        self._began = self._at = self._width = 0
        self._margin = self._text = self._last = ""
        """The blanks in front of the column; the logged line so far, and its last printed line."""
        self._alone = ""
        """The column's first line as it is, as long as no other follows."""

    def inside(self) -> bool:
        """Whether the next line may belong to one."""
        return self._began > 0

    def read(self, line: int, text: str) -> Iterator[tuple[int, str]]:
        """A line of the log, in order; yields the lines to read with their numbers."""
        row = self._row(line, text) if self._began else None
        if row and self._goes_on(row):
            whole = len(self._last) == self._width and " " not in self._last and self._last[-1] != ","
            blank = "" if whole else " "
            self._text, self._last, self._alone = f"{self._text}{blank}{row}"[:_MOST_CHARS], row, ""
            return
        yield from self.rest()
        if row is not None:
            self._at, self._text, self._last = line, row, row
            return
        self._began = 0
        head = _HEAD.match(text) if text[-1:].isdigit() else None
        if head is None:
            yield line, text
            return
        self._began = self._at = line
        self._margin = " " * len(head["before"])
        self._width = head.start("place") - 1 - len(head["before"])
        self._text, self._last, self._alone = head["before"] + head["words"], head["words"], text

    def rest(self) -> Iterator[tuple[int, str]]:
        """At the end of the log: the line held."""
        held, self._text, self._alone = self._alone or self._text, "", ""
        if held:
            yield self._at, held

    def _row(self, line: int, text: str) -> str | None:
        """What the line has in the column; None if the column is over."""
        if not text.strip():
            return ""
        of_column = text.startswith(self._margin) and line < self._began + _MOST_LINES
        row = text[len(self._margin) :].rstrip() if of_column else ""
        return row if 0 < len(row) <= self._width else None

    def _goes_on(self, row: str) -> bool:
        """Whether the row continues the line above it: its first word did not fit there."""
        if row[0] == " " or not self._last or _OWN_LINE.match(row):
            return False
        return len(self._last) + 1 + len(row.partition(" ")[0]) > self._width
