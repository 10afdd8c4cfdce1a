"""Lost, stopped and unavailable devices of accelerators without CUDA (Intel, Habana, Ascend, TPU, Vulkan), in the words that their runtimes share."""

from __future__ import annotations

import re

from probing_cluster.evidence.joblog import grammar, mention
from probing_cluster.evidence.joblog.grammar import JobFinding, JoblogContext, Record, make
from probing_cluster.evidence.joblog.messages.devices import cuda

FACTS = {"cuda_unknown_error": cuda.FACTS["cuda_unknown_error"]}
_LOST = re.compile(
    r"\b(?:[A-Z]+_)*DEVICE_LOST\b|\b(?:Error)?DeviceLost(?:Error)?\b|\b[Dd]evice is not operational\b"
    r"|\b[Dd]evice halted (?:prematurely|unexpectedly)\b|\b[Cc]ore halted unexpectedly\b"
)
_FAILED = re.compile(
    r"\bACL (?:stream|event|device) synchroni[sz]e failed\b|\baicore (?:error )?exception\b|\b(?:TPU|HPU|NPU|IPU|XPU) initiali[sz]ation failed\b|\bDevice acquire failed\b"
    r"|\b(?:PI_ERROR|UR_RESULT_ERROR)_OUT_OF_RESOURCES\b"
)
"""In an exception: work on a device that did not end well, or a device that could not be opened: it may be broken, held by another, or closed to the job."""
_RAISED = re.compile(r"\w(?:Error|Exception)\b|\bwhat\(\):")
_MEANING = "The runtime reports that its accelerator is lost or has stopped: the device or its driver failed, or the program's own kernel stopped it."
_FAILED_MEANING = "The runtime could not open its accelerator, or work on it failed: the device, its driver, the node's settings, another process on it or the program's own kernel."


def read(record: Record, _context: JoblogContext) -> JobFinding | None:
    """A runtime's report of a lost device; without the node's own evidence it blames nobody."""
    text = record.text
    lost = _LOST.search(text)
    if (found := lost or _FAILED.search(text)) is None or mention.is_mentioned(text, found.start()):
        return None
    if not (lost or _RAISED.search(text, 0, found.start())):
        return None  # programs look for devices of all sorts and note which are not there
    raised = mention.names_reporter(text, found.start())
    if not raised and not mention.is_reported(text, found.start(), found.end()):
        return None
    return make(FACTS, "cuda_unknown_error", record, meaning=_MEANING if lost else _FAILED_MEANING)


FAMILY = grammar.LogFamily(
    name="accelerators",
    triggers=(
        "DEVICE_LOST",
        "DeviceLost",
        "not operational",
        "evice halted",
        "ore halted",
        "ACL ",
        "aicore ",
        "U initiali",
        "acquire failed",
        "_OUT_OF_RESOURCES",
    ),
    read=read,
    facts=FACTS,
)
