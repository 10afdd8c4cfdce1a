"""Lines of the kernel's log that stand in a job's output, copied or printed by its own trap, and what they explain.

Anybody can print such a line: it proves nothing, and the node's own log decides. But where the job's own dump names what its error does
not, that line is to be looked up, and the error alone accuses nobody.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from probing_cluster.core.catalogue import xid
from probing_cluster.core.records import Severity
from probing_cluster.evidence.joblog import grammar, mention
from probing_cluster.evidence.joblog.grammar import (
    ALL_DOMAINS,
    JobFinding,
    JoblogContext,
    LineRole,
    Record,
    fact,
    make,
)

FACTS = {
    "kernel_xid": fact(
        LineRole.OBSERVATION,
        ALL_DOMAINS,
        "A kernel message with an NVIDIA Xid stands in the job's output; the node's own log is the proof.",
    ),
    "kernel_bad_page": fact(
        LineRole.OBSERVATION,
        ALL_DOMAINS,
        "A kernel message about a process that it ended for a bad page of main memory stands in the job's output; the node's own log is the proof.",
    ),
}
_XID = re.compile(
    r"NVRM: Xid \((?:(?P<gpu>(?:PCI:)?[\da-fA-F:.]{4,20})\): (?P<code>\d{1,4})(?:, pid='?(?P<pid>\d{1,10}|<unknown>)?)?)?"
)
_BAD_PAGE = re.compile(
    r"(?:Memory failure: 0x[\da-f]{1,16}:|MCE(?: 0x[\da-f]{1,16})?:) (?:[Kk]illing|Sending SIGBUS to) .{1,32}?:(?P<pid>\d{1,10})(?: early)? due to hardware memory corruption"
)
_DMESG = re.compile(
    r"(?:[\w.-]{1,40}: )?\[(?:\s{0,8}\d{1,9}\.\d{6}|[A-Z][a-z]{2} [A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d \d{4})\] "
)
"""What dmesg prints in front of the kernel's message, with the name of the helper that follows it; of other dates `dated` is left."""
_LINES = 200
"""A trap prints its dump within so many lines below the error."""


def read(record: Record, _context: JoblogContext) -> JobFinding | None:
    """A line of the kernel about a GPU, or about memory that went bad under a process."""
    text = record.text
    if (found := _XID.search(text)) and not mention.is_quoted(text[: found.start()]):
        code = grammar.number(found["code"]) if _of_dump(record, found.start()) else None
        detail = {"gpu": found["gpu"]} | ({} if code is None else {"xid": code})
        return make(FACTS, "kernel_xid", record, pid=grammar.number(found["pid"]), detail=detail)
    if (found := _BAD_PAGE.search(text)) and _of_dump(record, found.start()):
        return make(FACTS, "kernel_bad_page", record, pid=grammar.number(found["pid"]))
    return None


def _of_dump(record: Record, start: int) -> bool:
    """Whether nothing but the time stands in front of the message that begins at `start`."""
    found = _DMESG.match(record.text)
    return start == (found.end() if found else 0) and (record.dated or found is not None)


def reason(best: JobFinding, held: Sequence[JobFinding]) -> int | None:
    """Index in `held` of the kernel's line in the job's own dump that explains `best`; None without one.

    The line about memory names the process that died. The line about a GPU has no other process, and no other GPU has one. One that a
    helper printed above the error names that very process.
    """
    behind = [i for i, f in enumerate(held) if 0 < f.line - best.line <= _LINES and f.kind in FACTS]
    if best.kind == "bus_error" and best.pid is not None:
        return next(
            (i for i in behind if held[i].kind == "kernel_bad_page" and held[i].pid == best.pid), None
        )
    above = (i for i, f in enumerate(held) if 0 < best.line - f.line <= _LINES and f.kind == "kernel_xid")
    behind += [i for i in above if best.pid is not None and held[i].pid == best.pid]
    of_gpu = best.kind.startswith(("cuda_", "nccl_")) and set(best.domains) == set(ALL_DOMAINS)
    if not of_gpu or len({held[i].detail.get("gpu") for i in behind}) != 1:
        return None
    return next((i for i in behind if _is_of_hardware(held[i], best)), None)


def _is_of_hardware(line: JobFinding, best: JobFinding) -> bool:
    code = line.detail.get("xid")
    bad = isinstance(code, int) and xid.lookup(code).severity is Severity.HIGH
    return bad and line.pid in (None, best.pid)


FAMILY = grammar.LogFamily(
    name="kernel_lines",
    triggers=("NVRM: Xid", "hardware memory corruption"),
    read=read,
    facts=FACTS,
)
