"""Records of jobs: attempts, why they ended, what they cost, and what their restarts depend on."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from probing_cluster.core.record import doc, record
from probing_cluster.core.records.base import Confidence, Domain, FromRow


@record
class JobAttempt(FromRow):
    """One start of a job; a requeue keeps the job id and makes another attempt."""

    cluster: str = doc("Slurm cluster name")
    job_id: int = doc("Slurm's raw job id (JobIDRaw)")
    submit_at: datetime = doc("submit time of this attempt, UTC; part of the key, since requeues keep the id")
    attempt: int = doc("1 for the first start of this job id, counted by submit time", default=1)
    array_job_id: int | None = doc("array master id, for tasks of an array", default=None)
    array_task_id: int | None = doc("array task index", default=None)
    het_job_id: int | None = doc("heterogeneous job leader id", default=None)
    het_offset: int | None = doc("component index in the heterogeneous job", default=None)
    eligible_at: datetime | None = doc("when it could first have started, UTC", default=None)
    start_at: datetime | None = doc("when it started, UTC", default=None)
    end_at: datetime | None = doc("when it ended, UTC; null while running", default=None)
    suspended_s: float = doc("seconds it was suspended", default=0.0)
    state: str = doc("Slurm's base state: COMPLETED, FAILED, NODE_FAIL, REQUEUED, RUNNING …")
    exit_code: int | None = doc("exit status of the batch script", default=None)
    exit_signal: int | None = doc("signal that ended it, 0 or null for none", default=None)
    derived_exit_code: int | None = doc("highest exit status of its steps", default=None)
    nodes: tuple[str, ...] = doc("node names in Slurm's order", default=())
    n_gpus: int | None = doc(
        "GPUs allocated in total; null when the site does not account them", default=None
    )
    gpus: Mapping[str, tuple[str, ...]] | None = doc(
        "node to GPU UUIDs as recorded at Prolog; null when unknown", default=None
    )
    n_cpus: int | None = doc("CPUs allocated in total", default=None)
    user: str = doc("user name", default="")
    account: str = doc("Slurm account", default="")
    partition: str = doc("partition", default="")
    qos: str = doc("quality of service", default="")
    name: str = doc("job name, control characters removed", default="")
    priority: int | None = doc("priority at start", default=None)
    time_limit_s: float | None = doc("wall-time limit, seconds; null for unlimited", default=None)
    reason: str = doc("Slurm's pending or end reason", default="")
    failed_node: str | None = doc("node Slurm names as failed (23.02 and later)", default=None)
    cancelled_by: str | None = doc("uid or name behind CANCELLED by …", default=None)
    work_dir: str | None = doc("working directory", default=None)
    stdout_path: str | None = doc("standard output file, expanded, when Slurm tells it", default=None)
    restart_count: int | None = doc("Slurm's restart count when known", default=None)
    run_key: str = doc("the logical training this attempt belongs to; default the job id", default="")

    @property
    def ref(self) -> str:
        """The job as its owner and squeue name it: `4242`, `4242_7` (array task), `4242+1` (het component)."""
        if self.array_job_id is not None and self.array_task_id is not None:
            return f"{self.array_job_id}_{self.array_task_id}"
        if self.het_job_id is not None and self.het_offset is not None:
            return f"{self.het_job_id}+{self.het_offset}"
        return str(self.job_id)

    @property
    def n_restarts(self) -> int:
        """Slurm's restart count; where it is not known, the attempts before this one."""
        return self.attempt - 1 if self.restart_count is None else self.restart_count


LESS_LIKELY = "less likely: "
"""What a sentence of `Verdict.ruled_out` begins with whose cause the evidence does not exclude."""


@record
class Verdict(FromRow):
    """Why one attempt ended, how sure we are, and on what evidence."""

    cluster: str = doc("Slurm cluster name")
    job_id: int = doc("Slurm job id")
    submit_at: datetime = doc("submit time of the attempt judged, UTC")
    attempt: int = doc("attempt number", default=1)
    cause: str = doc("stable snake_case word listed in docs/causes.md")
    domain: Domain = doc("user_program, system_software, hardware or unknown")
    component: str | None = doc("the part: gpu, nvlink, ib, pcie, filesystem, memory, node …", default=None)
    node: str | None = doc("the node at fault, when one is", default=None)
    device: str | None = doc("the device at fault on that node", default=None)
    confidence: Confidence = doc("certain, likely, possible or unknown")
    summary: str = doc("one sentence for a person")
    evidence: tuple[uuid.UUID, ...] = doc("event ids the verdict rests on, strongest first", default=())
    ruled_out: tuple[str, ...] = doc(
        "other causes and why not, one sentence each; not excluded are those that begin with `less likely: `",
        default=(),
    )
    next_step: str = doc("what to do now", default="")
    incident_id: uuid.UUID | None = doc(
        "the fault it died of, shared by all its victims: the first evidence, or a wide incident's own id",
        default=None,
    )
    place: str | None = doc(
        "what the nodes of its wide incident share, in words, with the odds against chance; null where it is nothing",
        default=None,
    )
    onset_at: datetime | None = doc("when the trouble began, UTC", default=None)
    stalled_at: datetime | None = doc(
        "since when it made no progress until it ended, UTC; null where nothing shows that it hung",
        default=None,
    )
    window_start_at: datetime | None = doc("start of the evidence window, UTC", default=None)
    window_end_at: datetime | None = doc("end of the evidence window, UTC", default=None)
    log_read: bool | None = doc(
        "whether the job's output had been read when it was made; false = it may change with what is read, null = nothing will be read: no agent has it, none could read it, or it is a later component of a heterogeneous job, whose output is in the first one's",
        default=None,
    )
    author: str = doc("'rules', or the operator who set it", default="rules")
    rules_version: str = doc("version of the rules that made it")
    made_at: datetime = doc("when it was made, UTC")

    @property
    def excluded(self) -> tuple[str, ...]:
        """Of the other causes those that the evidence excludes."""
        return tuple(s for s in self.ruled_out if not s.startswith(LESS_LIKELY))

    @property
    def less_likely(self) -> tuple[str, ...]:
        """Of the other causes the weaker ones that nothing excludes."""
        return tuple(s.removeprefix(LESS_LIKELY) for s in self.ruled_out if s.startswith(LESS_LIKELY))


@record
class GangVerdict(FromRow):
    """Why the ranks of one attempt do not get on, named while it still runs."""

    gang_id: uuid.UUID = doc("identity: the same stall judged again replaces its row")
    cluster: str = doc("Slurm cluster name")
    job_id: int = doc("Slurm job id")
    submit_at: datetime = doc("submit time of the attempt, UTC")
    kind: str = doc(
        "what it is, a word of docs/probe.md: rank_dead, rank_stopped, python_loop, gil_held, dataloader …"
    )
    ranks: tuple[int, ...] = doc("the ranks at fault; empty when none stands out", default=())
    nodes: tuple[str, ...] = doc("their nodes", default=())
    domain: Domain = doc("user_program, system_software, hardware or unknown")
    confidence: Confidence = doc("likely, possible or unknown: job-side evidence alone is never certain")
    summary: str = doc("one sentence for a person")
    location: str = doc(
        "the line of the program the (first) rank at fault is in; empty when not seen", default=""
    )
    proof: tuple[str, ...] = doc("what it rests on, one sentence each", default=())
    evidence: tuple[uuid.UUID, ...] = doc("event ids it rests on", default=())
    onset_at: datetime = doc("when the gang last got on, UTC")
    made_at: datetime = doc("when it was named, UTC")
    ended_at: datetime | None = doc(
        "when the gang got on again or its attempt ended, UTC; null while it stands", default=None
    )
    detail: Mapping[str, Any] = doc("further facts: merged stacks, ranks seen …", default_factory=dict)


@record
class RunAccount(FromRow):
    """Where one run's wall time went, in seconds; the parts add up to `wall_s` exactly."""

    cluster: str = doc("Slurm cluster name")
    run_key: str = doc("the run")
    user: str = doc("its owner", default="")
    start_at: datetime = doc("first submission, UTC")
    end_at: datetime = doc("end of the last attempt (or now), UTC")
    n_gpus: int | None = doc("GPUs of its largest attempt", default=None)
    n_attempts: int = doc("attempts that started", default=0)
    wall_s: float = doc("end_at - start_at, seconds")
    queued_s: float = doc("eligible and waiting, seconds", default=0.0)
    productive_s: float = doc("training that was kept, seconds", default=0.0)
    lost_to_replay_s: float = doc(
        "training since the last checkpoint before a failure, and what it then hung until its end, seconds",
        default=0.0,
    )
    restart_s: float = doc("from attempt start to first training step, seconds", default=0.0)
    checkpoint_s: float = doc("blocked on writing checkpoints, seconds", default=0.0)
    suspended_s: float = doc("suspended by Slurm, seconds", default=0.0)
    idle_s: float = doc("not eligible, or no job of the run submitted, seconds", default=0.0)
    measured: bool = doc("true when checkpoints and first steps were seen, false when assumed", default=False)
    ettr_measured: float | None = doc("productive / (wall - suspended - idle), 0..1", default=None)
    ettr_expected: float | None = doc("the model's expectation for this run, 0..1", default=None)
    made_at: datetime = doc("when it was computed, UTC")


@record
class JobAllocation(FromRow):
    """Which GPUs a job got on one node, as the Prolog saw it."""

    cluster: str = doc("Slurm cluster name")
    node: str = doc("Slurm node name")
    job_id: int = doc("Slurm job id")
    restart_count: int = doc("Slurm's restart count at that start", default=0)
    at: datetime = doc("when the Prolog ran, UTC")
    uid: int | None = doc("the job's owner", default=None)
    gpu_uuids: tuple[str, ...] | None = doc(
        "UUIDs of its GPUs here; null when they could not be resolved", default=None
    )
    gpu_indices: str = doc("SLURM_JOB_GPUS as given", default="")
    released_at: datetime | None = doc("when the Epilog ran, UTC", default=None)
    detail: Mapping[str, Any] = doc("stdout path, working directory, partition", default_factory=dict)


@record
class JobDependency(FromRow):
    """One job that waits, or waited, for another; Slurm forgets it the moment the wait is over."""

    cluster: str = doc("Slurm cluster name")
    job_id: int = doc("the job that waits")
    on_job_id: int = doc("the job it waits for: a raw id, or an array's number")
    user: str = doc("owner of the job that waits", default="")
    at: datetime = doc("when we first saw it, UTC")


@record
class JobExclusion(FromRow):
    """One node that one job's user told Slurm to leave out; accounting does not keep it, the controller does while the job lives."""

    cluster: str = doc("Slurm cluster name")
    node: str = doc("the node left out")
    job_id: int = doc("Slurm job id")
    at: datetime = doc("when we first saw it, UTC")
    user: str = doc("the job's owner", default="")
