"""The shapes Slurm's JSON took from 21.08 to 26.05, read as one."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from probing_cluster.core import clock, errors, sanitize

NO_VALUE = frozenset({0xFFFF, 0xFFFE, 0xFFFFFFFF, 0xFFFFFFFE, 0xFFFFFFFFFFFFFFFF, 0xFFFFFFFFFFFFFFFE, -1, -2})
"""How Slurm's integers say "not set" and "infinite" where the parser lets them through."""

_DOCUMENT = re.compile(r"^[\[{]", re.MULTILINE)
_DECODER = json.JSONDecoder(strict=False)


def load(data: bytes) -> dict[str, Any]:
    """The object in `data`, noise before its brace forgiven; raises MalformedInput."""
    text = data.decode("utf-8", "replace")
    start = text.find("{")
    try:
        value, _ = json.JSONDecoder().raw_decode(text, max(start, 0))
    except (ValueError, RecursionError) as exc:
        raise errors.MalformedInput(f"not JSON: {exc}") from exc
    if not isinstance(value, dict):
        raise errors.MalformedInput("JSON, but not an object")
    return value


def documents(data: bytes) -> list[Any]:
    """Every object, and list of objects, that begins a line of `data`; raises MalformedInput where one breaks off.

    Dumps appended to one file are several documents; what stands between them is noise.
    """
    text = data.decode("utf-8", "replace").removeprefix("\ufeff")
    found, at = list[Any](), 0
    while start := _DOCUMENT.search(text, at):
        try:
            value, at = _DECODER.raw_decode(text, start.start())
        except (ValueError, RecursionError) as exc:
            line_end = text.find("\n", start.start())
            where = exc.pos if isinstance(exc, json.JSONDecodeError) else len(text)
            if where < line_end and _DOCUMENT.search(text, line_end):
                at = line_end
                continue
            line_no = text.count("\n", 0, start.start()) + 1
            raise errors.MalformedInput(f"not JSON, in what begins in line {line_no}: {exc}") from exc
        if isinstance(value, dict) or any(isinstance(item, dict) for item in value):
            found.append(value)
    return found


def number(value: Any) -> int | None:
    """An integer written plainly (21.08 to 23.02) or as {set, infinite, number} (later); None when unset."""
    if isinstance(value, dict):
        if not value.get("set", True) or value.get("infinite"):
            return None
        return number(value.get("number"))
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    if isinstance(value, float) and not value.is_integer():
        return None
    return None if int(value) in NO_VALUE else int(value)


def instant(value: Any) -> datetime | None:
    """A time in epoch seconds; 0 is Slurm's "not yet"."""
    seconds = number(value)
    if not seconds or seconds < 0:
        return None
    try:
        return clock.from_epoch_s(seconds)
    except (OverflowError, ValueError, OSError) as exc:
        raise errors.MalformedInput(f"{seconds} is no time") from exc


def words(value: Any) -> tuple[str, ...]:
    """A list of words, written as a list or with commas; empty for null."""
    if isinstance(value, str):
        value = value.split(",")
    if not isinstance(value, list | tuple):
        return ()
    return tuple(text(item) for item in value if isinstance(item, str) and item)


def text(value: Any) -> str:
    """A string made safe; null, numbers and Slurm's words for nothing are nothing."""
    found = sanitize.clean(value.strip()) if isinstance(value, str) else ""
    return "" if found in {"None", "(null)", "N/A"} else found


def table(value: Any) -> dict[str, Any]:
    """A sub-object; empty for null and anything else."""
    return value if isinstance(value, dict) else {}


def rows(document: dict[str, Any], key: str) -> list[Any]:
    """The list under `key`; raises MalformedInput, with Slurm's own errors, when there is none."""
    found = document.get(key)
    if isinstance(found, list):
        return found
    message = "; ".join(error_texts(document))
    raise errors.MalformedInput(f"no {key} in it" + (f": {message}" if message else ""))


def error_texts(document: dict[str, Any]) -> list[str]:
    """The texts of the entries that Slurm put under `errors`."""
    entries = document.get("errors")
    listed = entries if isinstance(entries, list) else []
    return [
        ": ".join(filter(None, (text(item.get("error")), text(item.get("description")))))
        for item in listed
        if isinstance(item, dict)
    ]


def job_words(fields: Mapping[str, Any]) -> dict[str, Any]:
    """A job's owner and labels: the fields that Slurm's JSON and pyslurm's dictionaries name alike."""
    uid = number(fields.get("user_id"))
    return {
        "name": text(fields.get("name")),
        "user": text(fields.get("user_name")) or ("" if uid is None else str(uid)),
        "uid": uid,
        "account": text(fields.get("account")),
        "partition": text(fields.get("partition")),
        "qos": text(fields.get("qos")),
        "reason": text(fields.get("state_reason")),
    }
