"""An answer as bytes: a JSON header, then the columns in Arrow's own memory layout, so that the asker copies nothing.

Written by the nodes with the standard library alone (Arrow's library is 50 MB and 0.1 s of every node's time);
`session.unpacking` makes Arrow tables of it.

    u32 length of the header, little-endian · header (JSON) · zero bytes up to a multiple of 8 · buffers, each padded likewise

Header: {"node", "table", "rows", "whole", "columns": [[name, kind, n_null, [[offset, size], …]], …], "missing": [[rank, reason], …],
"ranks": [number, …], "world_size"};
the buffers of a column are validity bits (empty without nulls), and values, or offsets (i32) and UTF-8 bytes of texts.
"""

from __future__ import annotations

import array
import json
import struct
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

from probing_cluster.core import errors
from probing_cluster.live.table import Columns, Kind

LENGTH = struct.Struct("<I")
MAX_TEXT_BYTES = 65536
"""A longer text of one cell is cut."""
MAX_FRAMES = 64
"""Of one bundle: no question is about more tables."""
_INT = (-(1 << 63), (1 << 63) - 1)


def pack(header: Mapping[str, Any], columns: Columns) -> bytes:
    """The rows of one table on one node."""
    body = bytearray()
    described = [
        _column(body, n, k, v) for n, k, v in zip(columns.names, columns.kinds, columns.values, strict=True)
    ]
    fields = {**header, "rows": columns.n_rows, "whole": columns.whole, "columns": described}
    text = json.dumps(fields, separators=(",", ":")).encode()
    start = LENGTH.pack(len(text)) + text
    return bytes(start + bytes(-len(start) % 8) + body)


def bundle(frames: Sequence[bytes], most_bytes: int) -> bytes | None:
    """Frames as one packed body; None where it would hold more than `most_bytes`."""
    packer = zlib.compressobj(1)
    made, held = [], 0
    for frame in frames:
        for part in (packer.compress(LENGTH.pack(len(frame))), packer.compress(frame)):
            made.append(part)
            held += len(part)
        if held > most_bytes:
            return None
    made.append(packer.flush())
    return b"".join(made) if held + len(made[-1]) <= most_bytes else None


def frames_of(body: bytes, most_bytes: int) -> list[bytes]:
    """The frames of a bundle; raises MalformedInput for anything else, and for one that unpacks to more than `most_bytes`."""
    try:
        unpacker = zlib.decompressobj()
        data = unpacker.decompress(body, most_bytes)
    except zlib.error as exc:
        raise errors.MalformedInput("an answer is damaged") from exc
    if not unpacker.eof or unpacker.unused_data:
        raise errors.MalformedInput(f"an answer is cut short, or unpacks to more than {most_bytes} bytes")
    frames: list[bytes] = []
    at = 0
    while at < len(data):
        if at + LENGTH.size > len(data):
            raise errors.MalformedInput("an answer is cut short")
        if len(frames) == MAX_FRAMES:  # empty ones cost four bytes each, and packed nothing
            raise errors.MalformedInput(f"an answer of more than {MAX_FRAMES} tables")
        (size,) = LENGTH.unpack_from(data, at)
        at += LENGTH.size
        if at + size > len(data):
            raise errors.MalformedInput("an answer is cut short")
        frames.append(data[at : at + size])
        at += size
    return frames


def _column(body: bytearray, name: str, kind: Kind, values: Sequence[Any]) -> list[Any]:
    n_null = sum(v is None for v in values)
    buffers = [_put(body, _bits([v is not None for v in values]) if n_null else b"")]
    if kind == "text":
        texts = [b"" if v is None else _text(v) for v in values]
        offsets = array.array("i", [0])
        total = 0
        for text in texts:
            total += len(text)
            offsets.append(total)
        buffers += [_put(body, offsets.tobytes()), _put(body, b"".join(texts))]
    elif kind == "bool":
        buffers.append(_put(body, _bits([bool(v) for v in values])))
    elif kind == "float":
        buffers.append(
            _put(body, array.array("d", [0.0 if v is None else float(v) for v in values]).tobytes())
        )
    else:
        buffers.append(_put(body, array.array("q", [0 if v is None else _int(v) for v in values]).tobytes()))
    return [name, kind, n_null, buffers]


def _put(body: bytearray, data: bytes) -> tuple[int, int]:
    at = len(body)
    body += data
    body += bytes(-len(data) % 8)
    return at, len(data)


def _bits(flags: Sequence[bool]) -> bytes:
    """Least significant bit first, as Arrow has it."""
    text = "".join("1" if flag else "0" for flag in reversed(flags))
    return int(text, 2).to_bytes(-(-len(flags) // 8), "little") if text else b""


def _text(value: Any) -> bytes:
    raw = str(value).encode("utf-8", "replace")
    return raw if len(raw) <= MAX_TEXT_BYTES else raw[:MAX_TEXT_BYTES].decode("utf-8", "ignore").encode()


def _int(value: Any) -> int:
    return min(max(int(value), _INT[0]), _INT[1])
