"""What a technician gets: one directory per repair with the events, the tests, the node's parts, and a ticket that points at it."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from probing_cluster.control_plane.outbox import queue
from probing_cluster.core import clock, errors, records, sanitize, settings
from probing_cluster.db import plain, rows
from probing_cluster.db import store as db_store

_EVENTS = timedelta(days=7)
_MOST_EVENTS = 2000
Run = Callable[[str, str], str]
"""A site's command and its argument; why it failed, empty when it did not."""


def write(config: settings.Settings, store: db_store.Store, incident: records.RepairIncident) -> Path:
    """The bundle's directory, readable by its owner alone; written again it is the same one. Raises SettingsError."""
    name = re.sub(r"[^A-Za-z0-9._-]", "-", f"{incident.node}-{incident.incident_id.hex[:8]}")
    directory = Path(config.repair.bundle_directory) / name
    since = incident.opened_at - _EVENTS
    store = store.of(incident.cluster)
    results = store.results(node=incident.node, since=since)
    events = store.events(nodes=[incident.node], since=since)[-_MOST_EVENTS:]
    drains = store.drains(node=incident.node, since=since, cluster=incident.cluster)
    drained_at = next((d.at for d in drains if d.drain_id == incident.drain_id), None)
    try:
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        _put(directory / "ticket.json", json.dumps(document(incident, results, drained_at), indent=2))
        _put(directory / "ticket.txt", text(incident, results, drained_at))
        _put(directory / "tests.jsonl", "".join(_line(r) for r in results))
        _put(directory / "events.jsonl", "".join(_line(e) for e in events))
        _put(directory / "drains.jsonl", "".join(_line(d) for d in drains))
        _put(
            directory / "notes.jsonl", "".join(_line(n) for n in store.notes(subject=f"node:{incident.node}"))
        )
        _put(
            directory / "parts.json", json.dumps(_parts(store, incident.node, results), indent=2, default=str)
        )
        _put(directory / "kernel_log.txt", _kernel_log(results))
    except OSError as exc:
        raise errors.SettingsError(f"[repair] bundle_directory {directory}: {exc.strerror}") from exc
    return directory


def document(
    incident: records.RepairIncident,
    results: list[records.DiagnosticResult],
    drained_at: datetime | None = None,
) -> dict[str, Any]:
    """The ticket as JSON; the drain may be older than the repair, or not on record."""
    failing = [r for r in results if r.incident_id == incident.incident_id and r.outcome in _BAD]
    return {
        "kind": "repair",
        "incident": str(incident.incident_id),
        "cluster": incident.cluster,
        "node": incident.node,
        "drained_for": incident.reason,
        "drained_at": clock.iso_z(drained_at) if drained_at else None,
        "opened_at": clock.iso_z(incident.opened_at),
        "failing": list(incident.detail.get("failing", [])),
        "steps_done": incident.steps_done,
        "cause": incident.cause,
        "collected": _collected(results),
        "tests": [
            records.json_fields(r, "test", "peer", "device", "outcome", "message", "at")
            for r in failing[-50:]
        ],
    }


_BAD = (records.Outcome.FAIL, records.Outcome.ERROR)


def text(
    incident: records.RepairIncident,
    results: list[records.DiagnosticResult],
    drained_at: datetime | None = None,
) -> str:
    """The ticket for people."""
    found = document(incident, results, drained_at)
    when = f", {found['drained_at']}" if drained_at else ""
    lines = [
        f"Repair of {incident.node} ({incident.cluster})",
        f"drained for: {incident.reason}{when}",
        f"repair opened: {found['opened_at']}",
        f"repair steps tried ({incident.cause}): {incident.steps_done}",
        "still failing:",
        *(f"  {words}" for words in found["failing"] or ["(no test gave an answer)"]),
        *found["collected"],
        f"once it is repaired: probing-ctl repair release {incident.node}   (it is tested, and returns when every test passes)",
    ]
    return "\n".join(lines) + "\n"


_NAMES = """
SELECT gpu_uuid, node, min(at) AS first_at, max(coalesce(last_at, at)) AS last_at, min(device) AS device, count(*) AS n
FROM probing.health_event e
WHERE e.cluster = :cluster
  AND gpu_uuid IN (SELECT h.gpu_uuid FROM probing.health_event h WHERE h.cluster = :cluster AND h.node = :node AND h.gpu_uuid IS NOT NULL)
GROUP BY gpu_uuid, node ORDER BY gpu_uuid, first_at
"""


def _parts(store: db_store.Store, node: str, results: Sequence[records.DiagnosticResult]) -> dict[str, Any]:
    """Serial numbers of board and GPUs as the last tests read them, and the nodes in which each GPU has been, by its events."""
    serials = {
        r.device or "": {"at": clock.iso_z(r.at), **dict(r.detail)}
        for r in results
        if r.test == "parts" and r.outcome is records.Outcome.OK
    }
    cards: dict[str, list[dict[str, Any]]] = {}
    for row in store.rows(_NAMES, {"cluster": store.cluster, "node": node}):
        cards.setdefault(row["gpu_uuid"], []).append(
            {
                "node": row["node"],
                "device": row["device"],
                "first": clock.iso_z(row["first_at"]),
                "last": clock.iso_z(row["last_at"]),
                "events": row["n"],
            }
        )
    moved = sorted(uuid for uuid, places in cards.items() if len({p["node"] for p in places}) > 1)
    return {"serials": serials, "cards": cards, "moved_between_nodes": moved}


def _kernel_log(results: Sequence[records.DiagnosticResult]) -> str:
    """The end of the node's kernel log as the last tests read it."""
    latest = [r for r in results if r.test == "kernel-log" and r.outcome is records.Outcome.OK]
    if not latest:
        return "(it was not read: dmesg is absent or may not be used there)\n"
    return "".join(f"{latest[-1].detail[key]}\n" for key in sorted(latest[-1].detail))


def _collected(results: Sequence[records.DiagnosticResult]) -> list[str]:
    """Serial numbers and the vendor's report, a line each."""
    latest = {
        (r.test, r.device): r
        for r in results
        if r.test in ("parts", "bug-report") and r.outcome is records.Outcome.OK
    }
    words = {"parts": "part", "bug-report": "nvidia-bug-report"}
    return [
        f"{words[test]}: {f'{device}: ' if device else ''}{r.message}"
        for (test, device), r in sorted(
            latest.items(), key=lambda item: (item[0][0], item[0][1] or ""), reverse=True
        )
    ]


def _line(record: Any) -> str:
    return json.dumps(plain.plain(rows.to_row(record)), default=str) + "\n"


def _put(path: Path, content: str) -> None:
    fresh = path.with_suffix(".new")
    handle = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with os.fdopen(handle, "w", encoding="utf-8") as stream:
        stream.write(content)
        stream.flush()
        os.fsync(stream.fileno())
    fresh.replace(path)


def ticket(
    config: settings.Settings,
    store: db_store.Store,
    run: Run,
    incident: records.RepairIncident,
    now: datetime,
) -> Mapping[str, Any]:
    """The bundle and the ticket of an incident; what was done, for the incident's own row. A message goes once, by its key."""
    directory = write(config, store, incident)
    wrote: dict[str, Any] = {"bundle": str(directory)}
    if config.repair.ticket_webhook:
        body = (directory / "ticket.json").read_bytes()
        message = queue.QueuedMessage(
            key=f"repair.{incident.incident_id}.webhook",
            kind="webhook",
            body=body,
            recipients=(config.repair.ticket_webhook,),
            made_at=now,
        )
        queue.of(config).put(message)
        wrote["webhook"] = config.repair.ticket_webhook
    marker = directory / "ticket-command.done"
    if config.repair.ticket_command and not marker.exists():
        why = run(config.repair.ticket_command, str(directory))
        wrote["ticket_command"] = sanitize.clean(why, 300) or "done"
        if not why:
            _put(marker, clock.iso_z(now) + "\n")
    return wrote
