"""The records: every fact the product stores, once, with its unit.

Frozen and keyword-only. Times are UTC and a naive one is refused when the record is made.
`None` means "not known", never zero. Tables, Arrow schemas and column comments are derived
from these classes (`db/tables.py`, `db/arrow.py`); a field's comment is its `doc` metadata.
"""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, Self, TypeVar, dataclass_transform

from probing_cluster.core.clock import require_utc

_T = TypeVar("_T")


class Severity(StrEnum):
    """How bad a fact is for the node it concerns (arXiv 2410.21680, section on health checks)."""

    INFO = "info"
    """Kept as evidence; no action."""
    LOW = "low"
    """The node should be looked at once its running jobs have ended."""
    HIGH = "high"
    """The node cannot run jobs now."""


class Outcome(StrEnum):
    """What a health check found; not seeing is not health."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"
    ERROR = "error"
    """The check itself could not run or did not end in time."""
    ABSENT = "absent"
    """The hardware or software the check is about is not on this node."""


class Domain(StrEnum):
    """The failure domain a cause belongs to (Table I of arXiv 2410.21680)."""

    USER_PROGRAM = "user_program"
    SYSTEM_SOFTWARE = "system_software"
    HARDWARE = "hardware"
    UNKNOWN = "unknown"
    """Nobody can tell, or no failure domain applies (cancelled, preempted)."""


class Confidence(StrEnum):
    """How sure a verdict is: of "certain" at least 99 % are right, "likely" 90 %, "possible" 60 %."""

    CERTAIN = "certain"
    LIKELY = "likely"
    POSSIBLE = "possible"
    UNKNOWN = "unknown"


def doc(text: str, **kwargs: Any) -> Any:
    """A dataclass field whose meaning becomes the column's comment."""
    return field(metadata={"doc": text}, **kwargs)


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(doc, field))
def record(cls: type[_T]) -> type[_T]:
    """A frozen, keyword-only dataclass that refuses naive datetimes."""

    def __post_init__(self: Any) -> None:
        # Millions are made: the instance's own dictionary instead of `fields`, and nothing for what is UTC already.
        for name, value in self.__dict__.items():
            if isinstance(value, datetime) and value.tzinfo is not UTC:
                object.__setattr__(self, name, require_utc(f"{cls.__name__}.{name}", value))

    cls.__post_init__ = __post_init__  # type: ignore[attr-defined]
    return dataclass(frozen=True, kw_only=True)(cls)


def of_checked(cls: type[_T], values: Mapping[str, Any]) -> _T:
    """The record of values that need no second look: every field is given and every time is UTC already.

    Without `__init__`, which takes longer than all else where thousands are made a second.
    """
    made = object.__new__(cls)
    made.__dict__.update(values)
    return made


class FromRow:
    """Records know how to come from a row."""

    @classmethod
    def from_row(cls, row: Mapping[str, Any]) -> Self:
        """The record of a row whose keys are the field names; other keys are ignored."""
        names = {f.name for f in fields(cls)}  # type: ignore[arg-type]
        return cls(**{k: v for k, v in row.items() if k in names})


def make_event_id(cluster: str, node: str, source: str, position: str) -> uuid.UUID:
    """The 128-bit identity of an event: the same fact read twice has the same id.

    `position` is where the source saw it, never wall time: `<boot id>:<kmsg sequence>` for
    kernel lines, `<boot id>:<device>:<counter>:<value>` for NVML and sysfs. `node` is empty for what
    several nodes can see (a line of a job's log on a network file system).
    """
    digest = hashlib.blake2b(digest_size=16, person=b"probing-event-v1")
    for part in (cluster, node, source, position):
        raw = part.encode("utf-8", "surrogatepass")
        digest.update(len(raw).to_bytes(4, "big"))
        digest.update(raw)
    return uuid.UUID(bytes=digest.digest())


@record
class HealthEvent(FromRow):
    """One fault (or sign of one) that a node, or a job on it, showed."""

    event_id: uuid.UUID = doc("128-bit hash of cluster, node, source and source position; see make_event_id")
    cluster: str = doc("Slurm cluster name")
    node: str = doc("Slurm node name (SLURMD_NODENAME, not the host name)")
    at: datetime = doc("when it happened, by the node's clock, UTC; the first time when coalesced")
    observed_at: datetime = doc("when our agent read it, UTC")
    kind: str = doc("what sort of fact, a word of docs/evidence.md: xid, pcie_aer, ib_link, gpu_lost …")
    code: str | None = doc("the kind's own code: Xid number, AER class, check name …", default=None)
    severity: Severity = doc("info, low or high; the mapping is data, editable per site")
    device: str | None = doc(
        "the part concerned as the source names it: gpu3, mlx5_0, /scratch, nvme0n1", default=None
    )
    pci_bus_id: str | None = doc(
        "PCI address, lower case, domain:bus:device[.function] as 0000:3b:00", default=None
    )
    gpu_uuid: str | None = doc("GPU UUID when the event concerns one GPU and it is known", default=None)
    pid: int | None = doc("process id named by the source", default=None)
    process: str | None = doc("process name named by the source", default=None)
    job_id: int | None = doc("Slurm job id when the source itself ties the event to a job", default=None)
    count: int = doc("how many times it was seen when equal events were coalesced", default=1)
    last_at: datetime | None = doc("the last time when coalesced, UTC; null for a single event", default=None)
    source: str = doc(
        "who saw it: kernel, nvml, amdsmi, sysfs, mount, service, check, agent, joblog, probe, import"
    )
    message: str = doc("the source's text, control characters removed")
    measured: float | None = doc("the measured value, in `unit`", default=None)
    threshold: float | None = doc("the limit it crossed, in `unit`", default=None)
    unit: str | None = doc("unit of measured and threshold: c, w, count, frac, bytes, s …", default=None)
    detail: Mapping[str, Any] = doc("further decoded fields of the source", default_factory=dict)


ADAPTER_CODES = frozenset({"health_compromised", "health_fatal", "cmd_timeout", "init_failed"})
"""Codes by which a network adapter's driver speaks of its firmware: that a port of it reads as up takes none of it away."""


@record
class CheckResult(FromRow):
    """What one health check found on one node; stored on change plus one heartbeat per sweep."""

    cluster: str = doc("Slurm cluster name")
    node: str = doc("Slurm node name")
    name: str = doc("the check's registered name")
    outcome: Outcome = doc("ok, warn, fail, error or absent")
    severity: Severity = doc("how bad a failure of this check is on this site")
    message: str = doc("one sentence: what was found", default="")
    device: str | None = doc("the part that failed, when one did", default=None)
    measured: float | None = doc("the measured value, in `unit`", default=None)
    threshold: float | None = doc("the limit, in `unit`", default=None)
    unit: str | None = doc("unit of measured and threshold", default=None)
    duration_s: float = doc("wall time the check took, seconds", default=0.0)
    timed_out: bool = doc("true when the deadline ended it", default=False)
    version: str = doc("version of the check's logic", default="1")
    at: datetime = doc("when the check ended, UTC")
    detail: Mapping[str, Any] = doc("further facts of the check", default_factory=dict)


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
    ruled_out: tuple[str, ...] = doc("other causes and why not, one sentence each", default=())
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
    window_start_at: datetime | None = doc("start of the evidence window, UTC", default=None)
    window_end_at: datetime | None = doc("end of the evidence window, UTC", default=None)
    author: str = doc("'rules', or the operator who set it", default="rules")
    rules_version: str = doc("version of the rules that made it")
    made_at: datetime = doc("when it was made, UTC")


@record
class NodePlace(FromRow):
    """Where one node is: a switch, rack, power feed or file server that it shares with others."""

    cluster: str = doc("Slurm cluster name")
    node: str = doc("node name")
    kind: str = doc(
        "what it shares: leaf, spine, block, or a column of the site's table such as rack, row, pdu"
    )
    place: str = doc("which one of that kind")
    since_at: datetime = doc("when this was first known, UTC")
    until_at: datetime | None = doc(
        "when it was first known to be otherwise, UTC; null while it holds", default=None
    )


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
    lost_to_replay_s: float = doc("training since the last checkpoint before a failure, seconds", default=0.0)
    restart_s: float = doc("from attempt start to first training step, seconds", default=0.0)
    checkpoint_s: float = doc("blocked on writing checkpoints, seconds", default=0.0)
    suspended_s: float = doc("suspended by Slurm, seconds", default=0.0)
    idle_s: float = doc("not eligible, or no job of the run submitted, seconds", default=0.0)
    measured: bool = doc("true when checkpoints and first steps were seen, false when assumed", default=False)
    ettr_measured: float | None = doc("productive / (wall - suspended - idle), 0..1", default=None)
    ettr_expected: float | None = doc("the model's expectation for this run, 0..1", default=None)
    made_at: datetime = doc("when it was computed, UTC")


@record
class LemonScore(FromRow):
    """How likely a node is to be one that keeps killing jobs, on one day."""

    cluster: str = doc("Slurm cluster name")
    node: str = doc("Slurm node name")
    day: datetime = doc("the day scored (its midnight, UTC)")
    excl_jobid_count: int = doc("distinct jobs whose user excluded this node, 28 days", default=0)
    xid_cnt: int = doc("distinct Xid codes seen, 28 days", default=0)
    tickets: int = doc("repair tickets opened, 28 days", default=0)
    out_count: int = doc("times taken out of scheduling, 28 days", default=0)
    multi_node_node_fails: int = doc("multi-node attempts failed because of this node, 28 days", default=0)
    single_node_node_fails: int = doc("single-node attempts failed on it, 28 days", default=0)
    single_node_node_failure_rate: float | None = doc(
        "failed / all single-node attempts on it, 0..1; null without any", default=None
    )
    score: float = doc("probability of being a lemon, 0..1")
    reasons: tuple[str, ...] = doc("the signals in words, strongest first", default=())
    verdict: str = doc("lemon, suspect, recovered or ok")
    signals: Mapping[str, Any] = doc("every further signal used", default_factory=dict)
    made_at: datetime = doc("when it was computed, UTC")


@record
class OperatorNote(FromRow):
    """What a person confirmed, denied, repaired or corrected."""

    note_id: uuid.UUID = doc("identity")
    cluster: str = doc("Slurm cluster name")
    at: datetime = doc("when it was said, UTC")
    author: str = doc("who said it")
    subject: str = doc("node:<name>, attempt:<job id>:<submit epoch> or gpu:<uuid>")
    action: str = doc("confirm, deny, repaired, verdict, ack, ticket, note, hold, release, done")
    note: str = doc("their words, control characters removed", default="")
    detail: Mapping[str, Any] = doc("what was set, and what it replaced", default_factory=dict)


@record
class Drain(FromRow):
    """One decision about a node and what became of it; the audit of every action."""

    drain_id: uuid.UUID = doc("identity")
    cluster: str = doc("Slurm cluster name")
    node: str = doc("Slurm node name")
    at: datetime = doc("when it was decided, UTC")
    action: str = doc(
        "drain, requeue, resume, refuse, restart (of an attempt that ended), exclude (from one job)"
    )
    reason: str = doc("the reason as written to Slurm, starting with probing:")
    owner: str = doc("probing, or the operator's name")
    state: str = doc("done, simulated, denied, failed, skipped or resumed")
    why_state: str = doc("why it was denied, skipped or failed", default="")
    severity: Severity = doc("severity of what caused it", default=Severity.HIGH)
    job_id: int | None = doc("the job requeued, restarted or refused, when one was", default=None)
    event_ids: tuple[uuid.UUID, ...] = doc("the evidence", default=())
    ended_at: datetime | None = doc("when the drain or the exclusion was lifted, UTC", default=None)
    submit_at: datetime | None = doc(
        "submit time of the attempt that was requeued or restarted, UTC", default=None
    )
    detail: Mapping[str, Any] = doc(
        "of a restart: cause, step, run_key, restart, dependents set again, copy of the log, loop",
        default_factory=dict,
    )


@record
class AgentHeartbeat(FromRow):
    """The agent's own state on one node, delivered at least every beat."""

    cluster: str = doc("Slurm cluster name")
    node: str = doc("Slurm node name")
    at: datetime = doc("when the agent made it, UTC")
    boot_id: str = doc("the node's boot id", default="")
    version: str = doc("agent version", default="")
    started_at: datetime | None = doc("when this agent process started, UTC", default=None)
    beat_s: float = doc("the interval it promises, seconds", default=10.0)
    spool_depth: int = doc("events waiting in the spool", default=0)
    spool_bytes: int = doc("bytes in the spool", default=0)
    lag_s: float = doc("age of the oldest undelivered event, seconds", default=0.0)
    dropped_total: int = doc("events dropped by spool policy since installation", default=0)
    coalesced_total: int = doc("events folded into others since installation", default=0)
    rejected_total: int = doc("inputs refused as malformed since installation", default=0)
    hung_children: int = doc("children that outlived their deadline in D state", default=0)
    rss_bytes: int = doc("resident memory of the agent, bytes", default=0)
    cpu_s: float = doc("CPU seconds the agent has used since it started", default=0.0)
    sources: Mapping[str, Any] = doc("per source: last read (ISO), state, error", default_factory=dict)
    faults: Mapping[str, Any] = doc(
        "faults the agent confirms right now: 'kind:device' to {severity, since, event_id, gpu_uuid, message}",
        default_factory=dict,
    )
    jobs: tuple[int, ...] = doc("job ids on the node right now, from Prolog and Epilog", default=())
    ranks: Mapping[str, Any] = doc(
        "training ranks on the node by the probe's pages: '<job id>:<rank>' to phase, steps, collective, step times",
        default_factory=dict,
    )


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


@record
class DiagnosticResult(FromRow):
    """What one test found on one node, or between two."""

    result_id: uuid.UUID = doc("identity: hash of the round, the test, the node, the peer and the device")
    cluster: str = doc("Slurm cluster name")
    round_id: uuid.UUID = doc("the round of tests; results of two rounds are never judged together")
    node: str = doc("Slurm node name")
    peer: str = doc("the other node of a test between two; empty for a test of one", default="")
    test: str = doc("the test's registered name")
    outcome: Outcome = doc("ok, warn, fail, error or absent")
    device: str | None = doc("the part tested, when it is one: gpu3, cpu, /scratch", default=None)
    measured: float | None = doc("the measured value, in `unit`", default=None)
    threshold: float | None = doc("the limit it was held against, in `unit`", default=None)
    baseline: float | None = doc("what this node, else its model, measured before, in `unit`", default=None)
    unit: str | None = doc("unit of measured, threshold and baseline", default=None)
    message: str = doc("one sentence: what was found", default="")
    model: str = doc("model of the part tested; only equal models are compared", default="")
    version: str = doc("version of the test and of what it ran on", default="")
    job_id: int | None = doc("the Slurm job it ran in", default=None)
    incident_id: uuid.UUID | None = doc("the repair it belongs to; null when a person asked", default=None)
    duration_s: float = doc("wall time it took, seconds", default=0.0)
    at: datetime = doc("when it ended, UTC")
    detail: Mapping[str, Any] = doc("further figures of the test", default_factory=dict)


@record
class RepairIncident(FromRow):
    """One node on its way from a drain of ours through tests and repair steps back into service, or to a ticket."""

    incident_id: uuid.UUID = doc("identity")
    cluster: str = doc("Slurm cluster name")
    node: str = doc("Slurm node name")
    drain_id: uuid.UUID = doc("the drain it began with")
    reason: str = doc("that drain's reason, as written to Slurm")
    cause: str = doc("the row of the table of repair steps (docs/repair.md) that applies")
    state: str = doc(
        "queued, reserving, opening, testing, judging, closing, acting, returning, ticketing; returned, ticket, lifted or closed at its end"
    )
    why: str = doc("what it waits for, or why it is in that state", default="")
    steps_done: int = doc("repair steps of the cause that were taken", default=0)
    reservation: str = doc("name of its reservation; empty before there is one", default="")
    reference_nodes: tuple[str, ...] = doc(
        "idle nodes that joined the reservation to test against", default=()
    )
    round_id: uuid.UUID | None = doc("the round of tests that counts now", default=None)
    n_rounds: int = doc("rounds begun since the last repair step", default=0)
    held_by: str = doc("who took it over; empty for nobody", default="")
    opened_at: datetime = doc("when it was opened, UTC")
    changed_at: datetime = doc("when its state last changed, UTC")
    acted_at: datetime | None = doc("when the latest repair step began, UTC", default=None)
    closed_at: datetime | None = doc("when it ended, UTC; null while it goes on", default=None)
    detail: Mapping[str, Any] = doc(
        "failing tests, the bundle's path, what became of steps", default_factory=dict
    )
