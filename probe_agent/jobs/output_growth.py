"""When a running job's output last grew, and whether it stood still until the job's end.

The file's own time says little after the end: Slurm writes its last message into it. So its size is looked at while the job
runs, and what was written after the last look is judged at the end.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from probing_cluster.core import digits, sanitize, vocabulary
from probing_cluster.evidence.joblog import standstill

if TYPE_CHECKING:  # the collecting child imports this module
    from probing_cluster.probe_agent.jobs import jobs

LEAST_S = 180.0
"""A shorter silence is reported of no job."""
TIMES = 3.0
"""The silence must last so many times as long as the longest gap before it."""
MOST_NEW_BYTES = 64 * 1024
"""With more than this after the last look the job went on writing."""
_PAGE_BYTES = 4096
_MARK_CHARS = 64
_LAST_BYTES = 2048
_ENDED = ("CANCELLED AT", "*** JOB ", "*** STEP ")
"""In Slurm's message that it ends the job; what the program writes after it is its answer to that."""


class FileSize(NamedTuple):
    """What one look found of a file."""

    inode: int
    size: int
    written_s: float
    """Its time of the last write, seconds since 1970."""


def size_of(row: object) -> FileSize | None:
    """A row of the reading child's answer. It runs as the job's owner, who can make it answer anything: None for what is no such row."""
    if not isinstance(row, list) or len(row) != len(FileSize._fields):
        return None
    inode, size, written_s = digits.index(row[0]), digits.index(row[1]), digits.number(row[2])
    return None if inode is None or size is None or written_s is None else FileSize(inode, size, written_s)


def before_of(row: object) -> list[Any] | None:
    """The `before` of the reading child's answer, as NodeJob has it; None for anything else, likewise."""
    if not isinstance(row, list) or len(row) != 3:
        return None
    inode, size, mark = digits.index(row[0]), digits.index(row[1]), row[2]
    if inode is None or size is None or not isinstance(mark, str) or len(mark) > _MARK_CHARS:
        return None
    return [inode, size, mark]


@dataclasses.dataclass(kw_only=True)
class FileGrowth:
    """How one output file of one start of a job has grown."""

    inode: int
    size: int
    looked_at: datetime
    written_at: datetime
    """When it last grew, by the file's time and at the latest the look that found it; the job's start before it grew."""
    gap_s: float = 0.0
    """The longest time without growth before that, seconds, the time before the first growth too."""
    n_writes: int = 0
    """Looks that found it grown."""


class OutputSizes:
    """The output files of one node's running jobs, by what each look found."""

    def __init__(self) -> None:
        self._of_start: dict[tuple[int, datetime], dict[str, FileGrowth]] = {}

    def keep(self, running: Iterable[jobs.NodeJob]) -> None:
        """Forget every start but these."""
        wanted = {(job.job_id, job.started_at) for job in running}
        self._of_start = {start: files for start, files in self._of_start.items() if start in wanted}

    def note(self, job: jobs.NodeJob, path: str, found: FileSize, now: datetime) -> None:
        """Take what a look at `now` found of a file."""
        inode, size, written_s = found
        files = self._of_start.setdefault((job.job_id, job.started_at), {})
        known = files.get(path)
        if known is None or known.inode != inode:
            earlier = job.before.get(path, ())
            size_before = int(earlier[1]) if len(earlier) > 1 and earlier[0] == inode else 0
            known = files[path] = FileGrowth(
                inode=inode, size=size_before, looked_at=job.started_at, written_at=job.started_at
            )
        if size != known.size:
            # By the node's clock: a file server's may differ.
            written_s = min(max(written_s, known.looked_at.timestamp()), now.timestamp())
            written_at = datetime.fromtimestamp(written_s, now.tzinfo)
            known.gap_s = max(known.gap_s, (written_at - known.written_at).total_seconds())
            known.size, known.written_at = size, written_at
            known.n_writes += 1
        known.looked_at = now

    def question(self, job: jobs.NodeJob, path: str) -> dict[str, Any]:
        """The part of the collecting child's question about this file, `at_end`'s `grown`; empty if it was never looked at."""
        known = self._of_start.get((job.job_id, job.started_at), {}).get(path)
        if known is None:
            return {}
        row = dataclasses.asdict(known)
        return {"grown": {k: v.timestamp() if isinstance(v, datetime) else v for k, v in row.items()}}


@dataclasses.dataclass(frozen=True, kw_only=True)
class OutputEnd:
    """What an output file shows of the last minutes of its job."""

    wrote_on: bool
    """The job wrote into it until about its end, or that cannot be excluded."""
    finding: dict[str, Any] | None = None
    """The finding that nothing was written for long; its `offset` is where the file then ended."""


def at_end(grown: Mapping[str, Any] | None, data: bytes, start: int, inode: int, end_s: float) -> OutputEnd:
    """Judge a file of an ended job by the last look at it (`grown`, of `OutputSizes.question`).

    `data`: the file's end, from byte `start` on; `end_s`: when the job ended, seconds since 1970.
    """
    end = start + len(data)
    if grown is None:
        return OutputEnd(wrote_on=end > 0)
    size = int(grown["size"])
    if grown["inode"] != inode or not start <= size <= end or end - size > MOST_NEW_BYTES:
        return OutputEnd(wrote_on=True)
    if _is_the_programs(data[size - start :]):
        return OutputEnd(wrote_on=True)
    silence_s, gap_s, n_writes = end_s - grown["written_at"], float(grown["gap_s"]), int(grown["n_writes"])
    if not n_writes or (size >= _PAGE_BYTES and size % _PAGE_BYTES == 0):
        return OutputEnd(wrote_on=False)  # what it wrote may lie in a buffer
    if silence_s <= max(LEAST_S, TIMES * gap_s):
        return OutputEnd(wrote_on=True)
    last = _last_line(data[: size - start])
    return OutputEnd(
        wrote_on=False,
        finding={
            "kind": vocabulary.OUTPUT_STALL,
            "message": f"nothing was written after: {last}",
            "at_s": end_s,
            "measured": silence_s,
            "unit": "s",
            "detail": {"gap_s": gap_s, "n_writes": n_writes, "last_line": last},
            "offset": size,
        },
    )


def _is_the_programs(new: bytes) -> bool:
    """True if anything but Slurm's messages was written, before Slurm wrote that it ends the job."""
    for line in new.decode("utf-8", "replace").splitlines():
        if not line.strip():
            continue
        if not standstill.is_of_slurm(line):
            return True
        if any(words in line for words in _ENDED):
            return False
    return False


def _last_line(written: bytes) -> str:
    lines = written[-_LAST_BYTES:].decode("utf-8", "replace").splitlines()
    last = next((line.strip() for line in reversed(lines) if line.strip()), "")
    return sanitize.without_secrets(last)[-200:]


def is_contradicted(kind: str, answers: Iterable[Mapping[str, Any]]) -> bool:
    """True for a finding of a standstill of one file while another file of the same job went on (`answers`: of every file's reader)."""
    went_on = {vocabulary.LOG_STALL: "goes_on", vocabulary.OUTPUT_STALL: "wrote_on"}.get(kind)
    return went_on is not None and any(bool(answer.get(went_on)) for answer in answers)
