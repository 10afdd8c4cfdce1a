"""Jobs that die of a fault of their node on real Slurm, and how long it takes until they train again."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

BACK_S = 60.0
"""From the job's own end to its next training."""
TRAINS = """
if [ "${{SLURM_RESTART_COUNT:-0}}" -gt 0 ]; then echo resumed; sleep 3; exit 0; fi
echo training
for i in $(seq 600); do [ -e {gate} ] && {{ sleep 1; cat {gate}; exit 1; }}; sleep 0.2; done
"""
"""Trains until the gate's file is there, ends by itself one second later with its words, and finishes on its second start."""

LAST_WORDS = {
    "link": "torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:1970, remote process exited or "
    "there was a network error, NCCL version 2.21.5",
    "mount": "OSError: [Errno 5] Input/output error: '/scratch/shard-0007.bin'",
    "crash": "RuntimeError: [../third_party/gloo/gloo/transport/tcp/pair.cc:534] Connection closed by peer [10.0.0.2]:29500",
}
"""What a program says of such a fault; of any other `CUDA error`."""

Break = Callable[[Any, str], None]


def hca(up: Any, node: str) -> str:
    return str(up.sandbox.hardware(node).hcas[0].name)


FAULTS: dict[str, Break] = {
    "xid": lambda up, node: up.sandbox.fault(node, "xid", code=79, gpu=3),
    "link": lambda up, node: up.sandbox.fault(node, "ib-down", hca=hca(up, node)),
    "memory": lambda up, node: up.sandbox.fault(node, "ecc-uncorrectable", gpu=2),
    "mount": lambda up, node: up.sandbox.fault(node, "mount-gone", path="/scratch"),
    "crash": lambda up, node: up.sandbox.fault(node, "node-crash"),
}


def restarts(up: Any, job: int) -> list[dict[str, Any]]:
    return list(
        up.rows("SELECT * FROM probing.drain WHERE action = 'restart' AND job_id = %s ORDER BY at", job)
    )


def train(up: Any, name: str, **options: Any) -> tuple[int, Any]:
    """A gang on all GPUs of two nodes, running; and the file that ends it."""
    gate = up.sandbox.layout.jobs / f"{name}.gate"
    gate.unlink(missing_ok=True)
    wanted = {
        "nodes": 2,
        "gres": "gpu:8",
        "ntasks_per_node": 1,
        "job_name": name,
        "open_mode": "truncate",
    } | options
    job = up.sandbox.submit(TRAINS.format(gate=gate), **wanted)
    return job, gate


def seconds_to_training(up: Any, job: int, name: str = "") -> float:
    """From the end of the first attempt to the start of the second, as accounting has both.

    `name`: of an array's task, whose raw id may be the array's.
    """
    report = up.reported(name or job, lambda r: len(r["attempts"]) == 2 and r["attempts"][1]["start_at"], 180)
    first, second = (
        up.rows("SELECT start_at, end_at FROM probing.job_attempt WHERE job_id = %s ORDER BY submit_at", job)[
            i
        ]
        for i in (0, 1)
    )
    assert report["attempts"][0]["state"] in {"FAILED", "NODE_FAIL", "REQUEUED"}
    return float((second["start_at"] - first["end_at"]).total_seconds())


def end(gate: Any, fault: str = "xid") -> None:
    """The program feels the fault: its file is there at once, with its words."""
    whole = gate.with_suffix(".new")
    whole.write_text(LAST_WORDS.get(fault, "RuntimeError: CUDA error") + "\n")
    whole.rename(gate)


def mend(up: Any, node: str) -> None:
    """The node is whole, takes jobs, and nothing of ours speaks against it."""
    if "DOWN" in up.node_state(node)[0]:
        up.sandbox.fault(node, "node-start")
    up.sandbox.fault(node, "heal")
    deadline = time.monotonic() + 120
    while "idle" not in up.sandbox.run(["sinfo", "-hN", "-n", node, "-o", "%T"]).stdout.split()[0]:
        assert time.monotonic() < deadline, f"{node} takes no jobs"
        up.sandbox.run(["scontrol", "update", f"NodeName={node}", "State=RESUME"], check=False)
        time.sleep(1.0)
