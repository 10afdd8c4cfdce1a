"""`--events`: one JSON object a line; what it leaves out is filled from the catalogues."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from probing_cluster.control_plane.imports import kernel, rejected_input
from probing_cluster.core import digits, errors, records, sanitize, storable
from probing_cluster.core.catalogue import sxid, xid
from probing_cluster.evidence.kernel import grammar, reader

_KNOWN = frozenset(
    [
        "at",
        "node",
        "kind",
        "code",
        "severity",
        "device",
        "pci_bus_id",
        "gpu_uuid",
        "pid",
        "process",
        "job_id",
        "count",
        "measured",
        "threshold",
        "unit",
        "message",
        "detail",
    ]
)


def read(lines: Iterable[bytes], place: kernel.FilePlace) -> kernel.Read:
    """Every event of the file; `place.node` is not used."""
    found, occurrences, engine = kernel.Read(), Counter[str](), reader.KernelReader()
    for number, raw in enumerate(lines, 1):
        found.n_lines = number
        text = raw.decode("utf-8", "replace").strip()
        if not text:
            continue
        try:
            given = _object(text)
            key = json.dumps(given, sort_keys=True)
            occurrences[key] += 1
            event = event_of(given, f"{occurrences[key]}:{key}", place, engine)
            found.events.append(storable.require(event))
        except errors.MalformedInput as exc:
            bad = rejected_input.RejectedInput(
                file=place.file, line_no=number, text=text, why=str(exc.args[0])
            )
            found.bad.append(bad)
    return found


def event_of(
    given: Mapping[str, Any], position: str, place: kernel.FilePlace, engine: reader.KernelReader
) -> records.HealthEvent:
    """The event of one object; raises MalformedInput naming the key that is wrong."""
    message = _text(given, "message") or ""
    finding = engine.read_message(message) if message else None
    kind = _text(given, "kind") or (finding.kind if finding else None)
    if kind is None:
        raise errors.MalformedInput("neither kind nor a message that the catalogue knows")
    same = finding if finding is not None and finding.kind == kind else None
    code = _text(given, "code") or (same.code if same else None)
    node = _text(given, "node")
    if not node:
        raise errors.MalformedInput("node is missing")
    place = place.of(node)
    severity, meaning = _catalogued(kind, code, same)
    return records.HealthEvent(
        event_id=records.make_event_id(place.cluster, node, "import", position),
        cluster=place.cluster,
        node=node,
        at=_at(given, place),
        observed_at=place.read_at,
        kind=kind,
        code=code,
        severity=_severity(given) or severity,
        device=_text(given, "device") or (same.device if same else None),
        pci_bus_id=grammar.pci(_text(given, "pci_bus_id")) or (same.pci_bus_id if same else None),
        gpu_uuid=_text(given, "gpu_uuid"),
        pid=_number(given, "pid", int) or (same.pid if same else None),
        process=_text(given, "process") or (same.process if same else None),
        job_id=_number(given, "job_id", int) or (same.job_id if same else None),
        count=_number(given, "count", int) or 1,
        source="import",
        message=sanitize.clean(message or meaning),
        measured=_number(given, "measured", float),
        threshold=_number(given, "threshold", float),
        unit=_text(given, "unit"),
        detail={**(same.detail if same else {}), **_detail(given)},
    )


def _object(text: str) -> Mapping[str, Any]:
    try:
        given = json.loads(text)
    except (ValueError, RecursionError) as exc:
        raise errors.MalformedInput(f"not JSON: {exc}") from exc
    if not isinstance(given, dict):
        raise errors.MalformedInput("not a JSON object")
    why = storable.why_not_json(given)
    if why is not None:
        raise errors.MalformedInput(why)
    return given


def _catalogued(
    kind: str, code: str | None, same: grammar.KernelFinding | None
) -> tuple[records.Severity, str]:
    if same is not None:
        return same.severity, same.meaning
    if code is not None and digits.is_number(code) and kind in {"xid", "sxid"}:
        entry = xid.lookup(int(code)) if kind == "xid" else sxid.lookup(int(code))
        return entry.severity, entry.meaning
    facts = reader.facts()
    fact = facts.get((kind, code or "")) or facts.get((kind, "*"))
    return (fact.severity, fact.meaning) if fact else (records.Severity.INFO, kind)


def _at(given: Mapping[str, Any], place: kernel.FilePlace) -> datetime:
    text = _text(given, "at")
    if text is None:
        raise errors.MalformedInput("at is missing")
    try:
        at = datetime.fromisoformat(text)
    except ValueError as exc:
        raise errors.MalformedInput(f"at is no ISO 8601 time: {text!r}") from exc
    if at.tzinfo is None:
        if place.zone is None:
            raise errors.MalformedInput("at has no zone; add one, or give --timezone")
        at = at.replace(tzinfo=place.zone)
    return at


def _severity(given: Mapping[str, Any]) -> records.Severity | None:
    text = _text(given, "severity")
    if text is None:
        return None
    try:
        return records.Severity(text.lower())
    except ValueError as exc:
        raise errors.MalformedInput(f"severity must be info, low or high, not {text!r}") from exc


def _text(given: Mapping[str, Any], key: str) -> str | None:
    value = given.get(key)
    if value is None or value == "":
        return None
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise errors.MalformedInput(f"{key} must be text")
    return sanitize.clean(str(value))


def _number(given: Mapping[str, Any], key: str, kind: type[Any]) -> Any:
    value = given.get(key)
    if value is None:
        return None
    if (
        isinstance(value, bool)
        or not isinstance(value, int | float)
        or (isinstance(value, float) and not (value.is_integer() if kind is int else math.isfinite(value)))
    ):
        raise errors.MalformedInput(f"{key} must be a number")
    return kind(value)


def _detail(given: Mapping[str, Any]) -> dict[str, Any]:
    detail = given.get("detail")
    if detail is not None and not isinstance(detail, dict):
        raise errors.MalformedInput("detail must be an object")
    return {**(detail or {}), **{k: v for k, v in given.items() if k not in _KNOWN}}
