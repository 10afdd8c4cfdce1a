"""Frames come through exactly, and hostile ones are refused, whatever their bytes are."""

from __future__ import annotations

import json
import random
import struct
import zlib
from datetime import datetime

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from probing_cluster.core import errors
from probing_cluster.live import packing
from probing_cluster.live.session import unpacking
from probing_cluster.live.table import Columns

INTS = st.integers(-(1 << 63), (1 << 63) - 1)
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)


def frame(**values: tuple[str, list[object]]) -> bytes:
    columns = Columns(
        names=tuple(values),
        kinds=tuple(k for k, _ in values.values()),  # type: ignore[misc]
        values=tuple(v for _, v in values.values()),
    )
    return packing.pack(
        {"node": "n1", "table": "a.b", "missing": [(3, "why")], "ranks": [1, 2], "world_size": 4}, columns
    )


@given(
    st.lists(
        st.tuples(st.none() | INTS, st.none() | st.floats(), st.none() | TEXTS, st.none() | st.booleans())
    )
)
def test_a_frame_comes_through(rows: list[tuple[object, ...]]) -> None:
    """Every kind, with nulls, empty and of any length."""
    i, f, t, b = ([r[k] for r in rows] for k in range(4))
    found = unpacking.unpack(
        frame(i=("int", i), f=("float", f), t=("text", t), b=("bool", b), at=("time", i)), "n1"
    )
    assert (found.node, found.table, found.whole, found.missing) == ("n1", "a.b", True, ((3, "why"),))
    assert (found.ranks, found.world_size) == ({1, 2}, 4)
    assert found.rows["i"].to_pylist() == i
    assert list(map(repr, found.rows["f"].to_pylist())) == list(map(repr, f))
    assert found.rows["t"].to_pylist() == t
    assert found.rows["b"].to_pylist() == b
    assert found.rows["at"].cast(pa.int64()).to_pylist() == i


def test_values_that_do_not_fit_are_bounded() -> None:
    """What a page can hold (64 bits without sign) and a text of any length."""
    found = unpacking.unpack(
        frame(i=("int", [1 << 64, -(1 << 70)]), t=("text", ["é" * 70_000, "\ud800"])), "n1"
    ).rows
    assert found["i"].to_pylist() == [(1 << 63) - 1, -(1 << 63)]
    assert len(found["t"][0].as_py().encode()) <= packing.MAX_TEXT_BYTES
    assert found["t"][1].as_py() == "?"


def test_a_damaged_frame_is_refused_and_nothing_else_happens() -> None:
    """2,000 frames with bytes changed, cut or added: an Arrow table that is valid, or MalformedInput."""
    whole = frame(i=("int", [1, None, 3]), t=("text", ["a", "bc", None]), b=("bool", [True, False, None]))
    dice = random.Random(5)
    refused = 0
    for _ in range(2000):
        damaged = bytearray(whole)
        for _ in range(dice.randint(1, 4)):
            damaged[dice.randrange(len(damaged))] = dice.randrange(256)
        if dice.random() < 0.3:
            del damaged[dice.randrange(len(damaged)) :]
        try:
            unpacking.unpack(bytes(damaged), "n1").rows.validate(full=True)
        except errors.MalformedInput:
            refused += 1
    assert 500 < refused < 2000


def forged(**fields: object) -> bytes:
    header = {"node": "n", "table": "a.b", "rows": 2, "whole": True, "missing": [], "columns": []} | fields
    text = json.dumps(header).encode()
    start = struct.pack("<I", len(text)) + text
    return start + bytes(-len(start) % 8) + bytes(range(64))


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xff\xff\xff\xff{}",
        forged(rows=1 << 60),
        forged(rows=-1),
        forged(columns=[["t", "text", 0, [[0, 0], [0, 12], [0, 8]]]]),
        forged(columns=[["i", "int", 0, [[0, 0], [56, 16]]]]),
        forged(columns=[["i", "int", 0, [[0, 0], [-8, 16]]]]),
        forged(columns=[["i", "int", 0, [[0, 0], [0, 8]]]]),
        forged(columns=[["i", "int", 3, [[0, 0], [0, 16]]]]),
        forged(columns=[["i", "object", 0, [[0, 0], [0, 16]]]]),
        forged(columns=[["i", "int", 1, [[0, 0], [0, 16]]]]),
        forged(missing=[["x", "y"]]),
        forged(columns="abc"),
        forged(columns=[[name, "int", 0, [[0, 0], [0, 64]]] for name in "ab"]),
        forged(missing=[[None, "x" * (5 << 20)]]),
    ],
)
def test_a_forged_frame_is_refused(data: bytes) -> None:
    """Offsets outside, buffers too short, kinds that are none, numbers beyond bounds."""
    with pytest.raises(errors.MalformedInput):
        unpacking.unpack(data, "n")


def test_what_a_node_names_is_safe_to_print() -> None:
    """Names of nodes, tables and columns come from the other side like any text."""
    found = unpacking.unpack(
        forged(node="n\x1b[2J1", table="a\x07.b", columns=[["c\x1b]0;x\x07", "int", 0, [[0, 0], [0, 16]]]]),
        "n1",
    )
    assert (found.node, found.table, found.rows.column_names) == ("n1", "a.b", ["c"])


def test_a_bundle_of_nothing_is_refused() -> None:
    """Sixteen million empty frames pack into 300 kB: they would take minutes and gigabytes."""
    with pytest.raises(errors.MalformedInput, match="64 tables"):
        packing.frames_of(zlib.compress(bytes(1 << 20)), 1 << 20)


def of(whole: bool = True, **values: tuple[str, list[object]]) -> unpacking.Frame:
    found = unpacking.unpack(frame(**values), "n1")
    return unpacking.Frame(**{**vars(found), "whole": whole})


def test_nodes_that_know_other_columns_have_one_table() -> None:
    """All columns; integers beside floats are floats, anything beside text is text; nulls alone say nothing."""
    frames = [
        of(a=("int", [1]), b=("int", [1]), n=("text", [None])),
        of(a=("float", [0.5]), b=("text", ["x"]), n=("float", [1.5]), c=("bool", [True])),
    ]
    schema = unpacking.schema_of(frames)
    assert dict(zip(schema.names, schema.types, strict=True)) == {
        "a": pa.float64(),
        "b": pa.string(),
        "n": pa.float64(),
        "c": pa.bool_(),
    }
    joined = unpacking.joined([f.rows for f in frames], schema)
    assert joined.to_pylist() == [
        {"a": 1.0, "b": "1", "n": None, "c": None},
        {"a": 0.5, "b": "x", "n": 1.5, "c": True},
    ]
    assert joined["a"].num_chunks == 1
    described = [of(whole=False, a=("int", [])), of(whole=False, a=("float", []))]
    assert unpacking.schema_of(described).types == [pa.float64()]


def test_instants_come_to_python_without_pandas() -> None:
    """Python's own datetime holds microseconds; the nanoseconds behind them would need pandas, which a service is without."""
    at = pa.array([1_795_470_249_094_123_184, None], pa.timestamp("ns", tz="UTC"))
    rows = unpacking.for_python(pa.table({"at": at, "rank": [0, 1]})).to_pylist()
    assert type(rows[0]["at"]) is datetime
    assert (rows[0]["at"].microsecond, rows[1]["at"], rows[1]["rank"]) == (94_123, None, 1)
