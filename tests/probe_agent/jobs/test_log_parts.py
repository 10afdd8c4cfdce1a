"""Which parts of a long log are read."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from probing_cluster.evidence import blocks
from probing_cluster.probe_agent.jobs import log_parts

BLOCK = 1 << 18
STEP = b"step 17 loss 1.25 tokens/s 12345\n"
RANK = b"[rank9]: Traceback (most recent call last):\n[rank9]:   File x\n[rank9]: RuntimeError: a peer went away\n"


def fill(line: bytes, n_bytes: int) -> bytes:
    return line * (n_bytes // len(line))


def read(path: Path, text: bytes) -> list[log_parts.LogPart]:
    path.write_bytes(text)
    fd = os.open(path, os.O_RDONLY)
    try:
        parts = log_parts.read(fd, len(text))
        assert all(text[p.start : p.start + len(p.data)] == p.data for p in parts)
        assert sum(len(p.data) for p in parts) <= log_parts.MOST_BYTES
        return parts
    finally:
        os.close(fd)


def test_a_short_log_is_read_whole_and_nothing_is_said_of_it(tmp_path: Path) -> None:
    """Up to the most bytes there is one part."""
    text = fill(STEP, 1 << 20)
    parts = read(tmp_path / "out", text)
    assert parts == [log_parts.LogPart(0, text, is_first=True)]
    assert log_parts.words(parts, len(text)) == ""


def test_of_a_long_log_that_ran_well_until_its_end_only_the_end_is_read(tmp_path: Path) -> None:
    """An error near the end lies in it; and a healthy log costs no look back."""
    text = fill(STEP, 9 << 20) + RANK
    (end,) = read(tmp_path / "out", text)
    assert (end.start, len(end.data)) == (len(text) - log_parts.MOST_BYTES, log_parts.MOST_BYTES)
    assert (
        log_parts.words([end], len(text))
        == f"only its last {log_parts.MOST_BYTES} of {len(text)} bytes were read"
    )


@pytest.mark.parametrize("n_mib", [3, 5, 30])
def test_where_the_end_is_all_trouble_its_beginning_is_read_too(tmp_path: Path, n_mib: int) -> None:
    """However long the others talk; also behind a burst of notices, and after a silence between the first death and the rest."""
    first = b"[rank7]: KeyError: 'lr'\n"
    notices = fill(b"gpu07:1:1 [0] INFO comm 0x55 rank 7 nranks 4096 - Abort COMPLETE\n", BLOCK)
    text = (
        fill(STEP, 6 << 20) + first + notices + fill(RANK, (n_mib << 20) - BLOCK // 2) + fill(RANK, 1 << 20)
    )
    parts = read(tmp_path / "out", text)
    assert first in parts[0].data
    assert STEP in parts[0].data
    assert parts[-1].data.endswith(RANK)
    if n_mib > 3:
        assert "where its errors begin" in log_parts.words(parts, len(text))


def test_trouble_that_goes_back_further_than_is_looked_is_read_from_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The look back ends, whatever the file's size."""
    monkeypatch.setattr(log_parts, "LOOK_BACK_BYTES", 2 << 20)
    text = fill(RANK, 20 << 20)
    begin, _ = read(tmp_path / "out", text)
    assert len(text) - begin.start < log_parts.MOST_BYTES + (2 << 20) + 2 * BLOCK


@pytest.mark.parametrize("above_mib", [5, 12])
def test_of_an_end_without_a_word_the_last_trouble_above_it_is_read(tmp_path: Path, above_mib: int) -> None:
    """A traceback and then megabytes of something else."""
    text = fill(STEP, 1 << 20) + RANK + fill(b"flushing table row 17\n", above_mib << 20)
    (tmp_path / "out").write_bytes(text)
    fd = os.open(tmp_path / "out", os.O_RDONLY)
    try:
        (end,) = log_parts.read(fd, len(text))
        begin, rest = log_parts.read_above(fd, end)
    finally:
        os.close(fd)
    assert RANK in begin.data
    assert STEP in begin.data
    assert text.endswith(rest.data)


@pytest.mark.parametrize("above", [1, 1000, BLOCK - 1, BLOCK, BLOCK + 1, 3 * BLOCK + 77])
def test_the_very_first_lines_are_looked_at(tmp_path: Path, above: int) -> None:
    """However much stands between the file's beginning and the end that is read."""
    text = RANK + b"." * (above + log_parts.MOST_BYTES)
    (tmp_path / "out").write_bytes(text)
    fd = os.open(tmp_path / "out", os.O_RDONLY)
    try:
        (end,) = log_parts.read(fd, len(text))
        begin, _ = log_parts.read_above(fd, end)
    finally:
        os.close(fd)
    assert begin.data.startswith(RANK)
    assert begin.is_first


def test_of_an_endless_file_of_nothing_nothing_is_read_above_its_end(tmp_path: Path) -> None:
    """A terabyte that is not there: no part of it says anything."""
    with (tmp_path / "out").open("wb") as out:
        out.truncate(1 << 40)
    fd = os.open(tmp_path / "out", os.O_RDONLY)
    try:
        (end,) = log_parts.read(fd, 1 << 40)
        assert len(end.data) == log_parts.MOST_BYTES
        assert log_parts.read_above(fd, end) == []
    finally:
        os.close(fd)


@pytest.mark.parametrize("data", [b"", b"\n", b"a", b"a\n", b"\n\na\n\nb", b"a\r\nb\n"])
def test_lines_are_those_of_a_split(data: bytes) -> None:
    """Forwards with their offsets, and backwards."""
    lines = list(log_parts.LogLines([log_parts.LogPart(7, data, is_first=True)]))
    assert [raw for _, raw, _ in lines] == data.split(b"\n")
    assert all(data[at - 7 :].startswith(raw) for at, raw, _ in lines)
    assert [is_whole for _, _, is_whole in lines] == [True] * (len(lines) - 1) + [False]
    assert list(log_parts.lines_backwards(data)) == data.split(b"\n")[::-1]


def test_lines_that_a_gap_cuts_are_left_out() -> None:
    """Of two parts the last line of the first and the first line of the second; what is skipped, too."""
    parts = [
        log_parts.LogPart(0, b"one\ntwo\nthr", is_first=True),
        log_parts.LogPart(20, b"our\nfive\nsix\n"),
    ]
    lines = log_parts.LogLines(parts)
    assert [raw for _, raw, _ in lines] == [b"one", b"two", b"five", b"six", b""]
    assert (lines.end, lines.n_bytes(4, 24), lines.n_bytes(11, 20)) == (33, 11, 0)
    skipping = iter(lines)
    next(skipping)
    lines.skip_to(25)
    assert [(at, raw) for at, raw, _ in skipping] == [(29, b"six"), (33, b"")]


def test_what_took_too_long_is_in_the_note() -> None:
    """A reader must know that the bytes between were not judged."""
    whole = [log_parts.LogPart(0, b"x" * 100, is_first=True)]
    assert log_parts.words(whole, 100, 0, 40) == (
        "60 of 100 bytes were read; 40 bytes were left out because reading them took too long"
    )
    end = [log_parts.LogPart(900, b"x" * 100)]
    assert log_parts.words(end, 1000, 0, 40).startswith("only its last 60 of 1000 bytes were read; 40 bytes")
    assert "; 40 bytes were left out" in log_parts.words([*end, *end], 1000, 0, 40)


def test_the_longest_line_is_the_readers() -> None:
    """The child that finds no output imports no reader, and so has the number of its own."""
    assert log_parts.LONGEST_LINE == blocks.MAX_LINE_BYTES
