"""Shared by all families of job-log messages: findings, the role of a kind in a failure, the context of earlier lines, and how one finding completes another."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import Any

from probing_cluster.core import sanitize
from probing_cluster.core.record import doc, record

ALL_DOMAINS = ("user_program", "system_software", "hardware")
NETWORK = ("hardware", "system_software")
USER = ("user_program",)
SOFTWARE = ("system_software",)
HARDWARE = ("hardware",)
DEBUG = re.compile(
    r"(?:(?!\b(?i:error|fail|warn|fatal|critical)).){0,120}?(?<![\w.\-/])(?<!GTL )(?:DEBUG|TRACE)(?=[\]\s:|,])"
    r"|(?:srun|slurmd|slurmstepd|sbatch|salloc)(?:-\S{1,253})?: debug\d?: "
)
"""A debug level: no error that ends a program."""


class LineRole(IntEnum):
    """The role that a kind can have in a failure."""

    OBSERVATION = 0
    """Never the cause: advice, clean-up, reports about another line."""
    EXIT = 1
    """A process ended badly, for a reason that another line gives."""
    REMOTE = 2
    """A peer went away: its own failure lies elsewhere."""
    SYMPTOM = 3
    """Something did not happen in time; the cause may be anywhere."""
    END = 4
    """Slurm or a person ended the job."""
    ROOT = 5
    """A failure that explains itself."""


@record
class JobFinding:
    """One message of a job's output understood."""

    line: int = doc("1-based number of the line it starts on")
    kind: str = doc("word of docs/evidence.md")
    role: LineRole = doc("its role in the failure")
    late: bool = doc("true if such messages come long after the event, so that their order is no evidence")
    domains: tuple[str, ...] = doc("failure domains it can speak for")
    meaning: str = doc("one sentence")
    message: str = doc("the message, control characters removed")
    op: str | None = doc("collective as printed", default=None)
    seq: int | None = doc("sequence number of the collective", default=None)
    group: str | None = doc("process group as printed", default=None)
    rank: int | None = doc("global rank; the group's own when only that is printed", default=None)
    timeout_ms: int | None = doc("timeout that ran out, milliseconds", default=None)
    host: str | None = doc("host named", default=None)
    pid: int | None = doc("process id named", default=None)
    labelled: bool = doc("true for a line that srun or mpirun marked as a task's", default=False)
    first_cause: bool = doc("true for the one finding that began the failure", default=False)
    detail: Mapping[str, Any] = doc("further decoded fields", default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True)
class LogFact:
    """Role, failure domains and meaning of a kind."""

    role: LineRole
    domains: tuple[str, ...]
    meaning: str
    late: bool = False


def fact(role: LineRole, domains: tuple[str, ...], meaning: str, *, late: bool = False) -> LogFact:
    """A `LogFact`, in one line."""
    return LogFact(role=role, domains=domains, meaning=meaning, late=late)


@dataclass(frozen=True, kw_only=True, slots=True)
class Record:
    """One logical line: its text, and the writer that its prefixes name."""

    line: int
    text: str
    rank: int | None = None
    host: str | None = None
    pid: int | None = None
    labelled: bool = False
    """Whether the launcher marked the line as a task's: `srun --label`, `mpirun --tag-output`."""
    is_error: bool = False
    """Whether its logger, which writes JSON, gives it the level of an error."""
    of_worker: bool = False
    """Whether Ray forwards the line from one of its workers."""
    dated: bool = False
    """Whether the line began with a date, which `text` lacks: a logger wrote it when it happened."""


@dataclass(kw_only=True, slots=True)
class JoblogContext:
    """Facts from earlier lines that later lines need; of bounded size."""

    op: str | None = None
    op_line: int = 0
    counts: dict[int, int] = field(default_factory=dict)
    child: dict[str, Any] = field(default_factory=dict)
    child_ended: dict[str, Any] = field(default_factory=dict)
    """Fields of the child whose exit code torchelastic reported last."""
    child_line: int = 0
    """Line at which torchelastic began its list of failed children; 0 without one."""
    mpi: dict[str, Any] = field(default_factory=dict)
    mpi_line: int = 0
    """Line at which an MPI launcher named a process; a line below it tells how that process ended. 0 without one."""

    mpi_start_line: int = -1_000
    """Line at which MPI reported that it could not start; its error stack follows and names the part that failed."""
    component: Record | None = None
    """The line in which MPI or PMIx reported that a requested component is missing."""
    nccl_line: int = -1_000
    """Line of the last NCCL error; the name of its result may follow on a line of its own."""
    nccl_kind: str = ""
    """Kind of that error."""
    in_use: Record | None = None
    """The line in which PyTorch first warned that a port is taken."""
    last_error_line: int = -1_000
    """Line at which NCCL announced its last error; the error itself is the next line."""
    usage_line: int = 0
    """Line at which an option parser began to print the usage; 0 without one."""
    head: str = ""
    """The words of the last heading of an error."""
    head_raised: bool = False
    """Whether it is an exception's name, whose own text begins on the next line."""
    head_detail: dict[str, Any] = field(default_factory=dict)
    """Further fields of the announced error that the heading gives."""
    head_line: int = 0
    """Line of that heading; the error is one of the next lines. 0 if none is expected."""

    java_line: int = -1_000
    """Line of the last exception in a Java trace that only passes on another one, which stands below it."""
    box: list[Record] = field(default_factory=list)
    """The lines so far of a message that an MPI runtime prints between two rules."""
    box_line: int = 0
    """Line of the rule above them; 0 without one."""
    step_created: bool = False
    """Whether srun reported that a step which had waited began."""
    node_line: int = 0
    """Line of the place with which Node.js begins its report of an uncaught error; 0 without one."""
    node_rank: int | None = None
    """Rank of that line."""
    caret_line: int = 0
    """Line of the caret below the source; what was thrown is below it. 0 until it came."""
    signalled: JobFinding | None = None
    """The signal that AMReX named last and that others send; the file of its stack shows that it was the end."""
    unread: Record | None = None
    """The line in which an aligner passed over a file that it could not open."""
    failed_line: int = 0
    """Line at which a workflow engine reported a failed step; the reason follows. 0 if none is expected."""

    def listing(self, line: int) -> bool:
        """Whether `line` can belong to that list."""
        return 0 < self.child_line <= line <= self.child_line + _LISTING_LINES

    def announced(self, line: int) -> bool:
        """Whether `line` can be the error that an earlier line announced."""
        return 0 < self.head_line < line <= self.head_line + _HEAD_LINES

    def reasoned(self, line: int) -> bool:
        """Whether `line` can be the reason that a workflow engine gives for a step's failure."""
        return 0 < self.failed_line < line <= self.failed_line + _REASON_LINES

    def boxed(self, line: int) -> bool:
        """Whether `line` can belong to a message that an MPI runtime prints between two rules."""
        return 0 < self.box_line < line <= self.box_line + _BOX_LINES

    def uncaught(self, line: int) -> bool:
        """Whether `line` can belong to Node.js's report of an uncaught error."""
        return 0 < self.node_line < line <= self.node_line + _NODE_LINES

    def is_last_error(self, line: int) -> bool:
        """Whether `line` is the text of NCCL's last error."""
        return line == self.last_error_line + 1

    def expects(self, line: int) -> bool:
        """Whether an earlier line gives `line` a meaning, whatever it contains."""
        near = self.listing(line) or self.announced(line) or self.reasoned(line) or self.boxed(line)
        return near or self.uncaught(line) or self.is_last_error(line)


Read = Callable[[Record, JoblogContext], "JobFinding | None"]


@dataclass(frozen=True, kw_only=True, slots=True)
class LogFamily:
    """One family of messages: `read` is only called when one of `triggers` is in the line."""

    name: str
    triggers: tuple[str, ...]
    read: Read
    facts: Mapping[str, LogFact]
    expects: Callable[[JoblogContext, int], bool] | None = None
    """Whether an earlier line gives the line of this number a meaning for the family, whatever it contains."""


def make(facts: Mapping[str, LogFact], kind: str, record: Record, **fields: Any) -> JobFinding:
    """The finding of `kind`; rank, host and pid default to the line's own."""
    fact_of_kind = facts[kind]
    values: dict[str, Any] = {
        "role": fact_of_kind.role,
        "late": fact_of_kind.late,
        "domains": fact_of_kind.domains,
        "meaning": fact_of_kind.meaning,
    }
    values.update({k: v for k, v in fields.items() if v is not None})
    for name in ("rank", "host", "pid"):
        if values.get(name) is None:
            values[name] = getattr(record, name)
    for name in ("op", "group", "host"):
        if values.get(name) is not None:
            values[name] = sanitize.clean(str(values[name]), 128)
    values["labelled"] = record.labelled
    return JobFinding(line=record.line, kind=kind, message=sanitize.clean(record.text, 1024), **values)


def number(text: str | None, limit: int = 2**63 - 1) -> int | None:
    """A decimal number within `limit` (it may be -1), or None."""
    if text is None or not re.fullmatch(r"-?\d{1,20}", text, re.ASCII):
        return None
    value = int(text)
    return value if abs(value) <= limit else None


MAX_RANK = 2**31 - 1
_LISTING_LINES = 200
_HEAD_LINES = 8
_BOX_LINES = 40
_REASON_LINES = 4
_NODE_LINES = 10
WATCHDOG_KINDS = frozenset({"watchdog_timeout", "watchdog_timeout_init"})
SIGNAL_DEATH_KINDS = frozenset(
    {"process_crashed", "process_aborted", "bus_error", "segfault", "oom_kill_suspected"}
)
"""Deaths of a process by a signal."""
UNEXPLAINED_EXIT_KINDS = frozenset({"task_exit", "slurm_task_failure", "process_aborted"})
"""Ends that do not name their reason."""
TRACEBACK = "Traceback (most recent call last)"
_FILLED = ("op", "seq", "group", "rank", "timeout_ms", "host", "pid")
_SAME = {"watchdog_timeout_init": "watchdog_timeout", "host_oom_kill": "slurm_oom"}
TIMEOUT_KINDS = WATCHDOG_KINDS | {
    "heartbeat_monitor",
    "monitored_barrier_timeout",
    "rendezvous_timeout",
    "rendezvous_failed",
}
_MAX_OPS = 256
WORLD_GROUP_NAMES = frozenset({None, "default_pg", "0"})
"""Names of the group that all ranks are in; some lines leave it out."""

_CONFIRMS = frozenset({"cuda_error", "cuda_unknown_error", "cuda_launch_failure"})
"""Errors with which a program notices that its GPU is gone."""


def enrich(best: JobFinding, other: JobFinding) -> JobFinding:
    """`best` with the fields it lacks, from another line about the same thing."""
    started = best.kind == "rendezvous_failed" or best.detail.get("launcher") == "mpi"
    if other.detail.get("pmi") and started and other.line > best.line:
        detail = {**best.detail, "launcher": "mpi"}
        best = replace(best, kind=other.kind, role=LineRole.ROOT, detail=detail)
        return replace(best, domains=other.domains, meaning=other.meaning)
    if best.detail.get("unattributed") and other.kind in _CONFIRMS:
        # The line of text about lost hardware stood alone; the program's own error shows that it was right.
        return replace(best, detail={k: v for k, v in best.detail.items() if k != "unattributed"})
    if other.kind == "desync_report" and best.kind in TIMEOUT_KINDS:
        return _named_by_pytorch(best, other)
    if best.kind == "collective_mismatch" and other.kind in TIMEOUT_KINDS:
        return _operations(best, other)
    if _SAME.get(best.kind, best.kind) != _SAME.get(other.kind, other.kind):
        return best
    if best.rank is not None and other.rank is not None and best.rank != other.rank:
        return _operations(_sizes(best, other), other)
    if best.seq is not None and other.seq is not None and best.seq != other.seq:
        return best
    missing = {
        n: getattr(other, n) for n in _FILLED if getattr(best, n) is None and getattr(other, n) is not None
    }
    if (
        best.detail.get("timeout_is_default")
        and other.timeout_ms
        and not other.detail.get("timeout_is_default")
    ):
        missing["timeout_ms"] = other.timeout_ms
        missing["detail"] = {k: v for k, v in best.detail.items() if k != "timeout_is_default"}
    if other.detail.get("multicast") and not best.detail.get("multicast"):
        missing.update(domains=other.domains, meaning=other.meaning)
    if best.kind == "watchdog_timeout" and other.detail.get("completed") == -1 and best.seq == other.seq:
        missing.update(kind=other.kind, meaning=other.meaning)
    return replace(best, **missing) if missing else best


def _sizes(best: JobFinding, other: JobFinding) -> JobFinding:
    """Two ranks in the same collective with different sizes: the program's own mismatch."""
    same = best.seq is not None and (best.seq, best.op) == (other.seq, other.op)
    ours, theirs = best.detail.get("numel_in"), other.detail.get("numel_in")
    if not same or ours is None or theirs is None or ours == theirs or best.domains == ("user_program",):
        return best
    meaning = f"{best.meaning} Ranks {best.rank} and {other.rank} entered it with {ours} and {theirs} elements, so the program disagrees with itself."
    return replace(best, domains=("user_program",), meaning=meaning)


def _named_by_pytorch(best: JobFinding, report: JobFinding) -> JobFinding:
    """The timeout with the ranks that PyTorch's own report names as missing."""
    ranks = report.detail.get("ranks")
    if not ranks or "culprit_ranks" in best.detail:
        return best
    names = ", ".join(map(str, ranks[:8]))
    meaning = f"{best.meaning} PyTorch's report names rank {names} as the one that did not join."
    return replace(
        best, meaning=meaning, detail={**best.detail, "culprit_ranks": ranks, "culprit_rank": ranks[0]}
    )


def _operations(best: JobFinding, other: JobFinding) -> JobFinding:
    """Ranks of one group that wait in different operations at the same number: the program's own mismatch.

    Groups have numbers of their own, so two lines are not compared if one of them may belong to a smaller group.
    """
    groups = {best.group, other.group}
    same = (
        best.seq is not None and best.seq == other.seq and (len(groups) == 1 or groups <= WORLD_GROUP_NAMES)
    )
    if not same or other.rank is None or best.detail.get("in_subgroup") or other.detail.get("in_subgroup"):
        return best
    if best.kind == "collective_mismatch" and "ops" not in best.detail:
        return best
    ops: dict[int, str] = dict(best.detail.get("ops") or {best.rank: best.op})
    if other.op is None or None in ops.values() or (other.rank not in ops and len(ops) >= _MAX_OPS):
        return best
    ops.setdefault(other.rank, other.op)
    counted = Counter(ops.values()).most_common()
    if len(counted) < 2:
        return replace(best, detail={**best.detail, "ops": ops})
    odd = min(r for r, op in ops.items() if op == counted[-1][0])
    counts = "; ".join(f"{op} on {n} of {len(ops)} ranks" for op, n in counted)
    return replace(
        best,
        kind="collective_mismatch",
        role=LineRole.ROOT,
        late=True,
        rank=odd,
        op=ops[odd],
        domains=("user_program",),
        detail={**best.detail, "ops": ops},
        meaning=f"The ranks called different operations at number {best.seq}: {counts}.",
    )
