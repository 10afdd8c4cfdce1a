"""InfiniBand and Ethernet links: a port that stays down ends a gang, a flap mostly does not."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta

from probing_cluster.attribution.verdict import case as cases
from probing_cluster.attribution.verdict import (
    claims,
    evidence_view,
    findings,
    node_faults,
    phrases,
    recovery,
    signatures,
    window,
)
from probing_cluster.core import records

CAUSES = ("ib_link", "eth_link")
MOUNT = "filesystem_mount"
SIGHTED = frozenset(CAUSES)
_FLAP = timedelta(seconds=30)
_FELT = timedelta(seconds=120)
"""A training gang notices a dead link within its transport's retries, well within this."""
_LOOKED = timedelta(seconds=40)
"""The agent's readings find a port that is down within this."""
_COUNTED = frozenset({"link_downed", "carrier_lost", "link_error_recovery"})
"""Counters of events that are over if the same reading finds the port up."""
_OVER_HOURS = frozenset({("check", "ib_flap"), ("ib_link", "flapping"), ("eth_link", "flapping")})
"""Sorts (kind, code) that count flaps over many hours: they bear the time of the reading, and no flap need be of this job."""
_REPEATEDLY = "{part} went down and came back within the last hours, by its own counter ({what}); whether it did so under this job is not known"
_STAYED_DOWN = 0.3
"""Least weight of a link that stayed down."""
_DOWN_MESSAGES = frozenset({"link_down", "bond_down"})
_DOWN = frozenset({"down", "port_down", "state", "phys_state", "missing"})


def rule(view: evidence_view.EvidenceView) -> Iterable[claims.Claim]:
    """Weighs a link by whether it came back before the end, and whether the gang noticed it."""
    for cause in CAUSES:
        sightings = view.of(cause)
        backs = _recoveries(sightings)
        made = claims.collect(view, cause, "links", sightings, _staying_down(view, sightings, backs))
        counts = [c for c in made if not _is_dated(view, c)]
        # A port with an event of its own under the job goes before one of which only the hours before are known.
        made = [c for c in made if c not in counts] or [_of_hours(c) for c in counts]
        yield from (_known_from_a_log(view, _raised_for_lost_node(view, claim)) for claim in made)
    without_peers = len(view.attempt.nodes) == 1 and view.fully_watched
    if not any(claims.weigh(s) > 0 for s in view.of("ib_link")) and not (
        without_peers or _gave_up_before(view)
    ):
        yield from claims.hints(view, "ib_link", "links", findings.FindingRole.HINT)


def _is_dated(view: evidence_view.EvidenceView, claim: claims.Claim) -> bool:
    """False for a port of which only a count over hours is known, or that and a fault from before the start."""
    faults = [e for e in claim.evidence if not signatures.of(e).recovery]
    return all((e.kind, e.code) not in _OVER_HOURS for e in faults) or any(
        (e.kind, e.code) not in _OVER_HOURS and e.at >= view.start_at for e in faults
    )


def _of_hours(claim: claims.Claim) -> claims.Claim:
    part = phrases.part_of_node(claim.device, claim.node, claim.info.noun)
    return claims.replace_claim(
        claim, sentence=_REPEATEDLY.format(part=part, what=phrases.what(claim.evidence[0]))
    )


def _reached_out(view: evidence_view.EvidenceView, node: str) -> bool:
    """True if something shows that a job on one node used the network: it has no peers, and its files may be the node's own.

    A file system of the node was in trouble, too, or the job's own side names the network or a file it could not reach.
    """
    if any(s.event.node == node and s.signature.role is signatures.Role.ROOT for s in view.of(MOUNT)):
        return True
    if _missed_a_host(view):
        return True
    signs = [f.signature for f in view.findings]
    own, hint = findings.FindingRole.OWN, findings.FindingRole.HINT
    return any(
        (s.role in (own, hint) and not s.allows.isdisjoint(CAUSES)) or (s.role is hint and MOUNT in s.allows)
        for s in signs
    )


def _missed_a_host(view: evidence_view.EvidenceView) -> bool:
    return any(findings.misses_a_host(f.event) for f in view.findings)


def _gave_up_before(view: evidence_view.EvidenceView) -> bool:
    """True if the log's first cause is a watchdog: a link's own retries end minutes before that, and later ones only miss a lost peer."""
    return any(
        f.event.detail.get("first_cause") is True
        and f.signature.role is findings.FindingRole.PROXIMAL
        and f.signature.onset
        for f in view.findings
    )


def _raised_for_lost_node(view: evidence_view.EvidenceView, claim: claims.Claim) -> claims.Claim:
    """The claim, at least "likely" if the link of the lost node stayed down while the node still reported.

    A job on one node may need no network, but Slurm does.
    """
    lost = [e for e in claim.evidence if _is_of_lost_node(view, e) and e.code in _DOWN_MESSAGES]
    if claim.weight < _STAYED_DOWN or not any(_lived_on(view, e) for e in lost):
        return claim
    return claims.replace_claim(claim, weight=max(claim.weight, claims.LIKELY))


def _known_from_a_log(view: evidence_view.EvidenceView, claim: claims.Claim) -> claims.Claim:
    """The claim, at most "likely" on an agentless node: its log reports that the link went down, not that it was still down."""
    if claim.node not in view.case.by_log:
        return claim
    return claims.replace_claim(claim, cap=claims.less_confident(claim.cap, records.Confidence.LIKELY))


def _recoveries(sightings: Iterable[evidence_view.CaseSighting]) -> dict[tuple[str, str], list[datetime]]:
    """(node, name) to the recovery times of a port, for each of its names (`recovery.part_names`)."""
    back: dict[tuple[str, str], list[datetime]] = {}
    for s in sightings:
        if s.signature.recovery:
            for name in recovery.part_names(s):
                back.setdefault((s.event.node, name), []).extend({s.at, s.last_at})
    return back


def _staying_down(
    view: evidence_view.EvidenceView,
    every: Sequence[evidence_view.CaseSighting],
    backs: dict[tuple[str, str], list[datetime]],
) -> claims.Adjust:
    read = [s for s in every if s.event.source == "sysfs" and s.signature.role is not signatures.Role.CONTEXT]

    alone = not cases.may_have_peers(view.attempt) and not window.given_up(view.attempt)
    missed = _missed_a_host(view)
    step = node_faults.longest_step(view)
    went = {
        (s.event.node, n)
        for s in every
        if s.at >= view.start_at
        and not s.signature.recovery
        and (s.event.kind, s.event.code) not in _OVER_HOURS
        for n in recovery.part_names(s)
    }

    def adjust(sighting: evidence_view.CaseSighting, weight: float) -> float:
        if weight == 0:
            return weight
        if alone and not _reached_out(view, sighting.event.node):
            return 0.0
        names = recovery.part_names(sighting)
        if (sighting.event.kind, sighting.event.code) in _OVER_HOURS and went.isdisjoint(
            (sighting.event.node, n) for n in names
        ):
            weight *= 0.5  # the agent's other readings and the kernel would date a flap under the job
        if alone and missed:
            weight = min(2 * weight, 1.0)  # `claims.weigh` halves it, for it may need no network
        if view.crashed:
            # Calls on a lost link fail or wait; they do not corrupt memory.
            weight *= 0.5
        up_at, share = recovery.saved(
            view, sighting, (t for n in names for t in backs.get((sighting.event.node, n), []))
        )
        weight *= share
        if sighting.event.code in records.ADAPTER_CODES:
            up_at = None  # after an adapter fault, all work in progress on it is lost
        near = -_FELT <= sighting.at - view.onset_at <= _FELT + step
        back = up_at is not None and (view.onset_at - up_at > _FELT or up_at - sighting.at <= _FLAP)
        counted = sighting.event.code in _COUNTED and sighting.event.detail.get("port_up") is True
        if back or counted or (up_at is None and _came_back_unseen(view, sighting, read)):
            return weight * (0.4 if near else 0.2)
        if _is_of_lost_node(view, sighting.event) and not _lived_on(view, sighting.event):
            return weight * 0.2
        return weight if near or _felt(view, sighting.cause) else weight * 0.5

    return adjust


def _is_of_lost_node(view: evidence_view.EvidenceView, event: records.HealthEvent) -> bool:
    """True for an Ethernet event of the node that Slurm lost: slurmctld gives it up minutes after its last message.

    If nothing names that node, it is the only one whose link went down.
    """
    if view.state != "NODE_FAIL" or event.kind != "eth_link":
        return False
    down = {s.event.node for s in view.of("eth_link") if s.event.code in _DOWN_MESSAGES}
    lost = node_faults.lost_nodes(view)
    return event.node in lost if lost else down == {event.node}


def _lived_on(view: evidence_view.EvidenceView, event: records.HealthEvent) -> bool:
    """True if the node reported something after its link went down. A node that shuts down loses its links, too."""
    last_report_at = view.case.watched.get(event.node)
    return last_report_at is not None and last_report_at > event.at + _FELT


def _came_back_unseen(
    view: evidence_view.EvidenceView,
    sighting: evidence_view.CaseSighting,
    read: Iterable[evidence_view.CaseSighting],
) -> bool:
    """True if the agent's readings after a link-down event did not find the port down although there was time."""
    if sighting.event.source == "sysfs" and sighting.event.code in _DOWN:
        return False
    if sighting.event.code in records.ADAPTER_CODES:
        return False
    there = [s for s in read if s.event.node == sighting.event.node and s.at >= sighting.at - _LOOKED]
    # Kernel lines name an interface, readings its adapter: if the names differ, every adapter counts.
    mine = [s for s in there if s.device == sighting.device] or there
    looked = bool(mine) and view.end_at - sighting.at >= _LOOKED
    return looked and not any(s.event.code in _DOWN for s in mine)


def _felt(view: evidence_view.EvidenceView, cause: str) -> bool:
    """False if the job's findings show no network trouble. Gloo uses TCP, mostly over Ethernet."""
    hints = [f for f in view.findings if f.signature.role is findings.FindingRole.HINT]
    if cause == "eth_link" and any(f.event.kind == "gloo_connection_reset" for f in view.findings):
        return True
    return not view.findings or _missed_a_host(view) or any(f.signature.supports("ib_link") for f in hints)
