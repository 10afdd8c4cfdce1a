"""Listings that only show lines of a log: strings of several lines in source code, changes as `git diff` shows them, records with escapes.

What `rich` wrapped is joined first. A string counts only with its end, a change only with all lines that its head counts. What opens one and never closes is none, and
nothing below it is lost. The lines of a traceback open nothing: it shows a statement's first lines.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Reversible
from itertools import islice

from probing_cluster.core import digits

MAX_LINES = 120
"""A string is followed for so many lines."""
_MAX_CHARS = 8192
_HUNK_LINES = 400
_RECORD_LINES, _FRAME_LINES, _HEAD_LINES = 12, 8, 10
_OF_JOB = re.compile(
    r"(?:mpirun|mpiexec)\b|\+{1,9} [\w./([]|-?(?:ba|da|z|k|c|tc)?sh: |\S{1,200}: line \d{1,6}: |\s{0,6}\d{1,6}: "
    r"|\[(?:rank|Rank|RANK):? ?\d{1,8}\]|(?:\w{3} [\w :]{20} ?)?\[\d+(?:,\w+(?::\d+)?)?\]<std|\[[a-z][a-z_]{1,30}\d{1,5}\]:|\([\w.:]{1,64} pid=\d"
    r"|\s*\.{3}<\d{1,4} lines>\.{3}$|.*(?:slurmstepd|srun|salloc)(?:-\S{1,80})?: "
)
"""Lines of a job's launcher, shell or rank stand in no listing, nor does the mark of lines that Python leaves out of a traceback."""
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
_FRAME = re.compile(
    r'File "[^"\n]{1,400}", line \d|(?:Cell )?In ?\[\d{1,6}\], line \d|\s*-{1,6}> ?\d{1,6} |.{0,20}\u2771'
)
_OUTPUT = re.compile(
    r"\s*(?:\[[^\]\n]{1,80}\]:? |\(\w[^)\n]{0,80}\) |\d{4}-\d\d-\d\d|\d\d:\d\d:|(?:DEBUG|INFO|WARN(?:ING)?|ERROR)\b|\w{1,20} \d{1,9}: )"
)
"""Labels of a program's own output, which may hold the beginning of a text that a model wrote."""
_CLOSING_TEXT = re.compile(r"(?:[^\"\\]|\\.)*\"[\s;,)\]}.\w]{0,40}$")
_PAIRED = ('"""', "'''", "`")
"""Marks that begin a string as they end it."""


def opened(text: str, lines_above: Iterable[str]) -> str:
    """The mark that ends the string of source which begins in the line `text` and goes on below it; empty without one.

    `lines_above` begins with the nearest.
    """
    near = list(islice(lines_above, _FRAME_LINES))
    if _OUTPUT.match(text) or any(_FRAME.search(line) for line in (text, *near)):
        return ""
    above = next(iter(near), "")
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


def closes(mark: str, text: str, above: str) -> bool | None:
    """Whether the string that `mark` ends is over with the line; None if there is none, as the line opens one itself or has a whole one."""
    text = text[found.end() :] if (found := _OUTPUT.match(text)) else text
    # A line's end may be escaped in the string, too: only at a beginning does it await one.
    if opened(text, [above.removesuffix("\\")]) == mark or (
        mark in _PAIRED and mark in text and text.count(mark) % 2 == 0
    ):
        return None
    return _CLOSING_TEXT.match(text) is not None if mark == '"' else mark in text


_HUNK = re.compile(r"@@ -\d{1,9}(?:,(?P<old>\d{1,6}))? \+\d{1,9}(?:,(?P<new>\d{1,6}))? @@")


class Hunk:
    """Follows the changed parts of a file, whose heads say how many lines they have."""

    def __init__(self) -> None:
        self._old = self._new = 0

    def inside(self) -> bool:
        """Whether lines of it are still to come; after a line that is not of it: whether it was cut off."""
        return self._old > 0 or self._new > 0

    def begins(self, text: str, *, below_head: bool) -> bool:
        """Whether the line is the head of one, below the file's own head or another whole part."""
        found = _HUNK.match(text) if below_head else None
        self._old, self._new = (int(found["old"] or 1), int(found["new"] or 1)) if found else (0, 0)
        return self.inside()

    def read(self, text: str) -> bool:
        """Whether the line, the next one, belongs to it."""
        sign = text[:1] or " "
        old, new = sign in " -", sign in " +"
        if not self.inside() or old > self._old or new > self._new or sign not in " +-\\":
            return False
        self._old -= old
        self._new -= new
        return True


_HEAD = re.compile(r"\s{0,8}\+{1,9} head(?: -n ?(?P<n>\d{1,4})| -(?P<old>\d{1,4}))? [\w./-]{1,300}$")
_TRACED = re.compile(r"\s{0,8}\+{1,9} \S")
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


_LOGGED = re.compile(
    r"(?P<before>(?:\[[^\[\]\n]{4,40}\] |\d[\d:.,/ -]{6,30} | {0,40})(?:ERROR {4}|CRITICAL ))(?P<words>\S(?:.{0,400}\S)??) {1,300}(?P<place>[\w./-]{1,120}\.py:\d{1,6})$"
)
_LOGGED_LINES = 400
_OWN_LINE = re.compile(
    r"Traceback \(|.{1,60} \(core dumped\)$|(?:Killed|Aborted|Segmentation fault|Bus error)$|(?:[a-z_]\w{0,60}\.){0,8}[A-Z]\w{0,60}(?:Error|Exception)\b:?"
)
"""A line of a traceback that begins at its margin, or a shell's about a crash: no word of the line above it."""


class RichColumns:
    """`rich` prints a logged message as a column between the level and the place in the source. This joins the column's lines to those that the program logged, in order; every other line stays as it is."""

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
            self._text, self._last, self._alone = f"{self._text}{blank}{row}"[:_MAX_CHARS], row, ""
            return
        yield from self.rest()
        if row is not None:
            self._at, self._text, self._last = line, row, row
            return
        self._began = 0
        head = _LOGGED.match(text) if digits.is_number(text[-1:]) else None
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
        of_column = text.startswith(self._margin) and line < self._began + _LOGGED_LINES
        row = text[len(self._margin) :].rstrip() if of_column else ""
        return row if 0 < len(row) <= self._width else None

    def _goes_on(self, row: str) -> bool:
        """Whether the row continues the line above it: its first word did not fit there."""
        if row[0] == " " or not self._last or _OWN_LINE.match(row):
            return False
        return len(self._last) + 1 + len(row.partition(" ")[0]) > self._width


class Listing:
    """Leaves listings out of a job's output. What may be one is held until it ends, and given back if it does not."""

    def __init__(self, recent: Reversible[str]) -> None:
        self._recent = recent
        self._mark, self._began, self._changed, self._shown_until = "", 0, 0, 0
        self._held: list[tuple[int, str]] = []
        self._hunk, self._record = Hunk(), WrappedRecord()
        self._columns = RichColumns()

    def inside(self, line: int) -> bool:
        """Whether `line`, the next one, may belong to one."""
        return self._columns.inside() or self._holds() or self._record.inside(line)

    def read(self, line: int, text: str, *, labelled: bool = False) -> Iterator[tuple[int, str]]:
        """A line of the log, in order; yields the lines to read with their numbers. `labelled`: a launcher's label stood before it."""
        for number, whole in self._columns.read(line, text):
            yield from self._read(number, whole, labelled=labelled)

    def _read(self, line: int, text: str, *, labelled: bool) -> Iterator[tuple[int, str]]:
        if self._holds():
            most = MAX_LINES if self._mark else _HUNK_LINES
            fits = line <= self._began + most and len(text) <= _MAX_CHARS
            of_job = labelled or _OF_JOB.match(text[:_MAX_CHARS]) is not None
            if fits and not of_job and self._continues(line, text):
                return
            if self._mark and self._held and self._held[-1][0] <= self._shown_until and _TRACED.match(text):
                self._held = []  # `head` cut the string, and the shell goes on
            yield from self._given_back()
        if head := _HEAD.match(text) if "+ head " in text else None:
            self._shown_until = line + int(head["n"] or head["old"] or _HEAD_LINES)
        if self._record.read(line, text):
            return
        if "@@ -" in text:
            below_file = next(iter(reversed(self._recent)), "").startswith("+++ ")
            below_head = below_file or line == self._changed + 1
            if not labelled and self._hunk.begins(text, below_head=below_head):
                self._held, self._began = [(line, text)], line
                return
        if not labelled and any(trigger in text for trigger in TRIGGERS):
            self._mark, self._began = opened(text, reversed(self._recent)), line
        yield line, text

    def rest(self) -> Iterator[tuple[int, str]]:
        """At the end of the log: the lines held."""
        for number, whole in self._columns.rest():
            yield from self._read(number, whole, labelled=False)
        yield from self._given_back()

    def _holds(self) -> bool:
        return self._mark != "" or self._hunk.inside()

    def _continues(self, line: int, text: str) -> bool:
        """Whether the line belongs to what is open; at the end of that, what is held is dropped."""
        if self._mark:
            over = closes(self._mark, text, self._held[-1][1] if self._held else "")
            if over is None:
                return False
        elif self._hunk.read(text):
            over, self._changed = not self._hunk.inside(), line
        else:
            return False
        self._held.append((line, text))
        if over:
            self._mark, self._held = "", []
        return True

    def _given_back(self) -> Iterator[tuple[int, str]]:
        self._mark, self._hunk, held, self._held = "", Hunk(), self._held, []
        yield from held
