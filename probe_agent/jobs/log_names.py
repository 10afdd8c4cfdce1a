"""The files a job's output goes to: Slurm's filename patterns, expanded as slurmstepd does (sbatch(1), "filename pattern")."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping

from probing_cluster.core import digits, errors, hostlist
from probing_cluster.probe_agent.jobs import jobs

MAX_WIDTH = 10
"""Widest number that slurmstepd pads with zeros."""
_NO_ARRAY = 4294967294
_SPECIFIER = re.compile(r"%(%|[0-9]*[A-Za-z])")
_NUMBER = re.compile(r"[0-9]+")
_NUMERIC = "AaJjnstbr"
_NEWER = "br"
"""Specifiers that releases before 23.02 do not replace: both names are tried."""


class NotKnown(errors.ProbingError):
    """The path of an output file is not known."""


def patterns(job: jobs.NodeJob) -> dict[str, str]:
    """Stream of a batch script to its filename pattern. Without `--error` both streams go to one file, and `stderr` is left out."""
    found = {"stdout": job.stdout or _default(job)}
    return found | ({"stderr": job.stderr} if job.stderr and job.stderr != job.stdout else {})


def ids_known(job: jobs.NodeJob) -> bool:
    """Whether it is known if the job is an array task, and of which array."""
    return bool(job.extra.get("ids_known")) or job.extra.get("array_task_id") is not None


def names(pattern: str, job: jobs.NodeJob, node: str) -> tuple[str, ...]:
    """The absolute paths that `pattern` may mean, without duplicates; raises NotKnown with what is missing."""
    if not pattern:
        raise NotKnown("Slurm did not report the job's output file")
    if not pattern.startswith("/"):
        if not job.work_dir.startswith("/"):
            raise NotKnown(
                f"{pattern!r} is a relative path and Slurm did not report the job's working directory"
            )
        pattern = f"{job.work_dir.rstrip('/')}/{pattern}"
    if "\\" in pattern:
        # With a backslash anywhere Slurm replaces no specifier. It removes the backslashes; two of them leave one.
        return (re.sub(r"\\(.?)", r"\1", pattern),)
    # %N is the host's name, which may differ from the node's.
    made = [
        _expanded(pattern, _values(job, node) | {"N": host.partition(".")[0]}, old=old)
        for old in (False, True)
        for host in (node, os.uname().nodename)
    ]
    return tuple(dict.fromkeys(made))


def is_new(path: str, job: jobs.NodeJob) -> bool:
    """Whether no other start can have written into this file: its name has the job's or the array's number, and it is the first start."""
    numbers = [str(n) for n in (job.job_id, job.extra.get("array_job_id")) if n is not None]
    return not job.restart_count and bool(set(_NUMBER.findall(path)) & set(numbers))


def _default(job: jobs.NodeJob) -> str:
    if not job.work_dir:
        return ""
    # Where Slurm does not tell the Prolog of arrays, this may be an array task: then the file that exists is read.
    return "slurm-%A_%a.out" if "array_task_id" in job.extra else "slurm-%j.out"


def _expanded(pattern: str, values: Mapping[str, str | int | None], *, old: bool) -> str:
    return "".join(_parts(pattern, values, old=old))


def _parts(pattern: str, values: Mapping[str, str | int | None], *, old: bool) -> Iterator[str]:
    at = 0
    for found in _SPECIFIER.finditer(pattern):
        yield pattern[at : found.start()]
        at = found.end()
        yield _one(found[1], values, old=old)
    yield pattern[at:]


def _one(specifier: str, values: Mapping[str, str | int | None], *, old: bool) -> str:
    if specifier == "%":
        return "%"
    width, letter = specifier[:-1], specifier[-1]
    if letter not in values or (old and letter in _NEWER):
        return (
            specifier if width else f"%{specifier}"
        )  # unknown to slurmstepd, which drops the sign before a width
    value = values[letter]
    if value is None:
        msg = f"this Slurm does not tell the Prolog the value of %{letter}, and the job ended before the agent looked at its processes"
        raise NotKnown(msg)
    text = str(value)
    if letter not in _NUMERIC or not width:
        return text
    number, dot, step = text.partition(".")
    if not digits.is_number(number):
        return text  # the batch step has a name, not a number
    return number.rjust(min(int(width), MAX_WIDTH), "0") + dot + step


def _values(job: jobs.NodeJob, node: str) -> dict[str, str | int | None]:
    array, task = job.extra.get("array_job_id"), job.extra.get("array_task_id")
    known = ids_known(job)
    position = _position(job, node)
    return {
        "A": array if array is not None else job.job_id if known else None,
        "a": task if task is not None else _NO_ARRAY if known else None,
        "b": None if task is None and not known else (_NO_ARRAY if task is None else task) % 10,
        "J": job.job_id,
        "j": job.job_id,
        "N": node,
        "n": position,
        "r": job.restart_count,
        "s": "batch",
        "t": 0,
        "u": str(job.extra.get("user") or "") or None,
        "x": job.job_name or str(job.extra.get("job_name") or "") or None,
    }


def _position(job: jobs.NodeJob, node: str) -> int:
    try:
        listed = hostlist.expand(job.nodelist)
    except errors.MalformedInput:
        return 0
    return listed.index(node) if node in listed else 0
