"""Settings of the compute nodes: the agent, its checks, questions to running jobs, what is kept of ended ones."""

from __future__ import annotations

from dataclasses import dataclass

from probing_cluster.core.record import doc


@dataclass(frozen=True, kw_only=True)
class AgentSettings:
    """[agent]: the node daemon."""

    root: str = doc(
        "filesystem root of the node's /sys, /proc, /dev; tests and the sandbox use a directory", default="/"
    )
    node: str = doc("Slurm node name; empty = $SLURMD_NODENAME, else the short host name", default="")
    socket: str = doc("Unix socket the hooks talk to", default="/run/probing-cluster/agent.sock")
    spool_directory: str = doc("durable event spool and cursors", default="/var/lib/probing-cluster/spool")
    spool_max_bytes: int = doc(
        "size at which the oldest, least severe events are dropped (and counted)", default=268435456
    )
    job_directory: str = doc(
        "where the per-job probe page directories are made", default="/run/probing-cluster/jobs"
    )
    nvml_library: str = doc("path of libnvidia-ml.so.1; empty = the loader's", default="")
    amdsmi_library: str = doc("path of libamd_smi.so; empty = the loader's", default="")
    kernel_log: str = doc(
        "kmsg, journald or file:<path> (a growing file in /dev/kmsg format); auto tries kmsg first",
        default="auto",
    )
    beat_s: float = doc("heartbeat and delivery interval without jobs, seconds", default=10.0)
    job_beat_s: float = doc("the same while the node runs a job, seconds", default=5.0)
    sweep_s: float = doc("interval of the check sweep, seconds", default=300.0)
    poll_s: float = doc("interval of the polled sources (NVML, sysfs, mounts), seconds", default=10.0)
    stall_least_s: float = doc(
        "a training rank is never called stalled before this, however fast its steps, seconds", default=30.0
    )
    stall_startup_s: float = doc(
        "the same where it has no history yet (importing, compiling, first steps), seconds", default=900.0
    )
    call_deadline_s: float = doc(
        "longest a call that can hang may take in its child process, seconds", default=5.0
    )
    database_url: str = doc("where to deliver; empty = [database] url", default="")
    door: str = doc(
        "host:port of a door that hands deliveries on (docs/scale.md), several separated by commas; the database itself is then the way "
        "out when none answers; empty = the database itself",
        default="",
    )
    database_keep_open: bool = doc(
        "keep the connection between deliveries: for PgBouncer, where a client is cheap and a TLS handshake is not",
        default=False,
    )
    textfile: str = doc(
        "file for node_exporter's textfile collector, such as /var/lib/node_exporter/probing.prom; empty = none",
        default="",
    )
    gpu_numbering: str = doc(
        "what the numbers in SLURM_JOB_GPUS count: nvml (the order of PCI addresses), minor (N of /dev/nvidiaN); auto = as gres.conf says, without one only where both agree",
        default="auto",
    )
    expect_gpus: int = doc("GPUs this node must have; 0 = the most ever seen", default=0)
    expect_mounts: tuple[str, ...] = doc(
        "mount points that must be there; empty = those of fstab, mount units and BeeGFS's list seen when healthy",
        default=(),
    )
    expect_services: tuple[str, ...] = doc(
        "systemd units (or process names) that must run; empty = the known ones seen running when healthy",
        default=(),
    )
    exclude_hcas: tuple[str, ...] = doc("InfiniBand devices never looked at (globs)", default=())
    alarm_words: tuple[str, ...] = doc(
        "words that a running job's output must not say: `loss is nan`, `NCCL WARN`; its owner is told once a job and word; empty = outputs of running jobs are not read",
        default=(),
    )
    alarm_every_s: float = doc(
        "interval at which what running jobs have written is read for `alarm_words`, seconds", default=60.0
    )


@dataclass(frozen=True, kw_only=True)
class ChecksSettings:
    """[checks]: the health checks of the agent and of probing-check."""

    site_file: str = doc(
        "site file: which checks run where, with which limits (docs/checks.md); empty = the defaults",
        default="",
    )
    state_file: str = doc(
        "where the agent's checks remember counters between sweeps of one boot",
        default="/var/lib/probing-cluster/checks.json",
    )
    command_directories: tuple[str, ...] = doc(
        "where tools (ipmitool, nvme, systemctl …) are looked up; empty = the system's", default=()
    )
    watchdog_s: float = doc(
        "longest a whole sweep may take, seconds (Slurm ends a HealthCheckProgram at 60 s)", default=30.0
    )


@dataclass(frozen=True, kw_only=True)
class LiveSettings:
    """[live]: `probing-ctl sql`."""

    python: str = doc(
        "Python with Probing Cluster on the compute nodes; empty = the path of the asker's own", default=""
    )
    timeout_s: float = doc("how long an answer is waited for, seconds", default=5.0)
    agents_timeout_s: float = doc(
        "the same where the question goes through the service and the nodes' agents, which come for it every five to ten seconds",
        default=20.0,
    )


@dataclass(frozen=True, kw_only=True)
class KeptSettings:
    """[kept]: what nodes keep of an ended attempt for its owner: the program's own tables, the last steps and collectives."""

    directory: str = doc(
        "the user's own directory for it, on a file system that nodes and login hosts share; %u is the user's name, %h the home, as in %h/.probing; below a parent that all may write to another user may make a user's folder first, and then nothing of that user's is kept: let an administrator make %u's there; empty = nothing is kept",
        default="",
    )
    days: float = doc("days after which a user's attempts are removed", default=30.0)
    job_bytes: int = doc("bytes that the nodes of one attempt may write together", default=67108864)
    user_bytes: int = doc(
        "bytes of all a user's attempts, beyond which the oldest are removed", default=1073741824
    )
