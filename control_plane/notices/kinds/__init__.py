"""The sorts of notices: one file and one line here per kind."""

from __future__ import annotations

from probing_cluster.control_plane.notices import fact
from probing_cluster.control_plane.notices.kinds import (
    alarm,
    budget,
    denied,
    drain,
    hang,
    held,
    incident,
    lemon,
    refusal,
    restart,
    silent,
    slurm,
)

REGISTER: tuple[fact.Kind, ...] = (
    drain.KIND,
    denied.KIND,
    refusal.KIND,
    budget.KIND,
    incident.KIND,
    hang.KIND,
    restart.KIND,
    silent.KIND,
    slurm.KIND,
    lemon.KIND,
    held.KIND,
    alarm.KIND,
)
"""Every kind that is read from the database, in the order of the manual; `blind` has a file of its own."""
