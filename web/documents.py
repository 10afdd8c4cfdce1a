"""What the API answers with, where a record does not say it already. Times are UTC, durations seconds (`_s`)."""

from __future__ import annotations

import uuid
from datetime import datetime
from typing import Any, Generic, TypeVar

import msgspec

from probing_cluster.core import records

T = TypeVar("T")


class Page(msgspec.Struct, Generic[T], kw_only=True):
    """Some rows, and how to ask for those after them."""

    items: list[T]
    next: str | None = None


class Judged(msgspec.Struct, kw_only=True):
    """An attempt of a job and why it is as it is."""

    cluster: str
    job_id: int
    ref: str
    """The job as its owner names it: 4242, 4242_7 (array task), 4242+1 (het component)."""
    attempt: int
    user: str
    state: str
    account: str = ""
    partition: str = ""
    name: str = ""
    n_nodes: int = 0
    n_gpus: int | None = None
    cause: str | None = None
    domain: str | None = None
    component: str | None = None
    node: str | None = None
    device: str | None = None
    confidence: str | None = None
    summary: str | None = None
    next_step: str | None = None
    place: str | None = None


class Job(Judged, kw_only=True):
    """One attempt of a job with its current verdict."""

    submit_at: datetime
    qos: str = ""
    run_key: str = ""
    start_at: datetime | None = None
    end_at: datetime | None = None
    elapsed_s: float | None = None
    exit_code: int | None = None
    exit_signal: int | None = None
    hosts: str = ""
    incident_id: uuid.UUID | None = None
    author: str | None = None
    log_read: bool | None = None
    """Whether the job's output had been read when the verdict was made; false: the verdict may change with it."""


class Node(msgspec.Struct, kw_only=True):
    """One node now: heard or silent, its confirmed faults, our drain, its lemon score."""

    cluster: str
    node: str
    state: str
    age_s: float
    n_faults: int = 0
    faults: dict[str, Any] = {}
    jobs: list[int] = []
    failing: list[str] = []
    drained: bool = False
    drain_reason: str | None = None
    drained_at: datetime | None = None
    lemon_score: float | None = None
    lemon_verdict: str | None = None


class Repair(msgspec.Struct, kw_only=True):
    """A node's latest repair: its state, the repair steps that are left, and what its tests found."""

    repair: records.RepairIncident
    steps_taken: list[str]
    steps_left: list[str]
    tests: list[records.DiagnosticResult]


class Round(msgspec.Struct, kw_only=True):
    """One round of tests: whether it runs, why it could not, and how many results are stored."""

    round_id: uuid.UUID
    state: str
    why: str = ""
    n_results: int = 0


class NodeDetail(Node, kw_only=True):
    """One node, with what Slurm and its agent say."""

    slurm_state: str | None = None
    slurm_reason: str = ""
    partitions: list[str] = []
    agent_version: str = ""
    heard_at: datetime | None = None
    checks: list[dict[str, Any]] = []
    gpus: list[dict[str, Any]] = []


class Moment(msgspec.Struct, kw_only=True):
    """One line of a node's timeline."""

    at: datetime
    what: str
    severity: str | None = None
    job_id: int | None = None
    ref: str | None = None
    """The job as its owner names it."""
    device: str | None = None
    message: str = ""


class Event(msgspec.Struct, kw_only=True):
    """One fault, or sign of one."""

    event_id: uuid.UUID
    cluster: str
    node: str
    at: datetime
    kind: str
    severity: str
    source: str
    message: str
    code: str | None = None
    device: str | None = None
    pci_bus_id: str | None = None
    gpu_uuid: str | None = None
    job_id: int | None = None
    count: int = 1
    last_at: datetime | None = None


class Incident(msgspec.Struct, kw_only=True):
    """One fault that ended several attempts or was seen on many nodes."""

    cluster: str
    incident_id: uuid.UUID
    onset_at: datetime
    cause: str
    domain: str
    n_attempts: int
    n_jobs: int
    summary: str
    nodes: list[str] = []
    place: str | None = None


class Decision(msgspec.Struct, kw_only=True):
    """One decision about a node and what became of it."""

    drain_id: uuid.UUID
    cluster: str
    node: str
    at: datetime
    action: str
    state: str
    reason: str
    owner: str
    open: bool
    why_state: str = ""
    severity: str | None = None
    job_id: int | None = None
    ended_at: datetime | None = None
    duration_s: float | None = None


class Lemon(msgspec.Struct, kw_only=True):
    """A node that is likely to keep killing jobs, on the latest scored day."""

    cluster: str
    node: str
    day: datetime
    score: float
    verdict: str
    reasons: list[str]
    xid_cnt: int
    tickets: int
    out_count: int
    excl_jobid_count: int
    multi_node_node_fails: int
    single_node_node_fails: int


class Found(msgspec.Struct, kw_only=True):
    """Something a search found."""

    kind: str
    name: str
    words: str
    path: str


class Me(msgspec.Struct, kw_only=True):
    """Who is asking, and what they may do."""

    user: str
    operator: bool
    acts: bool
    accounts: list[str]
    came_by: str


class Health(msgspec.Struct, kw_only=True):
    """Whether what is shown is of now."""

    ok: bool
    cluster: str
    at: datetime
    accounting_at: datetime | None
    heard_s: float | None
    why: str = ""


class Rows(msgspec.Struct, kw_only=True):
    """What a question found. Instants are text with a Z, spans of time as Postgres writes them, bytes and composites as psql prints them."""

    heads: list[str]
    rows: list[list[Any]]
    more: bool


class LiveRows(Rows, kw_only=True):
    """What the processes of a job answered, and who did not."""

    missing: list[str] = []


class OwnTable(msgspec.Struct, kw_only=True):
    """One table that the job's own program writes, those of all its processes together."""

    name: str
    columns: str
    n_processes: int = 0
    n_rows: int = 0
    n_dropped: int = 0


class OwnFigure(msgspec.Struct, kw_only=True):
    """One column of such a table, drawn."""

    title: str
    svg: str


class OwnTables(msgspec.Struct, kw_only=True):
    """What the job's own program writes down, and who did not answer."""

    tables: list[OwnTable]
    figures: list[OwnFigure]
    missing: list[str] = []
    at: datetime | None = None


class MeshAxis(msgspec.Struct, kw_only=True):
    """Groups of one kind: TP, PP, DP …; a name that only their ranks suggest ends in `?`."""

    name: str
    size: int
    stride: int
    named: bool
    n_groups: int


class MeshWait(msgspec.Struct, kw_only=True):
    """One collective: which ranks wait in it for which, as ranges."""

    axis: str
    group: str
    op: str
    seq: int
    waiting: str
    awaited: str
    complete: bool


class Mesh(msgspec.Struct, kw_only=True):
    """The axes of a gang's process groups, innermost first; ranks by state (dead, awaited, waiting, runs); who waits for whom."""

    at: datetime
    world_size: int
    axes: list[MeshAxis]
    states: dict[str, str]
    waits: list[MeshWait]
    n_waits: int
    roots: str
    cycle: str


class Done(msgspec.Struct, kw_only=True):
    """What became of an action."""

    subject: str
    outcome: str


class Words(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Why; kept with the node."""

    note: str = ""


class Reason(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Why the node is drained; Slurm shows it as `probing: WHY (you)`."""

    reason: str


class Tests(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Which tests; none named = those of `[diagnostics] tests`. References: a hostlist of idle nodes to hold it against."""

    tests: list[str] = []
    reference: str = ""


class NewVerdict(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """A person's verdict on one attempt, which the rules never replace."""

    cause: str
    note: str = ""
    node: str | None = None
    device: str | None = None
    attempt: int | None = None


class Question(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """One read-only statement."""

    sql: str
    limit: int = 1000
