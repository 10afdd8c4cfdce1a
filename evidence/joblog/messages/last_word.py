"""Reports that mean a bad end only as the last word of a log: whoever prints one may also try again, start another process or go on."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise

from probing_cluster.evidence.joblog import grammar, labels, progress
from probing_cluster.evidence.joblog.grammar import USER, JobFinding, LineRole, Record, make
from probing_cluster.evidence.joblog.messages import codes, launchers, process, slurm

FACTS = {**process.ENDS, **{k: slurm.FACTS[k] for k in ("slurm_launch_failed", "process_terminated")}}
_HUNG_UP = re.compile(r".{0,200}\bSending process \d{1,10} closing signal SIGHUP$")
"""torchelastic's, which it also prints of workers that it starts anew."""
_CALL = re.compile(
    r"(?:(?:srun|sbatch|salloc): error: |(?:error )?code \d{1,3}: |ERROR: )?slurm_(?:submit_batch_(?:het_)?job|allocate_resources\w{0,12}|job_step_create|step_launch\w{0,12})(?:\(\))?(?: error| failed)?: (?=[A-Z])"
)
"""Slurm's library; its commands try again after many of these."""
_KILLED = re.compile(
    r"(?:.{0,80}?[\])|:] |)(?:[Ww]orker|[Cc]hild) (?:process )?['\"]?[\w.-]{1,40}['\"]? (?:was )?killed by signal (?:(?P<code>\d{1,3})|(?P<name>SIG[A-Z]{2,8}))$"
)
"""A pool of processes about one of them."""
_DIED = re.compile(
    r"(?:.{0,80}?[\])|:] |)\d{1,6} worker(?:\(s\)|s)? (?:have |has )?died\b.{0,3}(?:$| Initiating shutdown)"
)
"""What such a pool prints below it where it gives up."""
_LAUNCHER = "torch/distributed/"


def find(lines: Iterable[tuple[int, str]], is_over: Callable[[Sequence[str]], bool]) -> JobFinding | None:
    """The first of the alike reports with which the `lines`, the last ones of a log, end; None if they end otherwise or the work is over above it."""
    records = [labels.bare(line, text) for line, text in lines if text.strip()]
    end = _given_up(records, is_over) or len(records)
    first = frames = _above_frames(records, end)
    found = None
    while first and (now := _read(records[first - 1])) and (not found or now.kind == found.kind):
        if not _HUNG_UP.match(now.message) and (
            frames < end or (found and launchers.CUT_END.match(now.message))
        ):
            break
        found, first = now, first - 1
    return None if is_over([record.text for record in records[:first]]) else found


def _given_up(records: Sequence[Record], is_over: Callable[[Sequence[str]], bool]) -> int:
    """How many `records` there are up to a lost worker for which its pool shuts down, if nothing good follows; 0 otherwise."""
    for n, (killed, below) in enumerate(pairwise(records), 1):
        if _KILLED.match(killed.text) and _DIED.match(below.text):
            later = [record.text for record in records[n:]]
            good = any(progress.is_progress(t) or progress.reports_success(t) for t in later)
            return 0 if good or is_over(later) else n
    return 0


def _above_frames(records: Sequence[Record], end: int) -> int:
    """How many of the first `end` records stand above the traceback of a launcher that they end with."""
    first = next((n for n in range(end, 0, -1) if not records[n - 1].text[:1].isspace()), 0)
    headed = first > 0 and records[first - 1].text.startswith(grammar.TRACEBACK)
    of_launcher = any(_LAUNCHER in record.text for record in records[first:end])
    return first - 1 if headed and of_launcher else end


def _read(record: Record) -> JobFinding | None:
    text = record.text.strip()
    if _HUNG_UP.match(text):
        hung_up = process.HUNG_UP
        return make(FACTS, "process_terminated", record, role=LineRole.END, domains=USER, meaning=hung_up)
    if _CALL.match(text):
        return slurm.launch(record, None, container=False)
    if found := _KILLED.match(text):
        signal = process.SIGNUMS.get(
            found["name"] or "", grammar.number(found["code"]) or process.OTHER_SIGNAL
        )
        return make(FACTS, slurm.of_signal(signal), record)
    if launchers.CUT_END.match(text):
        return make(FACTS, "process_terminated", record, role=LineRole.END, meaning=slurm.ENDED)
    return make(FACTS, "task_exit", record) if codes.OF_ALIGNER.match(text) else None
