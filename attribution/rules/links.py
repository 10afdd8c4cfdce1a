"""InfiniBand and Ethernet links: a port that stays down ends a gang, a flap mostly does not."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta

from probing_cluster.attribution import claims, findings, scene, signatures

_FLAP = timedelta(seconds=30)


def rule(case: scene.Scene) -> Iterable[claims.Claim]:
    """Weighs a link by whether it came back before the end, and whether the gang felt it."""
    for cause in ("ib_link", "eth_link"):
        seen = case.of(cause)
        backs = _recoveries(seen)
        yield from claims.collect(case, cause, "links", seen, _staying_down(backs))
    if not any(claims.weigh(s) > 0 for s in case.of("ib_link")):
        yield from claims.hints(case, "ib_link", "links", findings.FindingRole.HINT)


def _recoveries(seen: Iterable[scene.Sighting]) -> dict[tuple[str, str | None], list[datetime]]:
    back: dict[tuple[str, str | None], list[datetime]] = {}
    for s in seen:
        if s.signature.recovery:
            back.setdefault((s.event.node, s.device), []).append(s.at)
    return back


def _staying_down(backs: dict[tuple[str, str | None], list[datetime]]) -> claims.Adjust:
    def adjust(seen: scene.Sighting, weight: float) -> float:
        if weight == 0 or seen.signature.role is not signatures.Role.ROOT:
            return weight
        later = [t for t in backs.get((seen.event.node, seen.device), []) if t > seen.at]
        if later and min(later) - seen.at <= _FLAP:
            return weight * 0.6
        return weight

    return adjust
