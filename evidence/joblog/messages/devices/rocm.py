"""Messages of ROCm's runtime before it ends a process: a hanging GPU, a memory error, memory that it could not free."""

from __future__ import annotations

import re

from probing_cluster.evidence.joblog import grammar, mention
from probing_cluster.evidence.joblog.grammar import JobFinding, JoblogContext, LineRole, Record, fact, make
from probing_cluster.evidence.joblog.messages.devices import cuda

FACTS = {
    "gpu_hang": fact(
        LineRole.ROOT,
        ("system_software", "hardware"),
        "ROCm's runtime reports that a GPU stands still or was reset; the kernel's log of the node says which and why.",
    ),
    "cuda_ecc": cuda.FACTS["cuda_ecc"],
    "cuda_error": cuda.FACTS["cuda_error"],
}
_FORMS = (
    (
        "cuda_ecc",
        re.compile(
            r"HW Exception by GPU node-\d{1,6}\b.{0,80}\breason ?: ?ECC\b.{0,40}"
            r"|Memory (?:access fault by GPU|critical error by agent) \*{0,2}node-\d{1,6}\b.{0,160}\bReason: .{0,80}\b(?:ECC failure|[Uu]ncorrect\w{2,6}\b).{0,40}"
        ),
    ),
    ("gpu_hang", re.compile(r"HW Exception by GPU node-\d{1,6}\b.{0,120}")),
    ("cuda_error", re.compile(r"Memory critical error by agent node-\d{1,6}\b.{0,200}")),
)
"""An access outside a program's memory, which has the form of the second, is left to `cuda`."""
_IN_USE = re.compile(r"\bReason: Memory in use\b")
_NOT_FREED = "ROCm's runtime could not give memory back, because the driver refused it: a container's rights do not let it map the device, another process holds the memory, or the GPU was reset. It proves nothing of the memory itself."


def read(record: Record, _context: JoblogContext) -> JobFinding | None:
    """A line of the runtime that is no part of a sentence; strict, because it blames hardware."""
    for kind, pattern in _FORMS:
        if (found := pattern.search(record.text)) is None:
            continue
        if not mention.is_reported(record.text, found.start(), found.end()):
            return None
        meaning = _NOT_FREED if _IN_USE.search(found[0]) else None
        return make(FACTS, kind, record, meaning=meaning)
    return None


FAMILY = grammar.LogFamily(
    name="rocm",
    triggers=("HW Exception by GPU", "Memory critical error", "Memory access fault"),
    read=read,
    facts=FACTS,
)
