"""Lines in UTF-16, with and without a byte-order mark, also between lines in UTF-8."""

from __future__ import annotations

import pytest

from probing_cluster.evidence import utf16

TEXT = "epoch 1 is over\r\nRuntimeError: CUDA out of memory’s é 日志\nlast"
SLURM = "slurmstepd: error: Detected 1 oom_kill event\n"


def lines_of(data: bytes) -> list[str]:
    encoding = utf16.encoding_of(data)
    return [utf16.text(line, encoding) for line in data.split(b"\n")]


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-8", "utf-16", "utf-16-le", "utf-16-be"])
def test_a_line_is_read_whatever_its_encoding(encoding: str) -> None:
    """The byte of the newline splits the lines of all of them."""
    assert lines_of(TEXT.encode(encoding)) == TEXT.split("\n")


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be"])
def test_lines_of_two_writers_are_each_read(encoding: str) -> None:
    """Slurm writes UTF-8 into the same file, before and after."""
    text = f"{TEXT}\n"
    data = SLURM.encode() + text.encode(encoding) + SLURM.encode() + text.encode(encoding)
    assert lines_of(data) == (SLURM + text + SLURM + text).split("\n")


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be"])
def test_a_line_of_latin_1_is_none_of_utf_16(encoding: str) -> None:
    """One line of UTF-16 in the beginning of a file must not hide what another program writes below it."""
    data = "begun\n".encode(encoding) + "RuntimeError: Datei größer als erlaubt\n".encode("latin-1") * 2
    lines = lines_of(data)
    assert lines[1:3] == ["RuntimeError: Datei gr\ufffd\ufffder als erlaubt"] * 2


def test_a_script_without_null_bytes_is_still_utf_16() -> None:
    """Its lines have no other null byte than that of the newline."""
    text = "ok\n日志错误内存不足请检查设置并且重试\n第二行也是中文没有空格\n"
    assert lines_of(text.encode("utf-16")) == text.split("\n")


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"plain\n",
        b"\0" * 5000 + b"ValueError: bad\n",
        b"\x7fELF\x02\x01\x01" + bytes(range(256)) * 9,
        b"\0",
    ],
)
def test_other_bytes_are_no_utf_16(data: bytes) -> None:
    """A log that was truncated while a program wrote on has zeros before its text; a program's file holds anything."""
    assert utf16.encoding_of(data) is None
    assert utf16.text(b"\0" * 5000 + b"ValueError: bad") == "ValueError: bad"
