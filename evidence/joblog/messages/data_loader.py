"""PyTorch's and Paddle's data loader: workers that were killed, crashed or did not answer in time."""

from __future__ import annotations

import re

from probing_cluster.evidence.joblog import grammar
from probing_cluster.evidence.joblog.grammar import (
    ALL_DOMAINS,
    USER,
    JobFinding,
    JoblogContext,
    LineRole,
    Record,
    fact,
    make,
)
from probing_cluster.evidence.joblog.messages import python

FACTS = {
    "dataloader_oom": fact(
        LineRole.ROOT, USER, "A data-loader worker was killed, mostly for lack of host memory."
    ),
    "dataloader_crash": fact(LineRole.ROOT, ALL_DOMAINS, "A data-loader worker crashed."),
    "dataloader_timeout": fact(
        LineRole.SYMPTOM, ALL_DOMAINS, "The data loader did not deliver a batch in time."
    ),
    **{k: python.FACTS[k] for k in ("shm_full", "interrupted")},
}
_WORKER = re.compile(
    r"DataLoader (?:worker|process) \(pid(?:\(s\))? ?(?P<pid>\d{1,10})[^)]{0,400}\) (?:(?:exited )?is killed by signal: (?P<signal>[A-Za-z ]{2,40})|exited unexpectedly)"
)
_TERMINATED = "A data-loader worker was ended from outside (SIGTERM); this line does not say by whom."
_WORKER_FAULT = re.compile(
    r"ERROR: Unexpected (?:segmentation fault|floating-point exception|bus error) encountered in worker"
)
_LOADER_TIMEOUT = re.compile(r"DataLoader timed out after (?P<s>\d{1,7}(?:\.\d+)?) seconds")


def read(record: Record, _context: JoblogContext) -> JobFinding | None:
    """A line about a worker of a data loader; advice and handled errors are none."""
    if python.is_handled(record.text):
        return None
    if found := _WORKER.search(record.text):
        signal = (found["signal"] or "").strip()
        kind = (
            "dataloader_oom"
            if signal == "Killed"
            else "shm_full"
            if signal == "Bus error"
            else "dataloader_crash"
        )
        if signal == "Interrupt":
            return make(FACTS, "interrupted", record, pid=grammar.number(found["pid"]))
        if signal == "Terminated":
            # A job that Slurm ends looks the same; any better reason replaces it.
            return make(
                FACTS,
                kind,
                record,
                role=LineRole.EXIT,
                meaning=_TERMINATED,
                pid=grammar.number(found["pid"]),
                detail={"terminated": True},
            )
        return make(FACTS, kind, record, pid=grammar.number(found["pid"]))
    if _WORKER_FAULT.search(record.text) and not python.SHM.search(record.text):
        return make(FACTS, "dataloader_crash", record)
    if found := _LOADER_TIMEOUT.search(record.text):
        return make(FACTS, "dataloader_timeout", record, timeout_ms=int(float(found["s"]) * 1000))
    return None


FAMILY = grammar.LogFamily(
    name="data_loader", triggers=("DataLoader", "encountered in worker"), read=read, facts=FACTS
)
