"""Listings that only show lines of a log: strings of several lines in source code, changes as `git diff` shows them, records with escapes.

A string counts only with its end. What opens one and never closes is no string, and nothing below it is lost.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Reversible

MAX_LINES = 120
"""A string is followed for so many lines."""
_MAX_CHARS = 8192
_RECORD_LINES = 12
_LEAST_STRINGS = 2
"""A text with so many whole strings is a listing."""
_LAUNCHERS = ("srun: ", "slurmstepd", "mpirun", "mpiexec", "+ ")
"""Lines of a job's launcher or shell stand in no string."""
TRIGGERS = ('"""', "'''", '= "\\', '("\\', 'r#"', 'R"(', "= `", "(`", "@@ -", "\\uc")
"""A line without any of these opens nothing of a listing. The last is `\\u003c` as sieves look at it, without digits."""
_TRIPLE = re.compile(
    r"(?:.*(?:[=(\[{,+]|\breturn|[\"'] ?:|@\w{1,40})\s*|(?P<alone>\s*))[rbfuRBFU]{0,2}(?P<mark>\"{3}|'{3})(?:(?!(?P=mark)).)*$"
)
"""Python's, Julia's and Kotlin's: behind a value's beginning, or alone in a line."""
_AWAITS = re.compile(r"(?:.*[=(\[{,\\]|\s*(?:async |class |def )\b.*:)\s*$")
"""A line of source whose value stands in the next line."""
_CONTINUED = re.compile(r".*(?:[=(,]|\breturn)\s*(?:\"\\|@\")$")
"""Rust's, C's and C#'s."""
_RAW = re.compile(
    r".*(?:[=(,]|\breturn)\s*(?:&?b?r#{1,3}\"(?!.*\"#)|(?P<paren>(?:u8|[uUL])?R\"\())(?!.*\)\")"
)
"""Rust's and C++'s."""
_TEMPLATE = re.compile(
    r"(?:.*(?:[=(,+]|\breturn)\s*(?:[A-Za-z.]{1,40})?`\s*|\s*(?:(?:export )?(?:const|let|var) \w+ = |\w+ := )[A-Za-z.]{0,40}`[^`]*|\s*\w+:\s+`[^`']*)$"
)
_FRAME = re.compile(r'\s*File "')
_CLOSING_TEXT = re.compile(r"(?:[^\"\\]|\\.)*\"[\s;,)\]}.\w]{0,40}$")


def opened(text: str, above: str) -> str:
    """The mark that ends the string of source which begins in the line `text` and goes on below it; empty without one."""
    if _FRAME.match(above):  # a traceback shows the first line of a statement
        return ""
    if ('"""' in text or "'''" in text) and (found := _TRIPLE.match(text)):
        is_open = text.count(found["mark"]) % 2 == 1
        return found["mark"] if is_open and (found["alone"] is None or _AWAITS.match(above)) else ""
    if text.endswith(('"\\', '@"')) and _CONTINUED.match(text):
        return '"'
    if text.endswith("= [["):  # Lua's
        return "]]"
    if ('#"' in text or 'R"(' in text) and (raw := _RAW.match(text)):
        return ')"' if raw["paren"] else '"#'
    return "`" if text.count("`") == 1 and _TEMPLATE.match(text) else ""


def closes(mark: str, text: str) -> bool:
    """Whether the string that `mark` ends is over with the line."""
    return _CLOSING_TEXT.match(text) is not None if mark == '"' else mark in text


_HUNK = re.compile(r"@@ -\d{1,9}(?:,(?P<old>\d{1,6}))? \+\d{1,9}(?:,(?P<new>\d{1,6}))? @@")


class Hunk:
    """Follows the changed part of a file, whose head says how many lines it has."""

    def __init__(self) -> None:
        self._old = self._new = 0

    def inside(self) -> bool:
        """Whether the next line may belong to it."""
        return self._old > 0 or self._new > 0

    def read(self, text: str) -> bool:
        """Whether the line, the next one, belongs to one; its head does."""
        sign = text[:1] or " "
        if self.inside() and sign in " +-\\":
            self._old -= sign in " -"
            self._new -= sign in " +"
            return True
        found = _HUNK.match(text)
        self._old, self._new = (int(found["old"] or 1), int(found["new"] or 1)) if found else (0, 0)
        return found is not None


_VALUE_ENDS = re.compile(r"(?<!\\)[\"']\s*[,}]?$")
_TAG = r"\\u003c/?[a-z]\w{0,12}(?:\\u003e| )"
_ESCAPED_TAG = re.compile(_TAG)
_RECORD = re.compile(
    rf"(?!\S{{1,200}}(?:Error|Exception): )(?:(?:- )?[\w.-]{{1,60}}: [\"'].*{_TAG}|.*(?:\\n\s?{_TAG}|{_TAG}\\n))"
)
"""A line of a page inside a record; the answer of a server in an error's message may be a page, too."""


class WrappedRecord:
    """Follows a record whose text of several lines is a page, wrapped by YAML."""

    def __init__(self) -> None:
        self._until, self._margin = 0, 0

    def inside(self, line: int) -> bool:
        """Whether `line`, the next one, may belong to it."""
        return line <= self._until

    def read(self, line: int, text: str) -> bool:
        """Whether the line belongs to one."""
        margin = len(text) - len(text.lstrip())
        tagged = _ESCAPED_TAG.search(text) is not None
        if tagged and (self.inside(line) or _RECORD.match(text)):
            self._until = 0 if _VALUE_ENDS.search(text) else line + _RECORD_LINES
            self._margin = margin
            return True
        if not self.inside(line) or margin < max(self._margin, 1):
            self._until = 0
        return self.inside(line)


class Listing:
    """Leaves listings out of a job's output. What may be a string is held until it ends, and given back if it does not."""

    def __init__(self, recent: Reversible[str]) -> None:
        self._recent = recent
        self._mark, self._began, self._n_closed = "", 0, 0
        self._held: list[tuple[int, str]] = []
        self._hunk, self._record = Hunk(), WrappedRecord()

    def inside(self, line: int) -> bool:
        """Whether `line`, the next one, may belong to one."""
        return self._mark != "" or self._hunk.inside() or self._record.inside(line)

    def read(self, line: int, text: str) -> Iterator[tuple[int, str]]:
        """A line of the log, in order; yields the lines to read with their numbers."""
        if self._mark:
            if line <= self._began + MAX_LINES and len(text) <= _MAX_CHARS:
                self._held.append((line, text))
                if closes(self._mark, text):
                    self._mark, self._held, self._n_closed = "", [], self._n_closed + 1
                return
            yield from self._given_back()
        if self._hunk.read(text) or self._record.read(line, text):
            return
        if any(trigger in text for trigger in TRIGGERS):
            self._mark, self._began = opened(text, next(iter(reversed(self._recent)), "")), line
        yield line, text

    def rest(self) -> Iterator[tuple[int, str]]:
        """At the end of the log: the lines held, unless the log is a listing whose last string was cut off."""
        of_job = any(text.startswith(_LAUNCHERS) for _, text in self._held)
        if self._n_closed < _LEAST_STRINGS or of_job:
            yield from self._given_back()

    def _given_back(self) -> Iterator[tuple[int, str]]:
        self._mark, held, self._held = "", self._held, []
        yield from held
