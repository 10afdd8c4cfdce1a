"""The service itself cannot see or act: a task has failed, or found the database or Slurm away, for too long.

Remembered on the service's own disk: the database may be what is away.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from datetime import datetime
from pathlib import Path

from probing_cluster.control_plane import journal
from probing_cluster.control_plane.notices import fact, ledger
from probing_cluster.control_plane.outbox import queue
from probing_cluster.core import records, settings

_FILE = "blind.json"
_DATABASE = "database"
"""In place of a task: since when several have been without it."""
_AWAY = {"unavailable": "cannot work", "failed": "fails"}


def facts(
    tasks: journal.Journal, since: dict[str, datetime], blind_s: float, now: datetime
) -> Iterator[fact.Fact]:
    """A fact that Slurm does not answer, one that the database is away, and one per task that does not work for another reason, each after `blind_s`.

    `since` keeps when each task began to fail. A task whose failing began within an outage of Slurm has none of its own: some come
    once a day, and do not say how long Slurm has been away. One that fails through several outages has: what it asks is
    never answered, though other questions are.
    """
    outage, by_outage = tasks.slurm_outage(), tasks.stopped_by_outage()
    lasts = outage is not None and outage.until is None and (now - outage.since).total_seconds() >= blind_s
    if outage is not None and lasts:
        yield _slurm_away(outage)
    without = _without_database(tasks, since, blind_s, now)
    if without and (now - since[_DATABASE]).total_seconds() >= blind_s:
        yield _database_away(since[_DATABASE], without)
    for task, done in sorted(tasks.passes().items()):
        if done.outcome == "ok":
            since.pop(task, None)
            continue
        began = since.setdefault(task, done.at)
        if done in without:
            continue
        if task in by_outage and outage is not None and (lasts or outage.since <= began):
            continue
        until = done.at if task in by_outage or task in tasks.without_database() else now
        if (until - began).total_seconds() >= blind_s:
            yield of(task, began, f"{_AWAY[done.outcome]}: {done.message}")


def _without_database(
    tasks: journal.Journal, since: dict[str, datetime], blind_s: float, now: datetime
) -> list[journal.JournalPass]:
    """The latest passes of the tasks that are without the database, the longest first, if they are several, until the last is back.

    A task that comes seldom and failed a while ago does not say that the database is away still.
    """
    passes, names = tasks.passes(), tasks.without_database()
    away = [passes[t] for t in names if (now - passes[t].at).total_seconds() < blind_s]
    if not away or (len(away) == 1 and _DATABASE not in since):
        since.pop(_DATABASE, None)
        return []
    away.sort(key=lambda done: (since.setdefault(done.task, done.at), done.task))
    since.setdefault(_DATABASE, since[away[0].task])
    return away


def _database_away(since: datetime, without: list[journal.JournalPass]) -> fact.Fact:
    return fact.Fact(
        fact_id=f"{_DATABASE} {since.isoformat()}",
        cause=_DATABASE,
        at=since,
        severity=records.Severity.HIGH,
        line=f"nothing is judged, drained or requeued: {without[0].message}",
        stands=True,
    )


def _slurm_away(outage: journal.ControllerOutage) -> fact.Fact:
    return fact.Fact(
        fact_id=f"slurm {outage.since.isoformat()}",
        cause="slurm",
        at=outage.since,
        severity=records.Severity.HIGH,
        line=f"no node is drained or resumed and no job requeued: {outage.why}",
        stands=True,
    )


def of(task: str, began: datetime, words: str) -> fact.Fact:
    """The fact about one task."""
    return fact.Fact(
        fact_id=f"{task} {began.isoformat()}",
        cause="",
        at=began,
        severity=records.Severity.HIGH,
        line=f"the service's task {task} {words}",
        stands=True,
    )


KIND = fact.Kind(
    name="blind",
    meaning="the service cannot see or act: a task failed, or found the database or Slurm away, for `notices.blind_s`",
    title="Service blind",
    find=lambda _: None,
    command="probing-ctl doctor",
)


def book(config: settings.Settings) -> ledger.NoticeLedger:
    """What this service has told of itself."""
    path = Path(config.mail.spool_directory) / _FILE
    return ledger.NoticeLedger(
        load=lambda: _load(path),
        save=lambda document: _save(path, document),
        outbox=queue.of(config),
        config=config,
        kinds=(KIND,),
    )


def notify(config: settings.Settings, found: Iterable[fact.Fact], now: datetime) -> list[queue.QueuedMessage]:
    """Put what is due about the service itself into the outbox; the new messages. Nothing is written while all is well."""
    found = list(found)
    if not found and not (Path(config.mail.spool_directory) / _FILE).exists():
        return []
    return book(config).notify({KIND.name: found}, now)


def _load(path: Path) -> ledger.Document | None:
    try:
        document: ledger.Document = json.loads(path.read_text("utf-8"))
    except (FileNotFoundError, ValueError):
        return None
    return document


def _save(path: Path, document: ledger.Document) -> None:
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    fresh = path.with_suffix(f".{os.getpid()}.new")
    fresh.write_text(json.dumps(document), "utf-8")
    fresh.replace(path)
