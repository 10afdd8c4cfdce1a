"""The stretch of time in which an event can be evidence."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from probing_cluster.attribution.verdict import case as cases
from probing_cluster.core import records

GIVEN_UP = frozenset({"NODE_FAIL", "BOOT_FAIL"})
"""States of attempts that end when Slurm declares a node down, some time after it stopped answering."""
SLURMD_TIMEOUT = timedelta(seconds=300)
"""How long slurmctld waits by default for a node that does not answer."""
BOOT = "node_boot"
BOOTS_WITHIN = timedelta(minutes=60)
"""What a node needs at most, from when Slurm gave it up, until it has booted: a GPU server's firmware tests for a quarter of an hour,
and somebody has to come and turn a rack's power on again."""


@dataclass(frozen=True, kw_only=True)
class Window:
    """Both ends belong to it."""

    start_at: datetime
    end_at: datetime

    def instant(self, event: records.HealthEvent) -> datetime | None:
        """When, inside the window, the event was first seen; None when it was not.

        A coalesced event stands for sightings from `at` to `last_at`: one that began before the window
        counts by its last sighting.
        """
        if self.start_at <= event.at <= self.end_at:
            return event.at
        if event.last_at is not None and event.at < self.start_at <= event.last_at:
            return min(event.last_at, self.end_at)
        return None


def window(
    attempt: records.JobAttempt, onset_at: datetime, policy: cases.WindowPolicy, unanswered_s: float = 0.0
) -> Window:
    """[onset − before, end + after]; with `policy.paper` the onset is the end.

    A peer that did not answer for `unanswered_s` may have gone away so long before the end.

    The end of an attempt whose node was lost is when Slurm gave the node up, not when it went away.
    """
    assert attempt.end_at is not None
    start = attempt.end_at if policy.paper else onset_at
    if unanswered_s and not policy.paper:
        start = min(start, attempt.end_at - timedelta(seconds=unanswered_s))
    if given_up(attempt) and not policy.paper:
        start -= SLURMD_TIMEOUT
    return Window(
        start_at=start - timedelta(seconds=policy.before_s),
        end_at=attempt.end_at + timedelta(seconds=policy.after_s),
    )


def given_up(attempt: records.JobAttempt) -> bool:
    """Whether Slurm lost a node of it."""
    return attempt.state in GIVEN_UP


def reboot_window(attempt: records.JobAttempt, base: Window) -> Window:
    """What follows `base` of an attempt whose node was given up, until that must have booted anew."""
    assert attempt.end_at is not None
    return Window(start_at=base.end_at + timedelta(microseconds=1), end_at=attempt.end_at + BOOTS_WITHIN)
