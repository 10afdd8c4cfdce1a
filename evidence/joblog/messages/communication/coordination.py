"""Services and watchdogs by which frameworks notice that a process is gone or stands still."""

from __future__ import annotations

import re

from probing_cluster.evidence.joblog import grammar, mention
from probing_cluster.evidence.joblog.grammar import (
    ALL_DOMAINS,
    NETWORK,
    JobFinding,
    JoblogContext,
    Record,
    make,
)
from probing_cluster.evidence.joblog.messages import process, rules
from probing_cluster.evidence.joblog.messages.communication import torch_nccl

FACTS = {
    "peer_lost": process.FACTS["peer_lost"],
    "watchdog_timeout": torch_nccl.FACTS["watchdog_timeout"],
}
_GONE = re.compile(
    r"\bcoordinator detected missing heartbeats\b|: The following tasks have disconnected: "
    r"|\bFailed to connect to GCS (?:at address \S{1,100} )?within \d{1,6} seconds\b|\bCheck failed: \S{1,80} Failed to connect to GCS\b|\bbecause its (?:owner's )?node (?:has )?died\b|\bShutdownHook: lame workers found: "
)
"""XLA's coordinator, Ray's table of nodes, and TensorFlow's hook that looks for lost TPU workers."""
NODE_GONE = re.compile(
    r"\bhas been marked dead because the detector has missed too many heartbeats\b|\bNode is dead because the health check failed\b|\b[Tt]ask .{1,200} because its node (?:has )?died\b"
)
"""Ray lost a node. It may start the node's work anew on another one."""
_STILL = re.compile(
    r"\bKilling job for not making progress in (?P<s>\d{1,7}(?:\.\d{1,6})?) seconds\b"
    r"|^(?:\S{1,20}\s)?(?:\[[^\]\n]{1,60}\] )?(?:[A-Z]?\w{1,30} )?[Ww]atchdog timeout \(self\.watchdog_timeout=(?P<sglang>\d{1,7})"
)
"""fairseq's and SGLang's own watchdogs."""
_SLEEPS = re.compile(
    r"\bWorker pid=(?P<pid>\d{1,10}) stuck in uninterruptible sleep \(D-state\) for (?P<s>\d{1,7})"
)
"""torchelastic looks at its workers' states."""
_STILL_MEANING = (
    "The program's own watchdog saw no progress: a rank, the network, a GPU or a file server stands still."
)
_SLEEPS_MEANING = "A worker sleeps in the kernel and cannot be ended: it waits for a file server or a driver."


def _still(found: re.Match[str], record: Record, _context: JoblogContext) -> JobFinding:
    timeout_ms = int(float(found["s"] or found["sglang"]) * 1000)
    return make(
        FACTS, "watchdog_timeout", record, timeout_ms=timeout_ms, domains=ALL_DOMAINS, meaning=_STILL_MEANING
    )


def _sleeps(found: re.Match[str], record: Record, _context: JoblogContext) -> JobFinding:
    pid, timeout_ms = grammar.number(found["pid"]), int(found["s"]) * 1000
    return make(
        FACTS,
        "watchdog_timeout",
        record,
        pid=pid,
        timeout_ms=timeout_ms,
        domains=NETWORK,
        meaning=_SLEEPS_MEANING,
    )


_RULES: tuple[rules.Rule, ...] = (
    (NODE_GONE.search, rules.always(FACTS, "peer_lost", detail={"rescheduled": True})),
    (_GONE.search, rules.always(FACTS, "peer_lost")),
    (_STILL.search, _still),
    (_SLEEPS.search, _sleeps),
)


def read(record: Record, context: JoblogContext) -> JobFinding | None:
    """A line of such a service; what is only quoted is none."""
    if mention.is_speech(record.text):
        return None
    return rules.first(_RULES, record.text, record, context)


FAMILY = grammar.LogFamily(
    name="coordination",
    triggers=(
        "missing heartbeats", "tasks have disconnected", "missed too many", "connect to GCS", "health check failed", "node died", "node has died", "not making progress",
        "atchdog timeout (self", "uninterruptible sleep", "lame workers",
    ),
    read=read,
    facts=FACTS,
)  # fmt: skip
