"""Lines in UTF-16, as `iconv` and programs of Windows write them, also between lines of other writers in UTF-8.

A job's output is split at the byte of the newline, whatever its encoding. So a line of UTF-16 has one byte too many: that of the
newline before it (little-endian) or after it (big-endian).
"""

from __future__ import annotations

import codecs
from typing import Literal

Encoding = Literal["utf-16-le", "utf-16-be"]

HEAD_BYTES = 4096
"""Bytes of a file's beginning that `encoding_of` looks at."""
_MARKS: dict[bytes, Encoding] = {codecs.BOM_UTF16_LE: "utf-16-le", codecs.BOM_UTF16_BE: "utf-16-be"}
_MARK_OF = {encoding: mark for mark, encoding in _MARKS.items()}
_DECODERS = {"utf-16-le": codecs.utf_16_le_decode, "utf-16-be": codecs.utf_16_be_decode}
"""The interpreter's own, which no name is looked up for. `bytes.decode` imports a module for each encoding at its first use, and
a reader that has become a job's owner may not be able to read the interpreter's modules."""
_LEAST_BYTES = 8
"""Of a line that is taken for UTF-16; a program's file has shorter ones by chance."""
_PLAIN_FRAC = 0.8
"""Least share of printable ASCII in a line that shows a file without a byte-order mark to have UTF-16."""
_LINE_NULLS_FRAC = 0.25
"""Share of null bytes that makes a line UTF-16."""


def encoding_of(head: bytes) -> Encoding | None:
    """The encoding of the lines in UTF-16 in a file's first bytes, by its byte-order mark or by what reads as text; None without such lines."""
    if b"\0" not in head:
        return None
    marked = _MARKS.get(head[:2])
    if marked is not None:
        return marked
    lines = [
        line
        for line in head[:HEAD_BYTES].split(b"\n")
        if len(line) >= _LEAST_BYTES and line.count(0) >= len(line) * _LINE_NULLS_FRAC
    ]
    n_plain = {e: [_n_plain(_decode(line, e)) for line in lines] for e in _MARKS.values()}
    best = max(n_plain, key=lambda e: sum(n_plain[e]))
    is_text = any(n >= _PLAIN_FRAC * (len(line) // 2) for n, line in zip(n_plain[best], lines, strict=True))
    return best if is_text else None


def text(raw: bytes, encoding: Encoding | None = None) -> str:
    """The text of a line that was split at the byte of the newline, without the newline and without a byte-order mark.

    `encoding`: that of the file, by `encoding_of`. Each line may be UTF-8 nevertheless, as Slurm's own are; bytes that are no
    text are replaced.
    """
    plain = raw.strip(b"\0")  # a file that was truncated while a program wrote on has zeros before its text
    if plain.count(0) <= len(plain) * _LINE_NULLS_FRAC:
        try:
            return plain.decode().removeprefix("\ufeff")
        except UnicodeDecodeError:
            if encoding is None or not _may_be(raw, plain, encoding):
                return plain.decode("utf-8", "replace")
    readings = (
        [_decode(raw, encoding)] if encoding else [_decode(raw, "utf-16-le"), _decode(raw, "utf-16-be")]
    )
    return max(readings, key=_n_plain).removeprefix("\ufeff")


def _may_be(raw: bytes, plain: bytes, encoding: Encoding) -> bool:
    """Whether a line with few null bytes, or none but a newline's, may be UTF-16: of a script whose characters have none.

    Other programs write Latin-1 into the same file, which is mostly ASCII.
    """
    if b"\0" not in raw and not raw.startswith(_MARK_OF[encoding]):
        return False
    return sum(0x20 <= byte < 0x7F for byte in plain) < _PLAIN_FRAC * len(plain)


def text_of(data: bytes, encoding: Encoding | None = None) -> str:
    """The text of several lines; see `text`."""
    if encoding is None and b"\0" not in data:
        return data.decode("utf-8", "replace")
    return "\n".join(text(line, encoding) for line in data.split(b"\n"))


def ascii_of(block: bytes) -> tuple[bytes, int]:
    """The ASCII characters of a block of UTF-16 and the bytes that each had (2), or the block itself (1)."""
    if block.count(0) < len(block) * _LINE_NULLS_FRAC:
        return block, 1
    return block.replace(b"\0", b""), 2


def _decode(raw: bytes, encoding: Encoding) -> str:
    if len(raw) % 2:  # else the file's end cut a character
        raw = raw.removeprefix(b"\0") if encoding == "utf-16-le" else raw.removesuffix(b"\0")
    return _DECODERS[encoding](raw, "replace", True)[0]


def _n_plain(reading: str) -> int:
    return sum(" " <= c <= "~" for c in reading)
