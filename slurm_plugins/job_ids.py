"""Slurm's ways to write a job's identity: 123, 123_4, 123+1, 123_[5-9%2], 123.batch."""

from __future__ import annotations

import re
from dataclasses import dataclass

from probing_cluster.core import errors, sanitize, vocabulary

PATTERN = re.compile(
    r"(?P<job>\d{1,10})(?:_(?:(?P<task>\d{1,10})|\[(?P<tasks>[^\]]*)\]))?(?:\+(?P<offset>\d{1,9}))?(?P<step>\.[\w+]+)?",
    re.ASCII,
)


@dataclass(frozen=True, kw_only=True)
class SlurmJobId:
    """One written identity, taken apart."""

    job: int
    """The number before any suffix: the job, the array's master or the het job's leader."""
    task: int | None = None
    """Array task index."""
    pending_tasks: str | None = None
    """The unsplit remainder of a pending array, as written between the brackets."""
    offset: int | None = None
    """Component index of a heterogeneous job."""
    step: str | None = None
    """Step name when this is a step, not a job."""

    @property
    def stand_in_id(self) -> int:
        """A job id for this identity when the raw one is not known; equal for equal identities.

        A het component's raw id is its leader's plus its offset, since Slurm numbers them in one go.
        """
        if self.task is None:
            return self.job + (self.offset or 0)
        return vocabulary.STAND_IN_BASE + (self.job << 22) + self.task


def parse(text: str) -> SlurmJobId:
    """The identity written in `text`; raises MalformedInput."""
    match = PATTERN.fullmatch(text.strip())
    if match is None:
        raise errors.MalformedInput(f"{sanitize.clean(text, 60)!r} is not a job id")
    return SlurmJobId(
        job=int(match["job"]),
        task=None if match["task"] is None else int(match["task"]),
        pending_tasks=match["tasks"],
        offset=None if match["offset"] is None else int(match["offset"]),
        step=match["step"][1:] if match["step"] else None,
    )


def default_run_key(job_id: int, array_job_id: int | None, task: int | None, leader: int | None) -> str:
    """The run a job belongs to when nobody named one: its own id, array task or het leader."""
    if array_job_id is not None and task is not None:
        return f"{array_job_id}_{task}"
    return str(leader if leader is not None else job_id)
