"""What became of one act."""

from __future__ import annotations

from probing_cluster.core import records


@records.record
class Outcome:
    """What became of one act."""

    state: str = records.doc("done, skipped or failed")
    why: str = records.doc("why it was skipped or failed; empty when done", default="")
    alarm: bool = records.doc("true when a person should look: somebody's note was in the way", default=False)


def skipped(why: str) -> Outcome:
    """Nothing was done, and nothing had to be."""
    return Outcome(state="skipped", why=why)


def failed(why: str, *, alarm: bool = False) -> Outcome:
    """It was tried, or could not be."""
    return Outcome(state="failed", why=why, alarm=alarm)
