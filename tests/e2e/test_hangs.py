"""Real PyTorch gangs under real Slurm that stop, or only seem to: who is at fault is named while they still run.

One sandbox for all cases; 4 nodes x 2 ranks on gloo. The culprit is rank 5, on the third node of its job.
"""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="needs the test extra torch (make test TORCH=1)")
pytestmark = [pytest.mark.cluster, pytest.mark.torch, pytest.mark.timeout(600)]

JOB = Path(__file__).with_name("gang_job.py")


@dataclass(frozen=True)
class Gang:
    """One submitted job and where it runs."""

    case: str
    job_id: int
    nodes: list[str]


def submit(up: Any, case: str, *more: str, **options: Any) -> int:
    """The user's unchanged `sbatch` script with its `srun`."""
    directory = up.sandbox.layout.jobs / f"{case}-{time.monotonic_ns()}"
    directory.mkdir()
    words = " ".join([sys.executable, str(JOB), case, str(directory), *more])
    script = f"export OMP_NUM_THREADS=1\nsrun --kill-on-bad-exit=1 {words}"
    return up.sandbox.submit(
        script, nodes=4, ntasks=8, ntasks_per_node=2, cpus_per_task=1, job_name=case, **options
    )


def verdicts(up: Any, job_id: int) -> list[dict[str, Any]]:
    """What the service says of the job's gang."""
    return up.rows("SELECT * FROM probing.gang_verdict WHERE job_id = %s ORDER BY made_at", job_id)


def named(up: Any, job_id: int, kind: str) -> dict[str, Any]:
    """The first gang verdict of this kind."""
    return up.until(
        f"{kind} of job {job_id}",
        lambda: next((v for v in verdicts(up, job_id) if v["kind"] == kind), None),
        120,
    )


HANGS = {
    "python_loop": ("python_loop", "user_program"),
    "gil_held": ("gil_held", "user_program"),
    "rank_stopped": ("rank_stopped", "system_software"),
    "other_collective": ("collective_mismatch", "user_program"),
    "other_shape": ("collective_mismatch", "user_program"),
    "dataloader": ("dataloader", "user_program"),
    "uneven_input": ("uneven_input", "user_program"),
    "deadlock": ("deadlock", "user_program"),
}


@pytest.mark.parametrize("case", HANGS)
def test_a_hang_is_named_while_it_lasts(gangs: Any, case: str) -> None:
    """Right kind, rank, node, domain and line."""
    kind, domain = HANGS[case]
    job = submit(gangs, case)
    nodes = gangs.running(job)
    found = named(gangs, job, kind)
    ranks = [4, 5] if case == "deadlock" else [5]
    assert (found["ranks"], found["nodes"], found["domain"]) == (ranks, [nodes[2]], domain)
    gangs.sandbox.run(["scancel", str(job)])
