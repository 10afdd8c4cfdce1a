"""Repair tickets from another system's CSV, as notes about nodes."""

from __future__ import annotations

import csv
import dataclasses
import uuid
from datetime import UTC, datetime
from pathlib import Path

from probing_cluster.core import errors, hostlist, records, sanitize

NEEDED = ("node", "ticket", "opened")
_SPACE = uuid.UUID("6ad1f6ce-8a1c-5c0e-9d43-7c1d0b8f5a10")
"""Identity of tickets: the same ticket about the same node has the same note, however often it is read."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Tickets:
    """What a file held."""

    notes: tuple[records.OperatorNote, ...]
    rejected: tuple[str, ...]
    """Rows that could not be read, with line number and reason."""


def read(path: Path, cluster: str, author: str) -> Tickets:
    """The tickets of a CSV file; raises MalformedInput for a file that is none or cannot be read."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as stream:
            rows = csv.DictReader(stream)
            missing = [name for name in NEEDED if name not in (rows.fieldnames or ())]
            if missing:
                raise errors.MalformedInput(
                    f"{path} has no column {', '.join(missing)}; needed: {', '.join(NEEDED)}"
                )
            return _notes(rows, cluster, author)
    except OSError as exc:
        raise errors.MalformedInput(f"{path} cannot be read: {exc.strerror}") from exc
    except (csv.Error, UnicodeDecodeError) as exc:
        raise errors.MalformedInput(f"{path}: {exc}") from exc


def _notes(rows: csv.DictReader[str], cluster: str, author: str) -> Tickets:
    notes: dict[uuid.UUID, records.OperatorNote] = {}
    rejected = []
    for row in rows:
        try:
            for note in _of_row(row, cluster, author):
                notes[note.note_id] = note
        except (ValueError, errors.ProbingError) as exc:
            rejected.append(sanitize.clean(f"line {rows.line_num}: {exc}", 200))
    return Tickets(notes=tuple(notes.values()), rejected=tuple(rejected))


def _of_row(row: dict[str, str], cluster: str, author: str) -> list[records.OperatorNote]:
    """One note per node of the row's hostlist."""
    ticket, nodes = (row["ticket"] or "").strip(), hostlist.expand((row["node"] or "").strip())
    if not ticket or not nodes:
        raise ValueError("no ticket or no node")
    opened = datetime.fromisoformat((row["opened"] or "").strip())
    opened = opened if opened.tzinfo else opened.replace(tzinfo=UTC)
    words = sanitize.clean(f"{ticket} {row.get('note') or ''}".strip())
    return [
        records.OperatorNote(
            note_id=uuid.uuid5(_SPACE, f"{cluster}\0{node}\0{ticket}"),
            cluster=cluster,
            at=opened,
            author=author,
            subject=f"node:{node}",
            action="ticket",
            note=words,
            detail={"ticket": sanitize.clean(ticket, 200)},
        )
        for node in nodes
    ]
