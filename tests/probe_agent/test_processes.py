"""What /proc says of a process, and which job it is of."""

from __future__ import annotations

import os
from pathlib import Path

from probing_cluster.probe_agent import processes


def test_the_job_of_a_process_is_never_its_own_word(tmp_path: Path) -> None:
    """Cgroup or slurmstepd ancestry count; the environment does not."""
    proc = tmp_path / "proc"

    def process(pid: int, parent: int, cmdline: bytes, cgroup: bytes = b"0::/\n") -> None:
        home = proc / str(pid)
        home.mkdir(parents=True)
        fields = [b"S", str(parent).encode(), *([b"0"] * 17), b"5", *([b"0"] * 10)]
        (home / "stat").write_bytes(b"%d (x) y) " % pid + b" ".join(fields))
        (home / "cmdline").write_bytes(cmdline)
        (home / "cgroup").write_bytes(cgroup)
        (home / "environ").write_bytes(b"SLURM_JOB_ID=666\0")

    process(10, 1, b"slurmd\0")
    process(20, 10, b"slurmstepd: [4242.0]\0")
    process(30, 20, b"python\0train.py\0")
    process(40, 1, b"python\0", b"0::/system.slice/slurmstepd.scope/job_77/step_0/user/task_0\n")
    process(50, 1, b"python\0")
    if os.getuid() == 0:
        assert processes.job_of(30, proc) == 4242
    assert processes.job_of(40, proc) == 77
    assert processes.job_of(50, proc) is None
    assert processes.facts(30, proc) is not None
    assert processes.facts(31, proc) is None
