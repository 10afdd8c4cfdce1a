"""Gangs of real PyTorch ranks that go wrong in known ways, for tests and campaigns, with the verdict expected of each.

Every gang is four nodes with two ranks each; the culprit is rank 5, on the third node.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from pathlib import Path

from probing_cluster.sandbox import cluster
from probing_cluster.sandbox.machine import commands

JOB = Path(__file__).with_name("gang_job.py")
CULPRIT, CULPRITS_NODE = 5, 2
FAILS_AT = 20
"""The step at which a gang goes wrong (gang_job, which knows nothing of us)."""
CHECKPOINTS = "/probing-checkpoints"
"""A directory of the third node that is none of its mounts: only the ranks notice that it hangs."""

TAKES_JOBS_S = 120.0

HANGS = {
    "python_loop": ("python_loop", "user_program", "endless"),
    "gil_held": ("gil_held", "user_program", "go_wrong_alone"),
    "gil_burnt": ("gil_held", "user_program", "burn"),
    "rank_stopped": ("rank_stopped", "unknown", "go_wrong_alone"),
    "other_collective": ("collective_mismatch", "user_program", "go_wrong_alone"),
    "dataloader": ("dataloader", "user_program", "train"),
    "uneven_input": ("uneven_input", "user_program", "train"),
    "deadlock": ("deadlock", "user_program", "go_wrong"),
    "checkpoint_io": ("checkpoint_io", "system_software", "save"),
}
"""Cases that hang: the expected kind and domain, and the function it hangs in."""
BROKEN = {
    "link_down": ("inside_collective", "hardware", "train"),
    "gpu_lost": ("gpu_lost", "hardware", "wait_for_gpu"),
}
"""The same where hardware of the third node breaks at the moment it hangs (see `strike`)."""
ENDS = {
    "rank_dead": ("rank_killed", "unknown"),
    "node_killed": ("rank_killed", "unknown"),
    "other_shape": ("collective_mismatch", "user_program"),
    "node_lost": ("node_lost", "hardware"),
}
"""Cases that gloo or Slurm ends before they hang: cause and domain of the verdict."""
HEALTHY = ("checkpoint_long", "compile_long")
"""Cases in which no rank may be named; `healthy` is another, which trains and saves for as long as it may."""
SLOW = "slow"
"""Rank 5 computes 1.2 times as long as the others; where SLOW_NODE is set, that node's ranks do twice as long."""


def culprits(case: str) -> list[int]:
    """The ranks at fault."""
    return [4, 5] if case in {"deadlock", "node_killed", "link_down"} else [CULPRIT]


def new_directory(sandbox: cluster.Sandbox, case: str) -> Path:
    """A new one for one gang's files; each rank leaves there what its steps took (gang_job)."""
    made = sandbox.layout.jobs / f"{case}-{time.monotonic_ns()}"
    made.mkdir()
    return made


def submit(
    sandbox: cluster.Sandbox,
    case: str,
    *,
    steps: int = 5000,
    directory: Path | None = None,
    variables: Mapping[str, str | int] | None = None,
    **options: str | int | bool,
) -> int:
    """A user's unchanged `sbatch` script with its `srun`; the job id. `options` of sbatch go before ours.

    `variables` of the environment are gang_job's.
    """
    directory = directory or new_directory(sandbox, case)
    words = [sys.executable, str(JOB), case, str(directory), str(_checkpoints(sandbox))]
    exports = " ".join(
        f"{k}={v}" for k, v in {"OMP_NUM_THREADS": 1, "STEPS": steps, **(variables or {})}.items()
    )
    script = f"export {exports}\nsrun --kill-on-bad-exit=1 {' '.join(words)}"
    gpus = {"gres": f"gpu:{sandbox.layout.gpus}"} if case in BROKEN else {}
    own: dict[str, str | int | bool] = {
        "nodes": 4,
        "ntasks": 8,
        "ntasks_per_node": 2,
        "cpus_per_task": 1,
        "job_name": case,
        "no_requeue": True,
    }
    return sandbox.submit(script, **(own | gpus | options))


def hangs(directory: Path) -> bool:
    """Whether the gang whose files are here has come to where it goes wrong."""
    steps = directory / f"steps.{CULPRIT}"
    return steps.exists() and len(steps.read_text("utf-8").splitlines()) >= FAILS_AT


def strike(sandbox: cluster.Sandbox, case: str) -> None:
    """Breaks what the gang needs on the third node."""
    third = third_node(sandbox)
    if case == "gpu_lost":
        sandbox.fault(third, "gpu-lost", gpu=0)
    else:
        sandbox.fault(third, "ib-down", hca=sandbox.hardware(third).hcas[0].name)


def mend(sandbox: cluster.Sandbox, case: str) -> None:
    """The third node is whole again and takes jobs; raises CommandFailed when it does not."""
    third = third_node(sandbox)
    sandbox.fault(third, "node-start" if case == "node_lost" else "heal")
    deadline = time.monotonic() + TAKES_JOBS_S
    # A line a partition, which all say the same.
    while (state := sandbox.run(["sinfo", "-hN", "-n", third, "-o", "%T"]).stdout.split()[0]) != "idle":
        if time.monotonic() > deadline:
            raise commands.CommandFailed(f"{third} is {state}: it takes no jobs")
        # A fault of a minute ago drains it; a job that ends leaves it completing.
        sandbox.run(["scontrol", "update", f"NodeName={third}", "State=RESUME"], check=False)
        time.sleep(1.0)


def third_node(sandbox: cluster.Sandbox) -> str:
    """The node on which the rank at fault runs."""
    return sandbox.layout.node_names[CULPRITS_NODE]


def _checkpoints(sandbox: cluster.Sandbox) -> Path:
    return sandbox.layout.node(third_node(sandbox)) / "root" / CHECKPOINTS.lstrip("/")
