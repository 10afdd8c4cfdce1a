"""The site's table of places: which rack, row, power feed or file server each node has (docs/places.md)."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator
from pathlib import Path

from probing_cluster.core import errors, hostlist

_MOST_BYTES = 64 << 20
_KIND = re.compile(r"[a-z][a-z0-9_]{0,30}")
_MOST_NAME = 200


def read(path: Path) -> tuple[tuple[str, ...], list[tuple[str, str, str]]]:
    """The kinds its header names, and (node, kind, place) of every cell that is not empty.

    Raises MalformedInput that names the line.
    """
    try:
        with path.open("rb") as stream:
            raw = stream.read(_MOST_BYTES + 1)  # not by its size, which a pipe and a device do not tell
        if len(raw) > _MOST_BYTES:
            raise errors.MalformedInput(f"{path} is larger than {_MOST_BYTES >> 20} MiB")
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as exc:
        raise errors.MalformedInput(f"{path} is not UTF-8 text") from exc
    except OSError as exc:
        raise errors.MalformedInput(f"{path} cannot be read: {exc.strerror}") from exc
    lines = [
        (n, line) for n, line in enumerate(text.splitlines(), 1) if line.strip() and not line.startswith("#")
    ]
    rows = [
        (n, [c.strip() for c in row])
        for (n, _), row in zip(lines, csv.reader(line for _, line in lines), strict=False)
    ]
    if not rows:
        raise errors.MalformedInput(f"{path} has no header; its first line must be like: node,rack,pdu")
    kinds = _kinds(path, rows[0][1])
    return kinds, list(_cells(path, kinds, rows[1:]))


def _kinds(path: Path, head: list[str]) -> tuple[str, ...]:
    if head[:1] != ["node"] or len(head) < 2:
        raise errors.MalformedInput(
            f"{path}: the first line must be `node` and the kinds, like: node,rack,pdu"
        )
    for kind in head[1:]:
        if not _KIND.fullmatch(kind):
            raise errors.MalformedInput(
                f"{path}: {kind!r} is no name of a kind; use lower-case words such as rack"
            )
    if len(set(head)) < len(head):
        raise errors.MalformedInput(f"{path}: a column stands twice in the first line")
    return tuple(head[1:])


def _cells(
    path: Path, kinds: tuple[str, ...], rows: list[tuple[int, list[str]]]
) -> Iterator[tuple[str, str, str]]:
    for number, row in rows:
        if len(row) != len(kinds) + 1:
            raise errors.MalformedInput(
                f"{path}, line {number}: {len(row)} columns where the first line has {len(kinds) + 1}"
            )
        try:
            nodes = hostlist.expand(row[0])
        except errors.MalformedInput as exc:
            raise errors.MalformedInput(f"{path}, line {number}: {exc.args[0]}") from exc
        for kind, place in zip(kinds, row[1:], strict=True):
            if len(place) > _MOST_NAME or not place.isprintable():
                raise errors.MalformedInput(
                    f"{path}, line {number}: the {kind} is not a name of at most {_MOST_NAME} characters"
                )
            if place:
                yield from ((node, kind, place) for node in nodes)
