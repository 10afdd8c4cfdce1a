"""How many steps a job has made: each question outside a console is one, and beyond MaxStepCount the job's own srun fails."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable
from pathlib import Path

from probing_cluster.core import digits, errors

SHARE = 0.25
"""Of MaxStepCount: a job that has made more is not asked by steps of their own any more."""


def state_directory() -> Path:
    """The directory of this user's own state (history of the console, counts of steps)."""
    base = os.environ.get("XDG_STATE_HOME")
    home = (
        Path(base)
        if base and base.startswith("/")
        else Path(os.environ.get("HOME") or "/nonexistent") / ".local/state"
    )
    return home / "probing-cluster"


class StepCount:
    """The last number of a step of one job that this user's questions have met."""

    def __init__(self, cluster: str, job_id: int) -> None:
        self._path = state_directory() / "steps" / f"{cluster}-{job_id}"
        self._job_id = job_id

    def last(self) -> int:
        """The highest number so far; -1 for none."""
        try:
            return int(self._path.read_text("ascii"))
        except (OSError, ValueError):
            return -1

    def note(self, steps: Iterable[str]) -> None:
        """Remembers the numbers that the collectors named."""
        numbers = [int(s) for s in steps if digits.is_number(s)]
        if numbers and max(numbers) > self.last():
            # A home that cannot be written costs the count, not the answer.
            with contextlib.suppress(OSError):
                self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                self._path.write_text(str(max(numbers)), "ascii")

    def allows(self, steps: Iterable[str], more: int, max_steps: int) -> bool:
        """Whether so many more steps than these stay within the share of Slurm's MaxStepCount."""
        known = max([int(s) for s in steps if digits.is_number(s)], default=-1)
        return max(known, self.last()) + more <= int(max_steps * SHARE)

    def require(self, max_steps: int) -> None:
        """Raises NotPermitted where one more question could cost the job its own steps."""
        most = int(max_steps * SHARE)
        if self.last() >= most:
            raise errors.NotPermitted(
                f"job {self._job_id} has made {self.last() + 1} steps and Slurm allows it {max_steps}: beyond a quarter, questions "
                "are not asked by steps of their own, since the job's own srun would fail at the end; log in to one of its "
                "nodes and ask there with --via local"
            )
