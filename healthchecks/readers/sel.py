"""The BMC's system event log as ipmitool lists it; read by the check of it and by the agent, and never cleared."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime

TOOL = "ipmitool"
_NUMBER = re.compile(r"[0-9a-fA-F]+", re.ASCII)
_FORMS = ("%m/%d/%Y %H:%M:%S", "%m/%d/%y %H:%M:%S", "%Y-%m-%d %H:%M:%S")


@dataclass(frozen=True, kw_only=True)
class SelEntry:
    """One record of the log."""

    number: str
    """As written, hexadecimal; used again once the log was emptied."""
    date: str
    time: str
    sensor: str
    event: str
    text: str
    """Sensor, event and whatever else the line has."""
    asserted: bool

    @property
    def written_at(self) -> str:
        """Date and time by the BMC's own clock, which is often wrong, as written."""
        return f"{self.date} {self.time}"

    @property
    def at(self) -> datetime | None:
        """That time read as UTC; None for entries from before the BMC knew the time."""
        for form in _FORMS:
            try:
                return datetime.strptime(f"{self.date} {self.time.split(' ')[0]}", form).replace(tzinfo=UTC)
            except ValueError:
                continue
        return None

    @property
    def identity(self) -> str:
        """What keeps this entry apart from every other, also after the log was emptied. Event ids are made of it."""
        return f"{self.number}:{self.written_at}:{self.sensor}"


def parse(text: str) -> list[SelEntry]:
    """Entries in the log's order, of `sel elist` (`1a | date | time | sensor | event | Asserted`) or its CSV form (`-c`).

    Lines that are none are left out.
    """
    found: list[SelEntry] = []
    for line in text.splitlines():
        # The CSV form has bars inside an event, never before its number has ended.
        comma, bar = line.find(","), line.find("|")
        fields = [f.strip() for f in line.split("|" if comma < 0 or 0 <= bar < comma else ",")]
        if len(fields) < 5 or not _NUMBER.fullmatch(fields[0]):
            continue
        number, date, time, *words = fields
        found.append(
            SelEntry(
                number=number,
                date=date,
                time=time,
                sensor=words[0],
                event=words[1],
                text=" ".join(words),
                asserted="deasserted" not in (w.lower() for w in words[1:]),
            )
        )
    return found
