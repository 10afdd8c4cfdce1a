"""NVSHMEM: its set-up, its memory and its transports."""

from __future__ import annotations

import re

from probing_cluster.evidence.joblog import grammar, mention
from probing_cluster.evidence.joblog.grammar import JobFinding, JoblogContext, Record, make
from probing_cluster.evidence.joblog.messages import languages
from probing_cluster.evidence.joblog.messages.communication import gloo, nccl

FACTS = {
    "net_ib_error": nccl.FACTS["net_ib_error"],
    "program_error": languages.FACTS["program_error"],
    "rendezvous_failed": gloo.FACTS["rendezvous_failed"],
}
_FAILED = re.compile(
    r"(?:^|[\s:\]])(?P<file>[\w./+-]{1,300}\.(?:cpp|cuh?|[ch]|hpp)):\d{1,7}: (?:non-zero status: -?\d{1,10}|NULL value) (?P<what>\S.{0,300})"
    r"|(?:^|[\s:\]])(?P<place>[\w./+-]{0,200}nvshmem[\w./+-]{0,200}\.(?:cpp|cuh?|[ch]|hpp)|[\w./+-]{1,300}\.(?:cpp|cuh?|[ch]|hpp):nvshmem\w{0,80})(?::[A-Za-z_]\w{0,79})?:\d{1,7}: (?P<why>\S.{0,300})"
)
"""A compiler names a column behind the line's number, and NVSHMEM does not."""
_NOTE = re.compile(r"\b(?:WARN|INFO|TRACE|DEBUG)\b|\b(?i:warning|note|remark): |: In (?:function|member) ")
"""The level of a line that ends nothing, of NVSHMEM's own or of a compiler that builds it."""
_GOES_ON = re.compile(
    r"\b(?:will not be (?:attempted|used)|skipp\w{2,3}|ignor\w{2,3}|falling back|disabl\w{2,3}|not supported, using|debug)\b",
    re.IGNORECASE,
)
_TRANSPORT = re.compile(
    r"/(?:transport|ibrc|ibgda|ibdevx|libfabric|ucx)/|\btransport_ib_|\b(?:ibv|mlx5dv|fi|ucp)_\w{2,40}|\b(?:transport|endpoints?|queue pair|[Nn]o NICs)\b|\bmem(?:ory)? registration\b"
)
_MEMORY = re.compile(r"\b(?:malloc|allocat\w{1,4}|[Nn]ot enough (?:space|memory))\b")
_MEETING = re.compile(r"\bbootstrap|/bootstrap/", re.IGNORECASE)
_TRANSPORT_MEANING = "NVSHMEM's transport failed: the adapter, its link, or what the node's driver allows (peer memory, DMA-BUF)."
_OWN = ("user_program", "system_software")
_MEANING = "NVSHMEM could not be set up, or refused an operation."


def read(record: Record, _context: JoblogContext) -> JobFinding | None:
    """A line in which NVSHMEM gives up; the innermost call prints first."""
    found = _FAILED.search(record.text)
    if found is None or _GOES_ON.search(record.text) or mention.is_mentioned(record.text, found.start()):
        return None
    if found["place"] and _NOTE.search(record.text):
        return None
    words = f"{found['file'] or found['place']} {found['what'] or found['why']}"
    if _TRANSPORT.search(words) and not _MEMORY.search(words):
        return make(FACTS, "net_ib_error", record, meaning=_TRANSPORT_MEANING)
    if _MEETING.search(words):
        return make(FACTS, "rendezvous_failed", record)
    return make(FACTS, "program_error", record, domains=_OWN, meaning=_MEANING)


FAMILY = grammar.LogFamily(
    name="nvshmem", triggers=("non-zero status: ", "NULL value ", "nvshmem"), read=read, facts=FACTS
)
