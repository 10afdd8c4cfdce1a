"""Records of nodes: what was observed on them, what they share, what was decided and done about them."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from probing_cluster.core.record import doc, record
from probing_cluster.core.records.base import FromRow, Outcome, Severity


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
