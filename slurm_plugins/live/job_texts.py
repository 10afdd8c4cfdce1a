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
"""Forged jobs of one listing that are asked for one by one, and as many others: a name has room for the lines of many others."""
MOST_NAMED = 8
"""Jobs that are asked for one by one; more are looked up in one listing, which on a large cluster has tens of thousands."""
_ENVIRONMENT = {"SLURM_TIME_FORMAT": "%s"}
_START = re.compile(r"^JobId=(\d{1,10}) ", re.MULTILINE | re.ASCII)


@record
class JobTexts:
    """What one answer of scontrol has of jobs."""

    texts: Mapping[int, str] = doc("raw job id to the job's text, line breaks that its owner wrote included")
    forged: frozenset[int] = doc("jobs whose line, or the line behind theirs, stands there twice")
    neighbours: frozenset[int] = doc(
        "jobs that were there all the time, before the line of one that came or went: it may have been written into their names"
    )
    moving: frozenset[int] = doc("other jobs that came or went meanwhile")

    @property
    def unclear(self) -> frozenset[int]:
        """Jobs of which the answer does not show what Slurm wrote."""
        return self.forged | self.neighbours | self.moving


def listed(run: commands.Runner, wanted: AbstractSet[int] | None = None) -> JobTexts:
    """Every job that the controller has. Of the wanted forged ones the first `MOST_ALONE` are asked for alone, and of the others as many.

    Many jobs that come or go take no turn from forged ones, nor these from them. Their neighbours come first: they run on, and are not there
    if they are left out. A moving job that is left out is in the next listing.
    """
    found = _read(run, ("jobs",), (), MOST_ALONE)
    texts, unclear = dict(found.texts), set(found.unclear)
    for kinds in ((found.forged,), (found.neighbours, found.moving)):
        chosen = [job_id for kind in kinds for job_id in sorted(kind if wanted is None else kind & wanted)]
        for job_id in chosen[:MOST_ALONE]:
            alone = named(run, str(job_id))
            if job_id not in alone.unclear:
                unclear.discard(job_id)
                texts |= {job_id: alone.texts[job_id]} if job_id in alone.texts else {}
    return JobTexts(
        texts=texts,
        forged=found.forged & unclear,
        neighbours=found.neighbours & unclear,
        moving=found.moving & unclear,
    )


def named(run: commands.Runner, name: str) -> JobTexts:
    """The job of this name, with every task of an array and every component of a heterogeneous job; none where Slurm knows no such job."""
    text = _shown(run, "job", name)
    starts = [*_START.finditer(text)]
    if len(starts) > 1:
        return _read(run, ("job", name), ("-j", name), 0)
    # Slurm was asked for this job and shows one line: whatever else stands there is the job's.
    texts = {int(m[1]): text[m.start() :].rstrip("\n") for m in starts}
    return JobTexts(texts=texts, forged=frozenset(), neighbours=frozenset(), moving=frozenset())


def of_jobs(run: commands.Runner, wanted: AbstractSet[int]) -> JobTexts:
    """The texts of these jobs, raw ids, alone."""
    answers = (
        [listed(run, wanted)]
        if len(wanted) > MOST_NAMED
        else [named(run, str(job_id)) for job_id in sorted(wanted)]
    )
    return JobTexts(
        texts={job_id: text for found in answers for job_id, text in found.texts.items() if job_id in wanted},
        forged=frozenset(job_id for found in answers for job_id in found.forged & wanted),
        neighbours=frozenset(job_id for found in answers for job_id in found.neighbours & wanted),
        moving=frozenset(job_id for found in answers for job_id in found.moving & wanted),
    )


def require(found: JobTexts, job_id: int) -> None:
    """Raise MalformedInput if the answer does not show what Slurm wrote of the job."""
    if job_id in found.forged:
        raise errors.MalformedInput(f"job {job_id}: a line that looks like a job's was written into the text")
    if job_id in found.neighbours:
        raise errors.MalformedInput(
            f"job {job_id}: the line of a job that came or went stands behind its text; ask again"
        )
    if job_id in found.moving:
        raise errors.MalformedInput(f"job {job_id}: jobs came or went while Slurm listed it; ask again")


def cut(text: str, before: AbstractSet[int], after: AbstractSet[int]) -> JobTexts:
    """The jobs of a text, given the ids that Slurm had before and after it.

    The text of a job ends at the next job's line, unless that line may be in its own name: such a job is as unclear as the next one.
    """
    # The line of a job that is in neither list is part of somebody's name.
    known, lasting = before | after, before & after
    starts = [(int(m[1]), m.start()) for m in _START.finditer(text) if int(m[1]) in known]
    ids = [job_id for job_id, _ in starts]
    n_lines = collections.Counter(ids)
    twice = {job_id for job_id, n in n_lines.items() if n > 1}
    ends = [*(start for _, start in starts[1:]), len(text)]
    texts: dict[int, str] = {}
    forged, neighbours = set(twice), set[int]()
    for (job_id, start), next_id, end in zip(starts, [*ids[1:], None], ends, strict=True):
        if next_id in twice:
            forged.add(job_id)
        elif job_id not in lasting - twice:
            continue
        elif next_id is None or next_id in lasting:
            texts[job_id] = text[start:end].rstrip("\n")
        else:
            neighbours.add(job_id)
    return JobTexts(
        texts=texts,
        forged=frozenset(forged),
        neighbours=frozenset(neighbours),
        moving=frozenset(n_lines.keys() - texts.keys() - forged - neighbours),
    )


def _read(run: commands.Runner, show: tuple[str, ...], choice: tuple[str, ...], most: int) -> JobTexts:
    """A text between two lists of ids. If more than `most` jobs move or are beside one, a second one adds those that are there by then."""
    before = _ids(run, choice)
    text = _shown(run, *show)
    after = _ids(run, choice)
    first = cut(text, before, after)
    if len(first.neighbours | first.moving) <= most:
        return first
    text = _shown(run, *show)
    second = cut(text, after, _ids(run, choice))
    texts = {**first.texts, **second.texts}
    return JobTexts(
        texts=texts,
        forged=second.forged - texts.keys(),
        neighbours=second.neighbours - texts.keys(),
        moving=second.moving - texts.keys(),
    )


def _ids(run: commands.Runner, choice: tuple[str, ...]) -> frozenset[int]:
    output = commands.of_one(run, "squeue", "-a", "-h", "-t", "all", *choice, "-o", "%A")
    return frozenset(
        int(word) for word in output.decode("ascii", "replace").split() if digits.is_number(word)
    )


def _shown(run: commands.Runner, *what: str) -> str:
    output = commands.of_one(run, "scontrol", "-a", "-d", "-o", "show", *what, environment=_ENVIRONMENT)
    return output.decode("utf-8", "replace")
