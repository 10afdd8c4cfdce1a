"""Does Slurm run a job again when its Prolog fails? Asked of slurmctld, and only when a refusal is about to be made.

Slurm requeues a batch job that may be requeued, and cancels every other: srun, salloc, `--no-requeue`. The Prolog's
environment does not say which a job is.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path

from probing_cluster.core import processes, settings

DEADLINE_S = 2.0
"""Longest slurmctld is waited for: a Prolog is waiting."""
_KEPT = ("PATH", "LD_LIBRARY_PATH", "HOME", "USER", "SLURM_CONF")
_FLAGS = re.compile(r"^   Requeue=(\d+) Restarts=\d+ BatchFlag=(\d+) Reboot=\d+ ExitCode=\d+:\d+$", re.ASCII | re.MULTILINE)  # fmt: skip

Requeues = Callable[[int], bool]
"""True when Slurm is known to requeue the job of this id."""


def asking(slurm: settings.SlurmSettings, deadline_s: float = DEADLINE_S) -> Requeues:
    """Asks `scontrol show job`; whatever cannot be learnt means no."""
    command = str(Path(slurm.bin_directory) / "scontrol") if slurm.bin_directory else "scontrol"

    stuck = processes.StuckChildren()

    def ask(job_id: int) -> bool:
        environment = {k: os.environ[k] for k in _KEPT if k in os.environ} | {"LC_ALL": "C"}
        if slurm.conf:
            environment["SLURM_CONF"] = slurm.conf
        argv = [command, "show", "job", str(job_id)]
        try:
            output = stuck.run("scontrol", argv, deadline_s=deadline_s, env=environment)
        except (OSError, processes.ChildStuck):
            return False
        return output.code == 0 and is_requeued(output.out)

    return ask


def is_requeued(shown: str) -> bool:
    """Whether every line of `scontrol show job` that looks like Slurm's says that the job is a batch job that may be requeued.

    Slurm's own line is one of them, whatever lines a name holds. An array or heterogeneous job shows all its parts.
    """
    flags = [flag for found in _FLAGS.finditer(shown) for flag in found.groups()]
    return bool(flags) and all(int(flag) > 0 for flag in flags)
