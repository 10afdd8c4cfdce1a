"""Settings for acting on nodes and jobs: drains and restarts, tests, repair."""

from __future__ import annotations

from dataclasses import dataclass

from probing_cluster.core import vocabulary
from probing_cluster.core.record import doc


@dataclass(frozen=True, kw_only=True)
class PolicySettings:
    """[policy]: what may be done to nodes."""

    observe_only: bool = doc("true: decide and record, touch nothing (the installed default)", default=True)
    fresh_s: float = doc(
        "an event older than this causes no action, seconds; docs/policy.md has the exceptions", default=300.0
    )
    hold_s: float = doc(
        "how long a fault of `hold_kinds` must stand before it acts; longer than `agent.poll_s`, seconds",
        default=15.0,
    )
    hold_kinds: tuple[str, ...] = doc(
        "kinds of fault that often end by themselves, and their checks: links retrain, file servers fail over",
        default=vocabulary.PASSING_KINDS,
    )
    budget_nodes: int = doc("most nodes drained per window, whole cluster", default=5)
    budget_frac: float = doc("most of the cluster's nodes drained per window, 0..1", default=0.05)
    budget_partition_frac: float = doc("most of one partition's nodes drained per window, 0..1", default=0.25)
    budget_window_s: float = doc("length of the budget window, seconds", default=3600.0)
    drained_frac: float = doc(
        "most of the cluster's nodes out of service by drains of ours at one time, however old, 0..1",
        default=0.1,
    )
    drained_partition_frac: float = doc(
        "most of one partition's nodes out of service by drains of ours at one time, 0..1", default=0.5
    )
    common_frac: float = doc(
        "a fault that more than this share of the nodes in service (and more than three) show at once drains none of them; 1 = no such rule, 0..1",
        default=0.05,
    )
    requeue: bool = doc("requeue the jobs of a node drained for a high-severity fault", default=True)
    restart_ended: bool = doc(
        "requeue a job that ended by itself because of hardware or its node, away from that node",
        default=True,
    )
    restarts_per_run: int = doc(
        "most times one run is requeued within `restart_window_s`: after its end, for a hang, or off a node we drain",
        default=3,
    )
    restart_window_s: float = doc("length of that window, seconds", default=86400.0)
    on_hang: str = doc(
        "tell or requeue: what is done with a job whose ranks hang and whose culprit is named; "
        "`--probing-on-hang=` says it per job",
        default="tell",
    )
    hang_grace_s: float = doc(
        "how long a hang stands, named and unchanged, before its job is requeued, seconds", default=60.0
    )
    keep_log_bytes: int = doc(
        "of a log that the restart would truncate so much is copied, its end", default=268435456
    )
    refusal_ttl_s: float = doc(
        "how long a permission lets a node's Prolog refuse jobs, seconds", default=60.0
    )
    auto_resume: bool = doc(
        "resume nodes we drained once they have been healthy for long enough", default=True
    )
    resume_green_s: float = doc("how long without any fault before a node is resumed, seconds", default=900.0)
    resume_green_beats: int = doc(
        "how many heartbeats without any fault before a node is resumed", default=30
    )
    reboot_kinds: tuple[str, ...] = doc(
        "kinds of fault that only a reboot cures: no resume before one was seen",
        default=vocabulary.REBOOT_KINDS,
    )
    escalate_cures: int = doc(
        "after so many cures the same fault again stays drained for a hardware inspection", default=2
    )
    escalate_days: float = doc("how far back cures of the same fault count, days", default=30.0)
    idle_s: float = doc(
        "a job whose GPUs had no process or no load for this long is told to its owner and shown in `nodes`; 0 = never, seconds",
        default=1800.0,
    )


@dataclass(frozen=True, kw_only=True)
class DiagnosticsSettings:
    """[diagnostics]: tests of nodes that are out of service."""

    command: str = doc(
        "the probing-diagnose of the nodes, an absolute path; empty = beside this service's own Python",
        default="",
    )
    torch_python: str = doc(
        "a Python with torch on the nodes, for tests of GPUs; empty = GPUs are tested by nccl-tests and dcgmi only",
        default="",
    )
    tests: tuple[str, ...] = doc("tests run by default; empty = every one that is registered", default=())
    test_s: float = doc("longest one test may take, seconds", default=120.0)
    round_s: float = doc("longest one round of tests of one node may take, seconds", default=1200.0)
    references: int = doc(
        "idle nodes that join a drained node's tests as references; each further round takes as many more",
        default=2,
    )
    base_port: int = doc(
        "first TCP port of the tests between nodes; each takes one of the next 4,000", default=42000
    )
    account: str = doc("Slurm account of the tests' jobs; empty = the user's default", default="")
    disk_directory: str = doc(
        "where the disk test writes on a node; empty = the system's temporary directory", default=""
    )
    mounts: tuple[str, ...] = doc(
        "directories the mount test writes to and reads from, on every node", default=()
    )


@dataclass(frozen=True, kw_only=True)
class RepairSettings:
    """[repair]: what is done with a node that we drained (docs/repair.md)."""

    test_before_return: bool = doc(
        "a drained node is tested before it returns; false = it returns after policy.resume_green_s without a fault, untested",
        default=True,
    )
    quiet_s: float = doc(
        "how long its agent must show no fault before a node is tested, seconds", default=30.0
    )
    steps_file: str = doc(
        "TOML file of repair steps per cause; empty = the table in docs/repair.md", default=""
    )
    reset_command: str = doc("run on the node to reset its GPUs; empty = the step is left out", default="")
    reload_command: str = doc(
        "run on the node to reload the GPU driver; empty = the step is left out", default=""
    )
    reboot: bool = doc("may reboot nodes by `scontrol reboot` (needs Slurm's RebootProgram)", default=False)
    reboot_s: float = doc("longest a reboot may take, seconds", default=1800.0)
    power_command: str = doc(
        "run by the service with the node's name as its argument, to power-cycle it; empty = the step is left out",
        default="",
    )
    ticket_command: str = doc(
        "run by the service with the bundle's path as its argument, to open a ticket; empty = none",
        default="",
    )
    ticket_webhook: str = doc("https URL that gets the ticket as JSON; empty = none", default="")
    bundle_directory: str = doc(
        "where bundles for tickets are kept", default="/var/lib/probing-cluster/bundles"
    )
    most_rounds: int = doc(
        "rounds of tests that prove a node neither bad nor well, before a person is asked", default=3
    )
    rounds_at_once: int = doc(
        "most drained nodes that are tested at once; the others wait, drained", default=8
    )
