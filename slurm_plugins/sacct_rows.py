"""`sacct -P` bytes taken apart into records, whatever people put in their fields.

A line is not a record: job names, comments and submit lines hold newlines, delimiters and bad UTF-8, dumps hold
repeated headers and stray text. A record is the shortest run of lines whose parts fill every column with
something that column can hold; lines that belong to none are kept aside.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from probing_cluster.core import errors, sanitize
from probing_cluster.slurm_plugins import sacct_fields

MAX_LINES_PER_RECORD = 1000
"""A submit line can carry a whole script; more than this is a dump gone wrong."""
MAX_EXTRA_PARTS = 512
"""Delimiters that people's text may add to one record."""

_HEADER = re.compile(r"([A-Za-z]\w*)([^\w\r\n]+)[A-Za-z]\w*")
_RULE = re.compile(r"-+(?: -+)+ *")
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]*")
MAX_TRIES = 256
"""Ways of joining one stretch of broken lines that are tried before its lines are given up."""
KEYS = frozenset({"jobidraw", "jobid", "state", "submit", "start", "end"})
"""Columns that must hold what they promise before a line passes for a record."""
USED = KEYS | {name.lower() for name in sacct_fields.WANTED}


@dataclass(frozen=True, kw_only=True)
class Row:
    """One record: lower-case column name to its text, as written."""

    line_no: int
    text: str
    fields: Mapping[str, str]


@dataclass(frozen=True, kw_only=True)
class Rejected:
    """Input that became nothing, and why; never dropped silently."""

    line_no: int
    text: str
    why: str


class Layout:
    """The columns of one header, and how a line is cut into them."""

    def __init__(self, columns: Sequence[str], delimiter: str) -> None:
        self.delimiter = delimiter
        self.trailing = len(columns) > 1 and columns[-1] == ""
        names = columns[:-1] if self.trailing else columns
        self.columns = [name.lower() for name in names]
        self.checks = [sacct_fields.check_of(name) for name in self.columns]
        # With a comma as delimiter Slurm's own lists are cut too.
        self.lists = [self.delimiter == "," and name in sacct_fields.LISTS for name in self.columns]
        self.keys = [(i, check) for i, check in enumerate(self.checks) if check and self.columns[i] in KEYS]
        self.used = [i for i, check in enumerate(self.checks) if check and self.columns[i] in USED]
        self.missing = sacct_fields.missing(self.columns)

    def split(self, text: str) -> list[str]:
        """`text` cut at the delimiter, without the empty piece that `-p` leaves at the end."""
        parts = text.split(self.delimiter)
        surplus = len(parts) - len(self.columns)
        if parts[-1] == "" and (surplus == 1 or (self.trailing and surplus > 0)):
            parts.pop()
        return parts

    def is_record(self, parts: Sequence[str]) -> bool:
        """Whether `parts` fill the columns one to one and the telling ones hold what they should."""
        return len(parts) == len(self.columns) and all(check(parts[i]) for i, check in self.keys)

    def can_begin(self, parts: Sequence[str]) -> bool:
        """Whether a line cut into `parts` can be the first of a record."""
        for i, part in enumerate(parts):
            check = self.checks[i] if i < len(self.checks) else None
            # After a person's field, or a list, positions mean nothing; the last part may go on in the next line.
            if check is None or self.lists[i] or i == len(parts) - 1:
                return i > 0 or check is None
            if not check(part):
                return False
        return False

    def fields(self, parts: Sequence[str]) -> dict[str, str]:
        """Column to text; of a column asked for twice the first counts."""
        found: dict[str, str] = {}
        for name, part in zip(self.columns, parts, strict=True):
            found.setdefault(name, part)
        return found

    def align(self, parts: Sequence[str]) -> list[str] | None:
        """`parts` joined to one text per column; None where no way, or two ways that matter, exist."""
        extra = len(parts) - len(self.columns)
        if extra == 0:
            return list(parts) if self._fits(parts) else None
        if not 0 < extra <= MAX_EXTRA_PARTS:
            return None
        ways = self._ways(parts, extra)
        if not all(ways) or any(len({k for k, _ in ways[i]}) > 1 for i in self.used):
            return None
        return self._cut(parts, ways)

    def _ways(self, parts: Sequence[str], extra: int) -> list[set[tuple[int, int]]]:
        """For each column the (extra parts before it, extra parts after it) of every whole cut."""
        steps: list[set[tuple[int, int]]] = []
        here = {0}
        for column in range(len(self.columns)):
            steps.append({(k, after) for k in here for after in self._ends(parts, column, k, extra)})
            here = {after for _, after in steps[-1]}
        alive = {extra}
        for column in reversed(range(len(self.columns))):
            steps[column] = {(k, after) for k, after in steps[column] if after in alive}
            alive = {k for k, _ in steps[column]}
        return steps

    def _ends(self, parts: Sequence[str], column: int, before: int, extra: int) -> Iterator[int]:
        """How many extra parts can lie behind `column` when `before` lie in front of it."""
        check, first = self.checks[column], column + before
        if check is None:
            yield from range(before, extra + 1)
        elif not self.lists[column]:
            if check(parts[first]):
                yield before
        else:
            for after in range(before, extra + 1):
                if check(self.delimiter.join(parts[first : column + after + 1])):
                    yield after

    def _fits(self, parts: Sequence[str]) -> bool:
        """Stricter than `is_record`: lines put together must be right in every column that is used."""
        telling = {0, *self.used}
        return all(
            check is None or i not in telling or check(part)
            for i, (check, part) in enumerate(zip(self.checks, parts, strict=True))
        )

    def _cut(self, parts: Sequence[str], ways: Sequence[set[tuple[int, int]]]) -> list[str]:
        cut, at = [], 0
        for column, steps in enumerate(ways):
            ends = [end for k, end in steps if k == at]
            # Slurm's own lists take all they can; free text as little as lets the next column stand.
            after = max(ends) if self.lists[column] else min(ends)
            cut.append(self.delimiter.join(parts[column + at : column + after + 1]))
            at = after
        return cut


def header(line: str, delimiter: str | None = None) -> Layout | None:
    """The layout a header line announces; None when it is not one. The delimiter is read off the line."""
    if delimiter is None:
        match = _HEADER.match(line)
        if match is None or match[1].lower() not in sacct_fields.KNOWN:
            return None
        delimiter = match[2]
    elif line.partition(delimiter)[0].lower() not in sacct_fields.KNOWN:
        return None
    names = line.split(delimiter)
    words = names[:-1] if names[-1] == "" else names
    if not all(_NAME.fullmatch(name) for name in words):
        return None
    known = sum(name.lower() in sacct_fields.KNOWN for name in words)
    # A later release may add columns we do not know; a row of values is never mostly column names.
    if known < 2 or known * 2 < len(words):
        return None
    return Layout(names, delimiter)


def read(
    data: bytes, *, delimiter: str | None = None, fields: Sequence[str] | None = None
) -> Iterator[Row | Rejected]:
    """Every record and every rejected line of `data`, in order; raises MalformedInput without any header.

    `fields` names the columns of output made with `--noheader`; then `delimiter` defaults to `|`.
    """
    # Only \n ends a line: str.splitlines would also cut at the separators people use as delimiters.
    lines = data.removeprefix(b"\xef\xbb\xbf").decode("utf-8", "replace").split("\n")
    layout = Layout(list(fields), delimiter or "|") if fields else None
    pending: list[tuple[int, str]] = []
    found = layout is not None
    for line_no, raw in enumerate(lines, 1):
        line = raw.removesuffix("\r")
        if not line and not pending:
            continue
        new = header(line, delimiter)
        if new is not None:
            yield from _settle(layout, pending)
            layout, pending, found = new, [], True
            continue
        _refuse_table(layout, line)
        yield from _take(layout, pending, line_no, line)
    yield from _settle(layout, pending)
    if not found and data.strip():
        msg = "no header line with sacct's column names; give the field list it was made with"
        raise errors.MalformedInput(msg)


def _refuse_table(layout: Layout | None, line: str) -> None:
    if _RULE.fullmatch(line) and (layout is None or layout.delimiter.strip(" ") == ""):
        msg = "this is sacct's table for people, which cuts fields short; run it again with -P"
        raise errors.MalformedInput(msg)


def _take(
    layout: Layout | None, pending: list[tuple[int, str]], line_no: int, line: str
) -> Iterator[Row | Rejected]:
    if layout is None:
        yield _rejected([(line_no, line)], "before the first header line")
        return
    parts = layout.split(line)
    if layout.is_record(parts):
        yield from _settle(layout, pending)
        pending.clear()
        yield _row(layout, [(line_no, line)], parts)
        return
    if not pending and not layout.can_begin(parts):
        yield _rejected([(line_no, line)], _why_not(layout, line))
        return
    pending.append((line_no, line))
    whole = _joined(layout, pending)
    if whole is not None:
        yield _row(layout, pending, whole)
        pending.clear()
    elif len(pending) >= MAX_LINES_PER_RECORD:
        yield from _settle(layout, pending)
        pending.clear()


def _joined(layout: Layout, lines: Sequence[tuple[int, str]]) -> list[str] | None:
    parts = layout.split("\n".join(text for _, text in lines))
    return layout.align(parts) if len(parts) >= len(layout.columns) else None


def _settle(layout: Layout | None, pending: Sequence[tuple[int, str]]) -> Iterator[Row | Rejected]:
    """The records hidden in lines that did not make one together; the rest rejected."""
    start, tries = 0, MAX_TRIES
    while layout is not None and start < len(pending):
        end, tries = _record_end(layout, pending, start, tries)
        if end == start:
            if pending[start][1]:
                yield _rejected(pending[start : start + 1], _why_not(layout, pending[start][1]))
            start += 1
            continue
        lines = pending[start:end]
        yield _row(layout, lines, _joined(layout, lines) or [])
        start = end


def _record_end(layout: Layout, lines: Sequence[tuple[int, str]], start: int, tries: int) -> tuple[int, int]:
    """Where the record that begins at `start` ends (`start` itself: none does), and the tries left."""
    if not layout.can_begin(layout.split(lines[start][1])):
        return start, tries
    n_parts = 1
    for end in range(start + 1, len(lines) + 1):
        n_parts += lines[end - 1][1].count(layout.delimiter)
        if tries <= 0 or n_parts > len(layout.columns) + MAX_EXTRA_PARTS:
            break
        if n_parts >= len(layout.columns):
            tries -= 1
            if _joined(layout, lines[start:end]) is not None:
                return end, tries
    return start, tries


def _why_not(layout: Layout, line: str) -> str:
    parts = layout.split(line)
    if len(parts) == 1:
        return "stray text between records"
    if len(parts) != len(layout.columns):
        return f"{len(parts)} fields where the header has {len(layout.columns)}"
    bad = next((i for i, check in layout.keys if not check(parts[i])), 0)
    return f"{sanitize.clean(parts[bad], 60)!r} cannot be a {layout.columns[bad]}"


def _row(layout: Layout, lines: Sequence[tuple[int, str]], parts: Sequence[str]) -> Row | Rejected:
    if layout.missing:
        return _rejected(lines, f"the field list lacks {', '.join(layout.missing)}")
    return Row(line_no=lines[0][0], text="\n".join(text for _, text in lines), fields=layout.fields(parts))


def _rejected(lines: Sequence[tuple[int, str]], why: str) -> Rejected:
    return refused(lines[0][0], "\n".join(text for _, text in lines), why)


def refused(line_no: int, text: str, why: str) -> Rejected:
    """Input set aside, with its text made safe to show."""
    return Rejected(line_no=line_no, text=sanitize.clean(text), why=why)
