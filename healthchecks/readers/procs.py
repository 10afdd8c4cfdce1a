"""Processes of the node, read once per child from /proc/<pid>/status.

Never stat, wchan, environ or maps: reading those waits for a lock that a process inside an exec may hold for ever.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass

from probing_cluster.core import digits
from probing_cluster.core.catalogue import slurm_cgroup
from probing_cluster.healthchecks import counters, findings, nodeview

KERNEL_THREADS_PARENT = 2

MAX_REMEMBERED = 1000
MAX_ANCESTORS = 64


@dataclass(frozen=True, kw_only=True)
class Process:
    """One process."""

    pid: int
    name: str
    state: str
    parent: int
    uid: int | None = None

    @property
    def key(self) -> str:
        """What tells it from a later process with the same id, as far as files show it that can always be read."""
        return f"{self.pid}:{self.parent}:{self.name}"

    @property
    def kernel_thread(self) -> bool:
        return KERNEL_THREADS_PARENT in (self.pid, self.parent)


def parse_status(text: str, pid: int, uid: int | None = None) -> Process | None:
    """A /proc/<pid>/status; the kernel writes a name's line ends as `\\n`."""
    rows = dict(line.partition(":\t")[::2] for line in text.split("\n"))
    parent = nodeview.to_int(rows.get("PPid"))
    if parent is None or not rows.get("State"):
        return None
    return Process(pid=pid, name=rows.get("Name", ""), state=rows["State"][0], parent=parent, uid=uid)


def listing(node: nodeview.NodeView) -> list[Process]:
    """Every process; raises Absent where the node shows none."""
    found = node.shared("procs.listing", lambda: _listing(node))
    if not found:
        raise findings.Absent("no processes in /proc")
    return found


def _listing(node: nodeview.NodeView) -> list[Process]:
    names = os.listdir(node.path("/proc"))  # noqa: PTH208
    return [p for name in names if digits.is_number(name) and (p := one(node, int(name)))]


def one(node: nodeview.NodeView, pid: int) -> Process | None:
    """The process `pid`; None when it is gone (a zombie counts as there)."""
    path = node.path(f"/proc/{pid}")
    try:
        uid = os.stat(path).st_uid  # noqa: PTH116
        text = node.text(f"/proc/{pid}/status")
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return None
    return parse_status(text, pid, uid) if text else None


def cgroups(node: nodeview.NodeView, pid: int) -> list[str]:
    """The cgroup paths of a process; none when it is gone."""
    try:
        text = node.text(f"/proc/{pid}/cgroup")
    except (ProcessLookupError, PermissionError):
        return []
    return [line.partition(":")[2].partition(":")[2] for line in (text or "").splitlines()]


def in_slurm_job(paths: Sequence[str]) -> bool:
    """Whether these cgroups belong to a Slurm step, by job id (to 25.11) or by SLUID (26.05)."""
    return any(part in path for path in paths for part in ("slurmstepd.scope", "/slurm", "/job_"))


def job_of(node: nodeview.NodeView, pid: int) -> int | None:
    """The job that the process's cgroup names; None where none does, or Slurm's name for the job (SLUID) is unknown."""
    named = next(
        (job for path in cgroups(node, pid) if (job := slurm_cgroup.of_path(path)) is not None), None
    )
    if named is None or named.sluid is None:
        return None if named is None else named.job_id
    return (node.expected.sluids or {}).get(named.sluid)


SLURM_SCOPES = (
    "system.slice/slurmstepd.scope",
    "system.slice/{node}_slurmstepd.scope",
    "cpuset/slurm",
    "memory/slurm",
    "freezer/slurm",
)
"""Where Slurm keeps its jobs below /sys/fs/cgroup: v2 (one slurmd, several slurmd), then v1."""


def slurm_scopes(node: nodeview.NodeView) -> list[str]:
    """The directories of Slurm's cgroups that exist here; none where Slurm does not use cgroups."""
    places = (f"/sys/fs/cgroup/{scope.format(node=node.spec.node)}" for scope in SLURM_SCOPES)
    return [place for place in places if node.exists(place)]


def belongs_to_a_job(node: nodeview.NodeView, process: Process) -> bool | None:
    """Whether the process is part of a job: by its cgroup, else by its owner; None when nobody can tell."""
    if slurm_scopes(node):
        return in_slurm_job(cgroups(node, process.pid))
    uids = node.expected.uids
    if uids is None or process.uid is None:
        return None
    return process.uid in uids or _descends_from_slurmstepd(node, process)


def _descends_from_slurmstepd(node: nodeview.NodeView, process: Process) -> bool:
    """Also true of a job that began before the agent, whose owner the agent does not know."""
    for _ in range(MAX_ANCESTORS):
        parent = one(node, process.parent) if process.parent > 1 else None
        if parent is None:
            return False
        if parent.name == "slurmstepd" and parent.uid == 0:
            return True
        process = parent
    return False


def switches(node: nodeview.NodeView, pid: int) -> str | None:
    """How often it has been scheduled, as one comparable text; None when the node does not tell."""
    try:
        text = node.text(f"/proc/{pid}/status")
    except (ProcessLookupError, PermissionError):
        return None
    counts = [line.rpartition("\t")[2] for line in (text or "").splitlines() if "ctxt_switches" in line]
    return "/".join(counts) or None


def lasting(node: nodeview.NodeView, keys: list[str]) -> dict[str, float]:
    """How long each of `keys` has been seen at every look, seconds."""
    at_s = counters.since_boot_s(node)
    before = node.memory.get("since_s", {})
    node.memory["since_s"] = {key: before.get(key, at_s) for key in keys[:MAX_REMEMBERED]}
    return {key: at_s - since_s for key, since_s in node.memory["since_s"].items()}
