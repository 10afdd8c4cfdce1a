"""Which nodes Slurm holds DOWN for nothing but a boot that nobody asked for."""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from datetime import datetime

from probing_cluster.core import vocabulary

AWAY = frozenset(
    {
        "DOWN",
        "NOT_RESPONDING",
        "UNKNOWN",
        "REBOOT",
        "REBOOT_REQUESTED",
        "REBOOT_ISSUED",
        "POWERING_UP",
        "POWER_DOWN",
        "POWERED_DOWN",
        "POWERING_DOWN",
    }
)
"""States of a node that is not there, or is about to go."""
REASON = "Node unexpectedly rebooted"
"""The reason that Slurm gives a node which booted unasked, unless it has a reason already."""


def way_out(node: str) -> str:
    """What a person does about a node that Slurm holds DOWN for such a boot; the repair of one that we drained does it itself."""
    return (
        f"see why it booted; scontrol update NodeName={node} State=RESUME returns it untested"
        " (with ReturnToService=2 in slurm.conf such a node returns by itself)"
    )


def holds_down(
    states: AbstractSet[str], reason: str, reason_at: datetime | None, boot_at: datetime | None
) -> bool:
    """Whether a node answers again after a boot, and Slurm holds it DOWN for that alone.

    Slurm sets a node down that booted unasked, as after a power cycle. A node that is drained already keeps the reason
    of its drain. Whoever else sets a node down writes a reason of their own.
    """
    if states & AWAY != {"DOWN"}:
        return False
    if not states & vocabulary.DRAINED_STATES:
        return reason == REASON
    booted = boot_at is not None and reason_at is not None and boot_at > reason_at
    return booted and reason.startswith(vocabulary.OWN_PREFIX)
