"""The ring behind a table: its file, which this process alone writes and anyone who may can read at any moment.

The file is a header, which never changes, and a fixed number of rows of a fixed size; row n lies in place n modulo that number.
The agent reads it by the same constants and functions. Python 3.8 and later, standard library only.
"""

import itertools
import json
import mmap
import os
import re
import struct
import sys
import time
from _thread import allocate_lock

MAGIC = 0x474E4952424F5250  # b"PROBRING" read as little-endian
VERSION = 1
HEAD_BYTES = 4096
"""The header: magic, version, size of the header, size of a row, rows, length of the description; the count of values
that did not fit; and from DESCRIPTION_AT on the description, which is JSON."""
HEAD = struct.Struct("<Q5I")
UNFIT_AT = 32
DESCRIPTION_AT = 64
RING_BYTES = 256 * 1024
MAX_ROWS = 4096
"""A ring has so many rows, or as many as RING_BYTES have room for."""
MAX_COLUMNS = 64
MAX_NAME_CHARS = 64
MAX_TABLES = 16
"""Tables of one process."""
TEXT_BYTES = 64
"""UTF-8 of one text value; what is longer is cut."""
TYPES = {"int": "q", "bool": "q", "float": "d", "text": "%ds" % TEXT_BYTES}
NULL_INT = -(1 << 63)
NULL_FLOAT_BITS = 0x7FF850524F42524E
"""A not-a-number that no arithmetic makes."""
NULL_FLOAT = struct.unpack("<d", struct.pack("<Q", NULL_FLOAT_BITS))[0]
NULL_TEXT = b"\xff"
WORDS = {int: "int", bool: "bool", float: "float", str: "text"}
WORDS.update({kind.__name__: word for kind, word in list(WORDS.items())})
_NULLS = {"int": NULL_INT, "bool": NULL_INT, "float": NULL_FLOAT, "text": NULL_TEXT}


def row_struct(types: "list[str]") -> "struct.Struct":
    """A row: its number, its time (Unix nanoseconds), the columns, its number again.

    `pack_into` first fills the row with zeros and then writes from left to right: a row whose two numbers are equal, and
    not zero, is whole.
    """
    return struct.Struct("@Qq%sQ" % "".join(TYPES[t] for t in types))


def rows_for(size: int) -> int:
    """Rows of that many bytes that a ring has."""
    return max(1, min(MAX_ROWS, RING_BYTES // size))


def whole_rows(raw: bytes, row: "struct.Struct") -> "list[tuple]":
    """The whole rows in `raw`, oldest first, as `row` unpacks them."""
    count = len(raw) // row.size
    found = [
        values
        for at, values in enumerate(row.iter_unpack(raw[: count * row.size]))
        if values[0] and values[0] == values[-1] and values[0] % count == at
    ]
    found.sort(key=lambda values: values[0])
    newest = found[-1][0] if found else 0
    return [values for values in found if values[0] + count > newest]


def value_of(kind: str, stored: "object") -> "object":
    """What a program appended, of what is stored in a column of that type."""
    if kind == "text":
        return None if stored[:1] == NULL_TEXT else stored.rstrip(b"\0").decode("utf-8", "ignore")
    if kind == "float":
        # Compared by its bits: no not-a-number equals itself.
        return None if stored != stored and struct.pack("<d", stored) == _NULL_FLOAT_BYTES else stored  # noqa: PLR0124
    if stored == NULL_INT:
        return None
    return bool(stored) if kind == "bool" else stored


_NULL_FLOAT_BYTES = struct.pack("<d", NULL_FLOAT)


def _stored(kind, value):
    # (what is stored of the value, whether it fits)
    if value is None:
        return _NULLS[kind], True
    try:
        if kind == "text":
            return str(value)[:TEXT_BYTES].encode("utf-8", "replace"), True
        if kind == "float" and not isinstance(value, (str, bytes)):
            return float(value), True
        exact = int(value) if kind != "float" else None
        if exact is not None and exact == value and NULL_INT < exact < -NULL_INT:
            return exact, True
    except Exception:
        pass
    return _NULLS[kind], False


_kept = []
"""Maps that must not go: as those of pages (page.py), which this package, being a wheel of its own, cannot import."""
if sys.version_info < (3, 13):
    os.register_at_fork(after_in_child=_kept.copy)


def _mapped(fd, size):
    if sys.version_info >= (3, 13):
        return mmap.mmap(fd, size, trackfd=False)
    ring = mmap.mmap(fd, size)
    _kept.append(ring)
    return ring


def _let_go(ring):
    try:
        if ring is not None and ring.size() == len(ring):
            _kept[:] = [one for one in _kept if one is not ring]
    except (OSError, ValueError):
        pass


made = {}
_lock = allocate_lock()
_hooked = False


def _after_fork():
    # The parent goes on writing its rings; a child that appends gets its own.
    global _lock
    _lock = allocate_lock()
    for ring in made.values():
        ring.let_go()


_BODY = """\
def make(pack, ring, number, now, slow):
    def bind(new_pack, new_ring, new_number):
        nonlocal pack, ring, number
        pack, ring, number = new_pack, new_ring, new_number
    def append({parameters}):
        {before}
        _probing_n = number()
        try:
            pack(ring, {head} + _probing_n % {rows} * {size}, _probing_n, now(), {values}, _probing_n)
        except Exception:
            slow(_probing_n, ({raw},))
    return append, bind
"""
RESERVED = frozenset(re.findall(r"\w+", re.sub(r"{\w+}", "", _BODY)))


class Ring:
    """One table of this process: its columns, its file, and the functions that append to it."""

    def __init__(self, name, columns, types):
        self.name, self.columns, self.types = name, list(columns), list(types)
        self.row = row_struct(self.types)
        self.rows = rows_for(self.row.size)
        self.numbers = itertools.count(1)
        self.map = self.path = None
        self.pid = os.getpid()
        self.promotes = self.dropped = False
        self.why = ""
        self.binds = []
        self.open()

    def appender(self, by_name):
        """A function that appends one row: of the columns as its parameters, or of one sequence of values."""
        raw = ["%s" % c for c in self.columns] if by_name else ["_p%d" % i for i in range(len(self.columns))]
        quick = ["%s[:%d].encode()" % (r, TEXT_BYTES) if t == "text" else r for r, t in zip(raw, self.types)]
        text = _BODY.format(
            parameters=", ".join(c + "=None" for c in raw) if by_name else "values",
            before="pass" if by_name else "%s, = values" % ", ".join(raw),
            head=HEAD_BYTES, rows=self.rows, size=self.row.size, values=", ".join(quick), raw=", ".join(raw),
        )  # fmt: skip
        namespace = {}
        exec(compile(text, __file__, "exec"), {}, namespace)  # noqa: S102  # names of columns are identifiers
        append, bind = namespace["make"](None, None, int, time.time_ns, self.put)
        append.__doc__ = "Append one row; what is not given is null."
        self.binds.append(bind)
        self.bind()
        return append

    def bind(self):
        """Have every appender write the file that there is now; none, where there is none."""
        for bind in self.binds:
            if self.map is None:
                bind(_nothing, None, int)
            else:
                bind(self.row.pack_into, self.map, self.numbers.__next__)

    def let_go(self):
        """After a fork: the file is the parent's. An appender without one comes back by `put`."""
        _let_go(self.map)
        self.map, self.pid = None, 0
        for bind in self.binds:
            bind(None, None, int)

    def open(self):
        """Make the file; `why` says what keeps it from being made."""
        global _hooked
        self.pid, self.why = os.getpid(), ""
        directory = os.environ.get("PROBING_PAGE_DIR")
        if self.dropped or not directory:
            self.why = "it was dropped" if self.dropped else "not in a job with a probe"
            return
        if not _hooked:
            os.register_at_fork(after_in_child=_after_fork)
            _hooked = True
        try:
            self._make(directory)
        except Exception as exc:  # a table that cannot be kept costs its rows, never the program
            self.why = "%s: %s" % (type(exc).__name__, exc)

    def _make(self, directory):
        if sum(ring.map is not None for ring in made.values()) >= MAX_TABLES:
            raise OSError("more than %d tables" % MAX_TABLES)
        words = json.dumps(_description(self), ensure_ascii=True).encode()
        if len(words) > HEAD_BYTES - DESCRIPTION_AT:
            raise ValueError("the names of its columns are too long")
        self.path, fd = _new(directory)
        size = HEAD_BYTES + self.rows * self.row.size
        try:
            # Written, not truncated to size: a hole in a full tmpfs would be SIGBUS on first touch.
            if os.write(fd, bytes(size)) != size:
                raise OSError("no room")
            ring = _mapped(fd, size)
        except BaseException:
            os.unlink(self.path)
            raise
        finally:
            os.close(fd)
        ring[DESCRIPTION_AT : DESCRIPTION_AT + len(words)] = words
        HEAD.pack_into(ring, 0, 0, VERSION, HEAD_BYTES, self.row.size, self.rows, len(words))
        ring[:8] = struct.pack("<Q", MAGIC)  # last: a ring without it is not yet a ring
        self.map = ring

    def put(self, n, values, time_ns=None):
        """Store a row that the quick way could not: of a forked child, or with a value that does not fit. Never raises."""
        try:
            if self.pid != os.getpid():
                with _lock:
                    if self.pid != os.getpid():
                        self.numbers = itertools.count(1)
                        self.open()
                        self.bind()
                n = 0
            if self.map is None:
                return
            self._promote(values)
            stored, fits = zip(*(_stored(t, v) for t, v in zip(self.types, values)))
            n = n or next(self.numbers)
            at = HEAD_BYTES + n % self.rows * self.row.size
            self.row.pack_into(self.map, at, n, time.time_ns() if time_ns is None else time_ns, *stored, n)
            if not all(fits):
                (before,) = struct.unpack_from("<Q", self.map, UNFIT_AT)
                struct.pack_into("<Q", self.map, UNFIT_AT, before + fits.count(False))
        except Exception as exc:
            self.why = "%s: %s" % (type(exc).__name__, exc)

    def _promote(self, values):
        # A column whose first values were whole numbers turns out to be of others: its rows are written once more.
        if not self.promotes:
            return
        types = [
            "float" if t == "int" and v is not None and not _stored(t, v)[1] and _stored("float", v)[1] else t
            for t, v in zip(self.types, values)
        ]
        if types == self.types:
            return
        with _lock:
            old, ring, path, before = self.taken(), self.map, self.path, self.types
            self.map, self.types, self.row = None, types, row_struct(types)
            try:
                self._make(os.path.dirname(path))
            except BaseException:
                self.map, self.path, self.types, self.row = ring, path, before, row_struct(before)
                raise
            self.map[UNFIT_AT : UNFIT_AT + 8] = ring[UNFIT_AT : UNFIT_AT + 8]
            for n, time_ns, *stored, _ in old:
                given = [value_of(t, s) for t, s in zip(before, stored)]
                again = [_stored(t, v)[0] for t, v in zip(types, given)]
                self.row.pack_into(
                    self.map, HEAD_BYTES + n % self.rows * self.row.size, n, time_ns, *again, n
                )
            self.bind()
            _let_go(ring)
            os.unlink(path)

    def taken(self, limit=None):
        """The rows as they are stored, oldest first."""
        found = whole_rows(self.map[HEAD_BYTES:], self.row) if self.map is not None else []
        return found if limit is None else found[:limit]

    def drop(self):
        """Remove the file; further rows go nowhere."""
        if self.map is not None and self.pid == os.getpid():
            os.unlink(self.path)
        _let_go(self.map)
        self.dropped, self.map = True, None
        self.bind()
        made.pop(self.name, None)


def _nothing(*_):
    pass


def _new(directory):
    for number in range(1 << 16):
        path = os.path.join(directory, "t%d-%d.ring" % (os.getpid(), number))
        try:
            return path, os.open(
                path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600
            )
        except FileExistsError:
            continue  # of an earlier process of this number, or of a container's
    raise OSError("no free name")


def _description(ring):
    try:
        with open("/proc/self/stat", "rb") as handle:
            ticks = int(handle.read().rpartition(b")")[2].split()[19])
        namespace = int(os.readlink("/proc/self/ns/pid")[5:-1])
    except (OSError, ValueError, IndexError):
        ticks, namespace = None, None
    return {
        "table": ring.name,
        "columns": [[c, t] for c, t in zip(ring.columns, ring.types)],
        "pid": os.getpid(),
        "start_ticks": ticks,
        "pid_namespace": namespace,
        "rank": _number("RANK", "SLURM_PROCID"),
        "local_rank": _number("LOCAL_RANK", "SLURM_LOCALID"),
        "world_size": _number("WORLD_SIZE", "SLURM_NTASKS"),
        "node": (os.environ.get("SLURMD_NODENAME") or os.uname().nodename)[:MAX_NAME_CHARS],
        "restart": _number("SLURM_RESTART_COUNT"),
    }


def _number(*names):
    for name in names:
        value = os.environ.get(name, "")
        if value.isascii() and value.isdigit() and len(value) < 10:
            return int(value)
    return None


def ring_of(name, columns, types):
    """The ring of that table, made if it is not there; raises ValueError where it has other columns."""
    with _lock:
        ring = made.get(name)
        if ring is None:
            ring = made[name] = Ring(name, columns, types)
        elif (ring.columns, ring.types) != (list(columns), list(types)):
            raise ValueError("table %s has other columns: %s" % (name, ", ".join(ring.columns)))
        return ring
