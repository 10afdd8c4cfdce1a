"""Incidents as files: what a real sandbox run left in the database, and its way back in.

A recording is one JSON object: `about` (a sentence), `cluster`, and the records by name
(`attempts`, `events`, `allocations`, `drains`, `heartbeats`), each with the record's own fields.
Verdicts and accounts are not in it: the replay judges anew.
"""

from __future__ import annotations

import dataclasses
import json
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

from probing_cluster.core import errors, records
from probing_cluster.db import delivery, plain, store
from probing_cluster.reports import rows

DIRECTORY = Path(__file__).resolve().parent / "recordings"
DEMO = DIRECTORY / "gpu_off_the_bus.json"
"""What `make demo` replays where no cluster can run."""

_AROUND = timedelta(minutes=10)


@dataclass(frozen=True, kw_only=True)
class Recording:
    """One incident: the job, what its nodes showed, and what was done."""

    about: str
    cluster: str
    attempts: tuple[records.JobAttempt, ...]
    events: tuple[records.HealthEvent, ...]
    allocations: tuple[records.JobAllocation, ...] = ()
    drains: tuple[records.Drain, ...] = ()
    heartbeats: tuple[records.AgentHeartbeat, ...] = ()

    @property
    def job_id(self) -> int:
        return self.attempts[0].job_id


def take(database: store.Store, job_id: int, about: str) -> Recording:
    """What the database holds about a job and its nodes; raises NotFound."""
    attempts = database.attempts(job_ids=[job_id])
    if not attempts:
        raise errors.NotFound(f"the database knows no job {job_id}")
    nodes = {node for attempt in attempts for node in attempt.nodes}
    since = min(attempt.submit_at for attempt in attempts) - _AROUND
    until = max(attempt.end_at or attempt.submit_at for attempt in attempts) + _AROUND
    drains = (d for d in database.drains() if d.node in nodes and since <= d.at <= until)
    return Recording(
        about=about,
        cluster=attempts[0].cluster,
        attempts=tuple(attempts),
        events=tuple(database.events(nodes=nodes, since=since, until=until)),
        allocations=tuple(database.allocations(job_id=job_id)),
        drains=tuple(drains),
        heartbeats=tuple(beat for beat in database.heartbeats() if beat.node in nodes),
    )


def save(recording: Recording, path: Path) -> None:
    """Writes a recording, readable and with one order of keys."""
    document: dict[str, Any] = {"about": recording.about, "cluster": recording.cluster}
    for field in dataclasses.fields(Recording):
        if field.name not in document:
            document[field.name] = [dataclasses.asdict(item) for item in getattr(recording, field.name)]
    path.write_text(json.dumps(json.loads(plain.dumps(document)), indent=1, sort_keys=True) + "\n")


def load(path: Path) -> Recording:
    """Reads a recording; raises MalformedInput when it is none."""
    try:
        document: Mapping[str, Any] = json.loads(path.read_text())
        return Recording(
            about=document["about"],
            cluster=document["cluster"],
            attempts=tuple(_with_tuples(a) for a in _many(document, "attempts", records.JobAttempt)),
            events=_many(document, "events", records.HealthEvent),
            allocations=_many(document, "allocations", records.JobAllocation),
            drains=_many(document, "drains", records.Drain),
            heartbeats=_many(document, "heartbeats", records.AgentHeartbeat),
        )
    except (OSError, ValueError, KeyError, TypeError) as exc:
        raise errors.MalformedInput(f"{path} is no recording: {exc}") from exc


def put(recording: Recording, database: store.Store) -> None:
    """Stores a recording as agents and service would have; twice changes nothing."""
    by_node: dict[str, list[records.HealthEvent]] = defaultdict(list)
    for event in recording.events:
        by_node[event.node].append(event)
    beats = {beat.node: beat for beat in recording.heartbeats}
    for node in sorted(by_node.keys() | beats.keys() | {a.node for a in recording.allocations}):
        door = delivery.Delivery(database.url, recording.cluster, node)
        allocations = [a for a in recording.allocations if a.node == node]
        door.deliver(events=by_node[node], allocations=allocations, heartbeat=beats.get(node))
    known = {drain.drain_id for drain in database.drains()}
    for drain in recording.drains:
        if drain.drain_id not in known:
            database.save_drain(drain)
    database.upsert_attempts(recording.attempts)


def _with_tuples(attempt: records.JobAttempt) -> records.JobAttempt:
    """JSON has lists only; a record's GPUs are tuples."""
    if attempt.gpus is None:
        return attempt
    return dataclasses.replace(attempt, gpus={node: tuple(uuids) for node, uuids in attempt.gpus.items()})


def _many(document: Mapping[str, Any], name: str, cls: type[Any]) -> tuple[Any, ...]:
    listed: Iterable[Mapping[str, Any]] = document.get(name, ())
    return tuple(rows.record_from_json(cls, row) for row in listed)
