"""The texts of `scontrol -o show job`, one per job, each as Slurm wrote it.

Users choose names, paths, comments and (without enforced associations) accounts. Slurm prints them with their line breaks, so any job
can hold lines that look like other jobs. `squeue -o %A` prints nothing that a user chose. A job in its list before and after the
text has its own line in the text, so a line that stands there once is that job's own.
"""

from __future__ import annotations

import collections
import re
from collections.abc import Mapping
from collections.abc import Set as AbstractSet

from probing_cluster.core import digits, errors
from probing_cluster.core.record import doc, record
from probing_cluster.slurm_plugins import commands

MOST_ALONE = 32
"""Jobs of one listing that are asked for one by one: a name has room for the lines of many others."""
MOST_NAMED = 8
"""Jobs that are asked for one by one; more are looked up in one listing, which on a large cluster has tens of thousands."""
_ENVIRONMENT = {"SLURM_TIME_FORMAT": "%s"}
_START = re.compile(r"^JobId=(\d{1,10}) ", re.MULTILINE | re.ASCII)


@record
class JobTexts:
    """What one answer of scontrol has of jobs."""

    texts: Mapping[int, str] = doc("raw job id to the job's text, line breaks that its owner wrote included")
    doubtful: frozenset[int] = doc("jobs of which the answer does not show what Slurm wrote")


def listed(run: commands.Runner, wanted: AbstractSet[int] | None = None) -> JobTexts:
    """Every job that the controller has; of the doubtful ones the first `MOST_ALONE` that are wanted are asked for alone."""
    found = _read(run, ("jobs",), (), MOST_ALONE)
    texts, doubtful = dict(found.texts), set(found.doubtful)
    for job_id in sorted(doubtful if wanted is None else doubtful & wanted)[:MOST_ALONE]:
        alone = named(run, str(job_id))
        if job_id not in alone.doubtful:
            doubtful.discard(job_id)
            texts |= {job_id: alone.texts[job_id]} if job_id in alone.texts else {}
    return JobTexts(texts=texts, doubtful=frozenset(doubtful))


def named(run: commands.Runner, name: str) -> JobTexts:
    """The job of this name, with every task of an array and every component of a heterogeneous job; none where Slurm knows no such job."""
    text = _shown(run, "job", name)
    starts = [*_START.finditer(text)]
    if len(starts) > 1:
        return _read(run, ("job", name), ("-j", name), 0)
    # Slurm was asked for this job and shows one line: whatever else stands there is the job's.
    return JobTexts(texts={int(m[1]): text[m.start() :].rstrip("\n") for m in starts}, doubtful=frozenset())


def of_jobs(run: commands.Runner, wanted: AbstractSet[int]) -> JobTexts:
    """The texts of these jobs, raw ids, alone."""
    answers = (
        [listed(run, wanted)]
        if len(wanted) > MOST_NAMED
        else [named(run, str(job_id)) for job_id in sorted(wanted)]
    )
    return JobTexts(
        texts={job_id: text for found in answers for job_id, text in found.texts.items() if job_id in wanted},
        doubtful=frozenset(job_id for found in answers for job_id in found.doubtful & wanted),
    )


def require(found: JobTexts, job_id: int) -> None:
    """Raise MalformedInput if the job is doubtful."""
    if job_id in found.doubtful:
        raise errors.MalformedInput(f"job {job_id}: a line that looks like a job's was written into the text")


def cut(text: str, before: AbstractSet[int], after: AbstractSet[int]) -> JobTexts:
    """The jobs of a text, given the ids that Slurm had before and after it.

    Doubtful is a job whose line stands twice, or that may have had none, and a job before such a line: its own name may have made it.
    """
    # The line of a job that is in neither list is part of somebody's name.
    known, lasting = before | after, before & after
    starts = [(int(m[1]), m.start()) for m in _START.finditer(text) if int(m[1]) in known]
    n_lines = collections.Counter(job_id for job_id, _ in starts)
    sure = [job_id in lasting and n_lines[job_id] == 1 for job_id, _ in starts]
    ends = [*(start for _, start in starts[1:]), len(text)]
    texts = {
        job_id: text[start:end].rstrip("\n")
        for (job_id, start), end, own, next_own in zip(starts, ends, sure, [*sure[1:], True], strict=True)
        if own and next_own
    }
    return JobTexts(texts=texts, doubtful=frozenset(n_lines.keys() - texts.keys()))


def _read(run: commands.Runner, show: tuple[str, ...], choice: tuple[str, ...], most: int) -> JobTexts:
    """A text between two lists of ids. It is read once more if more than `most` jobs are doubtful: many may just have come or gone."""
    before = _ids(run, choice)
    text = _shown(run, *show)
    after = _ids(run, choice)
    found = cut(text, before, after)
    if len(found.doubtful) > most:
        text = _shown(run, *show)
        found = cut(text, after, _ids(run, choice))
    return found


def _ids(run: commands.Runner, choice: tuple[str, ...]) -> frozenset[int]:
    output = commands.of_one(run, "squeue", "-a", "-h", "-t", "all", *choice, "-o", "%A")
    return frozenset(
        int(word) for word in output.decode("ascii", "replace").split() if digits.is_number(word)
    )


def _shown(run: commands.Runner, *what: str) -> str:
    output = commands.of_one(run, "scontrol", "-a", "-d", "-o", "show", *what, environment=_ENVIRONMENT)
    return output.decode("utf-8", "replace")
