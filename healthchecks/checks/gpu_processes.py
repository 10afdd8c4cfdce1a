"""Only running jobs use the GPUs."""

from __future__ import annotations

import re
from dataclasses import dataclass

from probing_cluster.core import records
from probing_cluster.healthchecks import findings, nodeview, registry
from probing_cluster.healthchecks.readers import gpus, nvml, procs

_CONTAINER = re.compile(r"/(?:docker|libpod|crio|cri-containerd|containerd|buildkit)[-/:]|kubepods")
"""Cgroups of the services that start containers for others."""


@dataclass(frozen=True, kw_only=True)
class User:
    """A live process on a GPU."""

    gpu: nvml.NvmlGpu
    pid: int
    name: str
    uid: int | None
    in_job: bool | None
    """None: nobody can tell (Slurm without cgroups, and its jobs' owners not known)."""
    ended_job: int | None
    """The job it was part of, where that job has ended here; None where its job runs or is not known."""
    beside_job: bool = False
    """It is in no job's cgroup and may be a running job's: of an owner with jobs here, or in a container while jobs run."""


@dataclass(frozen=True, kw_only=True)
class Reading:
    """The GPUs and who is on them."""

    gpus: tuple[nvml.NvmlGpu, ...]
    users: tuple[User, ...]


def read(node: nodeview.NodeView) -> Reading:
    node_gpus = gpus.present(node)
    ended = node.expected.ended or frozenset()
    users: list[User] = []
    for gpu in node_gpus:
        for running in gpu.processes or ():
            # A process id that NVML still lists and the kernel no longer has is not a process.
            process = procs.one(node, running.pid)
            if process is not None:
                inside = procs.belongs_to_a_job(node, process)
                contained = bool(_CONTAINER.search("\n".join(procs.cgroups(node, running.pid))))
                job = procs.job_of(node, running.pid)
                users.append(
                    User(
                        gpu=gpu,
                        pid=running.pid,
                        name=process.name,
                        uid=process.uid,
                        in_job=inside,
                        ended_job=job if job in ended else None,
                        beside_job=process.uid in (node.expected.uids or ())
                        or (contained and bool(node.expected.running)),
                    )
                )
    return Reading(gpus=node_gpus, users=tuple(users))


def judge(reading: Reading, limits: registry.Limits) -> findings.Finding:
    parts = gpus.each(
        reading.gpus,
        lambda g: gpus.lacks(g, "process list", "processes") if g.processes is None else gpus.ok(g),
    )
    for user in reading.users:
        if user.name in limits["allow"]:
            continue
        label = f"process {user.pid} ({user.name}, uid {user.uid})"
        detail = {**user.gpu.identity, "pid": user.pid}
        if user.in_job is False:
            make = findings.warn if user.beside_job else findings.fail
            where = "runs outside the jobs' cgroups" if user.beside_job else "belongs to no job"
            parts.append(make(f"{user.gpu.device}: {label} {where}", device=user.gpu.device, detail=detail))
        elif user.ended_job is not None:
            text = f"{user.gpu.device}: {label} is left over from job {user.ended_job}, which has ended"
            parts.append(findings.fail(text, device=user.gpu.device, detail=detail))
    return findings.merge(
        parts, healthy=f"{len(reading.users)} processes on {gpus.count(reading.gpus)}, all of jobs"
    )


CHECK = registry.Check(
    proves="Nothing but the running jobs uses the GPUs.",
    component="gpu",
    domain=records.Domain.SYSTEM_SOFTWARE,
    severity=records.Severity.LOW,
    lane="gpu",
    fails="a live process on a GPU is part of no job (by its cgroup; by its owner where Slurm uses none), or of a job that has ended here",
    warns="it is part of no job's cgroup, but its owner has jobs here, or it runs in a container while jobs do: the service of the "
    "containers started it for one of them",
    needs="a GPU that lists its processes",
    next_step="Find the owner (the process id is in the message); end it, or reboot if it is in D state.",
    read=read,
    judge=judge,
    thresholds=(
        registry.Threshold(
            "allow",
            [
                "nvidia-persiste",
                "nv-hostengine",
                "dcgm",
                "dcgm-exporter",
                "dcgmi",
                "nvvs",
                "Xorg",
                "nvidia-smi",
                "nvidia-cuda-mps",
                "nv-fabricmanage",
            ],
            "",
            "process names (as the kernel keeps them, 15 characters) that may be there outside jobs",
            "NVIDIA's own daemons; GCM running_procs",
        ),
    ),
)
