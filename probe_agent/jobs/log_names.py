"""The files a job's output goes to: Slurm's filename patterns, expanded as slurmstepd does (sbatch(1), "filename pattern")."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping

from probing_cluster.core import digits, errors, hostlist
from probing_cluster.probe_agent.jobs import jobs

MAX_WIDTH = 10
"""slurmstepd pads with at most so many zeros."""
_NO_ARRAY = 4294967294
_SPECIFIER = re.compile(r"%(%|[0-9]*[A-Za-z])")
_NUMBER = re.compile(r"[0-9]+")
_NUMERIC = "AaJjnstbr"
_NEWER = "br"
"""Specifiers that releases before 23.02 write as they stand: both names are tried."""


class NotKnown(errors.ProbingError):
    """A file's name cannot be known."""


def patterns(job: jobs.NodeJob) -> dict[str, str]:
    """`stdout` and `stderr` of a batch script to their patterns; without `--error` both go to one file, and `stderr` is missing."""
    found = {"stdout": job.stdout or _default(job)}
    return found | ({"stderr": job.stderr} if job.stderr and job.stderr != job.stdout else {})


def ids_known(job: jobs.NodeJob) -> bool:
    """Whether it is known if the job is a task of an array, and of which."""
    return bool(job.extra.get("ids_known")) or job.extra.get("array_task_id") is not None


def names(pattern: str, job: jobs.NodeJob, node: str) -> tuple[str, ...]:
    """The absolute paths that `pattern` may stand for, without doubles; raises NotKnown saying what is missing."""
    if not pattern:
        raise NotKnown("Slurm did not say where the job writes")
    if not pattern.startswith("/"):
        if not job.work_dir.startswith("/"):
            raise NotKnown(f"{pattern!r} is relative and Slurm did not say to which directory")
        pattern = f"{job.work_dir.rstrip('/')}/{pattern}"
    if "\\" in pattern:
        # A backslash anywhere: nothing is replaced and the backslashes go, two of them leave one.
        return (re.sub(r"\\(.?)", r"\1", pattern),)
    # A host may be called otherwise than its node.
    made = [
        _expanded(pattern, _values(job, node) | {"N": host.partition(".")[0]}, old=old)
        for old in (False, True)
        for host in (node, os.uname().nodename)
    ]
    return tuple(dict.fromkeys(made))


def is_new(path: str, job: jobs.NodeJob) -> bool:
    """Whether no job wrote into this file before: its name holds the number of this one, or of its array, and this is the first start."""
    numbers = [str(n) for n in (job.job_id, job.extra.get("array_job_id")) if n is not None]
    return not job.restart_count and bool(set(_NUMBER.findall(path)) & set(numbers))


def _default(job: jobs.NodeJob) -> str:
    if not job.work_dir:
        return ""
    # Where the Prolog does not know arrays, a plain job's name may be an array task's: the file that exists is read.
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
        msg = f"this Slurm does not tell the Prolog what %{letter} stands for, and the job ended before its own process was looked at"
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
