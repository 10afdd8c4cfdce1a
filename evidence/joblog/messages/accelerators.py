"""Lost and stopped devices of accelerators without CUDA (Intel, Habana, TPU, Vulkan), in the words that their runtimes share."""

from __future__ import annotations

import re

from probing_cluster.evidence.joblog import grammar, mention
from probing_cluster.evidence.joblog.grammar import JobFinding, JoblogContext, Record, make
from probing_cluster.evidence.joblog.messages import cuda

FACTS = {"cuda_unknown_error": cuda.FACTS["cuda_unknown_error"]}
_LOST = re.compile(
    r"\b(?:[A-Z]+_)*DEVICE_LOST\b|\b(?:Error)?DeviceLost(?:Error)?\b|\b[Dd]evice is not operational\b"
    r"|\b[Dd]evice halted (?:prematurely|unexpectedly)\b|\b[Cc]ore halted unexpectedly\b"
)
_MEANING = "The runtime reports that its accelerator is lost or has stopped: the device or its driver failed, or the program's own kernel stopped it."


def read(record: Record, _context: JoblogContext) -> JobFinding | None:
    """A runtime's report of a lost device; without the node's own evidence it blames nobody."""
    text = record.text
    if (found := _LOST.search(text)) is None or mention.is_mentioned(text, found.start()):
        return None
    raised = mention.names_reporter(text, found.start())
    if not raised and not mention.is_reported(text, found.start(), found.end()):
        return None
    return make(FACTS, "cuda_unknown_error", record, meaning=_MEANING)


FAMILY = grammar.LogFamily(
    name="accelerators",
    triggers=("DEVICE_LOST", "DeviceLost", "not operational", "evice halted", "ore halted"),
    read=read,
    facts=FACTS,
)
