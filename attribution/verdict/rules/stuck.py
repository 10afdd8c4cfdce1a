"""A fault that blocked the job until a person or the limit ended it: shown by a blocked task, a silent log, or Xid 154."""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import timedelta

from probing_cluster.attribution.verdict import (
    claims,
    evidence_view,
    findings,
    gpus,
    onset,
    rank_claims,
    recovery,
    signatures,
    taxonomy,
)
from probing_cluster.core import digits, records, vocabulary

GSP, MOUNT = "gpu_gsp_timeout", "filesystem_mount"
_PARTS = frozenset(
    {"gpu", "gpu_memory", "gpu_driver", "nvlink", "nvswitch", "pcie", "ib", "ethernet", "filesystem"}
)
"""Components that a job cannot do without if it uses them."""
_FEW_GAPS = 3
_MANY_GAPS = 10
_REPORTED_AFTER = timedelta(minutes=3)
"""Drivers and file systems report a missing answer only after timeouts of their own."""
_WEIGHT = 0.85
"""Likely at most: the fault may have ended without an event."""
_BLOCKED_AFTER = timedelta(minutes=30)
"""The kernel reports a blocked task after two minutes, or later if it checks seldom."""
_WHOLE_NODE = 4
"""GPUs per node of a job without neighbours from which on the hung GPU is likely its own."""
_LONGEST_GAP_S = 86400.0
"""Longest credible gap between a log's steps: a larger number comes from a forged event."""
_RECOVERY, _ACTIONS = "154", frozenset({"GPU Reset Required", "Node Reboot Required"})
"""Xid 154 names the recovery that a GPU needs; after these the GPU is unusable until then."""
_EXPLAINING = frozenset({findings.FindingRole.OWN, findings.FindingRole.PROXIMAL})
"""Roles of findings that report why a job stood still, or what its ranks waited for."""
_PROGRAM = re.compile(r"task (?:python|pt_|torchrun|ray::)")
"""Tasks that compute. Mount daemons hang on every dead server, whether or not the job uses it."""


def rule(view: evidence_view.EvidenceView) -> Iterable[claims.Claim]:
    """One claim per node and cause, if a task or the log was blocked and nothing shows that the fault ended."""
    if view.state not in vocabulary.ENDED_FROM_OUTSIDE:
        return
    yield from _at_last_progress(view)
    stalls = [*view.stalls, *_moved_into_the_window(view)]
    hung = [e for e in stalls if e.kind == "hung_task"]
    for node in sorted({e.node for e in hung}):
        blocked = [e for e in hung if e.node == node]
        silent = _silent(view, stalls, node)
        if not _is_whole(view, node):
            # The driver names the process that waited for it: the kernel must report the same one as blocked.
            silent = [e for e in silent if e.pid is not None and e.pid in {b.pid for b in blocked}]
        yield from _claim(view, GSP, silent, blocked)
        working = [e for e in blocked if _PROGRAM.search(e.message)]
        yield from _claim(view, MOUNT, [e for e in stalls if e.node == node], working)
    demanded = _demanded(stalls)
    for node in sorted({e.node for e in demanded}):
        if _is_whole(view, node):
            yield from _claim(view, GSP, _silent(view, stalls, node), [e for e in demanded if e.node == node])


def _silent(
    view: evidence_view.EvidenceView, stalls: list[records.HealthEvent], node: str
) -> list[records.HealthEvent]:
    """Faults and stalls on a node; one of them may be the fault that the others wait for."""
    return [e for e in (*view.left_behind, *stalls) if e.node == node]


def _demanded(stalls: list[records.HealthEvent]) -> list[records.HealthEvent]:
    """The last Xid 154 of each GPU, if it demands a reset of the GPU or its node: until then the GPU is unusable."""
    in_order = sorted(stalls, key=lambda e: (e.at, e.event_id))
    last = {(e.node, e.pci_bus_id): e for e in in_order if e.kind == "xid" and e.code == _RECOVERY}
    # A forged event may hold anything here.
    return [e for e in last.values() if str(e.detail.get("recovery_to")) in _ACTIONS]


def _moved_into_the_window(view: evidence_view.EvidenceView) -> list[records.HealthEvent]:
    """Stalls and faults that lie in the window only because the log's times moved the onset back."""
    if view.log_stall is None:
        return []
    before = view.end_at - timedelta(seconds=view.case.policy.before_s)
    waits = [s for s in view.sightings if view.start_at <= s.at < before and not s.still_active]
    weighed = (signatures.Role.ROOT, signatures.Role.WEAK)
    some = [s for s in waits if s.event.kind == "hung_task" or s.signature.role in weighed]
    return [s.event for s in some if not _recovered_by_end(view, s)]


def _at_last_progress(view: evidence_view.EvidenceView) -> Iterable[claims.Claim]:
    """Claims for lasting faults that began about when the job's log showed its last progress."""
    stall = view.log_stall
    if stall is None:
        return
    last_at = onset.stalled_since(stall)
    first = last_at - max(_seconds(stall, "before_s"), evidence_view.SLACK)
    last = last_at + max(_FEW_GAPS * _seconds(stall, "gap_s"), _REPORTED_AFTER)
    found: dict[tuple[str, str], evidence_view.CaseSighting] = {}
    for s in view.sightings:
        if (
            max(first, view.start_at) <= s.at <= last
            and _stops_a_job(view, s)
            and not _recovered_by_end(view, s)
        ):
            found.setdefault((s.cause, s.event.node), s)
    for (cause, node), s in found.items():
        yield claims.Claim(
            cause=cause,
            weight=_WEIGHT,
            at=s.at,
            rule="stuck",
            node=node,
            device=s.device,
            gpu=s.gpu,
            evidence=(s.event, stall),
            cap=records.Confidence.POSSIBLE
            if cause != MOUNT and _may_be_another_jobs_gpu(view, s)
            else records.Confidence.LIKELY,
            nodes=frozenset(n for c, n in found if c == cause),
            n_sources=2,
            explains=rank_claims.ENDINGS,
        )


def _seconds(stall: records.HealthEvent, name: str) -> timedelta:
    return timedelta(seconds=min(digits.number(stall.detail.get(name)) or 0.0, _LONGEST_GAP_S))


def _stops_a_job(view: evidence_view.EvidenceView, sighting: evidence_view.CaseSighting) -> bool:
    """True for a hard fault that stays until somebody acts, of a part that the job held and needs."""
    cause = taxonomy.cause(sighting.cause)
    event, signature = sighting.event, sighting.signature
    if not cause.persistent or cause.component not in _PARTS or sighting.after_own_action:
        return False
    if onset.makes_calls_wait(event) and not (sighting.device or "").startswith("/"):
        return _waited_for(view, sighting)
    if event.severity is not records.Severity.HIGH or signature.role is not signatures.Role.ROOT:
        return False
    if sighting.cause == "nvswitch":
        return view.gpus_per_node > 1
    if sighting.hold in (gpus.PartCertainty.HELD, gpus.PartCertainty.NOT):
        return sighting.hold is gpus.PartCertainty.HELD
    if _never_went_on(view):
        return True
    whole = _is_whole(view, event.node) or view.attempt.n_gpus is None
    return sighting.hold is gpus.PartCertainty.WHOLE and whole


def _waited_for(view: evidence_view.EvidenceView, sighting: evidence_view.CaseSighting) -> bool:
    """True for a server that fell silent as a job stood still that never went on, and that nothing else explains.

    Servers are often silent for a minute, and a job need not use each. One that answered may do so by another of its names.
    """
    if not _never_went_on(view) or any(onset.asks(f.event) for f in view.findings):
        return False
    explained = any(f.signature.role in _EXPLAINING for f in (*view.findings, *view.further_errors))
    others = any(
        s.cause != MOUNT and s.signature.role is signatures.Role.ROOT and claims.weigh(s) > 0
        for s in view.sightings
        if s.at >= view.start_at
    )
    answered = any(
        s.cause == MOUNT and s.signature.recovery and s.event.node == sighting.event.node
        for s in view.sightings
        if sighting.at <= s.at <= view.end_at
    )
    return not (explained or others or answered)


def _never_went_on(view: evidence_view.EvidenceView) -> bool:
    """True if the log was silent for many of its own gaps: then another job's fault at its last step is an unlikely coincidence."""
    stall = view.log_stall
    return stall is not None and view.end_at - onset.stalled_since(stall) >= max(
        _MANY_GAPS * _seconds(stall, "gap_s"), _BLOCKED_AFTER
    )


def _may_be_another_jobs_gpu(view: evidence_view.EvidenceView, sighting: evidence_view.CaseSighting) -> bool:
    """True if another job may have held the GPU, or none, or if accounting has no GPU count."""
    held = sighting.hold is gpus.PartCertainty.HELD
    return not held and (view.attempt.n_gpus is None or not _is_whole(view, sighting.event.node))


def _recovered_by_end(view: evidence_view.EvidenceView, sighting: evidence_view.CaseSighting) -> bool:
    """True if the part was seen to work again, or was reset, before the job ended."""
    since = [s for s in view.sightings if s.event.node == sighting.event.node and s.at >= sighting.at]
    anew = [s for s in since if s.cause == "node_reboot" or s.event.kind == "driver_load"]
    back = [s for s in since if recovery.recovers(s, sighting)]
    return any(s.at <= view.end_at for s in (*anew, *back))


def _is_whole(view: evidence_view.EvidenceView, node: str) -> bool:
    return not view.case.shared.get(node) and view.gpus_per_node >= _WHOLE_NODE


def _may_be_same(blocked: records.HealthEvent, first: records.HealthEvent) -> bool:
    """False if each names its GPU and they differ."""
    return len({blocked.pci_bus_id, first.pci_bus_id} - {None}) < 2


def _claim(
    view: evidence_view.EvidenceView,
    cause: str,
    faults: list[records.HealthEvent],
    blocked: list[records.HealthEvent],
) -> Iterable[claims.Claim]:
    step_at = view.case.last_progress_at
    for first in (e for e in faults if signatures.of(e).cause == cause):
        after = [
            e for e in blocked if first.at <= e.at <= first.at + _BLOCKED_AFTER and _may_be_same(e, first)
        ]
        if not after or (step_at is not None and step_at > after[0].at):
            continue
        yield claims.Claim(
            cause=cause,
            weight=_WEIGHT,
            at=first.at,
            rule="stuck",
            node=first.node,
            device=first.device or first.pci_bus_id,
            evidence=(first, after[0]),
            cap=records.Confidence.LIKELY,
            nodes=frozenset((first.node,)),
            n_sources=1,
            explains=rank_claims.ENDINGS,
        )
        return
