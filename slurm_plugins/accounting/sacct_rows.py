"""`sacct -P` bytes taken apart into records, whatever people put in their fields.

A line is not a record: job names, comments and submit lines hold newlines, delimiters and bad UTF-8, dumps hold
repeated headers and stray text. A record is the shortest run of lines whose parts fill every column with
something that column can hold; lines that belong to none are kept aside.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from probing_cluster.core import errors, sanitize
from probing_cluster.slurm_plugins.accounting import sacct_fields, sacct_layout

MAX_LINES_PER_RECORD = 1000
"""A submit line can carry a whole script; more than this is a dump gone wrong."""

_UNREAD_LINES = 4
_DELIMITERS = ("|", ";", "\t", "^", "~", "#", "@")
"""What people give to `sacct --delimiter`."""
_TIMES = frozenset({"submit", "start", "end"})
_OF_TIMES = "; export again without SLURM_TIME_FORMAT, or with SLURM_TIME_FORMAT=standard or %s, and with wide columns (`sacct -P`)"
MAX_TRIES = 256
"""Ways of joining one stretch of broken lines that are tried before its lines are given up."""


@dataclass(frozen=True, kw_only=True)
class SacctRow:
    """One record: lower-case column name to its text, as written."""

    line_no: int
    text: str
    fields: Mapping[str, str]


@dataclass(frozen=True, kw_only=True)
class RejectedRow:
    """Input that became nothing, and why; never dropped silently."""

    line_no: int
    text: str
    why: str


def read(
    data: bytes, *, delimiter: str | None = None, fields: Sequence[str] | None = None
) -> Iterator[SacctRow | RejectedRow]:
    """Every record and every rejected line of `data`, in order; raises MalformedInput without any header.

    `fields` names the columns of output made with `--noheader`; then `delimiter` defaults to `|`.
    """
    lines = sacct_layout.lines_of(data)
    names = [sacct_fields.in_format(name) for name in fields or ()]
    layout = sacct_layout.SacctLayout(names, delimiter or "|") if names else None
    pending: list[tuple[int, str]] = []
    found, any_read = layout is not None, False
    if layout is not None:
        _refuse_lacking(layout, 0, first=True)
    for line_no, raw in enumerate(lines, 1):
        line = raw.removesuffix("\r")
        if not line and not pending:
            continue
        new = sacct_layout.header(line, delimiter)
        if new is not None:
            _refuse_lacking(new, line_no, first=not found)
            yield from _settle(layout, pending)
            layout, pending, found = new, [], True
            continue
        for row in _take(layout, pending, line_no, line):
            any_read |= isinstance(row, SacctRow)
            yield row
        if not any_read:
            _refuse_commas(layout, pending)
    yield from _settle(layout, pending)
    if not found and data.strip():
        msg = "no header line with sacct's column names; give the field list it was made with (--fields)"
        raise errors.MalformedInput(msg)


def _refuse_lacking(layout: sacct_layout.SacctLayout, line_no: int, *, first: bool) -> None:
    """Once for the file, not once for each of its rows. A header further down may be a person's text."""
    if first and layout.missing:
        msg = (
            f"{f'line {line_no}: ' if line_no else ''}the field list lacks {', '.join(layout.missing)}, without which no attempt can be told; "
            "run sacct again with them in --format"
        )
        raise errors.MalformedInput(msg)


def _refuse_commas(layout: sacct_layout.SacctLayout | None, pending: Sequence[tuple[int, str]]) -> None:
    """A file of commas of whose first lines none is a record: trying every way to cut each takes seconds a line."""
    if layout is not None and layout.delimiter == "," and len(pending) >= _UNREAD_LINES:
        msg = (
            f"line {pending[0][0]}: where one column ends cannot be told: Slurm's own lists (AllocTRES, NodeList) and people's names hold commas, too; "
            "run sacct again with -P, whose delimiter is |"
        )
        raise errors.MalformedInput(msg)


def _take(
    layout: sacct_layout.SacctLayout | None, pending: list[tuple[int, str]], line_no: int, line: str
) -> Iterator[SacctRow | RejectedRow]:
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


def _joined(layout: sacct_layout.SacctLayout, lines: Sequence[tuple[int, str]]) -> list[str] | None:
    parts = layout.split("\n".join(text for _, text in lines))
    return layout.align(parts) if len(parts) >= len(layout.columns) else None


def _settle(
    layout: sacct_layout.SacctLayout | None, pending: Sequence[tuple[int, str]]
) -> Iterator[SacctRow | RejectedRow]:
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


def _record_end(
    layout: sacct_layout.SacctLayout, lines: Sequence[tuple[int, str]], start: int, tries: int
) -> tuple[int, int]:
    """The end of the record that begins at `start` (`start` itself: there is none), and the tries left."""
    if not layout.can_begin(layout.split(lines[start][1])):
        return start, tries
    n_parts = 1
    for end in range(start + 1, len(lines) + 1):
        n_parts += lines[end - 1][1].count(layout.delimiter)
        if tries <= 0 or n_parts > len(layout.columns) + sacct_layout.MAX_EXTRA_PARTS:
            break
        if n_parts >= len(layout.columns):
            tries -= 1
            if _joined(layout, lines[start:end]) is not None:
                return end, tries
    return start, tries


def _why_not(layout: sacct_layout.SacctLayout, line: str) -> str:
    parts = layout.split(line)
    if len(parts) == 1:
        others = [d for d in _DELIMITERS if line.count(d) >= len(layout.columns) - 1 > 0]
        if others:
            return f"no {layout.delimiter!r} in it, but {line.count(others[0])} of {others[0]!r}: --delimiter {others[0]!r}?"
        return "stray text between records"
    if len(parts) != len(layout.columns):
        return f"{len(parts)} fields where the header has {len(layout.columns)}"
    bad = next((i for i, check in layout.keys if not check(parts[i])), 0)
    column = layout.columns[bad]
    hint = _OF_TIMES if column in _TIMES else ""
    return f"{sanitize.clean(parts[bad], 60)!r} cannot be a {column}{hint}"


def _row(
    layout: sacct_layout.SacctLayout, lines: Sequence[tuple[int, str]], parts: Sequence[str]
) -> SacctRow | RejectedRow:
    if layout.missing:
        return _rejected(lines, f"the field list lacks {', '.join(layout.missing)}")
    return SacctRow(
        line_no=lines[0][0], text="\n".join(text for _, text in lines), fields=layout.fields(parts)
    )


def _rejected(lines: Sequence[tuple[int, str]], why: str) -> RejectedRow:
    return refused(lines[0][0], "\n".join(text for _, text in lines), why)


def refused(line_no: int, text: str, why: str) -> RejectedRow:
    """Input set aside, with its text made safe to show."""
    return RejectedRow(line_no=line_no, text=sanitize.clean(text), why=why)
