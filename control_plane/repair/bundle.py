"""What a technician gets: one directory per repair with the events, the tests, the node's parts, and a ticket that points at it."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Mapping
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


def write(
    config: settings.Settings, store: db_store.Store, incident: records.RepairIncident, now: datetime
) -> Path:
    """The bundle's directory, readable by its owner alone; written again it is the same one. Raises SettingsError."""
    name = re.sub(r"[^A-Za-z0-9._-]", "-", f"{incident.node}-{incident.incident_id.hex[:8]}")
    directory = Path(config.repair.bundle_directory) / name
    since = incident.opened_at - _EVENTS
    results = store.results(node=incident.node, since=since)
    events = store.events(nodes=[incident.node], since=since)[-_MOST_EVENTS:]
    try:
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        _put(directory / "ticket.json", json.dumps(document(incident, results), indent=2))
        _put(directory / "ticket.txt", text(incident, results))
        _put(directory / "tests.jsonl", "".join(_line(r) for r in results))
        _put(directory / "events.jsonl", "".join(_line(e) for e in events))
        _put(
            directory / "drains.jsonl",
            "".join(_line(d) for d in store.drains(node=incident.node, since=since)),
        )
        _put(
            directory / "notes.jsonl", "".join(_line(n) for n in store.notes(subject=f"node:{incident.node}"))
        )
        _put(directory / "parts.json", json.dumps(_parts(store, incident.node), indent=2))
    except OSError as exc:
        raise errors.SettingsError(f"[repair] bundle_directory {directory}: {exc.strerror}") from exc
    del now
    return directory


def document(incident: records.RepairIncident, results: list[records.DiagnosticResult]) -> dict[str, Any]:
    """The ticket as JSON."""
    failing = [r for r in results if r.incident_id == incident.incident_id and r.outcome in _BAD]
    return {
        "kind": "repair",
        "incident": str(incident.incident_id),
        "cluster": incident.cluster,
        "node": incident.node,
        "drained_for": incident.reason,
        "opened_at": clock.iso_z(incident.opened_at),
        "failing": list(incident.detail.get("failing", [])),
        "steps_done": incident.steps_done,
        "cause": incident.cause,
        "tests": [
            {
                "test": r.test,
                "peer": r.peer,
                "device": r.device,
                "outcome": r.outcome.value,
                "message": r.message,
                "at": clock.iso_z(r.at),
            }
            for r in failing[-50:]
        ],
    }


_BAD = (records.Outcome.FAIL, records.Outcome.ERROR)


def text(incident: records.RepairIncident, results: list[records.DiagnosticResult]) -> str:
    """The ticket for people."""
    found = document(incident, results)
    lines = [
        f"Repair of {incident.node} ({incident.cluster})",
        f"drained for: {incident.reason}, {found['opened_at']}",
        f"repair steps tried ({incident.cause}): {incident.steps_done}",
        "still failing:",
        *(f"  {words}" for words in found["failing"] or ["(no test gave an answer)"]),
        f"once it is repaired: probing-ctl repair release {incident.node}   (it is tested, and returns when every test passes)",
    ]
    return "\n".join(lines) + "\n"


def _parts(store: db_store.Store, node: str) -> dict[str, Any]:
    """Which GPUs the node has or had: the UUIDs its events and jobs named, and when they were first and last seen."""
    gpus: dict[str, dict[str, str]] = {}
    for event in store.events(nodes=[node]):
        if event.gpu_uuid:
            one = gpus.setdefault(
                event.gpu_uuid, {"first": clock.iso_z(event.at), "device": event.device or ""}
            )
            one["last"] = clock.iso_z(event.at)
    return {"gpus": gpus}


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
    """The bundle and the ticket of an incident; what was done, for the incident's own row. A letter goes once, by its key."""
    directory = write(config, store, incident, now)
    wrote: dict[str, Any] = {"bundle": str(directory)}
    if config.repair.ticket_webhook:
        body = (directory / "ticket.json").read_bytes()
        letter = queue.Letter(
            key=f"repair.{incident.incident_id}.webhook",
            kind="webhook",
            body=body,
            recipients=(config.repair.ticket_webhook,),
            made_at=now,
        )
        queue.of(config).put(letter)
        wrote["webhook"] = config.repair.ticket_webhook
    marker = directory / "ticket-command.done"
    if config.repair.ticket_command and not marker.exists():
        why = run(config.repair.ticket_command, str(directory))
        wrote["ticket_command"] = sanitize.clean(why, 300) or "done"
        if not why:
            _put(marker, clock.iso_z(now) + "\n")
    return wrote
