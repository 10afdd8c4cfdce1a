"""The task that takes drained nodes through their repair, on a real database."""

from __future__ import annotations

import dataclasses
import uuid
from datetime import timedelta

import fakes

from probing_cluster.control_plane import context
from probing_cluster.control_plane.service.tasks.nodes import repair
from probing_cluster.core import records


def test_a_repair_that_a_person_ended_is_not_opened_again(
    service: context.Context, slurm: fakes.FakeSlurm
) -> None:
    """The node stays drained after `repair done`: no pass opens a repair for that drain, or says that it did."""
    service.config = dataclasses.replace(
        service.config, policy=dataclasses.replace(service.config.policy, observe_only=True)
    )
    slurm.drain("n2", "probing: xid 79 gpu3")
    drain = records.Drain(
        drain_id=uuid.uuid4(), cluster="c", node="n2", at=fakes.NOW, action="drain", state="done",
        reason="probing: xid 79 gpu3", owner="probing",
    )  # fmt: skip
    service.store.save_drain(drain)
    assert "n2 repair opened" in repair.run(service)
    (incident,) = service.store.incidents(open_only=True)
    service.store.update_incident(
        incident.incident_id, state="closed", closed_at=fakes.NOW + timedelta(seconds=30)
    )
    assert repair.run(service) == ""
    assert service.store.incidents(open_only=True) == []
