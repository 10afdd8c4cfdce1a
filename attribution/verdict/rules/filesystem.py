"""File systems and disks: a mount that is gone matters most to a job that works under it."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from pathlib import PurePosixPath

from probing_cluster.attribution.verdict import claims, evidence_view, findings

_SHORT = timedelta(seconds=120)
"""A stall shorter than this ends no job: its reads and writes wait."""

MOUNT, DISK = "filesystem_mount", "disk"


def rule(view: evidence_view.EvidenceView) -> Iterable[claims.Claim]:
    """One claim per file system and per disk; a server that answered again weighs less, least before the trouble began."""
    back: dict[tuple[str, str | None], list[datetime]] = {}
    for s in view.of(MOUNT):
        if s.signature.recovery:
            back.setdefault((s.event.node, s.device), []).extend({s.at, s.last_at})

    def adjust(sighting: evidence_view.CaseSighting, weight: float) -> float:
        if weight > 0 and _works_under(view, sighting.device):
            weight = max(weight, min(0.97, weight + 0.1))
        # The next one: a stall of minutes later has an end of its own.
        later = [t for t in back.get((sighting.event.node, sighting.device), ()) if t >= sighting.last_at]
        if not later:
            return weight
        again = min(later)
        short = again - sighting.at < _SHORT
        return weight * (0.4 if short or again < view.onset_at else 0.7)

    yield from claims.collect(view, MOUNT, "filesystem", view.of(MOUNT), adjust)
    yield from claims.collect(view, DISK, "filesystem", view.of(DISK))
    if not any(claims.weigh(s) > 0 for s in view.of(MOUNT, DISK)):
        yield from claims.hints(view, MOUNT, "filesystem", findings.FindingRole.HINT)


def _works_under(view: evidence_view.EvidenceView, device: str | None) -> bool:
    """True when the job's working directory or output lies under the mount point."""
    if not device or not device.startswith("/") or device == "/":
        return False
    paths = [p for p in (view.attempt.work_dir, view.attempt.stdout_path) if p]
    return any(PurePosixPath(device) in (PurePosixPath(p), *PurePosixPath(p).parents) for p in paths)
