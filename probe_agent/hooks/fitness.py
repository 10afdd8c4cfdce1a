"""Is this node fit for this job? Refused only for a hard fault confirmed now, and only with a permission in hand."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from probing_cluster.probe_agent.faults import faults, gpus
from probing_cluster.probe_agent.jobs import jobs

CONFIRMED_WITHIN = timedelta(seconds=5)
"""A condition confirmed longer ago is read again before a job is refused for it."""


@dataclass(frozen=True, kw_only=True)
class Permission:
    """The service's word that a refusal would be within its drain budget; short-lived."""

    request_id: uuid.UUID
    expires_at: datetime
    detail: Mapping[str, Any] = field(default_factory=dict)

    def covers(self, fault: faults.Fault) -> bool:
        """True when it is for every fault, or names this one by `kind:device` or event id."""
        lists = [self.detail.get(name, []) for name in ("faults", "event_ids")]
        if not all(isinstance(names, list) for names in lists):
            return False  # what cannot be read permits nothing
        named = [name for names in lists for name in names]
        return not named or fault.key in named or any(e in named for e in fault.event_ids)


@dataclass(kw_only=True)
class Permissions:
    """Permissions held in memory only: an agent that restarted holds none, and answers fit."""

    held: dict[uuid.UUID, Permission] = field(default_factory=dict)

    def grant(self, permission: Permission) -> None:
        self.held[permission.request_id] = permission

    def for_fault(self, fault: faults.Fault, now: datetime) -> Permission | None:
        """An unexpired permission that covers the fault."""
        self.held = {k: p for k, p in self.held.items() if p.expires_at > now}
        return next((p for p in self.held.values() if p.covers(fault)), None)


@dataclass(frozen=True, kw_only=True)
class Refusal:
    """Why a job is sent elsewhere, and who allowed it."""

    fault: faults.Fault
    permission: Permission


def whole_node(job: jobs.NodeJob, inventory: gpus.Inventory) -> bool:
    """True when the job holds as many GPUs as the node is known to have."""
    held = len([w for w in job.gpus.split(",") if w.strip()])
    return bool(inventory.gpus) and held >= len(inventory.gpus)


def suspects(job: jobs.NodeJob, faults: faults.Faults, inventory: gpus.Inventory) -> list[faults.Fault]:
    """Hard faults that concern this job's GPUs or the whole node."""
    wanted = () if not job.gpus.strip() else job.gpu_uuids
    return faults.against(wanted, whole_node=whole_node(job, inventory))


def is_confirmed(fault: faults.Fault, now: datetime) -> bool:
    """True when it stands at this moment: a latched one until something ends it, a condition while its reading is young."""
    return fault.latched or now - fault.confirmed_at <= CONFIRMED_WITHIN


def refusal(found: list[faults.Fault], held: Permissions, now: datetime) -> Refusal | None:
    """The first confirmed fault with a permission; None = the job may start."""
    for fault in found:
        permission = held.for_fault(fault, now)
        if permission is not None and is_confirmed(fault, now):
            return Refusal(fault=fault, permission=permission)
    return None
