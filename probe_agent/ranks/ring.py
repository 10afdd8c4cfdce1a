"""Reading the rings of `probing_tables`: bytes a user's process wrote, so every number is checked and bounded."""

from __future__ import annotations

import json
import os
import re
import struct
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from probing_cluster.core import sanitize
from probing_cluster.core.errors import MalformedInput
from probing_cluster.probe_agent.inject.site._probing_probe import layout
from probing_cluster.probe_agent.inject.site._probing_probe.tables import rings
from probing_cluster.probe_agent.jobs import collect_child
from probing_cluster.probe_agent.ranks import pages

TRACED = {"torch_modules": "modules", "torch_memory": "memory", "torch_transfers": "transfers"}
"""The rings of the probe's own tracer, with the table of the schema torch that each is."""
MAX_RINGS = 512
"""Rings read per job and node; a flood beyond them is counted, not read."""
MAX_BYTES = rings.HEAD_BYTES + rings.RING_BYTES
_NAME = re.compile(r"t[0-9]{1,10}-[0-9]{1,5}\.ring")
_PAGE = re.compile(r"p[0-9]{1,10}(-[0-9]{1,20})?\.page")
_MANY = 1 << 62
_YEAR_2100_NS = 4_102_444_800_000_000_000


@dataclass(frozen=True, kw_only=True)
class RingColumn:
    """One column of a user's table."""

    name: str
    type: str
    """int, float, bool or text."""
    values: Sequence[int | float | bool | str | None]
    """Oldest first; None where the program gave nothing, or a value that did not fit."""


@dataclass(frozen=True, kw_only=True)
class RingTable:
    """One user's table of one process. All of it is the user's word."""

    name: str
    pid: int
    """The process's number in its own PID namespace."""
    pid_namespace: int | None
    start_ticks: int | None
    rank: int | None
    local_rank: int | None
    world_size: int | None
    node: str
    restart: int | None
    appended: int
    """Rows appended up to the newest that was read."""
    unfit: int
    """Values that did not fit their column, and are None."""
    times_ns: Sequence[int]
    """When each row was appended, Unix nanoseconds."""
    columns: Sequence[RingColumn]

    @property
    def dropped(self) -> int:
        """Rows before the newest that are no longer there: overwritten by later ones, or torn by the process's death."""
        return self.appended - len(self.times_ns)


@dataclass(frozen=True, kw_only=True)
class Rings:
    """The rings of one job on one node."""

    tables: Sequence[RingTable] = field(default=())
    refused: Mapping[str, str] = field(default_factory=dict)
    """File name to why it is no ring."""
    more: int = 0
    """Rings beyond MAX_RINGS, which were not read."""


@dataclass(frozen=True, kw_only=True)
class _Head:
    table: RingTable
    """Without rows."""
    types: list[str]
    row: struct.Struct
    rows: int


def read_rings(directory: str, uid: int, *, names: Container[str] | None = None) -> Rings:
    """Every ring in a job's page directory that `uid` owns, of the tables `names` (None: of all).

    A rank is that of the process's page where it has one: the page learns it from torch, the ring only from the
    environment. Raises OSError where the directory cannot be listed.
    """
    found: list[RingTable] = []
    refused: dict[str, str] = {}
    more = 0
    ranks = _ranks(directory, uid)
    for name in _names(directory, _NAME):
        if len(found) + len(refused) >= MAX_RINGS:
            more += 1
            continue
        try:
            ring = read_ring(f"{directory}/{name}", uid, names=names)
        except (collect_child.Refused, MalformedInput) as exc:
            refused[name] = str(exc)
            continue
        if ring is not None:
            known = ranks.get((ring.pid, ring.start_ticks))
            found.append(ring if known is None else replace(ring, rank=known[0], world_size=known[1]))
    return Rings(tables=tuple(found), refused=refused, more=more)


def read_ring(path: str, uid: int, *, names: Container[str] | None = None) -> RingTable | None:
    """One ring; None when its table is not among `names`, or its process is still making it.

    Raises Refused for a file that is not this user's own, MalformedInput for one that is no ring.
    """
    first = _read(path, uid, rings.HEAD_BYTES)
    if first[:8] == bytes(8):
        return None
    if names is not None and _head(first).table.name not in names:
        return None
    return parse(_read(path, uid, MAX_BYTES), _read(path, uid, MAX_BYTES))


def parse(first: bytes, second: bytes) -> RingTable:
    """The ring in `second`, of which `first` was read just before; raises MalformedInput when it is none.

    The kernel copies a file in no particular order, so that one read can mix two rows: a row counts when both reads have
    it alike and both of its numbers are the same.
    """
    head = _head(second)
    body, before = second[rings.HEAD_BYTES :], first[rings.HEAD_BYTES :]
    if len(second) > MAX_BYTES or len(body) != head.rows * head.row.size:
        raise MalformedInput("a ring of another size than its header says")
    if body != before:
        body = _settled(before, body, head.row.size)
    rows = rings.whole_rows(body, head.row)
    stored = list(zip(*rows, strict=True)) or [()] * (len(head.types) + 3)
    columns = tuple(
        replace(column, values=_values(kind, values))
        for column, kind, values in zip(head.table.columns, head.types, stored[2:-1], strict=True)
    )
    appended = rows[-1][0] if rows else 0
    if appended >= _MANY:
        raise MalformedInput("a ring of more rows than a process can append")
    times = tuple(t if 0 < t < _YEAR_2100_NS else 0 for t in stored[1])
    return replace(head.table, appended=appended, times_ns=times, columns=columns)


def _settled(first: bytes, second: bytes, size: int) -> bytes:
    kept = bytearray(second)
    for at in range(0, len(second), size):
        if first[at : at + size] != second[at : at + size]:
            kept[at : at + 8] = bytes(8)
    return bytes(kept)


def _values(kind: str, stored: Sequence[Any]) -> tuple[Any, ...]:
    values = (rings.value_of(kind, value) for value in stored)
    if kind == "text":
        return tuple(v if v is None else sanitize.clean(str(v), rings.TEXT_BYTES) for v in values)
    return tuple(values)


def _head(raw: bytes) -> _Head:
    if len(raw) < rings.HEAD_BYTES:
        raise MalformedInput(f"a ring of {len(raw)} bytes")
    magic, version, head_bytes, row_bytes, rows, length = rings.HEAD.unpack_from(raw)
    if magic != rings.MAGIC or version != rings.VERSION or head_bytes != rings.HEAD_BYTES:
        raise MalformedInput("a ring without magic or of another version")
    if length > rings.HEAD_BYTES - rings.DESCRIPTION_AT:
        raise MalformedInput("a ring whose description is too long")
    try:
        words = json.loads(raw[rings.DESCRIPTION_AT : rings.DESCRIPTION_AT + length])
        table, types = _table(words, int.from_bytes(raw[rings.UNFIT_AT : rings.UNFIT_AT + 8], "little"))
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as exc:
        raise MalformedInput("a ring whose description is none") from exc
    row = rings.row_struct(types)
    if row.size != row_bytes or rows != rings.rows_for(row.size):
        raise MalformedInput("a ring whose rows are not as its columns say")
    return _Head(table=table, types=types, row=row, rows=rows)


def _table(words: Mapping[str, Any], unfit: int) -> tuple[RingTable, list[str]]:
    named = [(_text(name), kind) for name, kind in words["columns"]]
    if not 0 < len(named) <= rings.MAX_COLUMNS or len({n for n, _ in named}) != len(named):
        raise ValueError("columns")
    types = [kind for _, kind in named if kind in rings.TYPES]
    if len(types) != len(named):
        raise ValueError("types")
    return RingTable(
        name=_text(words["table"]),
        pid=_number(words.get("pid"), 1 << 22) or 0,
        pid_namespace=_number(words.get("pid_namespace"), 1 << 32),
        start_ticks=_number(words.get("start_ticks"), 1 << 63),
        rank=_number(words.get("rank"), 1 << 32),
        local_rank=_number(words.get("local_rank"), 1 << 32),
        world_size=_number(words.get("world_size"), 1 << 32),
        node=sanitize.clean(str(words.get("node") or ""), rings.MAX_NAME_CHARS),
        restart=_number(words.get("restart"), 1 << 32),
        appended=0,
        unfit=min(unfit, _MANY),
        times_ns=(),
        columns=tuple(RingColumn(name=name, type=kind, values=()) for name, kind in named),
    ), types


def _text(word: Any) -> str:
    text = sanitize.clean(word, rings.MAX_NAME_CHARS) if isinstance(word, str) else ""
    if not text:
        raise ValueError("name")
    return text


def _number(value: Any, limit: int) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < limit else None


def _read(path: str, uid: int, most: int) -> bytes:
    data, file_stat = collect_child.read_own(path, uid, most)
    if file_stat.st_size > MAX_BYTES:
        raise collect_child.Refused("larger than a ring may be")
    return data


def _names(directory: str, pattern: re.Pattern[str]) -> Iterator[str]:
    with os.scandir(directory) as entries:
        yield from (entry.name for entry in entries if pattern.fullmatch(entry.name) is not None)


def _ranks(directory: str, uid: int) -> dict[tuple[int, int | None], tuple[int, int | None]]:
    """Rank and world size by process and its start, of the pages that name a rank."""
    found: dict[tuple[int, int | None], tuple[int, int | None]] = {}
    for name in _names(directory, _PAGE):
        if len(found) >= MAX_RINGS:
            break
        try:
            raw, _ = collect_child.read_own(f"{directory}/{name}", uid, layout.SIZE_BYTES)
            page = pages.parse(raw)
        except (collect_child.Refused, MalformedInput):
            continue
        if page.rank is not None:
            found[page.pid_inside, page.start_ticks] = page.rank, page.world_size
    return found
