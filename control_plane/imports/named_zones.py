"""Time zones by the abbreviations logs write (CET, EDT), where these mean one thing only."""

from __future__ import annotations

import functools
import re
import zoneinfo
from datetime import UTC, datetime, timedelta, tzinfo

_HEADER = re.compile(
    r"\s*-- (?:Logs begin|Journal begins) at \w{3} (\d{4}-\d\d-\d\d \d\d:\d\d:\d\d) ([A-Z]{3,5}), "
    r"ends? at \w{3} (\d{4}-\d\d-\d\d \d\d:\d\d:\d\d) ([A-Z]{3,5})\. --\s*",
    re.ASCII,
)
_BETWEEN = timedelta(days=20)
"""How far apart two zones are compared; no two changes of the clocks lie nearer together."""


@functools.cache
def _zones() -> tuple[zoneinfo.ZoneInfo, ...]:
    return tuple(zoneinfo.ZoneInfo(name) for name in sorted(zoneinfo.available_timezones()))


@functools.lru_cache(maxsize=1024)
def _on(abbreviation: str, day: datetime) -> tuple[zoneinfo.ZoneInfo, ...]:
    """The zones whose clocks show `abbreviation` at the local time `day`."""
    return tuple(
        z
        for z in _zones()
        if any(abbreviation == day.replace(tzinfo=z, fold=fold).tzname() for fold in (0, 1))
    )


def offset(abbreviation: str, written: datetime) -> timedelta | None:
    """What `abbreviation` is ahead of UTC at the local time `written`, whose own zone does not count; None where zones differ, or none is called so."""
    if abbreviation in {"UTC", "GMT"}:
        return timedelta()
    hour = written.replace(minute=0, second=0, microsecond=0, tzinfo=None)
    found = {
        hour.replace(tzinfo=z, fold=fold).utcoffset()
        for z in _on(abbreviation, hour)
        for fold in (0, 1)
        if hour.replace(tzinfo=z, fold=fold).tzname() == abbreviation
    }
    return found.pop() if len(found) == 1 else None


def of_header(text: str) -> tuple[str, tzinfo] | None:
    """The zone that journalctl's first line names, and its name; None where several zones it may be differ inside the journal's time."""
    if not (found := _HEADER.fullmatch(text)):
        return None
    try:
        since, until = (datetime.fromisoformat(found[n]) for n in (1, 3))
    except ValueError:
        return None
    name = found[2] if found[2] == found[4] else f"{found[2]}/{found[4]}"
    if {found[2], found[4]} <= {"UTC", "GMT"}:
        return name, UTC
    last = set(_on(found[4], until))
    zones = [z for z in _on(found[2], since) if z in last]
    at = since
    while zones and at <= max(since, until):
        if len({at.replace(tzinfo=z).utcoffset() for z in zones}) > 1:
            return None
        at += _BETWEEN
    return (name, zones[0]) if zones else None
