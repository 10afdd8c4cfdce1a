"""A stall on one node makes every node of the job tell what its ranks do, once."""

from __future__ import annotations

import uuid
from datetime import timedelta

import fakes

from probing_cluster.control_plane import context
from probing_cluster.control_plane.tasks import gangs
from probing_cluster.core import records
from probing_cluster.db import delivery


def stall(n: int, job_id: int, node: str = "n2") -> records.HealthEvent:
    """What an agent says of a rank that has stopped."""
    return records.HealthEvent(
        event_id=uuid.UUID(int=n), cluster="c", node=node, at=fakes.NOW - timedelta(seconds=3), observed_at=fakes.NOW,
        kind="rank_stall", severity=records.Severity.INFO, source="probe", message="rank 3 has not got on", job_id=job_id,
    )  # fmt: skip


def attempt(job_id: int, *nodes: str, end: bool = False) -> records.JobAttempt:
    """A gang on some nodes."""
    began = fakes.NOW - timedelta(hours=1)
    return records.JobAttempt(
        cluster="c", job_id=job_id, submit_at=began, start_at=began, end_at=fakes.NOW if end else None,
        state="FAILED" if end else "RUNNING", nodes=nodes, run_key=str(job_id),
    )  # fmt: skip


def asked(service: context.Context, node: str) -> list[tuple[str, int | None]]:
    """What a node's agent learns with its next delivery."""
    ack = delivery.Delivery(service.store.connection_uri(), "c", node).deliver(events=[])
    return [(r.verb, r.job_id) for r in ack.requests]


def test_the_other_nodes_of_a_stalled_job_are_asked_once(service: context.Context) -> None:
    """n1 and n3 are asked, n2 has told already, n4 runs another job; a second pass asks nobody again."""
    for node in ("n1", "n3", "n4"):
        fakes.deliver(service.store, node)
    service.store.upsert_attempts([attempt(7, "n1", "n2", "n3"), attempt(8, "n4")])
    fakes.deliver(service.store, "n2", stall(1, 7))
    assert gangs.run(service) == "jobs 7: 2 nodes asked"
    assert asked(service, "n1") == asked(service, "n3") == [("collect", 7)]
    assert asked(service, "n4") == []
    assert gangs.run(service) == ""
    fakes.deliver(service.store, "n2", stall(2, 7))
    assert gangs.run(service) == "jobs 7: 2 nodes asked"


def test_a_job_that_has_ended_is_not_asked_about(service: context.Context) -> None:
    """Its Epilog collects."""
    service.store.upsert_attempts([attempt(7, "n1", "n2", end=True)])
    fakes.deliver(service.store, "n2", stall(1, 7))
    assert gangs.run(service) == "jobs 7: 0 nodes asked"
