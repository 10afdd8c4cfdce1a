"""Tables of a program's own numbers, readable from outside while it runs and after it has died.

    import probing_tables
    train = probing_tables.table("train", step=int, loss=float)
    train.append(step=1, loss=0.5)

In a job of Probing Cluster each table is a bounded ring in a file of the job's own directory, mode 0600: this process
alone writes it, the job's owner reads it (`SELECT * FROM python.train`). Elsewhere the same calls do nothing. A value
that does not fit its column is stored as null and counted; once a table is made, no append raises for a value.

The probe offers this package as `probing_tables` in every job, and it is the wheel of that name. It runs on Python 3.8 and later, imports nothing but the standard library, and is imported by who wants a table.
"""

import keyword
import re
import sys

from . import rings  # noqa: TID252  # the package has two names: the agent reads by the same constants

__all__ = ["ExternalTable", "Table", "table"]


def _named(name, columns):
    if not isinstance(name, str) or not 0 < len(name) <= rings.MAX_NAME_CHARS or not name.isprintable():
        raise ValueError("a table's name is of 1 to %d printable characters" % rings.MAX_NAME_CHARS)
    if not 0 < len(columns) <= rings.MAX_COLUMNS or len(set(columns)) != len(columns):
        raise ValueError("a table has 1 to %d columns, each of its own name" % rings.MAX_COLUMNS)
    for column in columns:
        if (
            not isinstance(column, str)
            or not 0 < len(column) <= rings.MAX_NAME_CHARS
            or not column.isprintable()
        ):
            raise ValueError("a column's name is of 1 to %d printable characters" % rings.MAX_NAME_CHARS)


class Table:
    """A table whose columns have names and types; made by `table`."""

    def __init__(self, name, columns):
        self.name = name
        self._ring = rings.ring_of(name, list(columns), list(columns.values()))
        self.append = self._ring.appender(by_name=True)

    @property
    def why(self):
        """Why nothing is kept; empty while rows are."""
        return self._ring.why

    def append_many(self, rows):
        """Append rows, each a mapping of columns to values or a sequence of values."""
        for row in rows:
            self.append(**row) if hasattr(row, "keys") else self.append(*row)

    def take(self, limit=None):
        """The oldest rows kept, at most `limit`: (Unix microseconds, [values])."""
        return _taken(self._ring, limit)

    def names(self):
        """The columns."""
        return list(self._ring.columns)

    def drop(self):
        """Forget the table and its rows; further appends do nothing."""
        self._ring.drop()


def _taken(ring, limit):
    return [
        (row[1] // 1000, [rings.value_of(t, stored) for t, stored in zip(ring.types, row[2:-1])])
        for row in ring.taken(limit)
    ]


def table(name, /, **columns):
    """The table `name` with the columns given as name=type (int, float, bool, str); made if it is not there.

    Without columns it decorates a dataclass: `@table` or `@table("name")`. Raises ValueError for a name that cannot be
    one, a type that is none of these, or a table of that name with other columns.
    """
    if isinstance(name, type):
        return _decorated(name, None)
    if not columns:
        return lambda cls: _decorated(cls, name)
    _named(name, list(columns))
    types = {}
    for column, kind in columns.items():
        if not column.isidentifier() or keyword.iskeyword(column) or column in rings.RESERVED:
            raise ValueError("column %s: its name cannot be a parameter's" % column)
        if kind not in rings.WORDS:
            raise ValueError("column %s: a type is int, float, bool or str" % column)
        types[column] = rings.WORDS[kind]
    return Table(name, types)


class ExternalTable:
    """Probing's own class: columns are given by name, their types are those of the first row.

    Used as a decorator it gives a dataclass the table, like `table`. `chunk_size`, `discard_threshold` and
    `discard_strategy` are taken and mean nothing: a ring's size is fixed.
    """

    def __new__(cls, name, *_, **__):
        """The decorated class for a class, else a table."""
        return _decorated(name, None) if isinstance(name, type) else object.__new__(cls)

    def __init__(self, name, columns, chunk_size=10000, discard_threshold=20000000, discard_strategy=None):
        columns = list(columns)
        _named(name, columns)
        self.name, self._columns, self._late = name, columns, None
        before = rings.made.get(name)
        if before is not None:
            if before.columns != columns:
                raise ValueError("table %s has other columns: %s" % (name, ", ".join(before.columns)))
            self._take_up(before)

    def _take_up(self, ring):
        self._late = ring
        self.append = ring.appender(by_name=False)

    @property
    def why(self):
        """Why nothing is kept; empty while rows are."""
        return self._late.why if self._late is not None else ""

    def append(self, values):
        """Append one row, a sequence of as many values as columns; raises ValueError for another number."""
        self._first(values)
        self.append(values)

    def _first(self, values):
        values = list(values)
        if len(values) != len(self._columns):
            raise ValueError("%d values for %d columns" % (len(values), len(self._columns)))
        if self._late is None:
            before = rings.made.get(self.name)
            if before is None:
                before = rings.ring_of(self.name, self._columns, [_kind(v) for v in values])
                before.promotes = True
            self._take_up(before)

    def append_ts(self, t, values):
        """Append one row with a time of its own, Unix microseconds."""
        self._first(values)
        if self._late.map is not None:
            self._late.put(0, tuple(values), int(t) * 1000)

    def append_many(self, rows):
        """Append rows, each a sequence of values."""
        for row in rows:
            self.append(row)

    def take(self, limit=None):
        """The oldest rows kept, at most `limit`: (Unix microseconds, [values])."""
        return _taken(self._late, limit) if self._late is not None else []

    def names(self):
        """The columns."""
        return list(self._columns)

    @classmethod
    def get(cls, name):
        """The table of that name; raises ValueError where there is none."""
        ring = rings.made.get(name)
        if ring is None:
            raise ValueError("table %s not found" % name)
        return cls(name, ring.columns)

    @classmethod
    def get_or_create(cls, name, columns, *args, **kwargs):
        """The table of that name, made if it is not there."""
        return cls(name, columns, *args, **kwargs)

    @classmethod
    def drop(cls, name):
        """Forget the table of that name and its rows; none is no error."""
        ring = rings.made.get(name)
        if ring is not None:
            ring.drop()


def _kind(value):
    for kind in (bool, int, str):
        if isinstance(value, kind):
            return rings.WORDS[kind]
    return "int" if hasattr(value, "__index__") and not hasattr(value, "backward") else "float"


def _kind_of(annotation):
    # int, Optional[float], "str | None": the first of our types that it names; any other is kept as its text
    for kind in (float, bool, int):
        if re.search(r"\b%s\b" % kind.__name__, annotation):
            return rings.WORDS[kind]
    return "text"


def _decorated(cls, name):
    fields = getattr(cls, "__dataclass_fields__", None)
    if fields is None:
        raise TypeError("%r is not a dataclass" % (cls,))
    snake = re.sub("([a-z0-9])([A-Z])", r"\1_\2", re.sub("(.)([A-Z][a-z]+)", r"\1_\2", cls.__name__)).lower()
    kinds = {f: _kind_of(str(fields[f].type)) for f in fields}
    _named(name or snake, list(kinds))
    ring = rings.ring_of(name.lower() if name else snake, list(kinds), list(kinds.values()))
    append = ring.appender(by_name=False)
    values = lambda one: [getattr(one, f) for f in kinds]  # noqa: E731
    cls.append = staticmethod(lambda one: append(values(one)))
    cls.append_many = staticmethod(lambda many: [append(values(one)) for one in many] and None)
    cls.take = staticmethod(lambda limit=None: _taken(ring, limit))
    cls.drop = staticmethod(ring.drop)
    cls.save = lambda self: append(values(self))
    return cls


if "_probing_probe.importhook" in sys.modules:  # in a job whose owner may ask this process
    sys.modules["_probing_probe.importhook"].may_answer()
