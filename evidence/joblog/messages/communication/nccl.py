"""NCCL's own WARN lines: InfiniBand completions, sockets, CUDA calls, shared memory."""

from __future__ import annotations

import re
from dataclasses import replace

from probing_cluster.evidence.joblog import grammar
from probing_cluster.evidence.joblog.grammar import (
    ALL_DOMAINS,
    NETWORK,
    SOFTWARE,
    USER,
    JobFinding,
    JoblogContext,
    LineRole,
    Record,
    fact,
    make,
)
from probing_cluster.evidence.joblog.messages import rules
from probing_cluster.evidence.joblog.messages.communication import torch_nccl
from probing_cluster.evidence.joblog.messages.devices import cuda

_STATUSES = {
    "LOC_LEN_ERR": 1, "LOC_QP_OP_ERR": 2, "LOC_PROT_ERR": 4, "WR_FLUSH_ERR": 5, "REM_INV_REQ_ERR": 9, "REM_ACCESS_ERR": 10, "REM_OP_ERR": 11,
    "RETRY_EXC_ERR": 12, "RNR_RETRY_EXC_ERR": 13, "RESP_TIMEOUT_ERR": 21,
}  # fmt: skip
_COMPLETIONS = {
    1: "local length error", 2: "local QP operation error", 4: "local protection error", 5: "flushed after an earlier error",
    9: "remote invalid request", 10: "remote access error", 11: "remote operation error", 12: "the peer did not acknowledge after all retries",
    13: "the receiver was never ready", 21: "response timeout",
}  # fmt: skip
FACTS = {
    "net_ib_completion_error": fact(
        LineRole.SYMPTOM, NETWORK, "An InfiniBand or RoCE transfer ended with an error."
    ),
    "net_ib_async_event": fact(LineRole.SYMPTOM, NETWORK, "The HCA reported an asynchronous event."),
    "net_ib_error": fact(
        LineRole.SYMPTOM, NETWORK, "A verbs call failed: the HCA or its link is not usable."
    ),
    "nccl_remote_error": fact(
        LineRole.REMOTE, NETWORK, "A peer process closed its connection; its own failure lies elsewhere."
    ),
    "nccl_system_error": fact(LineRole.SYMPTOM, NETWORK, "NCCL could not reach a peer."),
    "nccl_internal_error": torch_nccl.FACTS["nccl_internal_error"],
    "nccl_unhandled_cuda": fact(
        LineRole.ROOT, ("user_program", "system_software"), "A CUDA call inside NCCL failed."
    ),
    "nccl_invalid_usage": fact(
        LineRole.ROOT, USER, "Two ranks were given the same GPU, or NCCL was called wrongly otherwise."
    ),
    "collective_mismatch": fact(
        LineRole.ROOT, USER, "The ranks called collectives that do not match in size.", late=True
    ),
    "shm_full": fact(
        LineRole.ROOT, ("user_program", "system_software"), "Shared memory (/dev/shm) is full or too small."
    ),
    "nccl_no_interface": fact(LineRole.ROOT, SOFTWARE, "NCCL found no usable network interface."),
    "nccl_warning": fact(
        LineRole.OBSERVATION, SOFTWARE, "NCCL warns of a condition while it shuts down or falls back."
    ),
}
_UCX_NOTE = re.compile(r"\bUCX {1,4}(?:WARN|DIAG|INFO|DEBUG|TRACE)\b")
_WARNING = re.compile(
    r"(?:(?:(?<![\w.-])(?P<host>[A-Za-z0-9][\w.-]{0,253})(?::(?P<pid>\d{1,10}):\d{1,10})? )?\[(?P<dev>-?\d+)\] (?:.{0,200}?R?N?CCL |include/\S{1,100}:\d{1,6} |\w{1,60}\.cu:\d{1,6} )|(?:^|\s)R?N?CCL )WARN (?P<text>.*)"
)
_COMPLETION = re.compile(
    r"NET/IBP? ?: ?.{0,200}?Got (?:completion|CQE)(?: with error| from peer)?(?: (?P<peer>[^\s<]+)<\d+>)?(?:.*?(?:error (?P<error>\d{1,18})|status=(?:\w+\()?(?P<status>\d{1,18})))?(?:.*?opcode(?: |=\w+\()(?P<opcode>\d{1,18}))?(?:.*?vendor[ _]err(?: |=)(?P<vendor>\d{1,18}))?"
)
_NCCL_HCA = re.compile(r"\bhca (?P<hca>\w+)")
_ASYNC_EVENT = re.compile(
    r"NET/IB ?: .{0,200}?(?:(?:[Gg]ot|received) (?:async|fatal).{0,20} ?event|\basync (?:non-)?fatal event(?: on [\w, ]{1,40}\([^)]{1,40}\))?)(?: ?: (?P<event>[^()]{1,60}))?"
)
_ROUTINE_EVENT = re.compile(
    r"client reregist|\bSM change|\bLID change|\bP_?Key change|\bport active|\bGID (?:table )?change|\blast WQE reached|communication established",
    re.IGNORECASE,
)
"""Asynchronous events of a fabric that works: its subnet manager moved or asked its clients to register again."""
_TEXTS = (
    (
        "shm_full",
        re.compile(
            r"shared memory.{0,400}(?:No space|fail)|/dev/shm/nccl|posix_fallocate failed", re.IGNORECASE
        ),
    ),
    (
        "nccl_invalid_usage",
        re.compile(
            r"Duplicate GPU detected|rank \d{1,8} of \d{1,8} ranks has already checked in|invalid usage|Invalid config|mismatched? (?:nranks|version)"
        ),
    ),
    (
        "collective_mismatch",
        re.compile(
            r"Message truncated : received \d+ bytes instead of \d+|Mismatched collective detected|\bcollective mismatch error\b"
        ),
    ),
    (
        "nccl_no_interface",
        re.compile(
            r"no socket interface found|No usable (?:network|interface)|NET/Socket : no interface found|Failed to initialize any NET plugin",
            re.IGNORECASE,
        ),
    ),
    (
        "nccl_warning",
        re.compile(
            r"\[Service thread\]|\[Proxy (?:Service|Progress)|Failed to execute operation Close|cleanup|Could not receive type|Failed to open libib|ibv_open_device failed|Unable to (?:open|query) (?:device|port)|Plugin",
            re.IGNORECASE,
        ),
    ),
    (
        "nccl_remote_error",
        re.compile(
            r"[Cc]onnection closed by remote peer|remote (?:peer|process)|(?:recv|send|read|write).{0,120} (?:failed|error).{0,80}Connection reset by peer|Broken pipe"
        ),
    ),
    (
        "net_ib_error",
        re.compile(
            r"ibv_\w+ failed|NET/IB ?: (?:Unable|No device|.{0,300}(?:not found|port (?:error|down)|failed))"
        ),
    ),
    (
        "nccl_system_error",
        re.compile(
            r"[Cc]onnect to .* failed|\bnvmlDevice\w{1,40}\(\) failed|Call to (?:connect|recv|send|bind|accept|listen|read|write|poll|socket)\w* .*failed|failed : (?:Connection (?:refused|timed out|reset)|No route to host|Network is unreachable|Software caused)|connect.*returned .*exceeded|socketPoll\w*|ncclSocket|Timeout waiting"
        ),
    ),
)
_SENTENCE = re.compile(r"\s*[A-Za-z]\S* \S")
_NOT_THERE = re.compile(
    r"\bibv_(?:query|get|reg_dmabuf).{0,110}(?:not supported|errno 95\b|No data available)", re.IGNORECASE
)
"""A query that this adapter or its driver does not support; NCCL goes on without it."""
_TOPOLOGY = re.compile(r"Could not find real path of /sys/|Could not (?:open|read|find) .{0,20}/sys/")
_NO_TOPOLOGY = (
    "NCCL could not read the machine's topology from /sys: often a container or a virtual machine without it."
)
_CUDA = re.compile(r"(?:C[uU][dD][aA]|HIP) failure(?: \d+)? '?(?P<text>[^'\n]{1,120})'?")
_CALL = re.compile(
    r"^\s{0,4}(?:Failed to (?:CUDA|HIP) (?:host |Host )?[cm]alloc\b|(?:cuda|hip)[A-Z]\w{2,40} failed\b ?: )"
)
_PLUGIN = re.compile(r"^\s{0,4}Failed: UCX error ")
_PLUGIN_MEANING = "The UCX plugin under NCCL reported an error."
_NVLS = re.compile(r"\bnvls\.cc:|\bNVLS\b|NVLink SHARP")
_BIND = re.compile(r"Failed to \w{1,20} NVLink SHARP .{0,200}CUDA error")
_MULTICAST = "A CUDA call for NVLink SHARP inside NCCL failed: often the NVSwitches or their Fabric Manager are not in order."
_OFI = re.compile(
    r"NET/OFI (?!.{0,200}\binitializ)(?:.{0,200}?(?P<completion>completed with error)|.{0,300}?(?:[Ff]ailed|Couldn't|Unable to|\bRC: -?[1-9]))"
)
"""The plugin for libfabric: EFA, Slingshot."""
_REFUSED_CALL = re.compile(r"\bRC: ?-?(?:12|22|38|95)\b")
"""ENOMEM, EINVAL, ENOSYS, EOPNOTSUPP: the call asks for something that is not supported. The adapter works."""
_REFUSED_MEANING = "libfabric refused a call of NCCL's plugin: the provider or a setting does not support it."
_BARE = re.compile(r"^(?:.{0,60}?)(?P<text>NET/IBP? ?: ?.*)")
_UCX = re.compile(
    r"\b(?i:errors?|fail\w{0,5}|status|completion|fatal)\b.{0,120}(?<!['\"`])(?<!\b0 )\bIBV_WC_(?P<status>[A-Z_]{3,40}_ERR)\b(?!\s{0,4}[:=|]?\s{0,4}0\b)|\b[Tt]ransport retry count(?:er)? exceeded on (?P<hca>\w+):\d+/\w+|(?P<flushed>\bflushed\b.{0,40})?\bon (?P<local>\w{2,40}):\d{1,3}/\w{2,12} \(synd 0x|\bError on (?:(?P<old>\w+):\d{1,3} )?QP 0x.{0,80}?: (?P<retries>Transport retry count exceeded)\b|\bFailed to modify QP to (?:INIT|RTR|RTS)\b|^mlx[45]: (?P<node>[\w.-]{1,253}): got completion with error:|\bibv_\w{2,40}\([^)]{0,100}\) failed\b"
)
"""Messages of UCX (under MPI, NVSHMEM, NIXL) and other users of verbs when a transfer ended with an error: by its status, or at an adapter. A count of none is no error."""


def _completion(record: Record, text: str) -> JobFinding | None:
    if not (found := _COMPLETION.search(text)):
        return None
    code = grammar.number(found["error"] or found["status"])
    meaning = FACTS["net_ib_completion_error"].meaning
    if code in _COMPLETIONS:
        meaning = f"An InfiniBand or RoCE transfer ended with error {code}: {_COMPLETIONS[code]}."
    hca = _NCCL_HCA.search(text)
    detail = {
        "error": code,
        "peer": found["peer"],
        "vendor_error": grammar.number(found["vendor"]),
        "hca": hca["hca"] if hca else None,
    }
    return make(
        FACTS,
        "net_ib_completion_error",
        record,
        meaning=meaning,
        role=LineRole.REMOTE if code == 5 else LineRole.SYMPTOM,
        detail={k: v for k, v in detail.items() if v is not None},
    )


def _multicast(record: Record) -> JobFinding:
    """A failed CUDA call that involves the NVSwitches."""
    return make(
        FACTS,
        "nccl_unhandled_cuda",
        record,
        domains=ALL_DOMAINS,
        meaning=_MULTICAST,
        detail={"multicast": True},
    )


def _last_error(record: Record, context: JoblogContext) -> JobFinding | None:
    """The line below "Last error:" of an exception: NCCL's own message without WARN, which names the failure even if no form fits."""
    if found := _completion(record, record.text):
        return replace(found, detail={**found.detail, "last_error": True})
    kind = next((name for name, pattern in _TEXTS if pattern.search(record.text)), None)
    if _BIND.search(record.text):
        return None
    if kind is None and context.nccl_kind in FACTS and _SENTENCE.match(record.text):
        kind = None if _CUDA.search(record.text) else context.nccl_kind
    return None if kind in (None, "nccl_warning") else make(FACTS, kind, record, detail={"last_error": True})


def _transport(found: re.Match[str], record: Record) -> JobFinding:
    """An error of UCX or of another user of verbs."""
    hca = found["hca"] or found["old"] or found["local"]
    if found["node"]:
        return make(FACTS, "net_ib_completion_error", record, host=found["node"])
    if not hca and not found["retries"] and not found["status"]:
        return make(FACTS, "net_ib_error", record)
    code = _STATUSES.get(found["status"]) if found["status"] else None if found["local"] else 12
    code = 5 if found["flushed"] else code
    meaning = code and f"An InfiniBand or RoCE transfer ended with error {code}: {_COMPLETIONS[code]}."
    role = LineRole.REMOTE if code == 5 else None
    detail = {"hca": hca} if hca else {}
    return make(FACTS, "net_ib_completion_error", record, role=role, meaning=meaning, detail=detail)


def _without_warn(record: Record) -> JobFinding | None:
    """A line without NCCL's WARN: another library's, or NCCL's text that a framework reprinted."""
    if (found := _UCX.search(record.text)) and not _UCX_NOTE.search(record.text[: found.start()]):
        return _transport(found, record)
    if _BIND.search(record.text):
        return _multicast(record)
    bare = _BARE.search(record.text) if "NCCL INFO" not in record.text else None
    return _completion(record, bare["text"]) if bare else None


def _ofi(found: re.Match[str], record: Record, _context: JoblogContext) -> JobFinding:
    """An error of NCCL's plugin for libfabric."""
    if found["completion"]:
        meaning = "A transfer over libfabric ended with an error."
        return make(FACTS, "net_ib_completion_error", record, meaning=meaning)
    if _REFUSED_CALL.search(found.string):
        return make(FACTS, "nccl_system_error", record, domains=ALL_DOMAINS, meaning=_REFUSED_MEANING)
    meaning = "A libfabric call failed: the network adapter or its link is not usable."
    return make(FACTS, "net_ib_error", record, meaning=meaning)


def _async_event(found: re.Match[str], record: Record, _context: JoblogContext) -> JobFinding:
    name = (found["event"] or "").strip()
    routine = _ROUTINE_EVENT.search(name) is not None
    return make(FACTS, "nccl_warning" if routine else "net_ib_async_event", record, detail={"event": name})


def _cuda(found: re.Match[str], record: Record, _context: JoblogContext) -> JobFinding | None:
    """A CUDA error in a WARN line; its own kind if it has one."""
    specific = cuda.kind_of(found["text"])
    warning = _WARNING.search(record.text)
    if specific and warning and not cuda.is_reported(specific, record.text, warning, quoted=True):
        return None
    if specific:
        return cuda.finding(specific, record)
    return _multicast(record) if _NVLS.search(record.text) else make(FACTS, "nccl_unhandled_cuda", record)


def _bind(_found: re.Match[str], record: Record, _context: JoblogContext) -> JobFinding:
    return _multicast(record)


_GOES_ON = re.compile(
    r"\bignor|\bdefault|\binstead\b|\bfall(?:ing|s)? back|\bskip|\bretry|\bcontinu|\bunsett|\bdisabl|not using (?:it|them)\b|\bnot (?:supported|available)\b.{0,40}using\b|non-fatal|\bdeprecat|\bcleanup\b|\bclose[sd]?\b|(?:\b|_)[Dd]e(?:register|stroy)|\babort(?:ed)? state|has already been destroyed|\breclaim|^\s*$|\bCall to\s*$|[Ll]egacy|\bis disabled\b|Cannot initialize CollNet|failed to set|Destroy|Reclaim|nvmlInit|NET/OFI"
)
"""Warnings after which NCCL goes on, that it prints while it ends, or that have rules of their own."""
_OWN_USE = re.compile(
    r"\b(?:[Ii]nvalid|improper|mismatch\w{0,4}|[Mm]ismatched|incompatible|not (?:allowed|compatible|initialized|a valid)|must (?:be|have|pass|provide)|should not be called|cannot be|is NULL|same GPU|out of range|exceeds|different)\b"
)
_NOT_READY = re.compile(r"Attempt to use communicator before the previous operation returned\b")
"""Of a communicator that does not block: the program did not wait until it was ready."""
_OWN_NOTE = "NCCL warns of an error of its own and says nothing more; its text is the only reason at hand."


def _other(found: re.Match[str], record: Record, _context: JoblogContext) -> JobFinding | None:
    """A warning that no rule knows: the reason only if nothing else is."""
    if _GOES_ON.search(found.string):
        return None
    if _OWN_USE.search(found.string):
        return make(FACTS, "nccl_invalid_usage", record, role=LineRole.SYMPTOM, detail={"weak": True})
    detail = {"weak": True}
    return make(FACTS, "nccl_internal_error", record, domains=ALL_DOMAINS, meaning=_OWN_NOTE, detail=detail)


_RULES: tuple[rules.Rule, ...] = (
    (_OFI.search, _ofi),
    (_ASYNC_EVENT.search, _async_event),
    (_CUDA.search, _cuda),
    (_CALL.match, rules.always(FACTS, "nccl_unhandled_cuda")),
    (
        _PLUGIN.match,
        rules.always(FACTS, "nccl_system_error", domains=ALL_DOMAINS, meaning=_PLUGIN_MEANING),
    ),
    (_BIND.search, _bind),
    (_NOT_THERE.search, rules.always(FACTS, "nccl_warning")),
    (_TOPOLOGY.search, rules.always(FACTS, "nccl_system_error", domains=SOFTWARE, meaning=_NO_TOPOLOGY)),
    *((pattern.search, rules.always(FACTS, kind)) for kind, pattern in _TEXTS),
    (_NOT_READY.search, rules.always(FACTS, "nccl_invalid_usage", role=LineRole.SYMPTOM)),
    (_SENTENCE.match, _other),
)


def read(record: Record, context: JoblogContext) -> JobFinding | None:
    """A WARN line, or its text alone where a framework reprinted it."""
    if record.text.strip() == "Last error:":
        context.last_error_line = record.line
        return None
    if context.is_last_error(record.line) and (finding := _last_error(record, context)):
        return finding
    warning = _WARNING.search(record.text)
    if warning is None:
        return _without_warn(record)
    named = Record(
        line=record.line,
        text=record.text,
        rank=record.rank,
        host=warning["host"] or record.host,
        pid=grammar.number(warning["pid"]) or record.pid,
    )
    text = warning["text"]
    return _completion(named, text) or rules.first(_RULES, text, named, context)


FAMILY = grammar.LogFamily(
    name="nccl",
    expects=JoblogContext.is_last_error,
    triggers=(
        "CCL WARN",
        " WARN C",
        "NET/IB :",
        "NET/IB:",
        "NET/IBP",
        "retry count",
        "IBV_WC_",
        " (synd ",
        "got completion with error",
        "modify QP to",
        "ibv_",
        "NVLink SHARP",
        "Last error:",
        " failed : ",
        "Call to ",
        "by remote peer",
        "remote process",
    ),
    read=read,
    facts=FACTS,
)
