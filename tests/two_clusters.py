"""One database of two clusters that share every name and number: a node n1, its job 7, and what is stored of them, twice."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

from probing_cluster.core import records
from probing_cluster.db import delivery, tables
from probing_cluster.db import store as db_store

OURS, THEIRS = "c", "zeta"
USERS = {OURS: "alice", THEIRS: "bob"}
NODE, JOB = "n1", 7


def fill(store: db_store.Store) -> None:
    """Store a row of each cluster in every table that has a cluster column."""
    at = now() - timedelta(hours=1)
    every = store.of(None)
    for cluster in (OURS, THEIRS):
        rows = list(records_of(cluster, at))
        every.upsert_attempts([r for r in rows if isinstance(r, records.JobAttempt)])
        every.save_verdicts([r for r in rows if isinstance(r, records.Verdict)])
        delivered = (records.HealthEvent, records.CheckResult, records.JobAllocation, records.AgentHeartbeat)
        stored = (records.JobAttempt, records.Verdict, *delivered)
        for row in rows:
            if not isinstance(row, stored):
                every._upsert(type(row), [row])
        request = every.request(NODE, "ask", JOB, 600, {"question": "q", "by": "eve"}, cluster)
        delivery.Delivery(every.connection_uri(), cluster, NODE).deliver(
            events=[r for r in rows if isinstance(r, records.HealthEvent)],
            checks=[r for r in rows if isinstance(r, records.CheckResult)],
            allocations=[r for r in rows if isinstance(r, records.JobAllocation)],
            heartbeat=next(r for r in rows if isinstance(r, records.AgentHeartbeat)),
            answers=[(request, b"rows")],
        )
        shown = db_store.actions.SlurmDrain(NODE, "IDLE+DRAIN", f"of {cluster}", at)
        every.save_slurm_drains(cluster, [shown], [])


def records_of(cluster: str, at: datetime) -> Iterator[Any]:
    """A record of each class, of the node n1 and the job 7 of a cluster; their words name the cluster."""
    user, words = USERS[cluster], f"of {cluster}"
    start, end = at, at + timedelta(minutes=30)
    of_node: dict[str, Any] = {"cluster": cluster, "node": NODE}
    of_job: dict[str, Any] = {"cluster": cluster, "job_id": JOB}
    yield records.JobAttempt(
        **of_job, submit_at=start, start_at=start, end_at=end, state="FAILED", exit_code=1, nodes=(NODE,),
        n_gpus=8, user=user, name=words, run_key="7",
    )  # fmt: skip
    yield records.Verdict(
        **of_job, submit_at=start, cause="gpu_lost", domain=records.Domain.HARDWARE, node=NODE,
        confidence=records.Confidence.CERTAIN, summary=words, rules_version="1", made_at=end, onset_at=end,
        incident_id=uuid.uuid4(),
    )  # fmt: skip
    yield records.GangVerdict(
        **of_job, gang_id=uuid.uuid4(), submit_at=start, kind="rank_stopped", nodes=(NODE,), summary=words,
        domain=records.Domain.HARDWARE, confidence=records.Confidence.LIKELY, onset_at=end, made_at=end,
    )  # fmt: skip
    yield records.RunAccount(
        cluster=cluster, run_key="7", user=user, start_at=start, end_at=end, n_gpus=8, wall_s=1800.0,
        n_attempts=1, productive_s=1800.0, ettr_measured=0.9, measured=True, made_at=end,
    )  # fmt: skip
    yield records.JobDependency(**of_job, on_job_id=8, user=user, at=at)
    yield records.JobExclusion(**of_node, job_id=JOB, at=at, user=user)
    yield records.JobAllocation(**of_node, job_id=JOB, at=start, uid=1000, gpu_uuids=(f"GPU-{cluster}",))
    yield records.HealthEvent(
        **of_node, event_id=uuid.uuid4(), at=end, observed_at=end, kind="xid", code="79", job_id=JOB,
        severity=records.Severity.HIGH, source="kernel", message=words, gpu_uuid=f"GPU-{cluster}",
    )  # fmt: skip
    yield records.CheckResult(
        **of_node, name="mounts", outcome=records.Outcome.FAIL, severity=records.Severity.LOW, message=words, at=end
    )  # fmt: skip
    yield records.AgentHeartbeat(**of_node, at=end, started_at=start, boot_id=words, jobs=(JOB,))
    yield records.Drain(
        **of_node, drain_id=uuid.uuid4(), at=end, action="drain", reason=f"probing: {words}", owner="probing",
        state="done", job_id=JOB,
    )  # fmt: skip
    yield records.OperatorNote(
        cluster=cluster, note_id=uuid.uuid4(), at=end, author=user, subject=f"node:{NODE}", action="ack",
        note=words,
    )  # fmt: skip
    yield records.DiagnosticResult(
        **of_node, result_id=uuid.uuid4(), round_id=uuid.uuid4(), test="dcgm", outcome=records.Outcome.FAIL,
        at=end, message=words,
    )  # fmt: skip
    yield records.RepairIncident(
        **of_node, incident_id=uuid.uuid4(), opened_at=start, changed_at=end, state="testing", why=words,
        reason=f"probing: {words}", drain_id=uuid.uuid4(), cause="gpu_lost",
    )  # fmt: skip
    yield records.NodePlace(**of_node, kind="rack", place=words, since_at=at)
    yield records.LemonScore(**of_node, day=midnight(at), score=0.9, verdict="lemon", made_at=at)


def now() -> datetime:
    """The present, in whole seconds."""
    return datetime.now(UTC).replace(microsecond=0)


def midnight(at: datetime) -> datetime:
    """The day that is scored."""
    return at.replace(hour=0, minute=0, second=0) - timedelta(days=1)


def tables_of_clusters() -> set[str]:
    """The tables whose rows are a cluster's."""
    return {table.name for table in tables.metadata.tables.values() if "cluster" in table.c}
