"""Spans and instants as people type them: `7d`, `90m`, `yesterday`, `2026-01-31`, `2026-01-31T14:02Z`."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

from probing_cluster.core import errors

YEARS = (1970, 2199)
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
_SPAN = re.compile(r"(\d+(?:\.\d+)?)([smhdw])")
_AGO = re.compile(r"(\d+(?:\.\d+)?) ?([smhdw]|seconds?|minutes?|hours?|days?|weeks?)(?: ago)?")
_DAYS_AGO = {"today": 0, "yesterday": 1}
"""Words for the beginning of a day, UTC."""
_FORMS = "today, yesterday (from 00:00 UTC), 7d or `7 days ago`, 2026-01-31 or 2026-01-31T14:02Z"


def span(text: str) -> timedelta:
    """`7d` as a timedelta; raises UsageError."""
    match = _SPAN.fullmatch(text.strip())
    if match is None:
        raise errors.UsageError(f"{text!r} is no span; write a number and s, m, h, d or w, such as 7d")
    try:
        return timedelta(**{_UNITS[match[2]]: float(match[1])})
    except OverflowError as exc:
        raise errors.UsageError(f"{text[:40]!r} is longer than time itself is counted") from exc


def instant(text: str, now: datetime) -> datetime:
    """`7d` (ago), `yesterday`, or an ISO date or time (UTC where it names no zone) as an instant; raises UsageError."""
    word = text.strip().lower()
    if (days := _DAYS_AGO.get(word)) is not None:
        return now.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0) - timedelta(days=days)
    if found := _AGO.fullmatch(word):
        try:
            return possible(now - span(f"{found[1]}{found[2][0]}"), text)
        except OverflowError as exc:
            raise errors.UsageError(f"{text[:40]!r} ago is before the year 1") from exc
    try:
        at = datetime.fromisoformat(text.strip())
    except ValueError as exc:
        msg = f"{text!r} is no time; write {_FORMS}"
        raise errors.UsageError(msg) from exc
    return possible(at if at.tzinfo else at.replace(tzinfo=UTC), text)


def possible(at: datetime, text: str) -> datetime:
    """`at`, with room for a window around it; raises UsageError outside of the years that anything here can be of."""
    if not YEARS[0] <= at.year <= YEARS[1]:
        raise errors.UsageError(f"{text[:40]!r} lies outside of the years {YEARS[0]} to {YEARS[1]}")
    return at
