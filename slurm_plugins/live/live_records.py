"""Jobs and nodes as Slurm has them right now; the same records from pyslurm, JSON and text."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime

from probing_cluster.core.record import doc, record

JOB_BASES = frozenset(
    {
        "PENDING",
        "RUNNING",
        "SUSPENDED",
        "COMPLETED",
        "CANCELLED",
        "FAILED",
        "TIMEOUT",
        "NODE_FAIL",
        "PREEMPTED",
    }
    | {"BOOT_FAIL", "DEADLINE", "OUT_OF_MEMORY"}
)
ENDED_STATES = JOB_BASES - {"PENDING", "RUNNING", "SUSPENDED"}
NODE_BASES = frozenset({"UNKNOWN", "DOWN", "IDLE", "ALLOCATED", "ERROR", "MIXED", "FUTURE"})

_NODE_WORDS: Mapping[str, tuple[str, ...]] = {
    # sinfo's words for people are a base and a flag in one.
    "DRAINED": ("IDLE", "DRAIN"),
    "DRAINING": ("ALLOCATED", "DRAIN"),
    "FAILING": ("ALLOCATED", "FAIL"),
    "MAINT": ("MAINTENANCE",),
    "REBOOT": ("REBOOT_REQUESTED",),
    "REBOOT^": ("REBOOT_ISSUED",),
    "POWERED_OFF": ("POWERED_DOWN",),
    "NO_RESPOND": ("NOT_RESPONDING",),
}
_NODE_SIGNS: Mapping[str, str] = {
    "*": "NOT_RESPONDING",
    "~": "POWERED_DOWN",
    "#": "POWERING_UP",
    "!": "POWER_DOWN",
    "%": "POWERING_DOWN",
    "$": "MAINTENANCE",
    "@": "REBOOT_REQUESTED",
    "^": "REBOOT_ISSUED",
    "-": "PLANNED",
    "+": "",
}


@record
class LiveJob:
    """One job in the controller's memory."""

    job_id: int = doc("raw job id")
    array_job_id: int | None = doc("array master id", default=None)
    array_task_id: int | None = doc("array task index; null for the unsplit remainder too", default=None)
    het_job_id: int | None = doc("het job leader", default=None)
    het_offset: int | None = doc("het component", default=None)
    name: str = doc("job name", default="")
    user: str = doc("user name, else uid", default="")
    uid: int | None = doc("owner", default=None)
    account: str = doc("account", default="")
    partition: str = doc("partition", default="")
    qos: str = doc("quality of service", default="")
    state: str = doc("base state, upper case")
    flags: frozenset[str] = doc("state flags: COMPLETING, CONFIGURING …", default=frozenset())
    submit_at: datetime | None = doc("submit time of this attempt", default=None)
    eligible_at: datetime | None = doc("eligible time", default=None)
    start_at: datetime | None = doc("when this attempt started; null while pending", default=None)
    time_limit_s: float | None = doc("limit, seconds; null for unlimited", default=None)
    restart_count: int = doc("restarts so far", default=0)
    nodes: tuple[str, ...] = doc("allocated nodes", default=())
    n_gpus: int | None = doc("GPUs allocated; null when Slurm does not say", default=None)
    gpus: Mapping[str, tuple[int, ...]] | None = doc("node to GPU indices; null when unsaid", default=None)
    requeue: bool = doc("false with --no-requeue", default=False)
    batch: bool = doc("false for srun and salloc", default=False)
    reason: str = doc("pending or end reason", default="")
    description: str = doc("Slurm's own words beside the reason", default="")
    priority: int | None = doc("0 while held; null when Slurm does not say", default=None)
    dependency: str = doc("what it waits for, as Slurm writes it: afterok:12(failed)", default="")
    command: str = doc("path of its batch script; empty where it came through a pipe", default="")
    expedite: bool = doc("true with --requeue=expedite: Slurm brings it back by itself", default=False)
    end_at: datetime | None = doc("when it ended, or would at its limit", default=None)
    failed_node: str | None = doc("node Slurm names as failed", default=None)
    excluded_nodes: tuple[str, ...] = doc("nodes its user excluded", default=())
    required_nodes: tuple[str, ...] = doc("nodes it asks for by name (--nodelist)", default=())
    work_dir: str | None = doc("working directory", default=None)
    stdout_path: str | None = doc("standard output, expanded", default=None)

    @property
    def running(self) -> bool:
        """True while it holds nodes."""
        return self.state in {"RUNNING", "SUSPENDED"}

    @property
    def completing(self) -> bool:
        """True until its nodes are free; Slurm's text shows that in place of how the job ended."""
        return "COMPLETING" in self.flags | {self.state}

    @property
    def ended(self) -> bool:
        """True when it has ended and its nodes are free."""
        return self.state in ENDED_STATES and not self.completing

    @property
    def held_by_requeue(self) -> bool:
        """True while `requeuehold` holds it; a person's hold has other words."""
        words = f"{self.description} {self.reason}".lower().replace(" ", "_")
        return self.state == "PENDING" and self.priority in (0, None) and "requeued_in_held_state" in words

    @property
    def name_for_slurm(self) -> str:
        """The job as scontrol must be told of it: the raw id of an array's last task would mean the whole array."""
        if self.array_job_id is not None and self.array_task_id is not None:
            return f"{self.array_job_id}_{self.array_task_id}"
        return str(self.job_id)


@record
class LiveNode:
    """One node in the controller's memory."""

    name: str = doc("node name")
    state: str = doc("base state, upper case: IDLE, ALLOCATED, MIXED, DOWN …")
    flags: frozenset[str] = doc("state flags: DRAIN, NOT_RESPONDING, MAINTENANCE …", default=frozenset())
    reason: str = doc("why it is out of service, empty for nothing", default="")
    reason_at: datetime | None = doc("when it was written", default=None)
    reason_by: str = doc("whose account wrote it; empty when Slurm does not say", default="")
    boot_at: datetime | None = doc("when it booted", default=None)
    gres: str = doc("gres text: gpu:h100:8(S:0-1)", default="")
    n_gpus: int | None = doc("GPUs configured; null when Slurm does not say", default=None)
    features: tuple[str, ...] = doc("available features", default=())
    active_features: tuple[str, ...] = doc("active features", default=())
    partitions: tuple[str, ...] = doc("partitions", default=())
    reservation: str = doc("reservation it is in", default="")
    version: str = doc("slurmd version", default="")
    address: str = doc("where it is reached (NodeAddr)", default="")

    @property
    def states(self) -> frozenset[str]:
        """Base state and flags together."""
        return self.flags | {self.state}


def job_state(words: Iterable[str]) -> tuple[str, frozenset[str]]:
    """Base and flags of a job's state, in any release's writing."""
    found = [word.strip().upper() for item in words for word in item.split("+") if word.strip()]
    base = next((word for word in found if word in JOB_BASES), found[0] if found else "UNKNOWN")
    return base, frozenset(found) - {base}


def node_state(words: Iterable[str]) -> tuple[str, frozenset[str]]:
    """Base and flags of a node's state: `IDLE+DRAIN*`, `draining`, ["IDLE", "DRAIN"]."""
    found: list[str] = []
    for item in words:
        for word in item.upper().split("+"):
            found += _node_words(word.strip())
    base = next((word for word in found if word in NODE_BASES), "UNKNOWN")
    return base, frozenset(found) - {base, ""}


def _node_words(word: str) -> list[str]:
    flags: list[str] = []
    while word and word[-1] in _NODE_SIGNS and word not in _NODE_WORDS:
        flags.append(_NODE_SIGNS[word[-1]])
        word = word[:-1]
    return [*_NODE_WORDS.get(word, (word,)), *flags]


def started(state: str, nodes: tuple[str, ...], start_at: datetime | None) -> datetime | None:
    """The start of a job that has nodes; before that Slurm's start time is a forecast, or the moment of its cancellation."""
    return start_at if nodes and state != "PENDING" else None


def ended(state: str, limit_s: float | None, end_at: datetime | None) -> datetime | None:
    """The end of a job, or its limit; of one that lasts without a limit Slurm's JSON says a year after its start, which is neither."""
    return None if limit_s is None and state not in ENDED_STATES else end_at
