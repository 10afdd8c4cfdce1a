"""What agents and the door send each other: frames of a length and one JSON object. Standard library only.

A frame is four bytes, the length of the rest, most significant first, and UTF-8 JSON. An agent sends one delivery and waits
for its answer before it sends the next. The delivery has the arguments of `probing.deliver`, answers to requests as base64; the
answer is that function's, or {sqlstate, error}.
"""

from __future__ import annotations

import base64
import dataclasses
import enum
import json
import math
import struct
from collections.abc import Mapping
from typing import Any

from probing_cluster.db import plain
from probing_cluster.db.load import DatabaseLoad

HEADER = struct.Struct("!I")
MAX_BYTES = 16 << 20
"""Largest frame without its header; an agent cuts a larger delivery in parts."""


class TooLong(ValueError):
    """A delivery does not fit a frame."""


def frame(body: bytes) -> bytes:
    """The bytes on the wire; raises TooLong."""
    if len(body) > MAX_BYTES:
        raise TooLong(f"a delivery of {len(body)} bytes is more than the door takes, {MAX_BYTES}")
    return HEADER.pack(len(body)) + body


def encoded(load: DatabaseLoad) -> bytes:
    """A delivery as JSON; raises ValueError or TypeError for what JSON or UTF-8 cannot hold."""
    fields: dict[str, Any] = {
        "events": [_event(row) for row in load.events],
        "checks": [_row(row) for row in load.checks],
        "allocations": [_row(row) for row in load.allocations],
        "heartbeat": None if load.heartbeat is None else _row(load.heartbeat),
        "acks": list(load.acknowledged),
        "refused": list(load.refused),
        "answers": [
            {"request_id": request_id, "body": base64.b64encode(body).decode("ascii")}
            for request_id, body in load.answers
        ],
    }
    return plain.dumps({name: value for name, value in fields.items() if value}).encode()


def failure(sqlstate: str, error: str) -> bytes:
    """The answer that a delivery came to nothing, and why."""
    return json.dumps({"sqlstate": sqlstate, "error": error[:500]}).encode()


def is_refusal(answer: str) -> bool:
    """Whether an answer of `probing.deliver_batch` is that nothing of this delivery is stored."""
    return '"sqlstate"' in answer and "sqlstate" in json.loads(answer)


def _event(event: Any) -> dict[str, Any]:
    row = _row(event)
    for name in ("measured", "threshold"):
        # As the binary way does: the function, not the wire, says that no number is no reading.
        if name in row and not math.isfinite(row[name]):
            row[name] = str(row[name])
    return row


def _row(record: Any) -> dict[str, Any]:
    """A record's fields without those that are empty."""
    found = {}
    for item in dataclasses.fields(record):
        value = getattr(record, item.name)
        if isinstance(value, enum.Enum):
            value = value.value
        if value is not None and not (isinstance(value, Mapping) and not value):
            found[item.name] = value
    return found
