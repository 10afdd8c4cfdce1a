"""A fleet in the database: 40 nodes in use for four weeks, of which n07 repeatedly ends jobs."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime, timedelta

from probing_cluster.core import records, settings
from probing_cluster.db import delivery
from probing_cluster.db import store as db_store

DAY = datetime(2026, 11, 20, tzinfo=UTC)
"""The day scored."""
END = DAY + timedelta(days=1)
NODES = tuple(f"n{n:02d}" for n in range(40))
BAD = "n07"
GPU = ("gpu_lost", "gpu", "gpu3")
DIMM = ("main_memory", "memory", "DIMM_B2")
CONFIG = settings.Settings(cluster=settings.ClusterSettings(name="c"))


def at(days_ago: float) -> datetime:
    return END - timedelta(days=days_ago)


def attempt(job_id: int, start: float, end: float, *nodes: str, **changes: object) -> records.JobAttempt:
    """Said in days before the end of the window."""
    values: dict[str, object] = {
        "cluster": "c", "job_id": job_id, "submit_at": at(start), "start_at": at(start), "end_at": at(end),
        "state": "COMPLETED", "nodes": nodes, "n_gpus": 8 * len(nodes), "user": f"u{job_id % 3}",
        "run_key": str(job_id),
    }  # fmt: skip
    return records.JobAttempt(**(values | changes))


def use(nodes: tuple[str, ...] = NODES, days: int = 28) -> list[records.JobAttempt]:
    """Every node in use by a job of its own, a week at a time."""
    return [
        attempt(10_000 + 100 * week + n, 7 * week + 7, 7 * week, node)
        for week in range(days // 7)
        for n, node in enumerate(nodes)
    ]


def fail(store: db_store.Store, job_id: int, days_ago: float, node: str, *others: str, source: str = "kernel",
         state: str = "FAILED", confidence: str = "certain", part: tuple[str, str, str] = GPU) -> None:  # fmt: skip
    """A job that dies of a part of `node` (cause, component, device), with its event and its verdict."""
    cause, component, device = part
    died = attempt(job_id, days_ago + 0.2, days_ago, node, *others, state=state)
    assert died.end_at is not None
    event = records.HealthEvent(
        event_id=uuid.UUID(int=job_id), cluster="c", node=node, at=died.end_at - timedelta(seconds=4),
        observed_at=died.end_at, kind="xid" if component == "gpu" else "edac",
        code="79" if component == "gpu" else "UE", severity=records.Severity.HIGH, device=device,
        gpu_uuid=f"GPU-{node}-3" if component == "gpu" else None, source=source, message="It failed.",
    )  # fmt: skip
    delivery.Delivery(store.connection_uri(), "c", node).deliver(events=[event])
    store.upsert_attempts([died])
    store.save_verdicts(
        [
            records.Verdict(
                cluster="c", job_id=job_id, submit_at=died.submit_at, cause=cause,
                domain=records.Domain.HARDWARE, component=component, node=node, device=device,
                confidence=records.Confidence(confidence), summary=f"{device} of {node} failed.",
                evidence=(event.event_id,), rules_version="1", made_at=died.end_at,
            )
        ]
    )  # fmt: skip


def note(store: db_store.Store, action: str, node: str, when: datetime, **detail: object) -> None:
    """A person's word about a node."""
    store.add_note(
        records.OperatorNote(
            note_id=uuid.uuid4(), cluster="c", at=when, author="eve", subject=f"node:{node}", action=action,
            note="seen on site", detail=detail,
        )
    )  # fmt: skip


LEMON_DAYS = (1.5, 4.5, 7.5, 11.5, 15.5, 20.5)


def story(store: db_store.Store) -> None:
    """n07 loses its GPU in six jobs; n20 has one failure; the rest runs."""
    store.upsert_attempts(use())
    for n, days_ago in enumerate(LEMON_DAYS):
        fail(store, 1 + n, days_ago, BAD, *(NODES[10 + n : 10 + 2 * n]))
    fail(store, 50, 9.5, "n20")
