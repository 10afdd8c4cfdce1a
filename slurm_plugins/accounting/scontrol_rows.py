"""The text of `scontrol show job`, as it stands in tickets, taken apart into rows of sacct's columns.

A job's lines follow each other; `-o` has them all in one. People choose names, paths and comments: in a job's lines such a value
takes the rest of its line, and of a key that stands twice the first counts.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from probing_cluster.core import digits
from probing_cluster.slurm_plugins.accounting import attempt_rows, sacct_layout, sacct_rows

_BEGINS = re.compile(r"(?P<margin>[\s>|]{0,40})JobId=\d{1,10}(?:\s|$)")
_KEY = re.compile(r"(?:^|\s)([A-Z][A-Za-z_:/]{1,40})=")
_FREE = frozenset(
    {"JobName", "Comment", "AdminComment", "SystemComment", "Command", "WorkDir", "StdOut", "StdErr", "StdIn"}
)
"""Keys whose values people choose. On lines of their own, or at the end of the first."""
_COLUMNS = {
    "jobidraw": ("JobId",), "jobname": ("JobName",), "account": ("Account",), "partition": ("Partition",), "qos": ("QOS",),
    "state": ("JobState",), "reason": ("Reason",), "exitcode": ("ExitCode",), "derivedexitcode": ("DerivedExitCode",),
    "submit": ("SubmitTime",), "eligible": ("EligibleTime",), "start": ("StartTime",), "end": ("EndTime",), "elapsed": ("RunTime",),
    "timelimit": ("TimeLimit",), "nodelist": ("NodeList",), "allocnodes": ("NumNodes",), "alloccpus": ("NumCPUs",),
    "alloctres": ("AllocTRES", "TRES"), "reqtres": ("ReqTRES",), "restarts": ("Restarts",), "priority": ("Priority",),
    "comment": ("Comment",), "workdir": ("WorkDir",), "stdout": ("StdOut",), "failednode": ("FailedNode",),
}  # fmt: skip
"""sacct's column to the keys of scontrol that may have its value."""
_OWNER = re.compile(r"(?P<user>\S{1,256})\((?P<uid>\d{1,10})\)")


def is_scontrol(data: bytes) -> bool:
    """Whether a job's first line stands in it, above any header line of sacct's."""
    for line in _lines(data[: 1 << 16]):
        if _BEGINS.match(line):
            return True
        if sacct_layout.header(line) is not None:
            return False
    return False


def read(data: bytes) -> Iterator[sacct_rows.SacctRow | sacct_rows.RejectedRow]:
    """A row for each job, and a rejected one for a job without what an attempt needs. Lines between jobs are left out."""
    began, job = 0, list[str]()
    for number, line in enumerate([*_lines(data), ""], 1):
        begins = _BEGINS.match(line)
        if job and (begins or not line.strip(" \t>|")):
            yield _row(began, job)
            job = []
        if begins:
            began = number
        if begins or job:
            job.append(line.lstrip(" \t>|"))


def _lines(data: bytes) -> list[str]:
    return [
        line.rstrip("\r")
        for line in data.removeprefix(b"\xef\xbb\xbf").decode("utf-8", "replace").split("\n")
    ]


def _row(line_no: int, job: list[str]) -> sacct_rows.SacctRow | sacct_rows.RejectedRow:
    values: dict[str, str] = {}
    for line in job:
        for key, value in _values(line, whole_lines=len(job) > 1):
            values.setdefault(key, "" if value == "(null)" else value)
    text = "\n".join(job)
    missing = [key for key in ("JobState", "SubmitTime", "StartTime") if key not in values]
    if missing:
        return sacct_rows.refused(line_no, text, f"scontrol's text of the job lacks {', '.join(missing)}")
    return sacct_rows.SacctRow(line_no=line_no, text=text, fields=_fields(values))


def _values(line: str, *, whole_lines: bool) -> Iterator[tuple[str, str]]:
    """The keys of a line with their values."""
    keys = list(_KEY.finditer(line))
    for found, after in zip(keys, [*keys[1:], None], strict=True):
        if whole_lines and found[1] in _FREE:
            yield found[1], line[found.end() :].strip()
            return
        yield found[1], line[found.end() : after.start() if after else len(line)].strip()


def _fields(values: Mapping[str, str]) -> dict[str, str]:
    """sacct's columns of a job."""
    fields = {
        column: values[key] for column, keys in _COLUMNS.items() for key in reversed(keys) if key in values
    }
    fields["jobid"] = _written(values)
    if owner := _OWNER.match(values.get("UserId", "")):
        fields |= {"user": owner["user"], "uid": owner["uid"]}
    state = fields["state"] = values["JobState"].partition(" ")[0]
    if state in attempt_rows.ACTIVE:
        fields["end"] = "Unknown"  # what stands there is when its time limit ends it
    if state in attempt_rows.WAITING:
        fields["start"] = "Unknown"
    return fields


def _written(values: Mapping[str, str]) -> str:
    """The job as sacct's JobID names it: 123, 123_4, 123_[5-9], 123+1."""
    task, offset = (
        values.get("ArrayTaskId", ""),
        values.get("HetJobOffset") or values.get("PackJobOffset", ""),
    )
    if values.get("ArrayJobId") and task:
        return f"{values['ArrayJobId']}_{task if digits.is_number(task) else f'[{task}]'}"
    leader = values.get("HetJobId") or values.get("PackJobId")
    return f"{leader}+{offset}" if leader and offset else values["JobId"]
