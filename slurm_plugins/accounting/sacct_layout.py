"""How one line of `sacct -P` is cut into columns, whatever stands in people's fields."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from probing_cluster.slurm_plugins.accounting import sacct_fields

MAX_EXTRA_PARTS = 512
"""Delimiters that people's text may add to one record."""
KEYS = frozenset({"jobidraw", "jobid", "state", "submit", "start", "end"})
"""Columns that must hold what they promise before a line passes for a record."""
USED = KEYS | {name.lower() for name in sacct_fields.WANTED}

_HEADER = re.compile(r"([A-Za-z]\w*)([^\w\r\n]+)[A-Za-z]\w*")
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]*")


class SacctLayout:
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
        bounds = self._bounds(parts, extra)
        if bounds is None:
            return None
        if any(bounds[i].bit_count() > 1 for i in self.used):
            return self._in_one_column(parts, extra)
        return self._cut(parts, bounds)

    def _in_one_column(self, parts: Sequence[str], extra: int) -> list[str] | None:
        """The cut in which one person's text holds all extra delimiters, as a submit line with `||` does; None if several that matter fit.

        The empty piece within `||` passes for many a column, so that further ways would cut two texts.
        """
        kept: list[str] | None = None
        for column, check in enumerate(self.checks):
            if check is not None or self.lists[column]:
                continue
            end = column + extra + 1
            cut = [*parts[:column], self.delimiter.join(parts[column:end]), *parts[end:]]
            if not self._fits(cut):
                continue
            if kept is not None and any(
                kept[i] != cut[i] for i, name in enumerate(self.columns) if name in USED
            ):
                return None
            kept = kept or cut
        return kept

    def _bounds(self, parts: Sequence[str], extra: int) -> list[int] | None:
        """The numbers of extra parts that can lie before each column, and before the end, in a whole cut; each as bits of a number."""
        reach = [1]
        for column in range(len(self.columns)):
            reach.append(self._step(parts, column, reach[-1], extra))
            if not reach[-1]:
                return None
        alive = 1 << extra
        if not reach[-1] & alive:
            return None
        bounds = [alive]
        for column in reversed(range(len(self.columns))):
            alive = self._step_back(parts, column, reach[column], alive, extra)
            bounds.append(alive)
        return bounds[::-1]

    def _step(self, parts: Sequence[str], column: int, before: int, extra: int) -> int:
        """What can lie before the next column when `before` can lie before this one."""
        check = self.checks[column]
        if check is None:
            # A person's text takes any number: everything from the lowest bit up.
            return ((2 << extra) - 1) & -(before & -before)
        after = 0
        for k in _bits(before):
            if self.lists[column]:
                after |= sum(1 << end for end in self._list_ends(parts, column, k, extra))
            elif check(parts[column + k]):
                after |= 1 << k
        return after

    def _step_back(self, parts: Sequence[str], column: int, before: int, after: int, extra: int) -> int:
        """Which of the possible parts before this column leads to `after`."""
        if self.checks[column] is None:
            return before & ((1 << after.bit_length()) - 1)
        if not self.lists[column]:
            return before & after
        leads = (
            k
            for k in _bits(before)
            if any(after >> end & 1 for end in self._list_ends(parts, column, k, extra))
        )
        return sum(1 << k for k in leads)

    def _list_ends(self, parts: Sequence[str], column: int, before: int, extra: int) -> Iterator[int]:
        """How many extra parts can lie behind a list of Slurm's own that a comma has cut."""
        check = self.checks[column]
        for end in range(before, extra + 1):
            if check is not None and check(self.delimiter.join(parts[column + before : column + end + 1])):
                yield end

    def _fits(self, parts: Sequence[str]) -> bool:
        """Stricter than `is_record`: lines put together must be right in every column that is used."""
        checked = {0, *self.used}
        return all(
            check is None or i not in checked or check(part)
            for i, (check, part) in enumerate(zip(self.checks, parts, strict=True))
        )

    def _cut(self, parts: Sequence[str], bounds: Sequence[int]) -> list[str]:
        cut, at, extra = [], 0, len(parts) - len(self.columns)
        for column, after in enumerate(bounds[1:]):
            if self.lists[column]:
                # Slurm's own lists take all they can; free text as little as lets the next column stand.
                end = max(k for k in self._list_ends(parts, column, at, extra) if after >> k & 1)
            else:
                end = at if self.checks[column] else next(k for k in _bits(after) if k >= at)
            cut.append(self.delimiter.join(parts[column + at : column + end + 1]))
            at = end
        return cut


def _bits(number: int) -> Iterator[int]:
    """The places of the ones in a number, lowest first."""
    while number:
        low = number & -number
        yield low.bit_length() - 1
        number ^= low


def lines_of(data: bytes) -> list[str]:
    """The lines of a dump. Only \\n ends one: str.splitlines would also cut at the separators people use as delimiters."""
    return data.removeprefix(b"\xef\xbb\xbf").decode("utf-8", "replace").split("\n")


def header(line: str, delimiter: str | None = None) -> SacctLayout | None:
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
    return SacctLayout(names, delimiter)
