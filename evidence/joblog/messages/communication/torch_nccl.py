"""PyTorch's ProcessGroupNCCL: watchdog timeouts, heartbeat monitor and desync reports of torch 1.7 to 2.13."""

from __future__ import annotations

import re
from typing import Any

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
    "watchdog_timeout": fact(
        LineRole.SYMPTOM,
        ALL_DOMAINS,
        "A collective did not end in time on this rank: some rank did not join it, or the network or a GPU stands still.",
    ),
    "watchdog_timeout_init": fact(
        LineRole.SYMPTOM,
        ALL_DOMAINS,
        "The first collective of a group never ended: the ranks never all met, or the network between them does not carry data.",
    ),
    "heartbeat_monitor": fact(
        LineRole.SYMPTOM,
        ALL_DOMAINS,
        "The NCCL watchdog thread itself stood still: a call into CUDA or NCCL hangs, or a thread holds the GIL.",
    ),
    "nccl_remote_error": fact(
        LineRole.REMOTE,
        NETWORK,
        "A peer process exited or the network to it broke; the peer's own failure lies elsewhere.",
    ),
    "nccl_system_error": fact(
        LineRole.SYMPTOM, NETWORK, "A system call inside NCCL failed, mostly the network."
    ),
    "nccl_unhandled_cuda": fact(
        LineRole.ROOT,
        ("user_program", "system_software"),
        "A CUDA call inside NCCL failed, often for lack of GPU memory.",
    ),
    "nccl_internal_error": fact(
        LineRole.SYMPTOM, ("system_software", "hardware"), "NCCL reports an internal error."
    ),
    "nccl_invalid_usage": fact(
        LineRole.ROOT, USER, "NCCL was called wrongly, for example with one GPU for two ranks."
    ),
    "collective_mismatch": fact(
        LineRole.ROOT,
        USER,
        "The ranks called collectives that do not match: another operation, order or size.",
        late=True,
    ),
    "desync_report": fact(LineRole.OBSERVATION, USER, "PyTorch names ranks that did not join a collective."),
    "dump_signal": fact(
        LineRole.OBSERVATION, ALL_DOMAINS, "Another rank had a timeout first and asked for debug dumps."
    ),
    "nccl_watchdog_exception": fact(
        LineRole.SYMPTOM,
        ("system_software", "hardware", "user_program"),
        "The NCCL watchdog thread met an error of its own.",
    ),
    "nccl_aborted": fact(
        LineRole.REMOTE, ALL_DOMAINS, "The communicator was aborted after a failure elsewhere."
    ),
    "monitored_barrier_timeout": fact(
        LineRole.SYMPTOM, ALL_DOMAINS, "A rank did not reach the barrier in time."
    ),
}
_OP = re.compile(
    r"(?:dist|default_pg|group|pg|comm|work)\w{0,40}\.(?P<op>all_reduce|allreduce|barrier|broadcast|all_gather(?:_into_tensor|_object)?|_all_gather_base|reduce_scatter(?:_tensor)?|reduce|all_to_all(?:_single)?|gather|scatter|send|recv|isend|irecv|monitored_barrier|broadcast_object_list)\(|, in (?P<frame>barrier|all_reduce|broadcast|all_gather|reduce_scatter|monitored_barrier|all_to_all_single)$"
)
_WORK = re.compile(
    r"Work[A-Z]CCL\((?P<body>(?:[^()]|\([^()]{0,16}\)){0,600})"
    r"(?P<end>\)(?: ?ran ?for ?(?P<ran>\d{1,15}) ?milliseconds)?|\([^()]{0,16}$|$)"
)
"""The description of a collective, whole or as far as the line goes."""
_WORK_FIELD = re.compile(
    r"\b(?P<name>SeqNum|OpType|NumelIn|NumelOut|Timeout\(ms\))=(?P<value>\w{1,64}) ?(?P<after>,|$)"
)
_CAUGHT = re.compile(r"Watchdog ?caught ?collective ?operation ?timeout")
_CUT_WORK = re.compile(
    r"Watchdog ?caught ?collective ?operation ?timeout: ?(?:Work[A-Z]CCL\((?:[^()]|\(ms\))*(?:\(m?s?)?)?$"
)
"""The line ends inside the description of the work; the rest is on the next line."""
_BEGUN = re.compile(
    r"(?:with exception: ?|ProcessGroup[A-Z]CCL\.cpp:\d{1,6}\] ?)\[Rank \d{1,8}\] ?(?P<said>[\w: (]{0,60})$"
)
"""The line ends before that or within the sentence that leads to it."""
_SENTENCE = "Watchdogcaughtcollectiveoperationtimeout:WorkNCCL("
_AT_WORK = re.compile(
    r"(?:Timeout at (?:NCCL|collective)(?: work)?: ?|detected by watchdog at work(?: sequence id)?: )(?P<seq>\d{1,18})"
    r"(?:.*?last enqueued (?:NCCL )?work: (?P<enqueued>-?\d{1,18}), last completed (?:NCCL )?work: (?P<completed>-?\d{1,18})\b)?"
)
_ENQUEUED = re.compile(r"[Ll]ast enqueued (?:NCCL )?work: (?P<n>-?\d{1,18})\b")
_GROUP = re.compile(
    r"\[PG(?: ID)? (?P<id>\d{1,18})(?: PG GUID (?P<guid>[\w-]+))?\s?(?:\((?P<desc>[^)]{1,100})\))? Rank (?P<rank>\d{1,8})\]"
)
_RANK = re.compile(r"\[Rank (?P<rank>\d{1,8})\]")
_HEARTBEAT = re.compile(
    r"Heartbeat monitor timed out|watchdog got stuck for (?P<s>\d{1,7}) seconds|NCCL watchdog (?:thread )?hang",
    re.IGNORECASE,
)
_DATED = re.compile(r"\[[EFWI]\d{3,4} \d\d:\d\d:\d\d")
_STAMPED = re.compile(r"\[E(?P<day>\d{3,4}) (?P<h>\d\d):(?P<m>\d\d):(?P<s>\d\d)\.")
_ASYNC = re.compile(
    r"raised the following async exception|NCCL error(?: in)?:|NCCL Error \d|ncclCommWatchdog.*NCCL error|\bNCCL operation nccl\w+\(.{0,200}\) failed:|\bnccl[A-Z]\w{2,40} failed: |\bTest NCCL failure |\bFailed[,:] NCCL error \S{1,200} '|(?:^|[:\])] {1,4})NCCL: (?:unhandled|internal|invalid|remote) \w",
    re.IGNORECASE,
)
_RESULTS = (
    (
        "nccl_remote_error",
        re.compile(
            r"remote process exited or there was a network error|ncclRemoteError|remote error", re.IGNORECASE
        ),
    ),
    (
        "nccl_unhandled_cuda",
        re.compile(r"unhandled cuda error|ncclUnhandledCudaError|NCCL [Ee]rror 1\b", re.IGNORECASE),
    ),
    (
        "nccl_system_error",
        re.compile(r"unhandled system error|ncclSystemError|NCCL [Ee]rror 2\b", re.IGNORECASE),
    ),
    ("nccl_internal_error", re.compile(r"internal error|ncclInternalError", re.IGNORECASE)),
    (
        "nccl_invalid_usage",
        re.compile(r"invalid usage|invalid argument|ncclInvalidUsage|ncclInvalidArgument", re.IGNORECASE),
    ),
)
_RESULT_NAME = re.compile(
    r"^\W*(?:\[rank\d+\]:\s*)?nccl(?:RemoteError|SystemError|UnhandledCudaError|InternalError|InvalidUsage|InvalidArgument): "
)
_RESULT_LINES = 10
"""A result's name within so many lines after an NCCL error is part of that error; alone it is the rest of a cut one."""
_DESYNC = re.compile(
    r"lagging/(?:dead/)?mismatched ranks that caused the desync are:.*?\[(?P<ranks>[\d, ]+)\] (?:finished collective #(?P<last>\d{1,18}), but didn't join collective #(?P<next>\d{1,18}))?|ranks? \[(?P<lag>[\d, ]+)\] are the lagging ranks"
    r"|^\s*(?:- )?\[(?P<listed>\d[\d, ]{0,400})\] (?:finished collective #\d{1,18}, but didn't join collective #(?P<missed>\d{1,18})|joined but didn't finish collective #(?P<stuck>\d{1,18}))"
)
_MAX_NAMED = 64
_MISMATCH = re.compile(
    r"Detected mismatch between collectives on ranks\. Rank (?P<one>\d{1,18}) is running (?:collective: )?(?:inconsistent )?.{0,600}?(?:SequenceNumber=(?P<seq>\d{1,18})(?:, ?)?)?OpType=(?P<op>\w+)(?:.*?but Rank (?P<rank>\d{1,18}) is running)?"
)
_TENSOR = re.compile(
    r"\brank[ =:]?(?P<rank>\d{1,8})\b.{0,80}?\btensor\b.{0,40}?\b(?P<count>\d{3,15}) elements", re.IGNORECASE
)
_SIGNAL = re.compile(
    r"Received a (?:dump|timeout) signal (?:due to (?:a |an )?[\w ]{1,40}?)?from\s+(?:this local rank|rank (?P<from>\d{1,18}))|Observed flight recorder dump signal from another rank"
)
_OWN_SIGNAL = re.compile(r"dump signal due to a collective timeout from\s+this local rank")
"""The rank's own watchdog asked for the dump: it proves a timeout whose own line was cut off."""
_ABORTED = re.compile(
    r"NCCL communicator was aborted on rank (?P<rank>\d{1,18})|Found key in store: NCCLABORTEDCOMM.*from rank: (?P<from>\d{1,18})"
)
_BARRIER = re.compile(
    r"(?:Ranks? (?P<ranks>[\d, ]+?)|(?P<who>\d{1,18})) (?:failed to pass monitoredBarrier|timed out in monitoredBarrier)(?: in| after)? (?P<ms>\d{1,18}) ms"
    r"|successfully reached monitoredBarrier, but received errors while waiting\s+for send/recv from rank (?P<silent>\d{1,8})"
)
_WATCHDOG_DIED = re.compile(
    r"watchdog thread terminated with exception: (?!\[Rank \d+\] ?Watchdog|CUDA error|NCCL error)"
)
_OLD_HEARTBEAT_MS, _NEW_HEARTBEAT_MS = 600_000, 480_000
"""Defaults of TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC: torch 2.4 shortened it and began to print dates in its prefix."""


def _rank_and_group(record: Record) -> dict[str, Any]:
    """Rank and group that the message names; the launcher's global rank wins over the group's own."""
    group = _GROUP.search(record.text)
    rank = group["rank"] if group else None
    if rank is None and (named := _RANK.search(record.text)):
        rank = named["rank"]
    name = (group["desc"] or group["guid"] or group["id"]) if group else None
    return {
        "rank": record.rank if record.rank is not None else grammar.number(rank, grammar.MAX_RANK),
        "group": name,
    }


def _stamp(text: str) -> dict[str, Any]:
    """Day and second of the day in the prefix of torch 2.4 and later."""
    found = _STAMPED.search(text)
    if found is None:
        return {}
    return {"stamp": (found["day"], (int(found["h"]) * 60 + int(found["m"])) * 60 + int(found["s"]))}


def _cut_sentence(text: str) -> str:
    """The part of the watchdog's sentence at the end of a cut line; empty if there is none."""
    found = _BEGUN.search(text.rstrip())
    sentence = found["said"].replace(" ", "") if found else ""
    return sentence if sentence and _SENTENCE.startswith(sentence) else ""


def _work(text: str) -> tuple[dict[str, Any], dict[str, Any]] | None:
    """The fields of a work's description, in whatever order, and its sizes; a value that a line's end may have cut is none."""
    found = _WORK.search(text)
    if found is None:
        return None
    whole = found["end"].startswith(")")
    values = {m["name"]: m["value"] for m in _WORK_FIELD.finditer(found["body"]) if m["after"] or whole}
    if not values:
        return None
    fields = {
        "op": values.get("OpType"),
        "seq": grammar.number(values.get("SeqNum")),
        "timeout_ms": grammar.number(values.get("Timeout(ms)")),
    }
    sizes = {"numel_in": values.get("NumelIn"), "numel_out": values.get("NumelOut"), "ran": found["ran"]}
    return fields, {k: n for k, v in sizes.items() if (n := grammar.number(v)) is not None}


def _watchdog(record: Record) -> JobFinding | None:
    """A timeout, by the line that has the work's description or the shorter ones that follow it."""
    work, at = _work(record.text), _AT_WORK.search(record.text)
    caught = _CAUGHT.search(record.text) is not None or _cut_sentence(record.text).startswith("Watchdog")
    if not (caught or at or (work and " ran for " in record.text)):
        return None
    fields, detail = _rank_and_group(record), dict[str, Any]()
    if work:
        fields.update(work[0])
        detail = work[1]
    elif at:
        fields["seq"] = grammar.number(at["seq"])
        detail = {k: int(at[k]) for k in ("enqueued", "completed") if at[k]}
    own = _RANK.search(record.text)
    if own and record.rank is not None and int(own["rank"]) != record.rank:
        detail = {**detail, "in_subgroup": True}
    seq = fields.get("seq")
    kind = "watchdog_timeout_init" if seq in (0, 1) or detail.get("completed") == -1 else "watchdog_timeout"
    return make(FACTS, kind, record, detail=detail | _stamp(record.text), **fields)


def is_cut(text: str) -> bool:
    """Whether a hard line wrap took the end of a watchdog's message away."""
    text = text.rstrip()
    return (
        _CUT_WORK.search(text) is not None
        or bool(_cut_sentence(text))
        or (text.endswith("]") and _BEGUN.search(text) is not None)
    )


def _heartbeat(record: Record) -> JobFinding | None:
    if not (found := _HEARTBEAT.search(record.text)):
        return None
    default = _NEW_HEARTBEAT_MS if _DATED.search(record.text) else _OLD_HEARTBEAT_MS
    timeout = int(found["s"]) * 1000 if found["s"] else default
    detail: dict[str, Any] = {} if found["s"] else {"timeout_is_default": True}
    detail |= _stamp(record.text)
    return make(
        FACTS, "heartbeat_monitor", record, timeout_ms=timeout, detail=detail, **_rank_and_group(record)
    )


def _error(record: Record, context: JoblogContext) -> JobFinding | None:
    """An NCCL result, with the collective it hit when the line or the traceback above names one."""
    if _RESULT_NAME.search(record.text):
        if record.line - context.nccl_line <= _RESULT_LINES:
            return None
    elif not _ASYNC.search(record.text):
        return None
    kind = next((name for name, pattern in _RESULTS if pattern.search(record.text)), None)
    if kind is None:
        return None
    context.nccl_line, context.nccl_kind = record.line, kind
    fields = _rank_and_group(record)
    if work := _work(record.text):
        fields.update(work[0])
    elif context.op and record.line - context.op_line <= 40:
        fields["op"] = context.op
    return make(FACTS, kind, record, **fields)


def _mismatch(found: re.Match[str], record: Record, _context: JoblogContext) -> JobFinding:
    rank = int(found["rank"] or found["one"])
    seq = grammar.number(found["seq"])
    return make(FACTS, "collective_mismatch", record, op=found["op"], seq=seq, rank=rank)


def _desync(found: re.Match[str], record: Record, _context: JoblogContext) -> JobFinding:
    ranks = _numbers(found["ranks"] or found["lag"] or found["listed"])
    return make(
        FACTS,
        "desync_report",
        record,
        rank=ranks[0] if ranks else None,
        seq=grammar.number(found["next"] or found["missed"] or found["stuck"]),
        detail={"ranks": ranks, "missing": bool(found["next"] or found["missed"])},
    )


def _barrier(found: re.Match[str], record: Record, _context: JoblogContext) -> JobFinding:
    ranks = _numbers(found["ranks"] or found["who"] or found["silent"] or "")
    return make(
        FACTS,
        "monitored_barrier_timeout",
        record,
        op="barrier",
        rank=ranks[0] if ranks else None,
        timeout_ms=grammar.number(found["ms"]),
        detail={"ranks": ranks, "missing": True} if found["ms"] and ranks else None,
    )


def _aborted(found: re.Match[str], record: Record, _context: JoblogContext) -> JobFinding:
    rank = grammar.number(found["rank"] or found["from"], grammar.MAX_RANK)
    return make(FACTS, "nccl_aborted", record, rank=rank)


def _signal(found: re.Match[str], record: Record, _context: JoblogContext) -> JobFinding:
    if _OWN_SIGNAL.search(record.text):
        return make(FACTS, "watchdog_timeout", record, **_rank_and_group(record))
    enqueued = _ENQUEUED.search(record.text)
    detail = {"from_rank": int(found["from"])} if found["from"] else {}
    detail |= {"enqueued": int(enqueued["n"])} if enqueued else {}
    return make(FACTS, "dump_signal", record, detail=detail, **_rank_and_group(record))


def _tensor(found: re.Match[str], record: Record, context: JoblogContext) -> JobFinding | None:
    return _sizes(record, context, int(found["rank"]), int(found["count"]))


def _numbers(ranks: str) -> list[int]:
    """The ranks of a list, the first of many."""
    named = [r.strip() for r in ranks.split(",")[:_MAX_NAMED]]
    return [n for r in named if (n := grammar.number(r, grammar.MAX_RANK)) is not None]


def _sizes(record: Record, context: JoblogContext, rank: int, count: int) -> JobFinding | None:
    """Two ranks that print tensors of different sizes before a crash: the mismatch is the cause."""
    other = next((r for r, n in context.counts.items() if r != rank and n != count), None)
    if len(context.counts) < 64:
        context.counts[rank] = count
    if other is None:
        return None
    odd = other if context.counts[other] < count else rank
    meaning = f"Ranks {other} and {rank} print tensors of {context.counts[other]} and {count} elements."
    return make(
        FACTS, "collective_mismatch", record, rank=odd, role=LineRole.EXIT, late=False, meaning=meaning
    )


_REPORTS: tuple[rules.Rule, ...] = (
    (_MISMATCH.search, _mismatch),
    (_DESYNC.search, _desync),
    (_BARRIER.search, _barrier),
    (_ABORTED.search, _aborted),
    (_SIGNAL.search, _signal),
    (_TENSOR.search, _tensor),
)
"""Lines in which PyTorch itself compares ranks."""


def note_op(record: Record, context: JoblogContext) -> None:
    """Remember the collective that a line calls: the error below it may not name it."""
    if found := _OP.search(record.text):
        context.op, context.op_line = found["op"] or found["frame"], record.line


def read(record: Record, context: JoblogContext) -> JobFinding | None:
    """A line of ProcessGroupNCCL."""
    found = (
        _watchdog(record)
        or _heartbeat(record)
        or _error(record, context)
        or rules.first(_REPORTS, record.text, record, context)
    )
    if found is None and _WATCHDOG_DIED.search(record.text):
        return make(FACTS, "nccl_watchdog_exception", record, **_rank_and_group(record))
    return found


FAMILY = grammar.LogFamily(
    name="torch_nccl",
    triggers=(
        "WorkNCCL", "atchdog", "eartbeat", "Timeout at ", "NCCL error", "NCCL Error", "NCCL operation",
        "NCCL failure", "NCCL: ", "nccl", "NCCLABORTED", "NCCL communicator", "desync", "join collective",
        "finish collective", "mismatch", "monitoredBarrier", "dump signal", "timeout signal", " elements",
        "lagging ranks",
    ),
    read=read,
    facts=FACTS,
)  # fmt: skip
