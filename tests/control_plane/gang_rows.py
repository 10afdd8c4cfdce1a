"""A running gang as its nodes' heartbeats tell of it."""

from __future__ import annotations

import random
from collections.abc import Mapping
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
    for rank, told in rows.items():
        nodes.setdefault(f"n{rank // per_node + 1}", {})[f"{job_id}:{rank}"] = dict(told)
    for node, ranks in nodes.items():
        told = records.AgentHeartbeat(
            cluster="c", node=node, at=fakes.NOW, boot_id="b", jobs=(job_id,), ranks=ranks
        )
        delivery.Delivery(store.connection_uri(), "c", node).deliver(heartbeat=told)


def attempt(job_id: int, *nodes: str, user: str = "alice", end: bool = False) -> records.JobAttempt:
    """The gang's attempt."""
    began = fakes.NOW.replace(minute=0, second=0)
    return records.JobAttempt(
        cluster="c", job_id=job_id, submit_at=began, start_at=began, end_at=fakes.NOW if end else None,
        state="FAILED" if end else "RUNNING", nodes=nodes, run_key=str(job_id), user=user, account="lab",
    )  # fmt: skip
