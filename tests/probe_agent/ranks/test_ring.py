"""Rings are hostile bytes in a user's directory: nothing they say crashes the reader, shows a torn row or reaches a file that is another's."""

import json
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from probing_cluster.core import errors
from probing_cluster.probe_agent.inject.site._probing_probe import layout
from probing_cluster.probe_agent.inject.site._probing_probe.tables import rings
from probing_cluster.probe_agent.jobs import collect_child
from probing_cluster.probe_agent.ranks import ring
from tests.every_case import every

UID = os.geteuid()
DESCRIPTION = {
    "table": "train",
    "columns": [["step", "int"], ["loss", "float"], ["name", "text"], ["good", "bool"]],
    "pid": 70,
    "start_ticks": 5,
    "rank": 2,
    "node": "n1",
}
ROW = rings.row_struct(["int", "float", "text", "bool"])


def image(count: int = 3, description: object = DESCRIPTION, **head: int) -> bytes:
    """A ring's bytes with rows 1 to `count`; `head` changes words of its header."""
    words = json.dumps(description).encode()
    values = {
        "magic": rings.MAGIC,
        "version": rings.VERSION,
        "head": rings.HEAD_BYTES,
        "row": ROW.size,
        "rows": rings.rows_for(ROW.size),
        "length": len(words),
    } | head
    raw = bytearray(rings.HEAD_BYTES + rings.rows_for(ROW.size) * ROW.size)
    rings.HEAD.pack_into(raw, 0, *values.values())
    raw[rings.DESCRIPTION_AT : rings.DESCRIPTION_AT + len(words)] = words
    for n in range(1, count + 1):
        ROW.pack_into(raw, place(n), n, 10**18 + n, n, n / 2, b"x", 1, n)
    return bytes(raw)


def place(n: int) -> int:
    """Where row `n` is."""
    return rings.HEAD_BYTES + n % rings.rows_for(ROW.size) * ROW.size


def steps(table: ring.RingTable) -> list[object]:
    """The first column."""
    return list(table.columns[0].values)


def test_a_whole_ring() -> None:
    """What the header and the rows say."""
    table = ring.parse(image(), image())
    assert (table.name, table.pid, table.start_ticks, table.rank, table.node) == ("train", 70, 5, 2, "n1")
    assert steps(table) == [1, 2, 3]
    assert (table.appended, table.dropped, table.times_ns[0]) == (3, 0, 10**18 + 1)
    assert table.columns[3].values == (True, True, True)


def test_what_changed_between_two_reads_is_no_row() -> None:
    """A row that both numbers call whole, and that the reads have differently, was being written."""
    raw = bytearray(image())
    ROW.pack_into(raw, place(2), 2, 10**18, 99, 0.0, b"", 1, 2)
    table = ring.parse(image(), bytes(raw))
    assert steps(table) == [1, 3]
    assert (table.appended, table.dropped) == (3, 1)


@pytest.mark.parametrize("torn", ["begin", "end", "zero", "elsewhere"])
def test_a_torn_row_is_left_out(torn: str) -> None:
    """The writer died inside it."""
    raw = bytearray(image())
    begin, end, n = {"begin": (2, 0), "end": (0, 2), "zero": (0, 0), "elsewhere": (1, 1)}[torn] + (2,)
    ROW.pack_into(raw, place(n), begin, 10**18, 99, 0.0, b"", 1, end)
    assert steps(ring.parse(bytes(raw), bytes(raw))) == [1, 3]


def test_a_row_that_a_death_kept_from_being_overwritten_is_too_old() -> None:
    """Only rows of the last round count."""
    rows = rings.rows_for(ROW.size)
    raw = bytearray(image(rows))
    ROW.pack_into(raw, place(rows + 2), rows + 2, 10**18, rows + 2, 0.0, b"", 1, rows + 2)
    found = steps(ring.parse(bytes(raw), bytes(raw)))
    assert (found[0], found[-1], len(found)) == (3, rows + 2, rows - 1)


@every(
    "raw",
    [
        b"",
        bytes(rings.HEAD_BYTES),
        image(magic=7),
        image(version=2),
        image(row=8),
        image(rows=1),
        image(rows=0xFFFFFFFF),
        image(length=0xFFFFFFFF),
        image(length=3),
        image()[:-1],
        image() + b"x",
        *(
            image(description=d)
            for d in (
                7,
                [],
                {},
                "x",
                DESCRIPTION | {"columns": []},
                DESCRIPTION | {"columns": [["a", "int"]]},
                DESCRIPTION | {"columns": [["a", "other"]]},
                DESCRIPTION | {"columns": [["a", []]]},
                DESCRIPTION | {"columns": [["a"]]},
                DESCRIPTION | {"columns": {"a": 1}},
                DESCRIPTION | {"columns": [["a", "int"], ["a", "float"], ["c", "text"], ["d", "bool"]]},
                DESCRIPTION | {"columns": [["", "int"], ["b", "float"], ["c", "text"], ["d", "bool"]]},
                DESCRIPTION | {"table": "\x1b\x07"},
                DESCRIPTION | {"table": None},
            )
        ),
    ],
)
def test_what_is_no_ring_is_refused(raw: bytes) -> None:
    """Each by its one error."""
    with pytest.raises(errors.MalformedInput):
        ring.parse(raw, raw)


def test_numbers_nobody_believes_are_unknown() -> None:
    """And text without control characters."""
    odd = DESCRIPTION | {"rank": -1, "pid": 1e9, "start_ticks": True, "node": "\x1b[31mn1", "world_size": "8"}
    table = ring.parse(image(description=odd), image(description=odd))
    assert (table.rank, table.pid, table.start_ticks, table.world_size) == (None, 0, None, None)
    assert table.node == "n1"


@given(st.data())
def test_any_bytes_are_only_bytes(data: st.DataObject) -> None:
    """Whatever is changed, a table comes back or MalformedInput is raised; its columns are of one length."""
    raw = bytearray(image(data.draw(st.integers(0, 5))))
    for _ in range(data.draw(st.integers(1, 8))):
        limit = data.draw(st.sampled_from([64, 400, len(raw) - 8]))
        at = data.draw(st.integers(0, limit))
        raw[at : at + 8] = data.draw(st.binary(min_size=1, max_size=8))
    first = bytes(raw)
    try:
        table = ring.parse(first, bytes(raw[: data.draw(st.sampled_from([len(raw), 4096, 100, len(raw)]))]))
    except errors.MalformedInput:
        return
    assert {len(c.values) for c in table.columns} == {len(table.times_ns)}
    assert 0 <= table.dropped <= 1 << 62
    assert table.name.isprintable()


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to make another's file")
def test_only_ones_own_plain_files_are_read(tmp_path: Path) -> None:
    """A link, a second name, a FIFO, another's file and a huge one are refused by name; the good one is read."""
    good = tmp_path / "t1-0.ring"
    good.write_bytes(image())
    (tmp_path / "t2-0.ring").symlink_to(good)
    (tmp_path / "t3-0.ring").write_bytes(image())
    os.link(tmp_path / "t3-0.ring", tmp_path / "other")
    os.mkfifo(tmp_path / "t4-0.ring")
    (tmp_path / "t5-0.ring").write_bytes(image())
    os.chown(tmp_path / "t5-0.ring", 12345, 12345)
    with (tmp_path / "t6-0.ring").open("wb") as huge:
        huge.write(image()[: rings.HEAD_BYTES])
        huge.truncate(1 << 40)
    (tmp_path / "t7-0.ring").mkdir()
    (tmp_path / "t8-0.ringx").write_bytes(image())
    found = ring.read_rings(str(tmp_path), UID)
    assert [t.name for t in found.tables] == ["train"]
    assert sorted(found.refused) == [f"t{n}-0.ring" for n in range(2, 8)]
    assert found.refused["t5-0.ring"] == "not owned by the job's user"
    with pytest.raises(collect_child.Refused):
        ring.read_ring(str(tmp_path / "t2-0.ring"), UID)


def test_only_the_tables_that_are_asked_for(tmp_path: Path) -> None:
    """The rows of the others are not even read."""
    (tmp_path / "t1-0.ring").write_bytes(image())
    (tmp_path / "t1-1.ring").write_bytes(image(description=DESCRIPTION | {"table": "eval"}))
    assert [t.name for t in ring.read_rings(str(tmp_path), UID, names={"eval"}).tables] == ["eval"]


def test_a_flood_is_counted(tmp_path: Path) -> None:
    """Beyond the bound nothing is opened."""
    for n in range(ring.MAX_RINGS + 5):
        (tmp_path / f"t{n}-0.ring").write_bytes(b"")
    found = ring.read_rings(str(tmp_path), UID)
    assert (len(found.refused), found.more) == (ring.MAX_RINGS, 5)


def test_the_rank_is_the_pages(tmp_path: Path) -> None:
    """mp.spawn and launchers of one's own: only torch knows the rank, and it is on the page of that process and start."""
    words = [0] * layout.WORDS
    words[layout.H_MAGIC], words[layout.H_VERSION] = layout.MAGIC, layout.VERSION
    words[layout.H_PID], words[layout.H_START_TICKS] = 70, 5
    identity = [layout.NONE] * layout.IDENTITY_WORDS
    identity[layout.I_RANK], identity[layout.I_WORLD], identity[layout.I_CHECK] = 6, 8, 0
    identity[layout.I_CHECK] = layout.check_of(identity)
    words[layout.IDENTITY_AT[0] : layout.IDENTITY_AT[0] + layout.IDENTITY_WORDS] = identity
    progress = [0] * 5
    words[layout.PROGRESS_AT[0] : layout.PROGRESS_AT[0] + 6] = [*progress, layout.check_of(progress)]
    raw = b"".join(w.to_bytes(8, "little") for w in words)
    (tmp_path / "p70.page").write_bytes(raw)
    (tmp_path / "t70-0.ring").write_bytes(image())
    (tmp_path / "t71-0.ring").write_bytes(image(description=DESCRIPTION | {"start_ticks": 6}))
    found = ring.read_rings(str(tmp_path), UID).tables
    assert {(t.start_ticks, t.rank, t.world_size) for t in found} == {(5, 6, 8), (6, 2, None)}
