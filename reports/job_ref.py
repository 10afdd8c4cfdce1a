"""How people name a job: `123`, `123_4` (array task), `123+1` (component of a heterogeneous job).

Slurm uses ids again: `123@2026-11-12` is the last job of that id that was submitted by the end of that day (UTC).
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, time, timedelta

from probing_cluster.core import clock, errors, records

_FORM = re.compile(
    r"(?P<base>[0-9]{1,10})(?:_(?P<task>[0-9]{1,10})|\+(?P<offset>[0-9]{1,6}))?(?P<step>\.\w+)?"
    r"(?:@(?P<day>\d{4}-\d\d-\d\d)(?P<time>T\d\d:\d\d:\d\d(?:\.\d{1,6})?Z)?)?",
    re.ASCII,
)


@records.record
class JobRef:
    """A job as its owner writes it; at most one of task and offset is set."""

    base: int = records.doc("the number before _ or +")
    task: int | None = records.doc("array task index", default=None)
    offset: int | None = records.doc("heterogeneous component index", default=None)

    until: datetime | None = records.doc(
        "submitted no later than this; the last so; None: at any time", default=None
    )

    def __str__(self) -> str:
        if self.until is None:
            return self.name
        whole_day = self.until.timetz() == time.max.replace(tzinfo=UTC)
        return f"{self.name}@{f'{self.until:%Y-%m-%d}' if whole_day else clock.iso_z(self.until)}"

    @property
    def name(self) -> str:
        """The job without its time."""
        if self.task is not None:
            return f"{self.base}_{self.task}"
        return f"{self.base}+{self.offset}" if self.offset is not None else str(self.base)

    @property
    def plain(self) -> bool:
        """True for a bare number, which may also name a whole array or heterogeneous job."""
        return self.task is None and self.offset is None


def parse(text: str) -> JobRef:
    """The job that `text` names; a step suffix (`123.batch`) is ignored; raises UsageError."""
    match = _FORM.fullmatch(text.strip())
    if match is None:
        msg = f"{text!r} is not a job id; write 123, 123_4 (array task) or 123+1 (het component), and @2026-11-12 behind it for an earlier job of that id"
        raise errors.UsageError(msg)
    task, offset = match["task"], match["offset"]
    until = None
    if match["day"]:
        try:
            until = datetime.fromisoformat(f"{match['day']}{match['time'] or ''}".removesuffix("Z")).replace(
                tzinfo=UTC
            )
        except ValueError as exc:
            raise errors.UsageError(f"{text!r} names no day; write {match['base']}@2026-11-12") from exc
        until = until if match["time"] else until + timedelta(days=1, microseconds=-1)
    return JobRef(
        until=until,
        base=int(match["base"]),
        task=None if task is None else int(task),
        offset=None if offset is None else int(offset),
    )
