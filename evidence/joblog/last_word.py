"""Reports that mean a bad end only as the last word of a log: whoever prints one may also try again, start another process or go on."""

from __future__ import annotations

import re
from collections.abc import Iterable

from probing_cluster.evidence.joblog import grammar, labels
from probing_cluster.evidence.joblog.grammar import USER, JobFinding, LineRole, Record, make
from probing_cluster.evidence.joblog.last_errors import work_over
from probing_cluster.evidence.joblog.messages import codes, process, slurm

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
_DIED = re.compile(r"(?:.{0,80}?[\])|:] |)\d{1,6} worker(?:\(s\)|s)? (?:have |has )?died\b")
"""What such a pool prints below it."""
_CANCELLED = re.compile(
    r"(?:(?:slurmstepd|slurmd|srun)\S{0,253}: (?:error: )?|\[[^\]\n]{1,40}\] error: )\*\*\* (?:JOB|STEP) \d\S{0,40}(?: O?N?| (?:ON|on) [\w.-]{1,253}(?: [A-Z]{0,9}(?: A?T?)?)?)?$"
)
"""Slurm's end of a job, cut off with the log."""


def find(lines: Iterable[tuple[int, str]]) -> JobFinding | None:
    """The first of the alike reports with which the `lines`, the last ones of a log, end; None if they end otherwise or the work is over above it."""
    texts = [(line, text) for line, text in lines if text.strip()]
    found, below = None, ""
    while texts:
        record = labels.bare(*texts[-1])
        if found is None and not below and _DIED.match(record.text):
            below = record.text
        elif (now := _read(record)) is None or (found is not None and now.kind != found.kind):
            break
        elif below and not _KILLED.match(record.text):
            return None
        else:
            found = now
            if _CANCELLED.match(record.text) or codes.OF_ALIGNER.match(record.text):
                texts.pop()
                break
        texts.pop()
    return None if found is None or work_over.is_over([text for _, text in texts]) else found


def _read(record: Record) -> JobFinding | None:
    text = record.text.strip()
    if _HUNG_UP.match(text):
        return make(
            FACTS,
            "process_terminated",
            record,
            role=LineRole.END,
            domains=USER,
            meaning=process.HUNG_UP,
        )
    if _CALL.match(text):
        return slurm.launch(record, None)
    if found := _KILLED.match(text):
        signal = process.SIGNUMS.get(found["name"] or "", grammar.number(found["code"]) or 0)
        return make(FACTS, slurm.of_signal(signal), record)
    if _CANCELLED.match(text):
        return make(FACTS, "process_terminated", record, role=LineRole.END, meaning=slurm.ENDED)
    return make(FACTS, "task_exit", record) if codes.OF_ALIGNER.match(text) else None
