"""Who uses the GPUs."""

from __future__ import annotations

import os
from typing import Any

import pytest

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


def test_a_container_of_a_job(node: Any) -> None:
    """Docker starts it outside the job's cgroup, and rootless Podman below the user: a warning while a job may own it."""
    node.have_gpus(1)
    node.put(SCOPE, "")
    on_gpu(node, 0, 904)
    node.process(904, "python", cgroup="0::/system.slice/docker-4f1c.scope")
    node.expected = nodeview.Expectations(running=frozenset({42}), uids=frozenset())
    assert node.check("gpu_processes").outcome is Outcome.WARN
    node.expected = nodeview.Expectations(running=frozenset(), uids=frozenset())
    assert node.check("gpu_processes").outcome is Outcome.FAIL
    node.process(904, "python", cgroup="0::/user.slice/user-1000.slice/user@1000.service/user.slice/x.scope")
    assert node.check("gpu_processes").outcome is Outcome.FAIL
    node.expected = nodeview.Expectations(running=frozenset({42}), uids=frozenset({os.getuid()}))
    assert node.check("gpu_processes").outcome is Outcome.WARN


def test_left_over_from_a_job(node: Any) -> None:
    """The process of a job that has ended here is left over, by the job's number or its SLUID."""
    node.have_gpus(2)
    node.process(900, "python", cgroup=JOB)
    on_gpu(node, 1, 900)
    node.expected = nodeview.Expectations(running=frozenset({43}), ended=frozenset({42}))
    finding = node.check("gpu_processes")
    assert (finding.outcome, finding.device) == (Outcome.FAIL, "gpu1")
    assert "left over from job 42" in finding.message
    node.process(900, "python", cgroup="0::/system.slice/slurmstepd.scope/s5K1KKYAYG5D00/step_0/user/task_0")
    assert node.check("gpu_processes").outcome is Outcome.OK
    sluids = {"s5K1KKYAYG5D00": 42}
    node.expected = nodeview.Expectations(running=frozenset({43}), ended=frozenset({42}), sluids=sluids)
    assert node.check("gpu_processes").outcome is Outcome.FAIL


@pytest.mark.parametrize(
    ("running", "allocated"),
    [
        pytest.param({42}, {42: ()}, id="Slurm manages no GPUs"),
        pytest.param({42}, {}, id="the job's GPUs are not certain"),
        pytest.param({42}, {42: ("GPU-0",)}, id="another GPU than Slurm gave"),
        pytest.param(set(), {}, id="the agent began after the job"),
    ],
)
def test_a_job_that_is_not_known_to_have_ended(
    node: Any, running: set[int], allocated: dict[int, tuple[str, ...]]
) -> None:
    """Its process is no leftover, whatever is known of its GPUs."""
    node.have_gpus(2)
    node.put(SCOPE, "")
    node.process(900, "python", cgroup=JOB)
    on_gpu(node, 1, 900)
    node.expected = nodeview.Expectations(
        running=frozenset(running), ended=frozenset({41}), allocated=allocated, uids=frozenset()
    )
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


@pytest.mark.skipif(os.geteuid() != 0, reason="the files of a slurmstepd are root's")
def test_without_cgroups_a_job_that_began_before_the_agent(node: Any) -> None:
    """The agent does not know its owner; its process descends from slurmstepd."""
    node.have_gpus(1)
    node.expected = nodeview.Expectations(uids=frozenset())
    node.process(700, "slurmstepd", cgroup="0::/system.slice/slurmd.service")
    node.process(800, "bash", parent=700, cgroup="0::/system.slice/slurmd.service")
    node.process(903, "python", parent=800, cgroup="0::/system.slice/slurmd.service")
    os.chown(node.root / "proc/903", 1000, 1000)
    on_gpu(node, 0, 903)
    assert node.check("gpu_processes").outcome is Outcome.OK
    node.process(800, "bash", parent=1, cgroup="0::/system.slice/slurmd.service")
    assert node.check("gpu_processes").outcome is Outcome.FAIL
