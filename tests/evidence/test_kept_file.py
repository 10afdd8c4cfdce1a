"""The file in which a node keeps an ended job's tables: what goes in comes out, and hostile bytes are one error."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from probing_cluster.core import errors
from probing_cluster.evidence import kept_file
from probing_cluster.evidence.kept_file import KeptColumn, KeptTable

TABLES = [
    KeptTable(
        schema="python",
        name="train",
        columns=(
            KeptColumn(name="step", kind="int", values=[1, None, -(1 << 63)]),
            KeptColumn(name="loss", kind="float", values=[0.5, None, math.inf]),
            KeptColumn(name="phase", kind="text", values=["a", None, "grün"]),
            KeptColumn(name="good", kind="bool", values=[True, False, None]),
            KeptColumn(name="at", kind="time", values=[10**18, 2, 3]),
        ),
        note={"dropped": 7},
    ),
    KeptTable(schema="torch", name="steps", columns=(KeptColumn(name="step", kind="int", values=[]),)),
]


def plain(tables: list[KeptTable]) -> list[object]:
    """Everything of the tables that can be compared."""
    return [
        (t.schema, t.name, dict(t.note), [(c.name, c.kind, list(c.values)) for c in t.columns])
        for t in tables
    ]


def test_what_is_written_is_read() -> None:
    """All kinds, nulls and an empty table."""
    data, left_out = kept_file.write(TABLES, 1 << 20)
    assert left_out == 0
    assert plain(kept_file.read(data)) == plain(TABLES)


def test_a_file_is_bounded() -> None:
    """A table that has no room is left out and counted; a smaller one after it is kept."""
    data, left_out = kept_file.write(TABLES, 40)
    assert left_out == 1
    assert [t.name for t in kept_file.read(data)] == ["steps"]


@given(st.data())
def test_damage_is_one_error(data: st.DataObject) -> None:
    """Any change of any byte gives tables of equal columns or MalformedInput."""
    raw = bytearray(kept_file.write(TABLES, 1 << 20)[0])
    for _ in range(data.draw(st.integers(1, 4))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    try:
        found = kept_file.read(bytes(raw[: data.draw(st.sampled_from([len(raw), 20, 100]))]))
    except errors.MalformedInput:
        return
    for table in found:
        assert {len(c.values) for c in table.columns} == {table.n_rows}


def test_a_bomb_is_noticed() -> None:
    """Columns may not inflate to more than their rows."""
    many = KeptTable(schema="a", name="b", columns=(KeptColumn(name="c", kind="int", values=[0] * 100000),))
    data = kept_file.write([many], 1 << 20)[0]
    assert len(data) < 10000
    with pytest.raises(errors.MalformedInput):
        kept_file.read(data.replace(b'"rows": 100000', b'"rows": 1     '))
