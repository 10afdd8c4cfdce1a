"""Faults of the whole node: crash, reboot, out of memory, any kernel line; and its cure."""

from __future__ import annotations

import signal

from probing_cluster.sandbox import diagnosed, services
from probing_cluster.sandbox.faults import registry
from probing_cluster.sandbox.machine import daemons, hanging_mount, processes
from probing_cluster.sandbox.nodetree import build, kmsg


@registry.fault("kernel-line")
def kernel_line(target: registry.Target, text: str, *, level: int = kmsg.WARNING) -> None:
    """Any line in the kernel log."""
    target.kernel(text, level=level)


@registry.fault("oom")
def oom(target: registry.Target, *, pid: int = 4711, process: str = "python3", job_id: int = 0) -> None:
    """The kernel's out-of-memory killer ends a process."""
    group = f"/slurm/uid_0/job_{job_id}/step_0" if job_id else "/system.slice"
    target.kernel(
        f"{process} invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0, oom_score_adj=0",
        f"oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=/,mems_allowed=0-1,oom_memcg={group},"
        f"task_memcg={group},task={process},pid={pid},uid=0",
        f"Memory cgroup out of memory: Killed process {pid} ({process}) total-vm:81237004kB, anon-rss:67108012kB, "
        "file-rss:0kB, shmem-rss:0kB, UID:0 pgtables:131072kB oom_score_adj:0",
        level=kmsg.ERROR,
    )


@registry.fault("node-crash")
def node_crash(target: registry.Target) -> None:
    """The node dies at once: slurmd, its job steps and the agent are killed."""
    slurm, rest = {f"slurmd-{target.node}"}, {f"job-{target.node}", services.agent_role(target.node)}
    # Slurm's own first, stopped before anything is killed: a dying step must not be able to report it.
    processes.send(_pids(target, slurm), signal.SIGSTOP)
    processes.kill(lambda: _pids(target, slurm | rest))


def _pids(target: registry.Target, roles: set[str]) -> list[int]:
    return [p.pid for p in processes.listing(target.layout.directory) if p.role in roles]


@registry.fault("node-reboot")
def node_reboot(target: registry.Target) -> None:
    """The node crashes and comes back: a new boot id, an empty kernel log, everything healthy."""
    node_crash(target)
    hanging_mount.stop(target.layout, target.node)
    build.reboot(target.home, target.node, number=target.number, gpus=target.layout.gpus)
    daemons.start_slurmd(target.layout, target.env, target.node, rebooted=True)
    if not target.layout.bare:
        services.start_agents(target.layout, target.env, [target.node])


@registry.fault("node-start")
def node_start(target: registry.Target) -> None:
    """A crashed node's slurmd and agent are started again, without a reboot."""
    daemons.start_slurmd(target.layout, target.env, target.node)
    if not target.layout.bare:
        services.start_agents(target.layout, target.env, [target.node])


@registry.fault("heal")
def heal(target: registry.Target) -> None:
    """The node's hardware is as new again; its kernel log keeps what it said, and what its agent latched of it stands until `probing-ctl set-healthy NODE`."""
    hanging_mount.stop(target.layout, target.node)
    build.heal(target.home, target.node, number=target.number, gpus=target.layout.gpus)
    diagnosed.cure(target.home, "heal")
