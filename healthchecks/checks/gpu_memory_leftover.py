"""No memory is held on a GPU that nobody uses."""

from __future__ import annotations

from dataclasses import dataclass

from probing_cluster.core import records
from probing_cluster.healthchecks import findings, nodeview, registry
from probing_cluster.healthchecks.readers import gpus, nvml


@dataclass(frozen=True, kw_only=True)
class Reading:
    """The GPUs, and the UUIDs that a job has or a process is on: all of them while a job runs whose GPUs are not known."""

    gpus: tuple[nvml.NvmlGpu, ...]
    in_use: frozenset[str | None]
    of_system: bool = False
    """Whether the kernel has NUMA nodes without CPUs: a Grace's kernel keeps its own pages in the GPU's memory."""


def read(node: nodeview.NodeView) -> Reading:
    node_gpus = gpus.present(node)
    given = node.expected.allocated or {}
    in_use: set[str | None] = {u for uuids in given.values() for u in uuids}
    if (node.expected.running or frozenset()) - given.keys():
        in_use.update(gpu.uuid for gpu in node_gpus)
    for gpu in node_gpus:
        if gpu.processes:  # even one we cannot see: it may live in another process namespace
            in_use.add(gpu.uuid)
    base = "/sys/devices/system/node"
    numa = [n for n in node.names(base) if n.startswith("node")]
    bare = any(node.text(f"{base}/{n}/cpulist") == "" for n in numa)
    return Reading(gpus=node_gpus, in_use=frozenset(in_use), of_system=bare)


def judge(reading: Reading, limits: registry.Limits) -> findings.Finding:
    def one(gpu: nvml.NvmlGpu) -> findings.Finding:
        if reading.of_system or gpu.virtual:
            return findings.absent(f"{gpu.device}: others than jobs keep memory there", device=gpu.device)
        if gpu.memory_used_bytes is None or gpu.processes is None or gpu.mig:
            return gpus.lacks(gpu, "figures of memory and processes", "memory", "processes")
        if gpu.uuid in reading.in_use or gpu.memory_used_bytes <= limits["warn_bytes"]:
            return gpus.ok(gpu)
        make = findings.fail if gpu.memory_used_bytes > limits["fail_bytes"] else findings.warn
        limit = limits["fail_bytes"] if make is findings.fail else limits["warn_bytes"]
        text = f"{gpu.memory_used_bytes / 2**20:.0f} MiB in use and no process there"
        return gpus.bad(make, gpu, text, **findings.amount(gpu.memory_used_bytes, limit, "bytes"))

    return findings.merge(
        gpus.each(reading.gpus, one), healthy=f"no memory left behind on {gpus.count(reading.gpus)}"
    )


CHECK = registry.Check(
    proves="A GPU that no job and no process uses has its memory free for the next job.",
    component="gpu",
    domain=records.Domain.SYSTEM_SOFTWARE,
    severity=records.Severity.LOW,
    lane="gpu",
    fails="more than fail_bytes in use on a GPU without job and process; not judged while a job runs whose GPUs are unknown",
    warns="more than warn_bytes",
    needs="a GPU that tells its memory use, is no vGPU, and whose memory the kernel does not use as its own (Grace)",
    next_step="fuser -v /dev/nvidia* finds a hidden holder; without one, reset the GPU when the node is empty.",
    read=read,
    judge=judge,
    thresholds=(
        registry.Threshold(
            "warn_bytes",
            256 * 2**20,
            "bytes",
            "memory in use (without the driver's own reserve) above which we warn",
            "ours; GCM fails above 15 MiB, which counts the driver's own reserve",
        ),
        registry.Threshold(
            "fail_bytes", 2 * 2**30, "bytes", "memory in use that fails", "ours: 2.5 % of an 80 GB GPU"
        ),
    ),
)
