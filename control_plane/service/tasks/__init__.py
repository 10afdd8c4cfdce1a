"""What the service does on its schedule: one file, in the folder of what it serves, and one line here per task."""

from __future__ import annotations

from probing_cluster.control_plane import context
from probing_cluster.control_plane.service.tasks.database import export, maintenance, sessions
from probing_cluster.control_plane.service.tasks.jobs import (
    accounting,
    accounts,
    attribution,
    exclusions,
    gangs,
    hangs,
    restarts,
    slow,
)
from probing_cluster.control_plane.service.tasks.nodes import (
    actions,
    clocks,
    drained,
    lemon,
    places,
    repair,
    resume,
    silence,
    tested,
)
from probing_cluster.control_plane.service.tasks.people import mail, notices, owners, write_back

REGISTER: tuple[context.Task, ...] = (
    actions.TASK,
    restarts.TASK,
    accounting.TASK,
    attribution.TASK,
    accounts.TASK,
    silence.TASK,
    clocks.TASK,
    gangs.TASK,
    hangs.TASK,
    slow.TASK,
    resume.TASK,
    drained.TASK,
    repair.TASK,
    tested.TASK,
    sessions.TASK,
    maintenance.TASK,
    export.TASK,
    exclusions.TASK,
    places.TASK,
    lemon.TASK,
    mail.TASK,
    notices.TASK,
    owners.TASK,
    write_back.TASK,
)
"""Every task, the most urgent first."""
