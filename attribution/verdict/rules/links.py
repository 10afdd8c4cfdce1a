"""InfiniBand and Ethernet links: a port that stays down ends a gang, a flap mostly does not."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta

from probing_cluster.attribution.verdict import claims, evidence_view, findings, recovery, signatures
from probing_cluster.core import records

CAUSES = ("ib_link", "eth_link")
SIGHTED = frozenset(CAUSES)
_FLAP = timedelta(seconds=30)
_FELT = timedelta(seconds=120)
"""A gang that trains feels a dead link within its transport's retries, well within this."""
_LOOKED = timedelta(seconds=40)
"""Within this a port that is down is found so by the agent's own readings."""
_COUNTED = frozenset({"link_downed", "carrier_lost", "link_error_recovery"})
"""Counters of what is over when the reading that finds them risen finds the port up."""
_STAYED_DOWN = 0.3
"""A link that came back weighs less."""
_DOWN_MESSAGES = frozenset({"link_down", "bond_down"})
_DOWN = frozenset({"down", "port_down", "state", "phys_state", "missing"})


def rule(view: evidence_view.EvidenceView) -> Iterable[claims.Claim]:
    """Weighs a link by whether it came back before the end, and whether the gang felt it."""
    for cause in CAUSES:
        sightings = view.of(cause)
        backs = _recoveries(sightings)
        made = claims.collect(view, cause, "links", sightings, _staying_down(view, sightings, backs))
        yield from (_known_from_a_log(view, _raised_for_lost_node(view, claim)) for claim in made)
    if not any(claims.weigh(s) > 0 for s in view.of("ib_link")) and not _gave_up_before(view):
        yield from claims.hints(view, "ib_link", "links", findings.FindingRole.HINT)


def _gave_up_before(view: evidence_view.EvidenceView) -> bool:
    """Whether a watchdog gave up first, by the job's log: a link's own retries end minutes before that, and later they only miss a peer that is gone."""
    return any(
        f.event.detail.get("first_cause") is True
        and f.signature.role is findings.FindingRole.PROXIMAL
        and f.signature.onset
        for f in view.findings
    )


def _raised_for_lost_node(view: evidence_view.EvidenceView, claim: claims.Claim) -> claims.Claim:
    """At least "likely" for a link that stayed down on the node that Slurm lost, if the node went on without it.

    A job on one node may need no network, but Slurm does.
    """
    lost = [e for e in claim.evidence if _is_of_lost_node(view, e) and e.code in _DOWN_MESSAGES]
    if claim.weight < _STAYED_DOWN or not any(_lived_on(view, e) for e in lost):
        return claim
    return claims.replace_claim(claim, weight=max(claim.weight, claims.LIKELY))


def _known_from_a_log(view: evidence_view.EvidenceView, claim: claims.Claim) -> claims.Claim:
    """A log tells that a link went down, not that it was down at the end: ports come and go, and nobody looked."""
    if claim.node not in view.case.by_log:
        return claim
    return claims.replace_claim(claim, cap=claims.less_confident(claim.cap, records.Confidence.LIKELY))


def _recoveries(sightings: Iterable[evidence_view.CaseSighting]) -> dict[tuple[str, str], list[datetime]]:
    """By every name of the port: kernel lines have its interface's, readings its adapter's, most its PCI function."""
    back: dict[tuple[str, str], list[datetime]] = {}
    for s in sightings:
        if s.signature.recovery:
            for name in recovery.part_names(s):
                back.setdefault((s.event.node, name), []).extend({s.at, s.last_at})
    return back


def _staying_down(
    view: evidence_view.EvidenceView,
    every: Iterable[evidence_view.CaseSighting],
    backs: dict[tuple[str, str], list[datetime]],
) -> claims.Adjust:
    read = [s for s in every if s.event.source == "sysfs" and s.signature.role is not signatures.Role.CONTEXT]

    def adjust(sighting: evidence_view.CaseSighting, weight: float) -> float:
        if weight == 0:
            return weight
        if view.crashed:
            # Calls on a link that is away fail or wait; they do not tread on memory.
            weight *= 0.5
        later = [
            t
            for n in recovery.part_names(sighting)
            for t in backs.get((sighting.event.node, n), [])
            if t > sighting.last_at
        ]
        if sighting.event.code in records.ADAPTER_CODES:
            later = []  # whatever was under way on it is lost
        near = abs(view.onset_at - sighting.at) <= _FELT
        if later and (view.onset_at - min(later) > _FELT or min(later) - sighting.at <= _FLAP):
            return weight * (0.4 if near else 0.2)
        if sighting.event.code in _COUNTED and sighting.event.detail.get("port_up") is True:
            return weight * (0.4 if near else 0.2)
        if not later and _came_back_unseen(view, sighting, read):
            return weight * (0.4 if near else 0.2)
        if _is_of_lost_node(view, sighting.event) and not _lived_on(view, sighting.event):
            return weight * 0.2
        return weight if near or _felt(view, sighting.cause) else weight * 0.5

    return adjust


def _is_of_lost_node(view: evidence_view.EvidenceView, event: records.HealthEvent) -> bool:
    """Whether it is about an Ethernet link of the node that Slurm lost. slurmctld gives a node up minutes after its last message.

    Where nobody tells which node that was, it is the only one whose link went down.
    """
    if view.state != "NODE_FAIL" or event.kind != "eth_link":
        return False
    down = {s.event.node for s in view.of("eth_link") if s.event.code in _DOWN_MESSAGES}
    return event.node == view.lost_node or (view.lost_node is None and down == {event.node})


def _lived_on(view: evidence_view.EvidenceView, event: records.HealthEvent) -> bool:
    """Whether the node reported something after its link had gone. A node that goes down loses its links, too."""
    last_report_at = view.case.watched.get(event.node)
    return last_report_at is not None and last_report_at > event.at + _FELT


def _came_back_unseen(
    view: evidence_view.EvidenceView,
    sighting: evidence_view.CaseSighting,
    read: Iterable[evidence_view.CaseSighting],
) -> bool:
    """True when the agent's readings counted a port's going down, and did not find it down although there was time."""
    if sighting.event.source == "sysfs" and sighting.event.code in _DOWN:
        return False
    if sighting.event.code in records.ADAPTER_CODES:
        return False
    there = [s for s in read if s.event.node == sighting.event.node and s.at >= sighting.at - _LOOKED]
    # Kernel lines name an interface, readings its adapter: where the names differ, every adapter is looked at.
    mine = [s for s in there if s.device == sighting.device] or there
    looked = bool(mine) and view.end_at - sighting.at >= _LOOKED
    return looked and not any(s.event.code in _DOWN for s in mine)


def _felt(view: evidence_view.EvidenceView, cause: str) -> bool:
    """False when the job's own side was read and tells of no trouble with the network; Gloo speaks TCP, over Ethernet most often."""
    hints = [f for f in view.findings if f.signature.role is findings.FindingRole.HINT]
    if cause == "eth_link" and any(f.event.kind == "gloo_connection_reset" for f in view.findings):
        return True
    return not view.findings or any(f.signature.supports("ib_link") for f in hints)
