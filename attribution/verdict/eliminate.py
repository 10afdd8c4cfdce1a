"""The `ruled_out` sentences: causes that the evidence excludes, and weaker candidates."""

from __future__ import annotations

import re
import signal
from collections.abc import Callable, Iterable
from datetime import timedelta

from probing_cluster.attribution.verdict import case as cases
from probing_cluster.attribution.verdict import (
    claims,
    evidence_view,
    findings,
    gpus,
    node_faults,
    phrases,
    rank_claims,
    recovery,
    signatures,
    window,
)
from probing_cluster.attribution.verdict.rules import memory_limit
from probing_cluster.core import records

MAX_SENTENCES = 8
_NO_MEMORY = re.compile(r"out ?of ?memory|MemoryError|bad_alloc|allocate memory|heap space", re.IGNORECASE)
"""Messages of a program that got no memory, whatever refused it."""
MAX_OUTSIDE = 2
"""Most faults outside the window that are mentioned, the latest first to be kept."""

_GPU = frozenset({"gpu_lost", "gpu_memory_uncorrectable", "gpu_memory_contained", "gpu_row_remap_failure", "gpu_nvlink", "nvswitch", "gpu_gsp_timeout", "gpu_driver", "gpu_xid"})  # fmt: skip
_MOST_CODES = 3
_LINKS = frozenset({"ib_link", "eth_link"})
_FILES = frozenset({"filesystem_mount", "disk"})
STRUCK = {
    **dict.fromkeys(_GPU, "GPUs"),
    **dict.fromkeys(_LINKS, "network"),
    **dict.fromkeys(_FILES, "file systems"),
}
"""Cause to the first word of the sentence that any sign of the cause removes."""
LOOKED_FOR = frozenset(STRUCK)
"""Causes of which any sign changes the `ruled_out` sentences."""

TIME_LIMIT = "time limit"
"""Begins the sentence that rules the time limit out."""
_SURE = frozenset({records.Confidence.CERTAIN, records.Confidence.LIKELY})
"""Confidences that clear the program."""
_FELT = timedelta(minutes=30)
"""The longest wait that NCCL's settings allow: an unread program that exits later may have exited by itself."""


def ruled_out(view: evidence_view.EvidenceView, ranking: rank_claims.Ranking) -> tuple[str, ...]:
    """The sentences, most telling first. Only watched causes are ruled out; weaker candidates are called less likely."""
    if ranking.winner.cause == "node_refused" and ranking.winner.domain is not records.Domain.UNKNOWN:
        # The job had not begun, and the fault for which the node was refused may be of any part. What makes that doubtful is named.
        doubted = ranking.confidence is not ranking.winner.confidence
        return tuple(_rivals(view, ranking))[:MAX_SENTENCES] if doubted else ()
    sentences: list[str] = []
    for part in _PARTS:
        sentences += [s for s in part(view, ranking) if s not in sentences]
    return tuple(sentences[:MAX_SENTENCES])


def _program(view: evidence_view.EvidenceView, ranking: rank_claims.Ranking) -> Iterable[str]:
    winner = ranking.winner
    if winner.info.domain is records.Domain.USER_PROGRAM or winner.cause == "unknown":
        return
    if winner.evidence and all(findings.is_finding(e) for e in winner.evidence):
        return  # The program's own output does not clear the program.
    if any(r.info.domain is records.Domain.USER_PROGRAM for r in ranking.rivals):
        return  # It is named among the rivals.
    if rank_claims.came_into_the_hang(view, winner) or node_faults.loss_after_hang(view) is not None:
        return  # What the job waited for before the fault may be its program.
    # A possible fault, or one first seen after the end, does not clear the program.
    sure = ranking.confidence in _SURE and winner.at <= view.end_at + evidence_view.SLACK
    unless = "" if sure else records.LESS_LIKELY
    own = [f for f in view.findings if f.signature.role is findings.FindingRole.OWN]
    if own:
        yield f"{unless}user program ({own[0].signature.words}, as a consequence)"
        return
    if winner.info.domain is records.Domain.UNKNOWN:
        return
    if winner.evidence and winner.at < view.start_at:
        # Without findings nothing clears the program: it failed after a fault that it had from its start.
        if view.findings:
            yield f"{unless}user program (its log shows no error of its own)"
    elif view.findings or (view.state != "FAILED" and view.log_was_read):
        why = "its log shows no error of its own" if unless else "no error of its own before the fault"
        yield f"{unless}user program ({why})"
    elif sure and view.state == "FAILED" and view.end_at - winner.at <= _FELT:
        yield "user program (its exit came after the fault)"


def _network(view: evidence_view.EvidenceView, ranking: rank_claims.Ranking) -> Iterable[str]:
    if ranking.winner.cause in _LINKS or not view.fully_watched:
        return
    if not cases.may_have_peers(view.attempt):
        yield from _unused_links(view, ranking)
        return
    sightings = [s for s in view.of(*_LINKS) if s.signature.role is not signatures.Role.CONTEXT]
    # The links of a heterogeneous job's other components are not looked at.
    if not sightings and view.attempt.het_job_id is None:
        yield f"network (no link fault on {view.node_list})"


def _unused_links(view: evidence_view.EvidenceView, ranking: rank_claims.Ranking) -> Iterable[str]:
    """Names a link fault that came while a job on one node ran, and that no claim rests on; nothing if its errors name the network."""
    if any(findings.names_the_network(f.event) for f in view.findings):
        return
    rivals = {r.cause for r in (*ranking.rivals, *ranking.absorbed)}
    during = (
        s for s in view.of(*_LINKS) if s.when is evidence_view.EventPhase.RUNNING and not s.still_active
    )
    roots = [s for s in during if s.signature.role is signatures.Role.ROOT and s.cause not in rivals]
    for s in roots[:1]:
        where = phrases.device_of_node(s.device, s.event.node)
        # It may have needed a server beyond the node, in words that no reader of logs knows.
        yield f"{records.LESS_LIKELY}network ({phrases.what(s.event)}: {where}; a job on one node has no peers, but may need a server)"


def _gpus(view: evidence_view.EvidenceView, ranking: rank_claims.Ranking) -> Iterable[str]:
    parts = set()
    for event in view.not_held:
        # Faults from after the end, from long before the start, or repaired by then, need no mention.
        near = view.start_at - _JUST_BEFORE <= event.at <= view.end_at
        if not near or _was_cured_before(view, event):
            continue
        if (part := (event.node, event.device or event.gpu_uuid)) in parts:
            continue
        parts.add(part)
        name = event.device or event.gpu_uuid or gpus.pci_key(event.pci_bus_id)
        yield f"{phrases.device_of_node(name, event.node)} ({phrases.what(event)}, but the job did not hold it)"
    outlived = [s for s in view.lost_gpus if recovery.is_outlived(view, s)]
    if outlived and ranking.winner.cause not in (outlived[0].cause, *rank_claims.ENDINGS):
        s = outlived[0]
        what = f"{phrases.what(s.event)}, but the job's log shows that it worked on"
        yield f"{records.LESS_LIKELY}{phrases.device_of_node(s.device, s.event.node)} ({what})"
    if view.attempt.n_gpus == 0 and any(f.signature.cause in _GPU for f in view.findings):
        yield "GPUs (the job held none)"
    if ranking.winner.cause in _GPU or not view.attempt.n_gpus or not view.fully_watched:
        return
    named = {e.event_id for c in (ranking.winner, *ranking.absorbed) for e in c.evidence}
    if any(
        s.gpu and s.hold is not gpus.PartCertainty.HELD and s.event.event_id in named for s in view.sightings
    ):
        return  # The GPUs it held are unknown, and one of its nodes' GPUs reported an error.
    sightings = [
        s for s in view.of(*_GPU) if s.signature.role in (signatures.Role.ROOT, signatures.Role.WEAK)
    ]
    if sightings:
        return
    if unlisted := node_faults.of_unlisted(view):
        yield f"{records.LESS_LIKELY}GPUs ({unlisted})"
        return
    # Errors that programs cause stand in the evidence: "no fault" would deny them.
    own = (
        s for s in view.sightings if s.signature.role is signatures.Role.USER and s.event.event_id in named
    )
    codes = list(dict.fromkeys(phrases.what(s.event) for s in own if s.gpu))
    but = f" but {' and '.join(codes[:_MOST_CODES])}, which programs cause," if codes else ""
    # One that only slows a GPU, as heat does, may stand beside it.
    yield f"GPUs (no fault that ends a job{but} on the ones it held)"


def _files(view: evidence_view.EvidenceView, ranking: rank_claims.Ranking) -> Iterable[str]:
    if ranking.winner.cause in _FILES or not view.fully_watched:
        return
    if any(f.signature.cause in _FILES for f in view.findings):
        return  # Its own output reports an error of one; a node that saw none does not clear the servers.
    if not [s for s in view.of(*_FILES) if s.signature.role is not signatures.Role.CONTEXT]:
        yield f"file systems (no fault on {view.node_list})"


def _node(view: evidence_view.EvidenceView, ranking: rank_claims.Ranking) -> Iterable[str]:
    if ranking.winner.cause in ("node_lost", "node_reboot") or view.state in ("NODE_FAIL", "BOOT_FAIL"):
        return
    # `agent_silent` of a watched node lies after the end.
    lost = [s for s in view.of("node_lost", "node_reboot") if s.event.kind != "agent_silent"]
    if view.fully_watched and not lost:
        yield f"loss of a node ({view.node_list} kept answering)"


_BY_ITSELF = ("user_error", "unknown")


def _memory(view: evidence_view.EvidenceView, ranking: rank_claims.Ranking) -> Iterable[str]:
    if ranking.winner.cause == "oom_host" or view.state == "OUT_OF_MEMORY" or not view.fully_watched:
        return
    refused = any(_NO_MEMORY.search(f.event.message) for f in view.findings)
    others = [s for s in memory_limit.kills_of_others(view) if s.event.code != "global"]
    if others and ranking.winner.cause in (*_BY_ITSELF, "rank_killed"):
        s, group = others[0], memory_limit.group_outside(others[0].event)
        name = phrases.clean(s.event.process or "a process")
        yield f"out of memory (the kernel of {s.event.node} killed {name} at the limit of its own cgroup, {phrases.clean(group)}, which is not the job's)"
    elif ranking.winner.cause in _BY_ITSELF and not view.of("oom_host") and not refused:
        yield "out of memory (no process was killed for it)"


def _limit(view: evidence_view.EvidenceView, ranking: rank_claims.Ranking) -> Iterable[str]:
    # With `sbatch --signal`, Slurm sends a signal shortly before the limit.
    near_the_limit = view.signal in _WARNINGS
    if (
        ranking.winner.cause in ("unknown", "user_error")
        and view.within_limit
        and view.state != "TIMEOUT"
        and not near_the_limit
    ):
        limit_s = view.attempt.time_limit_s or 0.0
        yield f"{TIME_LIMIT} (ended after {phrases.duration(view.ran_s)} of {phrases.duration(limit_s)})"


def _outside(view: evidence_view.EvidenceView, _ranking: rank_claims.Ranking) -> Iterable[str]:
    mentioned = [e for e in view.outside if view.attempt.n_gpus != 0 or not _of_gpu(e)]
    uncured = [e for e in mentioned if e.kind != window.BOOT and not _was_cured_before(view, e)]
    old = [e for e in uncured[-MAX_OUTSIDE:] if e.at < view.window.start_at]
    ago_s = [(view.onset_at - e.at).total_seconds() for e in old]
    # Two sources may report one fault in the same words, as the driver and the kernel log do.
    yield from dict.fromkeys(outside(phrases.what(e), e.node, s) for e, s in zip(old, ago_s, strict=True))


_NEAR = timedelta(minutes=2)
"""A fault of a part that the job held, from so shortly before its failure, is named beside an end that nothing explains."""


def unexplained(view: evidence_view.EvidenceView, watched: str) -> str:
    """Clause of an end that nothing seen on these nodes explains. A fault of that time is named: it did not suffice for a verdict."""
    near = [
        s
        for s in view.disturbances
        if s.signature.role is signatures.Role.ROOT
        and s.hold is not gpus.PartCertainty.MAYBE
        and claims.weigh(s) > 0
        and s.at >= view.onset_at - _NEAR
    ]
    if not near:
        return f"nothing seen on {watched} explains the end"
    s = max(near, key=lambda s: (claims.weigh(s), s.at, s.event.event_id))
    where = phrases.device_of_node(s.device, s.event.node)
    before_s = max((view.end_at - s.at).total_seconds(), 1.0)
    return f"what was seen on {watched} does not suffice to explain the end; the likeliest is {phrases.what(s.event)} ({where}) {phrases.duration(before_s)} before it"


def _was_cured_before(view: evidence_view.EvidenceView, fault: records.HealthEvent) -> bool:
    """True if a fault from before the attempt's start was over by then: its part recovered, or its node booted."""
    begun = view.start_at + evidence_view.SLACK
    later = (e for e in view.case.events if e.node == fault.node and fault.at < e.at <= begun)
    return fault.at < view.start_at and any(_cures(e, fault) for e in later)


def _cures(later: records.HealthEvent, fault: records.HealthEvent) -> bool:
    if later.kind == window.BOOT:
        return True
    if not signatures.of(later).recovery:
        return False
    if later.gpu_uuid and later.gpu_uuid == fault.gpu_uuid:
        return True
    same = later.kind == fault.kind and (later.kind != "check" or later.code == fault.code)
    names = [{n for n in (e.device, e.gpu_uuid, e.pci_bus_id) if n} for e in (later, fault)]
    return same and (not all(names) or not names[0].isdisjoint(names[1]))


def _of_gpu(event: records.HealthEvent) -> bool:
    return signatures.of(event).scope is signatures.Scope.GPU


def outside(what: str, node: str, gap_s: float) -> str:
    """The sentence about a fault (`phrases.what`) that came `gap_s` seconds before the onset and before the window."""
    return f"{records.LESS_LIKELY}{what} on {node} (it came {phrases.duration(gap_s)} before, outside the window)"


def _rivals(_view: evidence_view.EvidenceView, ranking: rank_claims.Ranking) -> Iterable[str]:
    for rival in ranking.rivals:
        if rival.cause in (ranking.winner.cause, "unknown"):
            continue
        place = f" on {rival.node}" if rival.node and rival.info.domain is not _PROGRAM else ""
        yield f"{records.LESS_LIKELY}{_NAMES.get(rival.cause) or rival.cause.replace('_', ' ')}{place} ({_why(rival)})"


_JUST_BEFORE = timedelta(minutes=5)
_WARNINGS = frozenset(
    {signal.SIGHUP, signal.SIGINT, signal.SIGUSR1, signal.SIGUSR2, signal.SIGTERM, signal.SIGALRM}
)
_PROGRAM = records.Domain.USER_PROGRAM
_NAMES = {
    "user_cancelled": "the cancellation alone",
    "time_limit": "the time limit alone",
    "user_error": "user program",
}
"""Names of rivals whose cause would read as if the event had not happened."""


def _why(rival: claims.Claim) -> str:
    what = phrases.what(rival.evidence[0]) if rival.evidence else " ".join(rival.words.split())
    sure = rival.confidence in (records.Confidence.CERTAIN, records.Confidence.LIKELY)
    # The rival is less likely than the verdict, and would have this confidence without it.
    word = f"by itself {rival.confidence}" if sure else str(rival.confidence)
    return f"{word}: {what}" if what else word


_PARTS: tuple[Callable[[evidence_view.EvidenceView, rank_claims.Ranking], Iterable[str]], ...] = (
    _program,
    _rivals,
    _network,
    _gpus,
    _files,
    _node,
    _memory,
    _limit,
    _outside,
)
