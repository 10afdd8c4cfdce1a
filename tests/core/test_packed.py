"""Files as log rotation leaves them."""

from __future__ import annotations

import bz2
import gzip
import lzma
from collections.abc import Callable
from pathlib import Path

import pytest

from probing_cluster.core import errors, packed

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
