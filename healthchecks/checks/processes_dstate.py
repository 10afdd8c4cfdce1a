"""No process has been sleeping in the kernel where nothing can wake it."""

from __future__ import annotations

import re
from dataclasses import dataclass

from probing_cluster.core import records
from probing_cluster.healthchecks import findings, nodeview, registry
from probing_cluster.healthchecks.readers import procs

MAX_STACKS = 16
"""Stacks read in one look; a process beyond them fails nothing."""
_USER_SLICE = re.compile(r"/user-(\d{1,10})\.slice")
_OF_ANOTHER = re.compile(
    r"\b(?:proc_(?:pid|tid|tgid|fd|ns|single|task|map_files)_\w+|do_task_stat|environ_read|mem_rw|m_start|__access_remote_vm|mm_access|proc_mem_open"
    r"|\w{0,16}(?:maps|smaps|smaps_rollup|pagemap|environ|auxv|mem)_open|process_vm_rw\w*|process_madvise|pidfd_getfd|kcmp|get_robust_list)\b"
)
"""Kernel functions in which a process reads another one's /proc: `ps` hangs there beside a user's process inside an exec."""


_FUSE = re.compile(r"\b(?:request_wait_answer|fuse_\w+)\+0x")
"""Kernel functions in which a process waits for the program behind a FUSE file system: any user may mount one, and `df` or an exporter looks in."""


@dataclass(frozen=True, kw_only=True)
class Stuck:
    """A process in D state."""

    process: procs.Process
    lasted_s: float
    """How long it has not run once."""
    by_user: str = ""
    """How a user may have caused it; empty where no user can."""


@dataclass(frozen=True, kw_only=True)
class Reading:
    """Processes in D state now, and how many processes there are."""

    stuck: tuple[Stuck, ...]
    total: int


def read(node: nodeview.NodeView) -> Reading:
    everyone = procs.listing(node)
    stuck = [p for p in everyone if p.state == "D" and not p.kernel_thread]
    # A process that does much I/O is in D state at many looks; one whose switch counts moved has run between them.
    keys = {f"{p.key}:{procs.switches(node, p.pid)}": p for p in stuck}
    lasting_s = procs.lasting(node, list(keys))
    found: list[Stuck] = []
    left = MAX_STACKS
    for key, process in keys.items():
        lasted_s, by_user = lasting_s.get(key, 0.0), ""
        if lasted_s >= node.limits["lasting_s"] and not (by_user := _of_user(node, process)):
            by_user, left = _of_stack(node, process, left)
        found.append(Stuck(process=process, lasted_s=lasted_s, by_user=by_user))
    return Reading(stuck=tuple(found), total=len(everyone))


def _of_user(node: nodeview.NodeView, process: procs.Process) -> str:
    """Whether the process is a user's: of a job or a login, also where a setuid program made it root's."""
    least = node.limits["uid_min"]
    # 65534 is nobody: daemons run so, no person.
    if process.uid is not None and least <= process.uid != 65534:
        return "its user can cause that"
    logins = _USER_SLICE.findall("\n".join(procs.cgroups(node, process.pid)))
    if any(int(uid) >= least for uid in logins) or procs.belongs_to_a_job(node, process):
        return "it is part of a user's job or login"
    return ""


def _of_stack(node: nodeview.NodeView, process: procs.Process, left: int) -> tuple[str, int]:
    """Whether a system's process hangs on a user's doing, and how many stacks may still be read; by a child, for the file may hang, too."""
    if not left:
        return "its stack was not read", 0
    try:
        stack = node.run("cat", node.path(f"/proc/{process.pid}/stack"), deadline_s=1.0).stdout.decode(
            "utf-8", "replace"
        )
    except findings.Absent:
        return "", left
    except findings.Undetermined:
        return "", 0  # inside an exec, on a file of the system; no time is left for others
    if "__refrigerator+0x" in stack:
        return "its cgroup is frozen", left - 1
    if _FUSE.search(stack):
        return "it waits for the program behind a FUSE file system", left - 1
    return ("it waits for another process's /proc" if _OF_ANOTHER.search(stack) else ""), left - 1


def judge(reading: Reading, limits: registry.Limits) -> findings.Finding:
    parts = [findings.ok("")]
    for one in reading.stuck:
        if one.lasted_s >= limits["lasting_s"]:
            process = one.process
            text = f"process {process.pid} ({process.name}, uid {process.uid}) in D state for {one.lasted_s / 60:.0f} min"
            facts = {"measured": round(one.lasted_s), "threshold": limits["lasting_s"], "unit": "s"}
            made = findings.warn if one.by_user else findings.fail
            text += f"; {one.by_user}" if one.by_user else ""
            parts.append(made(text, device=process.name, detail={"pid": process.pid}, **facts))
    now = f", {len(reading.stuck)} in D state just now" if reading.stuck else ""
    return findings.merge(parts, healthy=f"{reading.total} processes, none stuck{now}")


CHECK = registry.Check(
    proves="No process has been stuck in the kernel (D state) for long.",
    component="node",
    domain=records.Domain.SYSTEM_SOFTWARE,
    severity=records.Severity.LOW,
    fails="the same process of the system is in D state at every look for lasting_s and has not run once between them",
    warns="the process is a user's, or waits for another one's /proc or a FUSE file system: users can cause that (a parent after vfork whose child stands "
    "still, a mount of their own that does not answer). Mounts and drivers that hang have checks of their own",
    needs="processes in /proc",
    next_step="cat /proc/<pid>/stack names what it waits for: a file server, the GPU driver, a disk. It cannot be killed.",
    read=read,
    judge=judge,
    thresholds=(
        registry.Threshold(
            "lasting_s",
            300.0,
            "s",
            "how long a process must be in D state without running once to fail",
            "GCM check-dstate 300 s",
        ),
        registry.Threshold("uid_min", 1000, "", "lowest uid of an ordinary user", "login.defs UID_MIN"),
    ),
)
