"""Jobs that end by themselves on real Slurm: what the hardware killed comes back elsewhere, what the program killed does not."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]

BACK_S = 60.0
"""From the job's own end to its next training."""
TRAINS = """
if [ "${{SLURM_RESTART_COUNT:-0}}" -gt 0 ]; then echo resumed; sleep 3; exit 0; fi
echo training
for i in $(seq 600); do [ -e {gate} ] && {{ sleep 1; cat {gate}; exit 1; }}; sleep 0.2; done
"""
"""Trains until the gate's file is there, ends by itself one second later with its words, and finishes on its second start."""
BUG = "sleep 2; echo 'Traceback (most recent call last):'; echo \"KeyError: 'labels'\"; exit 1"

LAST_WORDS = {
    "link": "torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:1970, remote process exited or "
    "there was a network error, NCCL version 2.21.5",
    "mount": "OSError: [Errno 5] Input/output error: '/scratch/shard-0007.bin'",
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


def seconds_to_training(up: Any, job: int) -> float:
    """From the end of the first attempt to the start of the second, as accounting has both."""
    report = up.reported(job, lambda r: len(r["attempts"]) == 2 and r["attempts"][1]["start_at"], 180)
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
    up.sandbox.fault(node, "heal")
    deadline = time.monotonic() + 120
    while "idle" not in up.sandbox.run(["sinfo", "-hN", "-n", node, "-o", "%T"]).stdout.split()[0]:
        assert time.monotonic() < deadline, f"{node} takes no jobs"
        up.sandbox.run(["scontrol", "update", f"NodeName={node}", "State=RESUME"], check=False)
        time.sleep(1.0)


def test_what_the_hardware_killed_comes_back_and_a_bug_does_not(calm: Any) -> None:
    """Xid 79, the job's own exit a second later: back and training elsewhere within a minute, its dependent with it, its log
    kept; beside it bugs, --no-requeue and interactive jobs stay where they are."""
    up = calm
    bugs = [up.sandbox.submit(BUG, job_name=f"bug-{n}") for n in range(3)]
    job, gate = train(up, "llama")
    dependent = up.sandbox.submit("sleep 1", dependency=f"afterok:{job}", job_name="eval")
    nodes = up.running(job)
    stays, _ = train(
        up, "stays", nodes=1, gres="gpu:0", mem="100", nodelist=nodes[1], no_requeue=True, open_mode="append"
    )
    up.running(stays)
    FAULTS["xid"](up, nodes[1])
    end(gate)
    end(up.sandbox.layout.jobs / "stays.gate")
    took_s = seconds_to_training(up, job)
    assert took_s <= BACK_S, f"it took {took_s:g} s"
    report = up.reported(job, lambda r: r["state"] == "COMPLETED", 60)
    assert nodes[1] not in report["attempts"][1]["nodes"]
    assert report["attempts"][0]["verdict"]["cause"] == "gpu_lost"
    (row,) = restarts(up, job)
    assert (row["state"], row["node"]) == ("done", nodes[1])
    up.sandbox.wait(dependent, {"COMPLETED"}, 60)
    kept = up.sandbox.layout.jobs / f"slurm-{job}.out.start1"
    assert "CUDA error" in kept.read_text()
    text = up.sandbox.run(["probing-report", str(job)]).stdout
    assert "job restarted after its end" in " ".join(text.split())
    assert f"kept as {kept}" in " ".join(text.split())
    for bug in bugs:
        assert up.state(bug) in {"FAILED", "UNKNOWN"}
        assert restarts(up, bug) == []
    assert up.state(stays) == "FAILED"
    assert all(r["state"] != "done" for r in restarts(up, stays))


@pytest.mark.soak
@pytest.mark.parametrize("fault", sorted(FAULTS))
def test_every_death_by_hardware_comes_back(gangs: Any, fault: str) -> None:
    """A lost GPU, a lost link, a memory error, a vanished mount: each within a minute of the job's end."""
    up = gangs
    job, gate = train(up, f"train-{fault}")
    nodes = up.running(job)
    FAULTS[fault](up, nodes[1])
    if (
        fault != "crash"
    ):  # Slurm itself ends and requeues a job whose node is gone, when SlurmdTimeout has passed
        end(gate, fault)
    took_s = seconds_to_training(up, job)
    up.reported(job, lambda r: r["state"] == "COMPLETED", 120)
    print(f"{fault}: {took_s:g} s")
    mend(up, nodes[1])
    assert took_s <= BACK_S
