"""What the service does on its schedule: one file and one line here per task."""

from __future__ import annotations

from probing_cluster.control_plane import context
from probing_cluster.control_plane.service.tasks import (
    accounting,
    accounts,
    actions,
    attribution,
    exclusions,
    export,
    gangs,
    lemon,
    mail,
    maintenance,
    repair,
    resume,
    sessions,
    silence,
    slow,
)

REGISTER: tuple[context.Task, ...] = (
    actions.TASK,
    accounting.TASK,
    attribution.TASK,
    accounts.TASK,
    silence.TASK,
    gangs.TASK,
    slow.TASK,
    resume.TASK,
    repair.TASK,
    sessions.TASK,
    maintenance.TASK,
    export.TASK,
    exclusions.TASK,
    lemon.TASK,
    mail.TASK,
)
"""Every task, the most urgent first."""
