"""Ascend's HCCL as torch_npu prints it: an error of a call, and lines below it with the reason."""

from __future__ import annotations

import re

from probing_cluster.evidence.joblog import grammar
from probing_cluster.evidence.joblog.grammar import JobFinding, JoblogContext, Record, make
from probing_cluster.evidence.joblog.messages.communication import torch_nccl
from probing_cluster.evidence.joblog.messages.devices import cuda

FACTS = {k: torch_nccl.FACTS[k] for k in ("watchdog_timeout", "watchdog_timeout_init", "nccl_internal_error")}
FACTS["cuda_unknown_error"] = cuda.FACTS["cuda_unknown_error"]
FACTS["collective_mismatch"] = torch_nccl.FACTS["collective_mismatch"]
_REASONS = (
    (
        "watchdog_timeout",
        re.compile(
            r"EI0002\)?: .{0,120}?times? ?out|EE1002\)?: .{0,80}?timeout|\bwait execution of the Notify register times out\b|\bhccl (?:fftsplus|aicpu|aicore|ccu) (?:task )?timeout occurred\b(?:.{0,200}?\btimeout:(?P<s>\d{1,6}))?"
        ),
    ),
    (
        "watchdog_timeout_init",
        re.compile(
            r"EI0006\)?: .{0,120}?times? ?out|\bGetting socket times out\b|\bwait socket establish timeout, .{0,80}?timeout\[(?P<s>\d{1,6})\]"
        ),
    ),
)
_INCONSISTENT = re.compile(
    r"(?:\[PID: \d{1,10}\] [\d.:-]{8,32} \w{1,60}\()?EI0005\)?: .{0,40}arguments for collective communication are inconsistent between ranks"
)
_FAILED = re.compile(r"(?:\[PID: \d{1,10}\] [\d.:-]{8,32} \w{1,60}\()?EJ\d{4}\)?: (?:[\d.:-]{8,32} )?[A-Z]")
"""Errors of the process below HCCL that handles the network."""
_DEVICE = re.compile(
    r"E[EHZ]9999: (?:[\d.:-]{8,32} )?\s?wait for compute device to finish failed, runtime result = \d{1,7}"
)
"""Ascend's runtime: work on the device did not end well; the lines below say how."""
_CALL = re.compile(
    r"\b(?:OPS|NPU|HCCL) function error: (?P<call>\w{1,80})(?:\(.{0,300}?\))?, error code is \d{1,7}"
)
_NAMED = re.compile(r"E[A-Z]\d{4}: ")
_OP = re.compile(r"\btag\[(?P<op>[A-Z][A-Za-z]{2,30})_|function error: Hccl(?P<call>[A-Z]\w{2,40}),")
_RANK = re.compile(r"\bRankID:(?P<rank>\d{1,8})\b")


def is_cut(text: str) -> bool:
    """Whether the call's reason is still to come."""
    return _CALL.search(text) is not None and _NAMED.search(text) is None


def read(record: Record, _context: JoblogContext) -> JobFinding | None:
    """A reason, or the call alone while none is named."""
    text = record.text
    op, named = _OP.search(text), _RANK.search(text)
    rank = record.rank if record.rank is not None else grammar.number(named["rank"]) if named else None
    named_op = (op["op"] or op["call"]) if op else None
    for kind, pattern in _REASONS:
        if found := pattern.search(text):
            seconds = grammar.number(found.groupdict().get("s"))
            timeout = seconds * 1000 if seconds else None
            return make(FACTS, kind, record, rank=rank, op=named_op, timeout_ms=timeout)
    if _INCONSISTENT.match(text.strip()):
        return make(FACTS, "collective_mismatch", record, rank=rank)
    if _FAILED.match(text.strip()) or _DEVICE.match(text.strip()):
        return make(FACTS, "cuda_unknown_error", record, rank=rank)
    if found := _CALL.search(text):
        kind = "nccl_internal_error" if found["call"].lower().startswith("hccl") else "cuda_unknown_error"
        return make(FACTS, kind, record, rank=rank, op=named_op)
    return None


FAMILY = grammar.LogFamily(
    name="hccl",
    triggers=(
        "Notify register",
        "ocket times out",
        "hccl ",
        "ynchronize timeout",
        "socket establish",
        "function error: ",
        "arguments for collective",
        "HCCP process",
        "wait for compute device",
    ),
    read=read,
    facts=FACTS,
)
