"""How people name a job: `123`, `123_4` (array task), `123+1` (component of a heterogeneous job)."""

from __future__ import annotations

import re

from probing_cluster.core import errors, records

_FORM = re.compile(
    r"(?P<base>[0-9]{1,10})(?:_(?P<task>[0-9]{1,10})|\+(?P<offset>[0-9]{1,6}))?(?P<step>\.\w+)?"
)


@records.record
class JobRef:
    """A job as its owner writes it; exactly one of task and offset may be set."""

    base: int = records.doc("the number before _ or +")
    task: int | None = records.doc("array task index", default=None)
    offset: int | None = records.doc("heterogeneous component index", default=None)

    def __str__(self) -> str:
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
        msg = f"{text!r} is not a job id; write 123, 123_4 (array task) or 123+1 (het component)"
        raise errors.UsageError(msg)
    task, offset = match["task"], match["offset"]
    return JobRef(
        base=int(match["base"]),
        task=None if task is None else int(task),
        offset=None if offset is None else int(offset),
    )
