"""Xids the catalogue leaves open, and user-type Xids that follow one GPU across jobs and users."""

from __future__ import annotations

from collections.abc import Iterable

from probing_cluster.attribution.verdict import claims, evidence_view, gpus, signatures
from probing_cluster.core import records

CAUSE = "gpu_xid"
_JOBS, _USERS = 2, 2
_LOGGED_KINDS = frozenset({"xid", "gpu_lost"})


def rule(view: evidence_view.EvidenceView) -> Iterable[claims.Claim]:
    """Claims for open Xids; for Xid 13, 31 and the like only if other users' jobs met them on the same GPU."""
    yield from claims.collect(view, CAUSE, "gpu_xid", view.of(CAUSE), _unless_logged_before(view))
    for sighting in view.sightings:
        # Such an error ends its process: after the end, it is the next job's.
        running = sighting.when is evidence_view.EventPhase.RUNNING
        if sighting.signature.role is signatures.Role.USER and running and not sighting.after_own_action:
            yield from _pattern(view, sighting)


def _unless_logged_before(view: evidence_view.EvidenceView) -> claims.Adjust:
    """Ignores a check's Xid from before the attempt: the node's check reads the log of the whole boot."""
    earlier = [
        *view.outside,
        *(s.event for s in view.sightings if s.when is evidence_view.EventPhase.BEFORE_START),
    ]
    known = {
        (e.node, p) for e in earlier if e.kind in _LOGGED_KINDS and e.at < view.start_at for p in _names(e)
    }

    def adjust(sighting: evidence_view.CaseSighting, weight: float) -> float:
        if sighting.event.source != "check":
            return weight
        return 0.0 if any((sighting.event.node, p) in known for p in _names(sighting.event)) else weight

    return adjust


def _names(event: records.HealthEvent) -> set[str]:
    return {n for n in (gpus.pci_key(event.pci_bus_id), event.device, event.gpu_uuid) if n}


def _pattern(
    view: evidence_view.EvidenceView, sighting: evidence_view.CaseSighting
) -> Iterable[claims.Claim]:
    attempt = view.attempt
    before = [
        p
        for p in view.case.past_faults
        if p.node == sighting.event.node
        and p.gpu == sighting.gpu
        and p.at < sighting.at
        and p.job_id != attempt.job_id
        and p.user != attempt.user
    ]
    jobs, users = {p.job_id for p in before}, {p.user for p in before}
    if len(jobs) < _JOBS or len(users) < _USERS:
        return
    yield claims.Claim(
        cause=CAUSE,
        weight=min(0.7 + 0.05 * (len(jobs) - _JOBS), 0.9),
        at=sighting.at,
        rule="gpu_xid",
        node=sighting.event.node,
        device=sighting.device,
        gpu=sighting.gpu,
        evidence=(sighting.event,),
        nodes=frozenset({sighting.event.node}),
        n_sources=1,
        explains=frozenset({"user_error"}),
        words=f"met Xid {sighting.event.code}, as {len(jobs)} jobs of {len(users)} other users did on the same GPU",
    )
