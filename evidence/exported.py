"""Records that log stores export: the fields of a JSON record, and the message of a row of comma-separated values."""

from __future__ import annotations

import csv
import json
import re
from typing import Any

from probing_cluster.evidence import dates

_WRITER = re.compile(r"kern(?:el)?(?:\.\w{3,8})?")
_IN_A_ROW = re.compile(rf"[,|;\t]\s?\"?{_WRITER.pattern}\"?\s?[,|;\t]")
_ROW_CHARS = 300
"""The fields in front of the message are short."""
_WORD = re.compile(r"[\w.:@/+-]{0,80}")
_ASIDE = re.compile(
    r"[\d.:/+-]*|emerg|alert|crit(?:ical)?|err(?:or)?|warn(?:ing)?|notice|info|debug", re.IGNORECASE
)
"""A number, an address, a level or nothing: no name of a writer or a host."""
_MOST_NAMES = 2
_KIBANA = re.compile(r"([A-Z][a-z]{2} \d{1,2}), (\d{4}) @ ")
"""Kibana's form of a date."""
_STREAM_LABELS = ("labels", "stream", "fields")


def json_fields(text: str) -> dict[str, Any] | None:
    """The fields of a record; None if it is none.

    Elasticsearch wraps a hit into `_source`, its common schema names the program in an object, and Loki keeps the
    journal's fields as labels beside the line.
    """
    try:
        fields = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(fields, dict):
        return None
    if isinstance(source := fields.get("_source"), dict):
        fields = source
    if isinstance(program := fields.get("process"), dict) and "name" in program:
        fields.setdefault("ident", program["name"])
    if isinstance(fields.get("line"), str):
        fields.setdefault("message", fields["line"])
        for name in _STREAM_LABELS:
            if isinstance(labels := fields.get(name), dict):
                transport = labels.get("transport", labels.get("__journal__transport"))
                if transport is not None:
                    fields.setdefault("_TRANSPORT", transport)
                for key in ("syslog_identifier", "ident", "program"):
                    if key in labels:
                        fields.setdefault("ident", labels[key])
    return fields


def as_text(value: Any) -> str | None:
    """A message as text; journald gives one with an escape or invalid UTF-8 as a list of bytes."""
    if isinstance(value, str):
        return value
    if isinstance(value, list) and all(isinstance(v, int) and 0 <= v < 256 for v in value):
        return bytes(value).decode("utf-8", "replace")
    return None


def kernel_row(text: str) -> tuple[str, str] | None:
    """The date ("" without one) and the message of a row whose field of the writer names the kernel.

    Fields are separated by commas, bars, semicolons or tabs; the message begins with the first that is neither a date nor one word.
    The writer is the last name before the message, and only a host's name is before it: a program may print `kernel,NVRM: …`.
    """
    if text.startswith("|") or not (found := _IN_A_ROW.search(text[:_ROW_CHARS])):
        return None
    mark = found[0][0]
    try:
        row = next(csv.reader([text], delimiter=mark, skipinitialspace=True), [])
    except csv.Error:
        return None
    date, names = "", list[str]()
    for index, cell in enumerate(row):
        field = _KIBANA.sub(r"\1 \2 ", cell.strip())
        if field and dates.looks_like(field):
            date = field
        elif not _WORD.fullmatch(field):
            by_kernel = names and len(names) <= _MOST_NAMES and _WRITER.fullmatch(names[-1])
            return (date, mark.join(row[index:]).strip()) if by_kernel else None
        elif not _ASIDE.fullmatch(field):
            names.append(field)
    return None
