"""Memory held on GPUs nobody uses."""

from __future__ import annotations

from typing import Any

from probing_cluster.core.records import Outcome
from probing_cluster.healthchecks import nodeview
from probing_cluster.healthchecks.readers import nvml


def test_idle(node: Any) -> None:
    """The little that an idle GPU uses is ok."""
    node.have_gpus(8)
    assert node.check("gpu_memory_leftover").outcome is Outcome.OK


def test_held_by_nobody(node: Any) -> None:
    """Memory without job and process warns, much of it fails."""
    node.have_gpus(2)
    node.gpu(1, memory_used_bytes=512 * 2**20)
    finding = node.check("gpu_memory_leftover")
    assert (finding.outcome, finding.device) == (Outcome.WARN, "gpu1")
    node.gpu(1, memory_used_bytes=40 * 2**30)
    assert node.check("gpu_memory_leftover").outcome is Outcome.FAIL


def test_memory_that_others_keep(node: Any) -> None:
    """A hypervisor keeps some of a vGPU's, a Grace's kernel its own pages."""
    node.have_gpus(2, memory_used_bytes=6 * 2**30)
    for name in ("GRID A100D-80C", "NVIDIA A40-48Q", "NVIDIA A100-1-5C", "NVIDIA RTX6000-Ada-48Q"):
        for n in range(2):
            node.gpu(n, name=name)
        assert node.check("gpu_memory_leftover").outcome is Outcome.ABSENT, name
    for name in ("NVIDIA A100-SXM4-80GB", "NVIDIA H100 80GB HBM3", "Tesla V100-PCIE-32GB", "NVIDIA L40S"):
        node.gpu(1, name=name)
        assert node.check("gpu_memory_leftover").outcome is Outcome.FAIL, name
    node.put("sys/devices/system/node/node0/cpulist", "0-71")
    assert node.check("gpu_memory_leftover").outcome is Outcome.FAIL
    node.put("sys/devices/system/node/node1/cpulist", "")
    assert node.check("gpu_memory_leftover").outcome is Outcome.ABSENT


def test_in_use(node: Any) -> None:
    """Memory of a GPU that a job has, or a live process is on, is none of our business."""
    node.have_gpus(2, memory_used_bytes=40 * 2**30)
    node.expected = nodeview.Expectations(allocated={1: ("GPU-0",)})
    node.process(900, "python")
    node.gpu(1, processes=(nvml.GpuProcess(pid=900),))
    assert node.check("gpu_memory_leftover").outcome is Outcome.OK


def test_a_running_job_whose_gpus_are_unknown(node: Any) -> None:
    """Any GPU may be that job's, so its memory is none of our business."""
    node.have_gpus(1, memory_used_bytes=40 * 2**30)
    node.expected = nodeview.Expectations(allocated={}, running=frozenset({7}))
    assert node.check("gpu_memory_leftover").outcome is Outcome.OK
    node.expected = nodeview.Expectations(allocated={}, running=frozenset())
    assert node.check("gpu_memory_leftover").outcome is Outcome.FAIL


def test_not_told(node: Any) -> None:
    """A GPU that does not tell its memory has nothing to judge."""
    node.have_gpus(1, memory_used_bytes=None)
    assert node.check("gpu_memory_leftover").outcome is Outcome.ABSENT
