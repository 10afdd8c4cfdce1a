"""Files as log rotation leaves them: plain, or packed with gzip, xz or bzip2, in UTF-8 or UTF-16; their first bytes say which."""

from __future__ import annotations

import bz2
import codecs
import gzip
import io
import lzma
import os
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from probing_cluster.core import errors
from probing_cluster.evidence import utf16

_READERS: dict[bytes, Callable[..., Any]] = {
    b"\x1f\x8b": gzip.open,
    b"\xfd7zXZ\x00": lzma.open,
    b"BZh": bz2.open,
}
_OTHER = {
    b"\x28\xb5\x2f\xfd": "zstd",
    b"PK\x03\x04": "zip",
    b"7z\xbc\xaf": "7-zip",
    b"LPKSHHRH": "a binary journal",
}
_CUT = 1 << 20
"""Bytes of a line that are read; no log's line means anything behind them."""


class _AsUtf8(io.RawIOBase):
    """A stream of UTF-16 as UTF-8, line by line; what cannot be decoded is replaced."""

    def __init__(self, stream: IO[bytes], encoding: utf16.Encoding) -> None:
        self._stream, self._encoding, self._rest = stream, encoding, b""

    def readable(self) -> bool:
        """Always."""
        return True

    def readinto(self, buffer: Any, /) -> int:
        """The next bytes; 0 at the end."""
        ended = False
        while not self._rest and not ended:
            line = self._stream.readline(_CUT)
            ended = not line
            end = b"\n" if line.endswith(b"\n") else b""
            self._rest = utf16.text(line.removesuffix(end), self._encoding).encode() + end
        given = self._rest[: len(buffer)]
        self._rest = self._rest[len(buffer) :]
        buffer[: len(given)] = given
        return len(given)


@contextmanager
def opened(path: Path) -> Iterator[IO[bytes]]:
    """The bytes of `path` unpacked; raises OSError, MalformedInput for a form that is not read or a broken one."""
    with path.open("rb") as stream:
        # Only what can be read twice is looked at first: a pipe is taken as it comes.
        head = stream.read(utf16.HEAD_BYTES) if stream.seekable() else b""
        if head:
            stream.seek(0)
        other = next((name for magic, name in _OTHER.items() if head.startswith(magic)), None)
        if other is not None:
            raise errors.MalformedInput(f"{path} is {other}; unpack it first")
        unpack = next((reader for magic, reader in _READERS.items() if head.startswith(magic)), None)
        try:
            encoding = None if unpack else utf16.encoding_of(head)
            if head.startswith(codecs.BOM_UTF8):
                stream.seek(len(codecs.BOM_UTF8))
            if encoding:
                yield io.BufferedReader(_AsUtf8(stream, encoding))
            else:
                yield unpack(stream, "rb") if unpack else stream
        except (EOFError, OSError, lzma.LZMAError, zlib.error) as exc:
            if unpack is None or getattr(exc, "errno", None) is not None:
                raise
            raise errors.MalformedInput(f"{path} is packed, and broken: {exc}") from exc


_MEMORY_PER_BYTE = 64
"""Of the machine, for each byte of accounting: what a narrow row of `sacct -P` becomes takes up to thirty times its own bytes, and those with GPUs are made twice."""


def whole(stream: IO[bytes], path: Path, most: int | None = None) -> bytes:
    """All bytes of a stream of `opened`; raises MalformedInput where they are more than `most` (what the memory holds as attempts)."""
    limit = most or os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // _MEMORY_PER_BYTE
    data = stream.read(limit + 1)
    if len(data) > limit:
        msg = f"{path} holds more than {limit >> 20} MiB, 1/{_MEMORY_PER_BYTE} of this machine's memory; split it and import the parts"
        raise errors.MalformedInput(msg)
    return data


def lines(stream: IO[bytes]) -> Iterator[bytes]:
    """The lines of a stream of `opened`, each cut to a length that fits: a packed file may hold one of gigabytes."""
    while line := stream.readline(_CUT):
        yield line
        rest = line
        while len(rest) == _CUT and not rest.endswith(b"\n"):
            rest = stream.readline(_CUT)
