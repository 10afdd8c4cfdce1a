"""Who uses the GPUs."""

from __future__ import annotations

import os
from typing import Any

from probing_cluster.core.records import Outcome
from probing_cluster.healthchecks import nodeview
from probing_cluster.healthchecks.readers import nvml

JOB = "0::/system.slice/slurmstepd.scope/job_42/step_0/user/task_0"


SCOPE = "sys/fs/cgroup/system.slice/slurmstepd.scope/cgroup.procs"


def on_gpu(node: Any, index: int, pid: int) -> None:
    node.gpu(index, processes=(nvml.GpuProcess(pid=pid, used_bytes=1 << 30),))


def test_a_jobs_process(node: Any) -> None:
    """A process in a Slurm cgroup is where it belongs."""
    node.have_gpus(2)
    node.process(900, "python", cgroup=JOB)
    on_gpu(node, 1, 900)
    assert node.check("gpu_processes").outcome is Outcome.OK


def test_a_stranger(node: Any) -> None:
    """A process outside Slurm fails with its id, name and GPU; NVIDIA's own daemons may be there."""
    node.have_gpus(2)
    node.put(SCOPE, "")
    node.process(901, "miner", cgroup="0::/user.slice/user-1000.slice/session-3.scope")
    on_gpu(node, 1, 901)
    finding = node.check("gpu_processes")
    assert (finding.outcome, finding.device) == (Outcome.FAIL, "gpu1")
    assert "901 (miner" in finding.message
    assert node.check("gpu_processes", allow=["miner"]).outcome is Outcome.OK


def test_left_over_from_a_job(node: Any) -> None:
    """A job's process on a GPU that no job has any more is left over."""
    node.have_gpus(2)
    node.process(900, "python", cgroup=JOB)
    on_gpu(node, 1, 900)
    node.expected = nodeview.Expectations(allocated={43: ("GPU-0",)})
    assert node.check("gpu_processes").outcome is Outcome.FAIL
    node.expected = nodeview.Expectations(allocated={42: ("GPU-1",)})
    assert node.check("gpu_processes").outcome is Outcome.OK


def test_a_process_that_is_gone(node: Any) -> None:
    """A process id that only NVML still lists is nobody."""
    node.have_gpus(1)
    on_gpu(node, 0, 902)
    assert node.check("gpu_processes").outcome is Outcome.OK


def test_no_list(node: Any) -> None:
    """A GPU that cannot list its processes is an error when it should."""
    node.have_gpus(1, processes=None, unread={"processes": "UNKNOWN"})
    assert node.check("gpu_processes").outcome is Outcome.ERROR


def test_without_cgroups_the_owner_decides(node: Any) -> None:
    """Where Slurm uses no cgroups, a job owner's process is fine, a stranger's fails, and without owners nobody judges."""
    node.have_gpus(1)
    node.process(903, "python", cgroup="0::/user.slice")
    on_gpu(node, 0, 903)
    assert node.check("gpu_processes").outcome is Outcome.OK
    node.expected = nodeview.Expectations(uids=frozenset({os.getuid()}))
    assert node.check("gpu_processes").outcome is Outcome.OK
    node.expected = nodeview.Expectations(uids=frozenset({os.getuid() + 1}))
    assert node.check("gpu_processes").outcome is Outcome.FAIL
