"""A running gang as its nodes' heartbeats tell of it."""

from __future__ import annotations

import random
import uuid
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import fakes

from probing_cluster.core import records
from probing_cluster.db import delivery
from probing_cluster.db import store as db_store

STEP_S = 0.2
PER_NODE = 2


def window(index: int, compute_s: float, step_s: float, **other: float) -> dict[str, float]:
    """One window's row; what is left of the step is waiting."""
    row = {"index": index, "steps": 16, "total_s": step_s, "compute_s": compute_s, "host_s": compute_s}
    row |= {"input_s": 0.0, "checkpoint_s": 0.0, "backward_s": 0.0} | other
    return row | {"waiting_s": step_s - compute_s - row["input_s"]}


def row(rank: int, **changes: Any) -> dict[str, Any]:
    """One rank that trains."""
    usual = {
        "pid": 1000 + rank,
        "alive": True,
        "state": "S",
        "phase": "training",
        "steps": 160,
        "step_age_s": 0.1,
    }
    return usual | {"phase_age_s": 60.0, "world_size": 8, "checkpoints": 1} | changes


def gang(
    index: int, seed: int = 1, slow: Mapping[int, float] | None = None, ranks: int = 8
) -> dict[int, dict[str, Any]]:
    """Rank to row: 0.2 s of compute with the noise that 2 % jitter leaves in a median; some ranks slower."""
    rng = random.Random(f"{seed}:{index}")
    own = {r: STEP_S * (slow or {}).get(r, 1.0) * (1 + rng.gauss(0, 0.02 * 1.2533 / 4)) for r in range(ranks)}
    step_s = max(own.values()) + 0.01
    return {r: row(r, steps=16 * (index + 1), window=window(index, s, step_s)) for r, s in own.items()}


def beat(
    store: db_store.Store, job_id: int, rows: Mapping[int, Mapping[str, Any]], per_node: int = PER_NODE
) -> None:
    """The heartbeats of the gang's nodes n1, n2 …, each with its ranks."""
    nodes: dict[str, dict[str, Any]] = {}
    for rank, row in rows.items():
        nodes.setdefault(f"n{rank // per_node + 1}", {})[f"{job_id}:{rank}"] = dict(row)
    for node, ranks in nodes.items():
        row = records.AgentHeartbeat(
            cluster="c", node=node, at=fakes.NOW, boot_id="b", jobs=(job_id,), ranks=ranks
        )
        delivery.Delivery(store.connection_uri(), "c", node).deliver(heartbeat=row)


def attempt(job_id: int, *nodes: str, user: str = "alice", end: bool = False) -> records.JobAttempt:
    """The gang's attempt."""
    began = fakes.NOW.replace(minute=0, second=0)
    return records.JobAttempt(
        cluster="c", job_id=job_id, submit_at=began, start_at=began, end_at=fakes.NOW if end else None,
        state="FAILED" if end else "RUNNING", nodes=nodes, run_key=str(job_id), user=user, account="lab",
    )  # fmt: skip


LOOP = [("loop", "/home/alice/train.py", 31), ("main", "/home/alice/train.py", 40)]
REDUCE = [
    ("all_reduce", "/opt/venv/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py", 2825),
    ("step", "/home/alice/train.py", 33),
    ("main", "/home/alice/train.py", 40),
]


def entry(rank: int, stack: Sequence[tuple[str, str, int]], **changes: Any) -> dict[str, Any]:
    """One rank in a snapshot, in the middle of `stack` (innermost first)."""
    frames = [{"function": f, "file": path, "line": line} for f, path, line in stack]
    waits = stack is REDUCE
    call = {"group": "0", "seq": 41, "op": "all_reduce", "numel": 4, "group_size": 4, "left": not waits}
    calls = [call | {"seq": 40, "left": True}, *([call] if waits else [])]
    usual = {"rank": rank, "pid": 1000 + rank, "alive": True, "state": "S", "phase": "training", "steps": 40}
    return usual | {"stack": frames, "calls": calls} | changes


def snapshot(
    store: db_store.Store,
    job_id: int,
    node: str,
    entries: Sequence[Mapping[str, Any]],
    at: datetime = fakes.NOW,
) -> None:
    """What a node's agent tells of a job's ranks when it is asked."""
    event = records.HealthEvent(
        event_id=uuid.uuid4(), cluster="c", node=node, at=at, observed_at=at, kind="rank_snapshot", source="probe",
        severity=records.Severity.INFO, message="ranks", job_id=job_id, detail={"ranks": list(entries), "world_size": 4},
    )  # fmt: skip
    delivery.Delivery(store.connection_uri(), "c", node).deliver(events=[event])


def stall(store: db_store.Store, job_id: int, node: str = "n1", at: datetime = fakes.NOW) -> None:
    """The word that a rank has stopped."""
    event = records.HealthEvent(
        event_id=uuid.uuid4(), cluster="c", node=node, at=at, observed_at=at, kind="rank_stall", source="probe",
        severity=records.Severity.INFO, message="rank 0 has not got on", job_id=job_id,
    )  # fmt: skip
    delivery.Delivery(store.connection_uri(), "c", node).deliver(events=[event])
