"""Gloo and the rendezvous stores: timeouts, lost peers, stores that do not answer."""

from __future__ import annotations

import re
from dataclasses import replace

from probing_cluster.evidence.joblog import grammar
from probing_cluster.evidence.joblog.grammar import (
    ALL_DOMAINS,
    NETWORK,
    USER,
    JobFinding,
    JoblogContext,
    LineRole,
    Record,
    fact,
    make,
)
from probing_cluster.evidence.joblog.messages import rules

FACTS = {
    "gloo_timeout": fact(
        LineRole.SYMPTOM,
        ALL_DOMAINS,
        "A rank waited for another rank's data until its timeout; this line does not name the missing rank.",
    ),
    "gloo_connection_closed": fact(
        LineRole.REMOTE, ALL_DOMAINS, "A peer closed its connection: it ended or was killed."
    ),
    "gloo_connection_reset": fact(
        LineRole.REMOTE, NETWORK, "The connection to a peer was reset: it was killed or the network broke."
    ),
    "gloo_connect_failed": fact(
        LineRole.SYMPTOM, NETWORK, "Gloo could not connect the ranks with each other."
    ),
    "collective_mismatch": fact(
        LineRole.ROOT,
        USER,
        "A rank received data of another size than it expected: the ranks' collectives do not match.",
        late=True,
    ),
    "rendezvous_timeout": fact(
        LineRole.SYMPTOM,
        ALL_DOMAINS,
        "The ranks did not all meet at the store in time: one never started, or cannot reach it.",
    ),
    "rendezvous_failed": fact(LineRole.SYMPTOM, ALL_DOMAINS, "The rendezvous of the ranks failed."),
    "store_lost": fact(
        LineRole.REMOTE, ALL_DOMAINS, "The store on rank 0 went away: that process ended first."
    ),
    "address_in_use": fact(
        LineRole.ROOT, USER, "The port for the rendezvous is taken, often by an earlier run."
    ),
}
_GLOO_FILE = re.compile(r"gloo/|gloo::|Gloo|ProcessGroupGloo")
_TIMED_OUT = re.compile(
    r"Timed out waiting (?P<ms>\d{1,12}) ?ms for (?P<what>send|recv|\w+) operation|Application timeout caused pair closure|Wait timeout"
)
_CLOSED = re.compile(r"Connection closed by peer")
_RESET = re.compile(
    r"Connection reset by peer|Broken pipe|Connection timed out|No route to host|Network is unreachable|Host is down"
)
_TRANSFER = re.compile(r"[Rr]ead|[Ww]rite|recv|send")
"""The failed call is named before the error."""
_UNANSWERED = re.compile(r"\b(?:[Rr]ead|[Ww]rite(?:v)?) error .{0,80}Connection timed out")
_UNANSWERED_MS = 924_600
"""A connection that was open fails so when its peer has acknowledged nothing for as long as TCP repeats: `tcp_retries2` of 15, 924.6 s
and more (tcp(7), Documentation/networking/ip-sysctl.rst)."""
_CONNECT = re.compile(
    r"connectFullMesh failed|Connect (?:timeout|error)|timed out connecting|Failed to connect|\] connect \[\S+\]:\d+: ",
    re.IGNORECASE,
)
_ENFORCE = re.compile(
    r"Received data size doesn't match expected size|op\.preamble\.length <= op\.nbytes|distributed collective mismatch"
)
_STORE_TIMEOUT = re.compile(
    r"Timed out after (?P<s>\d{1,7}) seconds waiting for clients|The client socket has timed out after (?P<ms>\d{1,18})(?P<unit>ms|s)|connect\(\) timed out\. Original timeout was (?P<old>\d{1,18}) ms|"
    r"(?:wait|Socket) timeout (?:after|of) (?P<after>\d{1,18})ms, keys|Timeout waiting for key|RendezvousTimeoutError|Timeout while waiting for (?:TCPStore|rank)|DEADLINE_EXCEEDED: (?:\w{1,40}(?:\(\))? timed out|Deadline Exceeded$)|oordination service agent in error status: DEADLINE_EXCEEDED"
    r"|Termination timeout for `[^`]{0,200}` of (?P<xla>\d{1,7}) seconds exceeded"
)
_STORE_BARRIER = re.compile(
    r"Timed out initializing process group in store based barrier on rank:? (?P<rank>\d{1,8})(?:.*timeout=(?:(?P<d>\d{1,18}) days?, )?(?P<h>\d{1,18}):(?P<m>\d\d):(?P<s>\d\d))?"
)
_UNIQUE_ID = re.compile(
    r"(?:\[(?P<rank>\d{1,8})\] is setting up NCCL communicator .{0,100})?key-value store by .{0,80} got error: (?:(?P<late>Socket Timeout|[Ww]ait timeout(?: after (?P<ms>\d{1,12}) ?ms)?|Timeout(?: waiting for key: \S{1,200} after (?P<old>\d{1,12}) ms)?)|(?P<gone>Connection (?:reset|closed|refused)|Broken pipe|[Ff]ailed to recv))"
    r"|\[(?P<only>\d{1,8})\] is setting up NCCL communicator and retrieving ncclUniqueId\b"
)
"""A rank asks the store for NCCL's id, which rank 0 writes; the line may be cut before its reason."""
_UNMET = re.compile(
    r"Failed to meet rendezvous '[^']{0,200}(?:': (?P<what>[^()]{3,200})(?:\((?:(?P<late>4)|(?P<gone>14)|\d{1,3})\))?)?"
)
"""PyTorch/XLA's mesh service, whose master one process keeps, with the status of gRPC."""
_FAILED = re.compile(
    r"RendezvousConnectionError|RendezvousClosedError|RendezvousGracefulExitError|\[E[\w. :]{1,60}\] \[c10d\] The client socket has failed to connect to any network address\b|The (?:connection|rendezvous) .{0,300}(?:failed|closed)|DistNetworkError: (?!.*Address already)",
    re.IGNORECASE,
)
_STORE_LOST = re.compile(
    r"(?:recvValue|sendBytes|recvVector|recvBytes)\w* failed on|TCPStore.{0,300}(?:Broken pipe|Connection reset|Failed to (?:recv|check))|Failed to recv, got 0 bytes|Connection reset by peer \(errno: 104"
)
_IN_USE = re.compile(r"[Aa]ddress already in use|EADDRINUSE|IP address and port have been bound already")
_NOT_LISTENING = re.compile(r"server socket has failed to listen on any\b")
"""Until torch 2.2 only the warnings before it gave the reason."""
_BINDS_LINES = 40
_RETRYING = re.compile(r"\bretrying\b|\bretry\b.{0,40}\battempt \d", re.IGNORECASE)
"""A rank that asks again has not failed yet: it may have started before the rank that keeps the store."""
_OWN_ERROR = re.compile(r"Error\b|\bERROR\b|what\(\)|\[E|\bE[A-Z]\d{4}: ")
_LEAVING = r"has failed to (?:shutdown|send a keep-alive heartbeat to) the rendezvous"
_LEFT = re.compile(_LEAVING)
_AT_THE_END = re.compile(rf"\[W\d{{0,4}}\s|{_LEAVING}")
"""Warnings of ranks that end a little later than the rank with the store; every second healthy run prints them."""


def _from_context(record: Record, context: JoblogContext) -> str | None:
    """The collective of the traceback above, when it is near."""
    return context.op if context.op and record.line - context.op_line <= 40 else None


def _gloo(record: Record, context: JoblogContext) -> JobFinding | None:
    text, op = record.text, _from_context(record, context)
    if _ENFORCE.search(text):
        return make(FACTS, "collective_mismatch", record, op=op)
    if found := _TIMED_OUT.search(text):
        return make(FACTS, "gloo_timeout", record, timeout_ms=grammar.number(found["ms"]), op=op)
    if not _GLOO_FILE.search(text):
        return None
    if _CLOSED.search(text):
        return make(FACTS, "gloo_connection_closed", record, op=op)
    if (reset := _RESET.search(text)) and _TRANSFER.search(text, 0, reset.start()):
        waited = {"unanswered_ms": _UNANSWERED_MS} if _UNANSWERED.search(text) else None
        return make(FACTS, "gloo_connection_reset", record, op=op, detail=waited)
    return make(FACTS, "gloo_connect_failed", record, op=op) if _CONNECT.search(text) else None


def _store_barrier(found: re.Match[str], record: Record, _context: JoblogContext) -> JobFinding:
    days, hours, minutes, seconds = (int(found[g] or 0) for g in "dhms")
    timeout_ms = (((days * 24 + hours) * 60 + minutes) * 60 + seconds) * 1000 or None
    rank = int(found["rank"])
    return make(FACTS, "rendezvous_timeout", record, rank=rank, timeout_ms=timeout_ms, op="barrier")


def _unique_id(found: re.Match[str], record: Record, context: JoblogContext) -> JobFinding:
    kind = "rendezvous_timeout" if found["late"] else "store_lost" if found["gone"] else "rendezvous_failed"
    return make(
        FACTS,
        kind,
        record,
        rank=grammar.number(found["rank"] or found["only"], grammar.MAX_RANK),
        timeout_ms=grammar.number(found["ms"] or found["old"]),
        op=_from_context(record, context),
    )


def _unmet(found: re.Match[str], record: Record, _context: JoblogContext) -> JobFinding:
    kind = "rendezvous_timeout" if found["late"] else "store_lost" if found["gone"] else "rendezvous_failed"
    return make(FACTS, kind, record)


def _store_timeout(found: re.Match[str], record: Record, _context: JoblogContext) -> JobFinding:
    seconds = found["s"] or found["xla"]
    timeout_ms = int(seconds) * 1000 if seconds else None
    if found["ms"]:
        timeout_ms = int(found["ms"]) * (1 if found["unit"] == "ms" else 1000)
    if found["after"] or found["old"]:
        timeout_ms = int(found["after"] or found["old"])
    role = LineRole.OBSERVATION if _LEFT.search(record.text) else None
    return make(FACTS, "rendezvous_timeout", record, timeout_ms=timeout_ms, role=role)


def _in_use(_found: re.Match[str], record: Record, context: JoblogContext) -> rules.Handled:
    """A taken port: an error only if the line is one; a warning is kept for the error that may follow."""
    if context.in_use is None or context.in_use.line < record.line - _BINDS_LINES:
        context.in_use = record
    return make(FACTS, "address_in_use", record) if _OWN_ERROR.search(record.text) else rules.NEXT


def _not_listening(_found: re.Match[str], record: Record, context: JoblogContext) -> rules.Handled:
    if _IN_USE.search(record.text):
        return rules.NEXT
    warned, context.in_use = context.in_use, None
    if warned is None or warned.line < record.line - _BINDS_LINES:
        return rules.NEXT
    # The warning names the port.
    rank = record.rank if warned.rank is None else warned.rank
    return make(FACTS, "address_in_use", replace(warned, rank=rank))


def _ends_last(text: str) -> LineRole | None:
    return LineRole.OBSERVATION if _AT_THE_END.search(text) else None


def _store_lost(_found: re.Match[str], record: Record, _context: JoblogContext) -> JobFinding:
    return make(FACTS, "store_lost", record, role=_ends_last(record.text))


def _failed(_found: re.Match[str], record: Record, _context: JoblogContext) -> JobFinding:
    return make(FACTS, "rendezvous_failed", record, role=_ends_last(record.text))


def _retrying(_found: re.Match[str], record: Record, _context: JoblogContext) -> JobFinding | None:
    """A try that took its whole time explains an end that nothing else explains."""
    if _STORE_TIMEOUT.search(record.text) is None:
        return None
    return make(FACTS, "rendezvous_timeout", record, role=LineRole.OBSERVATION, detail={"stalled": True})


_RULES: tuple[rules.Rule, ...] = (
    (_RETRYING.search, _retrying),
    (_STORE_BARRIER.search, _store_barrier),
    (_UNIQUE_ID.search, _unique_id),
    (_UNMET.search, _unmet),
    (_STORE_TIMEOUT.search, _store_timeout),
    (_IN_USE.search, _in_use),
    (_NOT_LISTENING.search, _not_listening),
    (_STORE_LOST.search, _store_lost),
    (_FAILED.search, _failed),
)


def read(record: Record, context: JoblogContext) -> JobFinding | None:
    """A line of Gloo or of a rendezvous store."""
    return _gloo(record, context) or rules.first(_RULES, record.text, record, context)


FAMILY = grammar.LogFamily(
    name="gloo",
    triggers=(
        "gloo",
        "Gloo",
        "Timed out ",
        "Application timeout",
        "preamble",
        "collective mismatch",
        "client socket",
        "server socket",
        "Original timeout",
        "DEADLINE_EXCEEDED",
        "Termination timeout for",
        "timeout after",
        "Timeout waiting",
        "Timeout while",
        "endezvous",
        "DistNetworkError",
        " failed on",
        "key-value store",
        "setting up NCCL",
        "TCPStore",
        "Failed to recv",
        "ddress already in use",
        "EADDRINUSE",
        "been bound already",
        "(errno: ",
    ),
    read=read,
    facts=FACTS,
)
