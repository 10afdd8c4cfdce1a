"""sacct's times and spans: epoch seconds, local wall-clock text in a named zone, `1-02:03:04`."""

from __future__ import annotations

import itertools
import re
import zoneinfo
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta, tzinfo

from probing_cluster.core import clock, digits, errors, sanitize

NOT_YET = frozenset({"", "Unknown", "None", "N/A", "NONE", "0"})
ORDER = ("submit", "eligible", "start", "end")
_NO_LIMIT_S = 365 * 86400.0
_SPAN = re.compile(r"(?:(\d+)-)?(?:(\d+):)?(\d+):(\d\d)(?:\.\d+)?", re.ASCII)
_UTC_OFFSET = re.compile(r"([+-]\d\d):?(\d\d)$")
_NAIVE = re.compile(r"\d{4}-\d\d-\d\d[T ][\d:.]+", re.ASCII)


def zone(name: str | None) -> tzinfo:
    """The zone called `name`, UTC for None; raises MalformedInput."""
    if name is None:
        return UTC
    try:
        return zoneinfo.ZoneInfo(name)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError) as exc:
        raise errors.MalformedInput(f"{name!r} is not a time zone of this machine's database") from exc


def is_naive(text: str) -> bool:
    """Whether `text` is a wall-clock time that does not say its zone."""
    return _NAIVE.fullmatch(text.strip()) is not None


def instants(text: str, where: tzinfo) -> tuple[datetime, ...]:
    """Every UTC instant `text` can mean: none for not yet, two in the hour a clock change repeats.

    Raises MalformedInput for text that is no time, or names one the zone's clocks skipped.
    """
    text = text.strip()
    if text in NOT_YET:
        return ()
    try:
        if digits.is_number(text):
            return (clock.from_epoch_s(int(text)),)
        local = datetime.fromisoformat(_UTC_OFFSET.sub(r"\1:\2", text))
    except (ValueError, OverflowError, OSError) as exc:
        raise errors.MalformedInput(f"{sanitize.clean(text, 60)!r} is not a time") from exc
    if local.tzinfo is not None:
        return (local.astimezone(UTC),)
    return _local_instants(local, where)


def _local_instants(local: datetime, where: tzinfo) -> tuple[datetime, ...]:
    both = [local.replace(tzinfo=where, fold=fold).astimezone(UTC) for fold in (0, 1)]
    real = [at for at in both if at.astimezone(where).replace(tzinfo=None) == local]
    if not real:
        msg = (
            f"{local.isoformat()} never was in {where}: its clocks skipped that hour; is the time zone right?"
        )
        raise errors.MalformedInput(msg)
    return tuple(dict.fromkeys(real))


def choose(
    possible: Mapping[str, tuple[datetime, ...]], elapsed_s: float | None
) -> tuple[dict[str, datetime | None], bool]:
    """One instant per name of ORDER, and whether another reading of the clock was as good.

    Where the hour was repeated, the order submit, start, end and the elapsed seconds (suspension included)
    decide; where they cannot, the earlier reading is taken and the caller learns of it.
    """
    if all(len(possible.get(name, ())) < 2 for name in ORDER):
        return {name: next(iter(possible.get(name, ())), None) for name in ORDER}, False
    names = [name for name in ORDER if possible.get(name)]
    readings = [
        dict(zip(names, times, strict=True)) for times in itertools.product(*(possible[n] for n in names))
    ]
    fitting = [r for r in readings if _in_order(r)] or readings
    if elapsed_s is not None:
        exact = [r for r in fitting if _spans(r, elapsed_s)]
        fitting = exact or fitting
    chosen = fitting[0]
    return {name: chosen.get(name) for name in ORDER}, len(fitting) > 1


def _in_order(reading: Mapping[str, datetime]) -> bool:
    times = [reading[name] for name in ("submit", "start", "end") if name in reading]
    return all(a <= b for a, b in itertools.pairwise(times))


def _spans(reading: Mapping[str, datetime], elapsed_s: float) -> bool:
    if "start" not in reading or "end" not in reading:
        return True
    return abs(reading["end"] - reading["start"] - timedelta(seconds=elapsed_s)) <= timedelta(seconds=1)


def limit_s(limit_s: float | None) -> float | None:
    """A job's time limit; None for the year that Slurm writes for a job without one in a partition without one."""
    return None if limit_s == _NO_LIMIT_S else limit_s


def span_s(text: str) -> float | None:
    """Seconds in `1-02:03:04`, `02:03:04` or `03:04.567`; None for UNLIMITED, INVALID and nothing."""
    match = _SPAN.fullmatch(text.strip())
    if match is None:
        return None
    days, hours, minutes, seconds = (int(part or 0) for part in match.groups())
    return float(((days * 24 + hours) * 60 + minutes) * 60 + seconds)
