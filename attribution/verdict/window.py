"""The window: the time in which an event can be evidence."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from probing_cluster.attribution.verdict import case as cases
from probing_cluster.core import records

GIVEN_UP = frozenset({"NODE_FAIL", "BOOT_FAIL"})
"""States of attempts that Slurm ended because it declared a node down."""
SLURMD_TIMEOUT = timedelta(seconds=300)
"""Time that slurmctld waits by default for a node that does not answer."""
BOOT = "node_boot"
BOOTS_WITHIN = timedelta(minutes=60)
"""Longest time from the end (NODE_FAIL) to the node's reboot: firmware tests take a quarter of an hour,
and somebody may have to restore a rack's power first."""


@dataclass(frozen=True, kw_only=True)
class Window:
    """A window; both bounds belong to it."""

    start_at: datetime
    end_at: datetime

    def instant(self, event: records.HealthEvent) -> datetime | None:
        """The time inside the window that counts for the event; None if it lies outside.

        A coalesced event covers `at` to `last_at`. If it began before the window, its last sighting counts.
        """
        if self.start_at <= event.at <= self.end_at:
            return event.at
        if event.last_at is not None and event.at < self.start_at <= event.last_at:
            return min(event.last_at, self.end_at)
        return None


def window(
    attempt: records.JobAttempt, onset_at: datetime, policy: cases.WindowPolicy, unanswered_s: float = 0.0
) -> Window:
    """[onset − before, end + after]; with `policy.paper`, [end − before, end + after].

    The window begins earlier if a peer may not have answered for the last `unanswered_s` seconds, and for an
    attempt with a lost node, whose end is the time at which Slurm gave the node up.
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
    """True if Slurm ended the attempt because it gave up a node."""
    return attempt.state in GIVEN_UP


def reboot_window(attempt: records.JobAttempt, base: Window) -> Window:
    """The time after `base` within which a node that Slurm gave up must have rebooted."""
    assert attempt.end_at is not None
    return Window(start_at=base.end_at + timedelta(microseconds=1), end_at=attempt.end_at + BOOTS_WITHIN)
