"""What the service does on its schedule: one file and one line here per task."""

from __future__ import annotations

from probing_cluster.control_plane import context
from probing_cluster.control_plane.service.tasks import (
    accounting,
    accounts,
    actions,
    attribution,
    drained,
    exclusions,
    export,
    gangs,
    hangs,
    lemon,
    mail,
    maintenance,
    notices,
    owners,
    places,
    repair,
    restarts,
    resume,
    sessions,
    silence,
    slow,
    tested,
)

REGISTER: tuple[context.Task, ...] = (
    actions.TASK,
    restarts.TASK,
    accounting.TASK,
    attribution.TASK,
    accounts.TASK,
    silence.TASK,
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
)
"""Every task, the most urgent first."""
