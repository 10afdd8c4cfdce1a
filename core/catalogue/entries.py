"""One line of a catalogue, and how a packaged table becomes a dictionary of them."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path

from probing_cluster.core.records import Domain, Severity, doc, record


@record
class CatalogueEntry:
    """What one vendor code means, what it speaks for and what to do."""

    code: int = doc("the vendor's number")
    name: str = doc("the vendor's mnemonic; empty for an unknown code")
    meaning: str = doc("one sentence in our words; 'unknown' for a code no table lists")
    domains: tuple[str, ...] = doc("failure domains it can speak for, likeliest first")
    severity: Severity = doc("severity when the line itself does not say more")
    next_step: str = doc("what to do, one sentence")
    source: str = doc("the document the entry was made from")
    date: str = doc("month of that document, YYYY-MM")


def rows(name: str) -> Iterator[dict[str, str]]:
    """The rows of packaged table `name`."""
    with (Path(__file__).with_name(name)).open(encoding="utf-8", newline="") as stream:
        next(stream)
        yield from csv.DictReader(stream, delimiter="\t", quoting=csv.QUOTE_NONE)


def load(name: str) -> dict[int, CatalogueEntry]:
    """Code to entry for packaged table `name`."""
    entries = (
        CatalogueEntry(
            code=int(row["code"]),
            name=row["name"],
            meaning=row["meaning"],
            domains=tuple(row["domains"].split("|")),
            severity=Severity(row["severity"]),
            next_step=row["next_step"],
            source=row["source"],
            date=row["date"],
        )
        for row in rows(name)
    )
    return {entry.code: entry for entry in entries}


def unknown(code: int) -> CatalogueEntry:
    """The entry of a code no table lists: kept, shown as unknown, never critical by default."""
    return CatalogueEntry(
        code=code,
        name="",
        meaning="unknown",
        domains=(Domain.UNKNOWN.value,),
        severity=Severity.INFO,
        next_step="No table we know lists this code; look at the events around it and at the driver's release notes.",
        source="",
        date="",
    )
