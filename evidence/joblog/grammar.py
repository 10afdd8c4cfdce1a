"""What every family of job-log messages shares: the finding, the part a kind plays in a failure, the prefixes of ranks, what one finding adds to another."""

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


class LineRole(IntEnum):
    """What a kind can be in the story of a failure."""

    OBSERVATION = 0
    """Says something, is never the cause: advice, clean-up, reports about another line."""
    EXIT = 1
    """A process ended badly, for a reason that another line gives."""
    REMOTE = 2
    """A peer went away: its own failure lies elsewhere."""
    SYMPTOM = 3
    """Something did not come in time; the cause may be anywhere."""
    END = 4
    """Slurm or a person ended the job."""
    ROOT = 5
    """A failure that explains itself."""


@record
class JobFinding:
    """One message of a job's output understood."""

    line: int = doc("1-based number of the line it starts on")
    kind: str = doc("word of docs/evidence.md")
    role: LineRole = doc("what it can be in the story of the failure")
    late: bool = doc("true when such a message comes long after the event, so that order says nothing")
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
    """What a kind means."""

    role: LineRole
    domains: tuple[str, ...]
    meaning: str
    late: bool = False


def fact(role: LineRole, domains: tuple[str, ...], meaning: str, *, late: bool = False) -> LogFact:
    """A `LogFact`, in one line."""
    return LogFact(role=role, domains=domains, meaning=meaning, late=late)


@dataclass(frozen=True, kw_only=True, slots=True)
class Record:
    """One logical line: its text and what its prefixes say about who wrote it."""

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
    """Whether Ray shows what a worker of its printed."""


@dataclass(kw_only=True, slots=True)
class JoblogContext:
    """What earlier lines said that a later one leaves out; a handful of fields, never a list."""

    op: str | None = None
    op_line: int = 0
    counts: dict[int, int] = field(default_factory=dict)
    child: dict[str, Any] = field(default_factory=dict)
    child_ended: dict[str, Any] = field(default_factory=dict)
    """The fields of the child whose exit code it told last."""
    child_line: int = 0
    """Where torchelastic began to list the children that failed; 0 when it did not."""
    mpi: dict[str, Any] = field(default_factory=dict)
    mpi_line: int = 0
    """Where an MPI launcher named the process whose end it tells a line later; 0 when it did not."""

    mpi_start_line: int = -1_000
    """Where MPI said that it could not start: its error stack, which names the part that failed, stands behind it."""
    component: Record | None = None
    """The line in which MPI or PMIx said that a component it was told to use is not there."""
    nccl_line: int = -1_000
    """Line of the last NCCL error: its result's name, on a line of its own, stands behind it."""
    nccl_kind: str = ""
    """What that error was."""
    in_use: Record | None = None
    """The line in which PyTorch first warned that a port is taken."""
    last_error_line: int = -1_000
    """Where NCCL announced its last error, which stands on the next line."""
    usage_line: int = 0
    """Where a parser of options began to tell how the program is used; 0 when none did."""
    head: str = ""
    """The words of the last heading of an error."""
    head_raised: bool = False
    """Whether it is an exception's name, whose own text begins on the next line."""
    head_detail: dict[str, Any] = field(default_factory=dict)
    """What the heading says beside its words of the error that it announces."""
    head_line: int = 0
    """Where a line announced an error that stands on one of the next; 0 when none is awaited."""

    failed_line: int = 0
    """Where a workflow engine told of a step that failed; its reason stands below. 0 when none is awaited."""

    def listing(self, line: int) -> bool:
        """Whether `line` can belong to that list."""
        return 0 < self.child_line <= line <= self.child_line + _LISTING_LINES

    def announced(self, line: int) -> bool:
        """Whether `line` can be the error that an earlier line announced."""
        return 0 < self.head_line < line <= self.head_line + _HEAD_LINES

    def reasoned(self, line: int) -> bool:
        """Whether `line` can be the reason that a workflow engine gives for a step's failure."""
        return 0 < self.failed_line < line <= self.failed_line + _REASON_LINES

    def is_last_error(self, line: int) -> bool:
        """Whether `line` is the one in which NCCL tells its last error."""
        return line == self.last_error_line + 1

    def expects(self, line: int) -> bool:
        """Whether an earlier line gives `line` a meaning, whatever it contains."""
        return self.listing(line) or self.announced(line) or self.reasoned(line) or self.is_last_error(line)


Read = Callable[[Record, JoblogContext], "JobFinding | None"]


@dataclass(frozen=True, kw_only=True, slots=True)
class LogFamily:
    """One family of messages: `read` is only called when one of `triggers` is in the line."""

    name: str
    triggers: tuple[str, ...]
    read: Read
    facts: Mapping[str, LogFact]


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
_REASON_LINES = 4
TORCH_RANK = re.compile(r"\[rank(?P<rank>\d{1,8})\](?=:|\s)")
_PREFIXES = (
    re.compile(
        r"(?:\w{3} \w{3} [ \d]\d \d\d:\d\d:\d\d \d{4})?\[(?:[\w.-]{1,253}@)?\d+,(?P<rank>\d{1,8})\]<std(?:out|err)>:\s?"
    ),
    re.compile(r"(?:\w{3} \w{3} [ \d]\d \d\d:\d\d:\d\d \d{4})?\[(?P<rank>\d{1,6})\]<std(?:out|err)>:\s?"),
    re.compile(r"\[\d+,mpirank:(?P<rank>\d{1,8}),(?P<host>[\w.-]{1,253})\]<std(?:out|err)>:\s?"),
    re.compile(r"std(?:out|err): "),
    re.compile(r"\s*(?P<rank>\d{1,6}): (?=\S|$)"),
    re.compile(r"\[(?:rank|Rank|RANK):?\s?(?P<rank>\d{1,8})\]:?\s?"),
    re.compile(r"\[(?P<host>[\w.-]{1,253}):(?P<local>\d{1,5})\]:?\s"),
    re.compile(r"\[[a-z][a-z_]{1,30}(?P<local>\d{1,5})(?:\|\d{1,5})?\]:\s?"),
    re.compile(
        r"\((?:[\w.-]{1,64},? )?rank=(?P<rank>\d{1,8}),? pid=\d{1,10}(?:, ip=(?P<host>[\w.:-]{1,64}))?\)\s"
    ),
    re.compile(r"(?:trainer|worker|replica|node|role|actor)/(?P<rank>\d{1,6}) "),
    re.compile(r"[A-Za-z][\w.-]{0,200}[-_]\d{1,6}\s{1,30}\| "),
    re.compile(
        r"\[(?P<rank>\d{1,6})\] (?=-->|\s*$|Error|ERROR|FATAL|Fatal|Traceback \(|terminate called|forrtl:|\s{2,8}(?![\d+-])\S|(?:\w{1,60}\.){0,6}[A-Z]\w{0,60}(?:Error|Exception)\b)"
    ),
    re.compile(
        r"(?:[EF]|[IW](?!.{20,200}\] \[\d{1,6}/\d{1,6}\] ))\d{4} \d\d:\d\d:\d\d\.\d{3,6}\s{1,8}\d{1,18} [\w./-]{1,120}\.py:\d{1,6}\] (?=.*(?:Traceback \(|File \"|\w(?:Error|Exception)\b|\] ))"
    ),
    re.compile(
        r"(?:>> ){1,40}(?=Error|\{?Error|Unrecognized|Undefined|Out of memory|Index|Not enough|Invalid)"
    ),
    re.compile(r"\((?P<actor>[\w.:]{1,64}) pid=(?P<pid>\d{1,10})(?:, ip=(?P<host>[\w.:-]{1,64}))?\)\s"),
    re.compile(
        r"(?P<host>[A-Za-z0-9][\w.-]{0,252}):\s(?=\[(?:rank|default)\d|\[E\d{0,4}\s|\[\d{4}-|Traceback \(|\s+File|slurmstepd|srun:)"
        r"|(?P<node>[A-Za-z][\w.-]{0,200}\d[\w.-]{0,50}):\s(?=\w+(?:\.\w+)*Error:)"
    ),
    re.compile(
        r"(?:DEBUG|INFO|WARNING|ERROR|CRITICAL) \d\d-\d\d \d\d:\d\d:\d\d \[?[\w./]{1,120}\.py:\d{1,6}\] ?"
    ),
    re.compile(r"\s{2,16}\"message\": \"(?=(?:[a-z_]\w{0,40}\.){0,6}[A-Z]\w{2,60}(?:Error|Exception): )"),
    re.compile(r"(?:\[[^\]\n]{1,80}\] ){2,5}>>> (?=\S|\s{2,}\S)"),
    re.compile(r"(?P<bench>[\w.-]{1,200}) \[std(?:out|err)\] "),
    re.compile(r"[^\t\n]{1,80}\t[^\t\n]{1,80}\t(?=\d{4}-\d\d-\d\dT\d)"),
    re.compile(
        r"(?:[A-Z][a-z]{2}-\d\d |\d{4}-\d\d-\d\d[ T])?\d\d:\d\d:\d\d[.,]\d{3} \[[^\]]{1,80}\] (?=(?:ERROR|FATAL|SEVERE|CRITICAL)\b)"
    ),
    re.compile(r"\d\d:\d\d:\d\d:(?:\w{1,20}:){1,5}(?:ERROR|FATAL|CRITICAL):(?=\S)"),
    re.compile(
        r"(?:\[\d{4}-\d\d-\d\d[T, ]{1,2}\d\d:\d\d:\d\d[^\]]{0,16}\] )?\{[\w./]{1,80}\.py:\d{1,6}\} (?:DEBUG|INFO|WARNING|ERROR|CRITICAL) - (?=\S)"
    ),
)
LABELS = tuple(_PREFIXES[i] for i in (0, 1, 2, 4))
"""Those by which a launcher marks every line of a task, whatever it says."""
_MAX_LAYERS = 4


def is_labelled(text: str) -> bool:
    """Whether the line begins with a prefix that tells by itself what it is."""
    return any(pattern.match(text) for pattern in _PREFIXES)


def strip(line: int, text: str) -> Record:
    """The line without launcher prefixes; the rank and host they name."""
    found: dict[str, str] = {}
    labelled = any(label.match(text) for label in LABELS)
    for _ in range(_MAX_LAYERS):
        match = next((m for pattern in _PREFIXES if (m := pattern.match(text))), None)
        if match is None:
            break
        found.update({k: v for k, v in match.groupdict().items() if v is not None})
        text = text[match.end() :]
    if inner := TORCH_RANK.search(text[:400]):
        found["rank"] = inner["rank"]
    return Record(
        line=line,
        text=text,
        rank=number(found.get("rank"), MAX_RANK),
        host=found.get("host") or found.get("node"),
        pid=number(found.get("pid")),
        labelled=labelled,
        of_worker="actor" in found,
    )


_FILLED = ("op", "seq", "group", "rank", "timeout_ms", "host", "pid")
_SAME = {"watchdog_timeout_init": "watchdog_timeout", "host_oom_kill": "slurm_oom"}
TIMEOUT_KINDS = frozenset({
    "watchdog_timeout", "watchdog_timeout_init", "heartbeat_monitor", "monitored_barrier_timeout", "rendezvous_timeout", "rendezvous_failed",
})  # fmt: skip
_MAX_OPS = 256
WORLD_GROUP_NAMES = frozenset({None, "default_pg", "0"})
"""Names of the group that all ranks are in; some lines leave it out."""


def enrich(best: JobFinding, other: JobFinding) -> JobFinding:
    """`best` with the fields it lacks, from another line about the same thing."""
    if other.detail.get("pmi") and best.kind == "rendezvous_failed" and other.line > best.line:
        detail = {**best.detail, "launcher": "mpi"}
        best = replace(best, kind=other.kind, role=LineRole.ROOT, detail=detail)
        return replace(best, domains=other.domains, meaning=other.meaning)
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
    """A timeout with the ranks that PyTorch itself says it waited for."""
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

    Groups have numbers of their own, so nothing is said where one of the two may belong to a smaller group.
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
