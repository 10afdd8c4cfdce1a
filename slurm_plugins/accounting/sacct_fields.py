"""The columns of `sacct -P`: what each may hold, which we ask for, and which an attempt cannot do without."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection

from probing_cluster.slurm_plugins import job_ids

_TIME = re.compile(
    r"(?:Unknown|None|N/A|NONE|\d{1,12}|\d{4}-\d\d-\d\d[T ]\d\d:\d\d(?::\d\d)?(?:\.\d+)?(?:Z|[+-]\d\d:?\d\d)?)?",
    re.ASCII,
)
_SPAN = re.compile(
    r"(?:(?:\d+-)?\d+(?::\d\d){1,2}(?:\.\d+)?|UNLIMITED|Partition_Limit|INVALID|\d+)?", re.ASCII
)
_NUMBER = re.compile(r"(?:-?\d+(?:\.\d+)?[KMGTPE]?|Unknown|UNLIMITED|Partition_Limit|None|\*|N/A)?", re.ASCII)
_STATE = re.compile(r"[A-Z][A-Z_]+\+?(?: by \S+)?", re.ASCII)
_EXIT = re.compile(r"(?:\d+:\d+)?", re.ASCII)
_TRES = re.compile(r"(?:[^\s=,]+=[^\s=,]*(?:,[^\s=,]+=[^\s=,]*)*,?)?")
_WORD = re.compile(r"\S*")

_KINDS: dict[re.Pattern[str], str] = {
    job_ids.PATTERN: "JobID JobIDRaw",
    _TIME: "Submit Eligible Start End",
    _SPAN: "Elapsed Suspended Timelimit CPUTime TotalCPU UserCPU SystemCPU Reserved Planned AveCPU MinCPU "
    "ResvCPU PlannedCPU",
    _NUMBER: "ElapsedRaw TimelimitRaw CPUTimeRAW AllocCPUS AllocNodes NCPUS NNodes NTasks ReqCPUS ReqNodes UID GID "
    "AssocID DBIndex QOSRAW WCKeyID ReservationId Restarts SegmentSize ResvCPURAW PlannedCPURAW ConsumedEnergyRaw",
    _STATE: "State",
    _EXIT: "ExitCode DerivedExitCode",
    _TRES: "AllocTRES ReqTRES TRESUsageInAve TRESUsageInMax TRESUsageInMin TRESUsageInTot TRESUsageOutAve "
    "TRESUsageOutMax TRESUsageOutMin TRESUsageOutTot",
    _WORD: "Account User Cluster Partition NodeList FailedNode QOS QOSREQ Group ReqMem Flags Layout BlockID SLUID "
    "OriginalSLUID MaxRSS MaxVMSize MaxPages AveRSS AveVMSize AvePages MaxDiskRead MaxDiskWrite AveDiskRead "
    "AveDiskWrite MaxRSSNode MaxVMSizeNode MaxDiskReadNode MaxDiskWriteNode MaxPagesNode MinCPUNode AveCPUFreq "
    "ReqCPUFreq ReqCPUFreqMin ReqCPUFreqMax ReqCPUFreqGov AllocGRES ReqGRES ConsumedEnergy Exclusive OverSubscribe",
}
"""What one field may hold. A column not named here is free text: a person wrote it, it may hold anything."""

_BY_NAME = {name.lower(): kind for kind, names in _KINDS.items() for name in names.split()}
# A name may begin with digits (1080ti-1), but a count is none, nor is a size (16G).
_NODE = r"(?!\d+(?:\.\d+)?[KMGTPE][cn]?(?:,|$))(?:\d[\d_.-]*)?[A-Za-z][\w.-]*(?:\[[\d,-]*\][\w.-]*)*"
_BY_NAME["nodelist"] = re.compile(rf"None assigned|(?:{_NODE}(?:,{_NODE})*)?", re.ASCII)
LISTS = frozenset({"nodelist"} | {name.lower() for name in _KINDS[_TRES].split()})
"""Columns in which Slurm itself writes commas."""

FREE_TEXT = (
    "JobName Comment AdminComment SystemComment SubmitLine WorkDir Extra Constraints StdIn StdOut StdErr WCKey "
    "Container Licenses Reservation ReqReservation McsLabel Reason"
)
KNOWN = frozenset(_BY_NAME) | {name.lower() for name in FREE_TEXT.split()}

FIRST = ("JobIDRaw", "JobID")
WANTED = tuple(
    name
    for line in (
        "Cluster State Submit Eligible Start End ElapsedRaw Suspended ExitCode DerivedExitCode NodeList AllocNodes",
        "AllocCPUS AllocTRES ReqTRES AllocGRES ReqGRES User UID Account Partition QOS Priority TimelimitRaw",
        "FailedNode Restarts Flags Reason Comment WorkDir StdOut JobName",
    )
    for name in line.split()
)
LAST = ("DBIndex",)
"""Ours begin and end with numbers, so a newline in a person's field is always inside a record."""

Check = Callable[[str], object]


def check_of(column: str) -> Check | None:
    """The test that one value of `column` passes; None where anything may stand."""
    kind = _BY_NAME.get(column.lower())
    return None if kind is None else kind.fullmatch


def in_format(name: str) -> str:
    """The column that one name of a `--format` list asks for: without its width, `JobID%-20`."""
    return name.strip().partition("%")[0]


def missing(columns: Collection[str]) -> list[str]:
    """What an attempt cannot do without and `columns` (lower case) lacks, in sacct's words."""
    lacks: list[str] = []
    if not {"jobid", "jobidraw"} & set(columns):
        lacks.append("JobID")
    lacks += [name for name in ("State", "Start") if name.lower() not in columns]
    if not {"end", "elapsed", "elapsedraw"} & set(columns):
        lacks.append("End")
    return lacks


def to_ask_for(offered: Collection[str]) -> list[str]:
    """Our field list, cut to what this release's `sacct -e` offers: asking for another is fatal."""
    have = {name.lower() for name in offered}
    return [name for name in (*FIRST, *WANTED, *LAST) if name.lower() in have]
