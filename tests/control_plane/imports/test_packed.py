"""Files as log rotation leaves them."""

from __future__ import annotations

import bz2
import gzip
import lzma
from collections.abc import Callable
from pathlib import Path

import pytest

from probing_cluster.control_plane.imports import packed
from probing_cluster.core import errors

TEXT = b"".join(b"line %d\n" % n for n in range(2000))


def lines_of(path: Path) -> list[bytes]:
    with packed.opened(path) as stream:
        return list(stream)


@pytest.mark.parametrize("pack", [bytes, gzip.compress, lzma.compress, bz2.compress])
def test_what_is_packed_is_read_as_if_it_were_not(tmp_path: Path, pack: Callable[[bytes], bytes]) -> None:
    """The first bytes tell, not the name."""
    path = tmp_path / "kern.log.2"
    path.write_bytes(pack(TEXT))
    assert b"".join(lines_of(path)) == TEXT


@pytest.mark.parametrize("text", [b"", b"B", b"BZ", b"P\n"])
def test_a_short_file_is_plain(tmp_path: Path, text: bytes) -> None:
    """Too little to tell is text."""
    path = tmp_path / "short"
    path.write_bytes(text)
    assert b"".join(lines_of(path)) == text


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"\x28\xb5\x2f\xfd" + TEXT, "zstd"),
        (b"LPKSHHRH" + TEXT, "binary journal"),
        (gzip.compress(TEXT)[:-20], "broken"),
        (gzip.compress(TEXT)[:300] + b"\0" * 300, "broken"),
        (lzma.compress(TEXT)[:-20], "broken"),
        (bz2.compress(TEXT)[:20] + b"\0" * 30, "broken"),
    ],
)
def test_what_cannot_be_unpacked_is_named(tmp_path: Path, data: bytes, why: str) -> None:
    """Nobody takes packed bytes for a log that says nothing."""
    path = tmp_path / "log"
    path.write_bytes(data)
    with pytest.raises(errors.MalformedInput, match=why):
        lines_of(path)


def test_an_error_of_the_reader_stays_its_own(tmp_path: Path) -> None:
    """Only what the unpacking says is about the file."""
    path = tmp_path / "log"
    path.write_bytes(TEXT)
    with pytest.raises(BrokenPipeError), packed.opened(path):
        raise BrokenPipeError


@pytest.mark.parametrize("is_marked", [True, False])
@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-16-le", "utf-16-be"])
def test_what_windows_wrote_is_read_as_utf_8(tmp_path: Path, encoding: str, *, is_marked: bool) -> None:
    """The mark at the beginning tells, and is gone; without one the null bytes tell."""
    text = "".join(f"zażółć 日志 \U0001f525 {n}\r\n" for n in range(9000))
    text = text if is_marked else f"epoch 1 is over\n{text}"
    mark = {"utf-16-le": b"\xff\xfe", "utf-16-be": b"\xfe\xff"}.get(encoding, b"") if is_marked else b""
    path = tmp_path / "slurm-1.out"
    path.write_bytes(mark + text.encode(encoding))
    assert b"".join(lines_of(path)).decode() == text


def test_half_a_character_at_the_end_is_replaced(tmp_path: Path) -> None:
    """A file cut by its byte count."""
    path = tmp_path / "cut"
    path.write_bytes("end é".encode("utf-16")[:-1])
    assert lines_of(path) == ["end \ufffd".encode()]
