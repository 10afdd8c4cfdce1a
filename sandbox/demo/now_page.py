"""The web's first page on a made-up day: a node that lost a GPU, one whose link went down, and the jobs that died."""

from __future__ import annotations

import uuid
from datetime import datetime, timedelta
from pathlib import Path

from probing_cluster.core import clock, records, settings, vocabulary
from probing_cluster.db import delivery
from probing_cluster.db import store as db_store
from probing_cluster.db.server import embedded
from probing_cluster.sandbox.demo import web_page

CLUSTER, NODES = "cluster", 16
PLACE = "3 of the 8 nodes of leaf leaf02 (all that failed; p = 0.004)"
FAULT = {
    "severity": "high",
    "code": "79",
    "message": "The GPU has fallen off the bus: the driver cannot reach it over PCIe any more.",
}
_JOBS = (
    ("llama-70b-sft", "ann", 3, "gpu_lost", "hardware", "n003", "gpu3", "GPU 3 of n003 fell off the bus (Xid 79) 6 s before the job ended.",
     "Reseat or replace GPU 3 of n003; keep the node out of service until it passes a GPU check.", 14),
    ("diffusion-xl", "bob", 2, "link_down", "hardware", "n012", "mlx5_0", "The link mlx5_0 of n012 went down 20 s before the job ended.",
     "Look at the cable and the switch port of mlx5_0.", 41),
    ("eval-suite", "eve", 1, "out_of_memory", "user_program", "n005", None, "The job asked for more GPU memory than the GPU has.",
     "Use a smaller batch, or more GPUs.", 77),
)  # fmt: skip


def save(home: Path) -> Path:
    """The page, as a file."""
    url = embedded.ensure(home / "now")
    try:
        with db_store.Store.open(url, upgrade=True) as store:
            _fill(store, clock.SYSTEM.now().replace(microsecond=0))
        config = settings.parse(f'[cluster]\nname = "{CLUSTER}"\n[database]\nurl = "{url}"\n')
        return web_page.save(config, "/", home / "web_now.html")
    finally:
        embedded.stop(home / "now")


def _fill(store: db_store.Store, now: datetime) -> None:
    for number, job in enumerate(_JOBS):
        _died(store, 4200 + number, job, now)
    running = _attempt(4300, "pretrain-8b", "ann", 8, now - timedelta(hours=7), None)
    store.upsert_attempts([running])
    for n in range(1, NODES + 1):
        node = f"n{n:03}"
        since = {"since": (now - timedelta(minutes=15)).isoformat(), "event_id": str(uuid.uuid4())}
        beat = records.AgentHeartbeat(
            cluster=CLUSTER, node=node, at=now, jobs=(4300,) if n <= 8 else (),
            faults={"xid:gpu3": FAULT | since} if node == "n003" else {},
        )  # fmt: skip
        delivery.Delivery(store.connection_uri(), CLUSTER, node).deliver(heartbeat=beat)
    for node, reason, minutes in (
        ("n003", "probing: xid 79 gpu3", 14),
        ("n012", "probing: ib_link mlx5_0", 40),
    ):
        store.add_drain(
            records.Drain(
                drain_id=uuid.uuid4(), cluster=CLUSTER, node=node, at=now - timedelta(minutes=minutes), action="drain",
                reason=reason, owner="probing", state="done",
            )
        )  # fmt: skip
    store.remember(vocabulary.key_of(vocabulary.ACCOUNTING_READ, CLUSTER), now.isoformat())


def _attempt(
    job_id: int, name: str, user: str, n_nodes: int, start: datetime, end: datetime | None
) -> records.JobAttempt:
    nodes = tuple(f"n{n:03}" for n in range(1, n_nodes + 1))
    return records.JobAttempt(
        cluster=CLUSTER, job_id=job_id, submit_at=start - timedelta(minutes=2), start_at=start, end_at=end,
        state="RUNNING" if end is None else "FAILED", nodes=nodes, n_gpus=8 * n_nodes, user=user, account="ml",
        partition="gpu", name=name, run_key=str(job_id),
    )  # fmt: skip


def _died(store: db_store.Store, job_id: int, job: tuple[object, ...], now: datetime) -> None:
    name, user, n_nodes, cause, domain, node, device, summary, next_step, minutes = job
    end = now - timedelta(minutes=int(str(minutes)))
    attempt = _attempt(job_id, str(name), str(user), int(str(n_nodes)), end - timedelta(hours=5), end)
    store.upsert_attempts([attempt])
    verdict = records.Verdict(
        cluster=CLUSTER, job_id=job_id, submit_at=attempt.submit_at, cause=str(cause), domain=records.Domain(str(domain)),
        component="gpu", node=str(node), device=None if device is None else str(device), confidence=records.Confidence.CERTAIN,
        summary=str(summary), next_step=str(next_step), rules_version="1", made_at=end,
        place=PLACE if cause == "link_down" else None,
    )  # fmt: skip
    store.save_verdicts([verdict])
