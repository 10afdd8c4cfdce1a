"""The meaning of each finding from a job's log, dump or probe page (`findings.toml`)."""

from __future__ import annotations

import functools
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import Any

from probing_cluster.attribution.verdict import taxonomy
from probing_cluster.core import errors, records, vocabulary

_FILE = Path(__file__).with_name("findings.toml")


_FILE_ERRORS = frozenset(
    {"FileNotFoundError", "NotADirectoryError", "IsADirectoryError", "PermissionError", "OSError", "IOError"}
)

_SURE_KINDS = frozenset({"cuda_device_assert", "syntax_error"})
_SURE = re.compile(
    r"(?:^|[\s.:])(?:KeyError|IndexError|LookupError|NameError|UnboundLocalError|AttributeError|TypeError|ValueError|AssertionError|"
    r"ZeroDivisionError|NotImplementedError|RecursionError|(?:Syntax|Indentation|Tab)Error|ImportError|ModuleNotFoundError|"
    r"UnicodeDecodeError|UnicodeEncodeError|StopIteration)\b"
    r"|\berror: (?:the following arguments are required|unrecognized arguments|argument \S{1,80}: (?:invalid|expected|ignored)|too few arguments|ambiguous option)"
)
"""Exceptions of the language itself, and command lines that a program refused."""
_OWN_NAMES = re.compile(r"(?<=KeyError: )'\w{1,80}'$|(?:(?<=attribute )|(?<=name )|(?<=variable ))'\w{1,80}'")
"""Names in the program's text: of a key, an attribute or a variable, whatever their words mean."""
_OUTSIDE = re.compile(
    r"\b(?:nan\b|inf|overflow|cuda|gpu|nccl|rocm|hip|device|driver|node|host|server|service|socket|connect|network|peer\b|time[ds]?[ -]?out|"
    r"unreachable|unavailable|refused|reset|i/o|input/output|errno|stale|space|read-only|mount|disk|file|path|checksum|corrupt|truncat|"
    r"magic|header|central directory|checkpoint|heartbeat|memory|shared object|cannot open|undefined symbol)|\.so\b",
    re.IGNORECASE,
)
"""Words for things outside the program: a language exception that contains one may have an outside cause."""


class FindingRole(StrEnum):
    """How a finding counts; `findings.toml` defines each role."""

    PROXIMAL = "proximal"
    HINT = "hint"
    OWN = "own"
    EXIT = "exit"
    SCHEDULER = "scheduler"
    CONTEXT = "context"


@dataclass(frozen=True, kw_only=True)
class FindingSignature:
    """How one kind of finding counts."""

    kinds: frozenset[str]
    role: FindingRole
    symptom: str
    cause: str
    weight: float
    allows: frozenset[str]
    onset: bool
    words: str
    gpu: bool = False
    shortage: bool = False
    """Others hold what the program needs: nothing is broken, on no node and in no domain."""
    component: str = ""
    """The part at fault, if it is a more specific one than the cause's own (`taxonomy.name`)."""
    check: str = ""
    """What the owner checks first, and when it is the site's concern; {node} is filled in (`next_steps`)."""
    happened: str = ""
    """What happened, for the summary, if only the job's side reports it ({on_node}); empty for the cause's own sentence."""

    def supports(self, cause: str) -> bool:
        """True if a fault with this cause would produce this finding."""
        return "*" in self.allows or cause in self.allows


@dataclass(frozen=True, kw_only=True)
class _Advice:
    """What the owner does about an error of which the words match."""

    pattern: re.Pattern[str]
    step: str
    limit: str
    """The limit on memory that is the runtime's own and was reached; empty for other errors."""


@dataclass(frozen=True, kw_only=True)
class _Table:
    kinds: Mapping[str, FindingSignature]
    by_role: Mapping[str, FindingSignature]
    fallback: FindingSignature
    advice: tuple[_Advice, ...]
    parts: tuple[tuple[re.Pattern[str], frozenset[str]], ...]
    """Words for parts of the machine, and the causes that they allow."""


@functools.cache
def _load() -> _Table:
    raw = tomllib.loads(_FILE.read_text("utf-8"))
    table: dict[str, FindingSignature] = {}
    for row in raw["finding"]:
        signature = _signature(row, frozenset(row["kinds"]))
        for kind in signature.kinds:
            if kind in table:
                raise errors.MalformedInput(f"{_FILE.name} says twice what {kind} means")
            table[kind] = signature
    by_role = {role: _signature(row, frozenset()) for role, row in raw["by_role"].items()}
    advice = tuple(
        _Advice(pattern=re.compile(row["pattern"]), step=row["step"], limit=row.get("limit", ""))
        for row in raw["advice"]
    )
    fallback = _signature(raw["fallback"], frozenset())
    parts = tuple((re.compile(row["pattern"]), frozenset(row["causes"])) for row in raw["part"])
    return _Table(kinds=table, by_role=by_role, fallback=fallback, advice=advice, parts=parts)


def _signature(row: Mapping[str, Any], kinds: frozenset[str]) -> FindingSignature:
    taxonomy.cause(row["cause"])
    values = {k: v for k, v in row.items() if k not in ("kinds", "role", "allows")}
    return FindingSignature(
        kinds=kinds, role=FindingRole(row["role"]), allows=frozenset(row["allows"]), **values
    )


def find(event: records.HealthEvent) -> FindingSignature:
    """The signature of a job-side event. An unknown kind is read by the role that its grammar gives; without one it is context."""
    table = _load()
    known = table.kinds.get(event.kind)
    own = _only_user(event)
    if known is not None:
        if variant := _variant(event, own=own):
            row = table.kinds[variant]
            return row if variant != _UNDECIDED else _with_named_parts(row, table.parts, event.message)
        if event.kind == "python_exception" and str(event.detail.get("exception")) in _FILE_ERRORS:
            return table.kinds["python_file_error"]
        # Two ranks in one collective with different sizes: the mismatch explains the timeout.
        mismatch = own and known.role is FindingRole.PROXIMAL and known.symptom == "nccl_timeout"
        return table.kinds["collective_mismatch"] if mismatch else known
    role = event.detail.get("role")
    if role == "root":
        return table.by_role["root_user"] if own else table.fallback
    return table.by_role.get(str(role), table.fallback)


_REFUSED_STEP = re.compile(
    r"Unable to create (?:job )?step.{0,40}: (?:More processors|Memory required|Requested nodes?\b|Invalid (?:generic|Trackable) )",
    re.IGNORECASE,
)
"""Slurm's refusals of a step by what it asks for."""


def is_refused_step(event: records.HealthEvent) -> bool:
    """True for srun's line that Slurm does not create a step that asks for so much."""
    return event.kind == "slurm_launch_failed" and _REFUSED_STEP.search(event.message) is not None


_WATCHDOG = frozenset({"watchdog_timeout", "watchdog_timeout_init"})
NAMES_MISSING = _WATCHDOG | {"desync_report", "monitored_barrier_timeout"}
"""PyTorch's messages about a collective that did not end. They may name the missing ranks, or show that all others waited."""


def _variant(event: records.HealthEvent, *, own: bool) -> str | None:
    """The more specific row that the message selects; None for the kind's own row."""
    if event.kind == "cuda_unavailable" and _MISMATCH.search(event.message):
        return "cuda_driver_mismatch"
    if event.kind == "cuda_unavailable":
        return _UNAVAILABLE.get(str(event.detail.get("unavailable")))
    if event.kind == "slurm_launch_failed" and own:
        return "launch_mistake"
    if event.kind in NAMES_MISSING and event.detail.get("missing") is True:
        return "missing_ranks"
    if event.kind == "cuda_oom" and "held_gib" in event.detail:
        return "cuda_held_by_others"
    if event.kind in _RAISED and (licence := _LICENCES.get(str(event.detail.get("licence")))):
        return licence
    if event.kind == "io_error" and _READ_ONLY.search(event.message):
        may_be_own = "user_program" in event.detail.get("domains", ("user_program",))
        return "read_only_file" if may_be_own else "read_only_disk"
    if event.kind == "stale_file_handle" and event.detail.get("locks") is True:
        return "stale_lock_file"
    if event.kind in _RAISED and misses_a_host(event):
        return "name_not_resolved" if _UNRESOLVED.search(event.message) else "host_not_reached"
    if event.kind in _RAISED and _NO_ACCOUNT.search(event.message):
        return "account_not_found"
    if event.kind == "program_error" and _REFUSED.search(event.message):
        return "licence_refused"
    return _UNDECIDED if may_be_machines(event) else None


_UNDECIDED = "program_or_machine"


def may_be_machines(event: records.HealthEvent) -> bool:
    """True for an error of a program whose words speak for the machine as much."""
    return event.kind == "program_error" and records.Domain.HARDWARE.value in _domains(event)


def _with_named_parts(
    row: FindingSignature, parts: Sequence[tuple[re.Pattern[str], frozenset[str]]], text: str
) -> FindingSignature:
    """The row, with the causes that lie in a part that the text names."""
    named = (causes for pattern, causes in parts if pattern.search(text))
    return replace(row, allows=row.allows.union(*named))


def _domains(event: records.HealthEvent) -> Sequence[object]:
    domains = event.detail.get("domains")
    return domains if isinstance(domains, list | tuple) else ()


_READ_ONLY = re.compile(r"Read-only file system|\[Errno 30\]|\bEROFS\b", re.IGNORECASE)
_LICENCES = {"no_server": "licence_server_down", "taken": "licences_taken", "refused": "licence_refused"}
_RAISED = frozenset({"python_exception", "program_error"})
_UNRESOLVED = re.compile(
    r"NameResolutionError|\bName or service not known|\bTemporary failure in name resolution|\bgetaddrinfo failed"
    r"|\bCould not resolve host|\bnodename nor servname provided|\bFailed to resolve '|\bsocket\.[gh]\w{0,4}error\b|\bUnknown ?Host(?:Exception)?\b"
    r"|\bNo address associated with hostname",
    re.IGNORECASE,
)
"""A host name that could not be resolved: misspelt, or the node's name service or network is down."""
_UNREACHED = re.compile(
    r"\bNo route to host|\b(?:Network|Host) is (?:unreachable|down)\b|\bE(?:NET|HOST)(?:UNREACH|DOWN)\b|\bETIMEDOUT\b|\[Errno (?:100|101|110|112|113)\]"
    r"|\bconnect(?:ion|ing)?\b.{0,120}\btime[ds]?[ -]?out|\b(?:Connect|Read) ?Timeout(?:Error)?\b|\bRead timed out|\bsocket\.timeout\b"
    r"|\btimeout (?:connecting to|reading from)\b|\burlopen error timed out|\bServerSelectionTimeout"
    r"|\bfailed to establish a new connection|\bcould(?:n't| not) connect to (?:the endpoint URL|server\b)|\bcannot connect to host\b|\bcan't connect to \w{1,20} server"
    r"|\ball connection attempts failed",
    re.IGNORECASE,
)
"""A host that did not answer: it is down, nothing leads to it from there, or the node's network is down."""
_LOCAL_SOCKET = re.compile(r"\bon socket [\"']|\bUnix domain socket\b")
"""A server of the same machine."""
_NOBODY_LISTENED = re.compile(r"\bconnection refused|\[Errno 111\]|\bECONNREFUSED\b", re.IGNORECASE)
_BROKEN = re.compile(
    r"\bconnection (?:was )?(?:reset|refused|aborted|closed|lost)|\bbroken pipe|\bpeer\b", re.IGNORECASE
)
"""A connection that broke or was refused: what broke it may be the other side."""
_NO_ACCOUNT = re.compile(
    r"\bget(?:pw(?:uid|nam)|gr(?:gid|nam))\(\): |\b(?:uid|gid|user|group) (?:id )?\d{1,10} (?:was )?not found\b|\bcannot find name for (?:user|group) ID \d|No username set in the environment"
)
"""An account that the node's name service, or a container's /etc/passwd, does not know."""
_REFUSED = re.compile(
    r"\blicen[cs]e (?:checkout|manager|server)|\blicensing error|\bcheck ?out .{0,40}\blicen[cs]e",
    re.IGNORECASE,
)
"""A licence that the program did not get."""
_MISMATCH = re.compile(
    r"driver/library version mismatch|system driver mismatch|SystemDriverMismatch|unsupported display driver",
    re.IGNORECASE,
)
"""The kernel driver and the user libraries are of different releases."""
_UNAVAILABLE = {"not_ready": "cuda_not_ready", "ordinal": "cuda_device_ordinal"}


def misses_a_host(event: records.HealthEvent) -> bool:
    """True if the error's words show that a host could not be looked up or did not answer."""
    name = str(event.detail.get("exception", "")).rpartition(".")[2]
    if name in vocabulary.OF_CODE or _LOCAL_SOCKET.search(event.message):
        return False
    return bool(_UNRESOLVED.search(event.message)) or _got_no_answer(event.message)


def _got_no_answer(message: str) -> bool:
    # Whoever refuses a connection was reached.
    return bool(_UNREACHED.search(message)) and not _NOBODY_LISTENED.search(message)


def names_the_network(event: records.HealthEvent) -> bool:
    """True if the error's words name a host that was missed, or a connection that broke."""
    return misses_a_host(event) or bool(_BROKEN.search(event.message))


def advice(words: str) -> str:
    """What the owner does about an error of which the words show it; empty for all others."""
    return next((row.step for row in _load().advice if row.pattern.search(words)), "")


BARE_KILLS = frozenset({"oom_kill_suspected", "dataloader_oom"})
"""Kinds of kill messages without a reason, from a shell, Slurm or the parent of a data loader's worker."""


def is_for_memory(event: records.HealthEvent) -> bool:
    """True if the line says that memory ran out, and not only that a process was killed."""
    return find(event).cause == "oom_host" and event.kind not in BARE_KILLS


def own_limit(words: str) -> str:
    """The limit of a runtime's own on its memory that the words show as reached (Java's heap); empty for other errors."""
    return next((row.limit for row in _load().advice if row.limit and row.pattern.search(words)), "")


def named(kind: str) -> FindingSignature:
    """The signature of a known kind."""
    return _load().kinds[kind]


def _only_user(event: records.HealthEvent) -> bool:
    return list(_domains(event)) == [records.Domain.USER_PROGRAM.value]


def kinds() -> frozenset[str]:
    """Every kind in the table."""
    return frozenset(_load().kinds)


def is_finding(event: records.HealthEvent) -> bool:
    """True for an event from a source that a user's process can write."""
    return event.source in vocabulary.JOB_SIDE_SOURCES


def is_surely_own(event: records.HealthEvent) -> bool:
    """True for an error that only the program itself can cause: a wrong key, a bad argument, a failed CUDA assertion."""
    if event.kind in _SURE_KINDS:
        return True
    outside = _OUTSIDE.search(_OWN_NAMES.sub("", event.message)) or _NO_ACCOUNT.search(event.message)
    return bool(_SURE.search(event.message)) and not outside


def failure_of_others(first: records.HealthEvent) -> str:
    """Phrase for a first cause that accuses nobody and explains the exit code; else empty."""
    if first.detail.get("role") == "remote":
        return "lost another of its processes"
    if first.kind == "net_ib_completion_error":
        return "got no answer from a peer over InfiniBand"
    if first.kind == "process_terminated":
        return "had one of its processes ended by SIGTERM"
    return "got wrong values from a test of a collective" if first.kind == "wrong_result" else ""


_SIGNALLED = re.compile(r"\*{3} JOB (?P<job>\d{1,12}) ON \S{1,253} CANCELLED AT \S{10,30} \*{3}")


def signals_job(event: records.HealthEvent, job_id: int) -> bool:
    """True for slurmstepd's line on a signal that it passes on to this job, as for `scancel --signal`; another job's log may share the file."""
    found = _SIGNALLED.search(event.message) if event.kind == "slurm_cancelled" else None
    return found is not None and found["job"] == str(job_id)


_STEP_LIMIT = re.compile(
    r"\*{3} (?:STEP |StepId=)(?P<step>(?P<job>\d{1,12})(?:\+\d{1,6})?\.\d{1,9})\b[^*]{1,300}DUE TO TIME LIMIT"
)


def step_at_its_limit(event: records.HealthEvent, job_id: int) -> str:
    """The step of this job that Slurm's line reports as ended at a time limit; empty for none. At the job's own limit its steps have such lines, too."""
    found = _STEP_LIMIT.search(event.message) if event.kind == "slurm_timeout" else None
    return found["step"] if found is not None and found["job"] == str(job_id) else ""


def error_at(event: records.HealthEvent) -> datetime | None:
    """Time of the error by the log's own clock; None if only the collection time is known."""
    return event.at if event.detail.get("at_from_log") is True else None
