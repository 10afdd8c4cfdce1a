"""The instant of a log line: what its prefix says, in the zone the person named where it names none."""

from __future__ import annotations

import re
from datetime import datetime, tzinfo

from probing_cluster.evidence import prefixes

_ZONED = re.compile(r"\d\d:\d\d:\d\d(?:[.,]\d+)?\s?(?:Z|UTC|GMT|[+-]\d\d:?\d\d)\b")
_HEAD = 160


def instant(line: prefixes.Line, raw: str, zone: tzinfo | None, boot_at: datetime | None) -> datetime | None:
    """UTC; None when the prefix gives no date and no boot instant is known."""
    if line.at is None:
        return prefixes.boot_time(line, boot_at) if boot_at else None
    if zone is None or raw.lstrip().startswith("{") or _ZONED.search(raw[:_HEAD]):
        return line.at
    return line.at.replace(tzinfo=zone)
