"""PCIe: uncorrected errors and links down. One lost GPU is that GPU's fault; several lost devices are the bus's."""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import timedelta

from probing_cluster.attribution.verdict import claims, evidence_view, signatures

CAUSE = "pcie"
SIGHTED = frozenset({CAUSE})
_AT_ONCE = timedelta(seconds=60)
_ADAPTER_GONE = frozenset({"missing", "health_compromised", "health_fatal", "cmd_timeout"})
_SHARED = ("gpu_lost", "ib_link", "disk")


def rule(view: evidence_view.EvidenceView) -> Iterable[claims.Claim]:
    """Claims for bus errors. With two or more devices gone on one node, the part above them is at fault."""
    for claim in claims.collect(view, CAUSE, "pcie", view.of(CAUSE)):
        near = [
            s for s in view.of(*_SHARED) if s.event.node == claim.node and abs(s.at - claim.at) <= _AT_ONCE
        ]
        gone = [s for s in near if _is_gone(view, s)]
        lost = {_unit(s) for s in gone}
        own = all(e.code == "inaccessible" for e in claim.evidence if e.kind == "pcie_link")
        if len(lost) == 1 and own and {s.cause for s in gone} == {"disk"}:
            # The drive that is gone is the device that stopped answering; its own cause covers that.
            continue
        if len(lost) < 2 or claim.weight < claims.POSSIBLE:
            yield claim
            continue
        others = tuple(s.event for s in gone)
        yield claims.replace_claim(
            claim,
            weight=max(claim.weight, 0.9),
            evidence=claim.evidence + others,
            device=claim.device,
            words=f"lost {len(lost)} devices at once behind one PCIe part",
            explains=frozenset(_SHARED),
        )


_PART = re.compile(r"(?P<drive>nvme\d+)(?:n\d+)?(?:p\d+)?$|(?P<disk>[sv]d[a-z]+)\d*$")
"""A drive, with its name space or partition."""


def _unit(sighting: evidence_view.CaseSighting) -> str:
    """One name per device: a drive reports as controller, name space and partition."""
    name = sighting.gpu or sighting.device or ""
    found = _PART.match(name)
    return (found["drive"] or found["disk"]) if found else name


def _is_gone(view: evidence_view.EvidenceView, sighting: evidence_view.CaseSighting) -> bool:
    """True for a device that no longer answers; for a port, if the readings find it down and it did not come back before the end."""
    if sighting.cause == "ib_link" and sighting.event.code not in _ADAPTER_GONE:
        back = any(
            s.signature.recovery and s.device == sighting.device and sighting.at <= s.at <= view.end_at
            for s in view.of("ib_link")
        )
        if back or sighting.event.source != "sysfs" or sighting.signature.role is not signatures.Role.ROOT:
            return False
    return claims.weigh(sighting) >= claims.POSSIBLE
