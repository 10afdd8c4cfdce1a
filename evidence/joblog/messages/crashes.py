"""Crashes as shells and fault handlers report them by the signal's name, and errors that CUDA's own checker finds."""

from __future__ import annotations

import re

from probing_cluster.evidence.joblog import grammar
from probing_cluster.evidence.joblog.grammar import USER, JobFinding, JoblogContext, Record, make
from probing_cluster.evidence.joblog.messages import process, slurm
from probing_cluster.evidence.joblog.messages.devices import cuda

FACTS = {
    **{k: v for k, v in process.ENDS.items() if k != "task_exit"},
    **{k: cuda.FACTS[k] for k in ("cuda_illegal_access", "cuda_error")},
}
_NUMBERS = {
    "SIGHUP": 1, "SIGINT": 2, "SIGQUIT": 3, "SIGILL": 4, "SIGTRAP": 5, "SIGABRT": 6, "SIGBUS": 7, "SIGFPE": 8, "SIGKILL": 9,
    "SIGSEGV": 11, "SIGTERM": 15, "SIGSTKFLT": 16, "SIGXCPU": 24, "SIGXFSZ": 25, "SIGSYS": 31,
}  # fmt: skip
"""Linux's signals that end a process."""
_TEXTS = {"Bad system call": 31, "Trace/breakpoint trap": 5, "Stack fault": 16}
"""Texts of `strsignal` that shells print and no other family reads."""
_BY_NAME = re.compile(
    r"\*{3} Caught a fatal signal(?: \(proc (?P<rank>\d{1,8})\))?: (?P<gasnet>SIG[A-Z]{2,8})\b"
    r"|fish: .{1,400} terminated by signal (?P<fish>SIG[A-Z]{2,8})\b"
)
"""GASNet's handler, and the shell fish."""
_BY_TEXT = re.compile(
    rf"(?:\S{{1,200}}: line \d{{1,9}}: {{1,4}}(?P<pid>\d{{1,10}}) {{1,4}})?(?P<text>{'|'.join(map(re.escape, _TEXTS))})(?: \(core dumped\))?(?=\.?$|\s{{2}})"
)
_CHECKED = re.compile(r"={9} (?:Invalid|Misaligned) __\w{1,20}__ (?:read|write|atomic)\b")
_PHYSX = re.compile(
    r"\S{1,300}/(?:gpu\w{1,40}/|Pxg)\S{1,200} \(\d{1,6}\) : (?:internal error|abort) : (?:\w{1,40} )?(?:cu[A-Z]\w{2,40}|memcpy) fail(?:ed)?\b"
)
"""A call of CUDA's that failed in PhysX, which names no reason; a simulation may go on after it."""
_CHECKER = "compute-sanitizer found that a kernel of the program accessed memory that is not its own."


def read(record: Record, _context: JoblogContext) -> JobFinding | None:
    """A line about a crash."""
    text = record.text
    if found := _BY_NAME.match(text):
        signal = _NUMBERS.get(found["gasnet"] or found["fish"], 0)
        rank = grammar.number(found["rank"], grammar.MAX_RANK)
        return make(FACTS, slurm.of_signal(signal), record, rank=rank)
    if found := _BY_TEXT.match(text):
        kind = slurm.of_signal(_TEXTS[found["text"]])
        return make(FACTS, kind, record, pid=grammar.number(found["pid"]))
    if _CHECKED.match(text):
        return make(FACTS, "cuda_illegal_access", record, domains=USER, meaning=_CHECKER)
    if _PHYSX.match(text):
        return make(FACTS, "cuda_error", record, detail={"handled": True})
    return None


FAMILY = grammar.LogFamily(
    name="crashes",
    triggers=(
        "Caught a fatal signal",
        "terminated by signal SIG",
        *_TEXTS,
        "= Invalid __",
        "= Misaligned __",
        ") : internal error : ",
        ") : abort : ",
    ),
    read=read,
    facts=FACTS,
)
