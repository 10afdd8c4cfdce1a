"""How one line of `sacct -P` is cut into columns, whatever stands in people's fields."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from probing_cluster.slurm_plugins import sacct_fields

MAX_EXTRA_PARTS = 512
"""Delimiters that people's text may add to one record."""
KEYS = frozenset({"jobidraw", "jobid", "state", "submit", "start", "end"})
"""Columns that must hold what they promise before a line passes for a record."""
USED = KEYS | {name.lower() for name in sacct_fields.WANTED}

_HEADER = re.compile(r"([A-Za-z]\w*)([^\w\r\n]+)[A-Za-z]\w*")
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]*")


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
