"""Taking values out of what file_child read: a text, a number, the parts of a path; None is "could not be read"."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

_NUMBER = re.compile(r"\s*(0x[0-9a-fA-F]+|\d+)\s*")


def text(raw: Mapping[str, Any], path: str) -> str | None:
    """The file's text without the end of line; None when it was not there or not readable."""
    found = raw["files"].get(path)
    return None if found is None else str(found).strip()


def number(raw: Mapping[str, Any], path: str) -> int | None:
    """The file's number; None for anything that is not one (`N/A (no PMA)` of old kernels)."""
    return as_number(text(raw, path))


def as_number(word: str | None) -> int | None:
    found = _NUMBER.fullmatch(word or "")
    return None if found is None else int(found[1], 0)


def matching(raw: Mapping[str, Any], pattern: str) -> Iterator[tuple[str, ...]]:
    """The groups of every path, read or failed, that matches the regular expression whole; each once, in order."""
    paths = re.compile(pattern)
    groups: dict[tuple[str, ...], None] = {}
    for group in ("files", "errors", "links"):
        for path in raw[group]:
            found = paths.fullmatch(path)
            if found is not None:
                groups[found.groups()] = None
    return iter(sorted(groups))
