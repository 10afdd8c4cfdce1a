"""What became of one act."""

from __future__ import annotations

from probing_cluster.core import records


@records.record
class ActOutcome:
    """What became of one act."""

    state: str = records.doc("done, skipped or failed")
    why: str = records.doc("why it was skipped or failed; empty when done", default="")
    alarm: bool = records.doc("true when a person should look: somebody's note was in the way", default=False)


def skipped(why: str) -> ActOutcome:
    """Whether nothing was done because nothing had to be."""
    return ActOutcome(state="skipped", why=why)


def failed(why: str, *, alarm: bool = False) -> ActOutcome:
    """It was tried, or could not be."""
    return ActOutcome(state="failed", why=why, alarm=alarm)
