"""Decides whether a fault was over before it could end an attempt: its part recovered, or its node or driver restarted."""

from __future__ import annotations

from probing_cluster.attribution.verdict import evidence_view, taxonomy

OUTLIVED = 0.5
"""Share of weight that a fault from before the attempt keeps if it was seen to end while the attempt ran."""


def remaining_share(view: evidence_view.EvidenceView, sighting: evidence_view.CaseSighting) -> float:
    """Share of weight that a fault keeps: 0 if it was over before the attempt began, OUTLIVED if before the onset, else 1."""
    if sighting.when is not evidence_view.EventPhase.BEFORE_START:
        return 1.0
    since = [s for s in view.sightings if s.event.node == sighting.event.node and s.at > sighting.at]
    gone = [
        s.at for s in since if recovers(s, sighting) or (s.signature.recovery and _sets_up_gpus(s, sighting))
    ]
    begun = view.start_at + evidence_view.SLACK
    if any(at <= begun for at in (*gone, *(s.at for s in since if s.cause == "node_reboot"))):
        return 0.0
    return OUTLIVED if any(at < view.onset_at for at in gone) else 1.0


def recovers(later: evidence_view.CaseSighting, earlier: evidence_view.CaseSighting) -> bool:
    """True if `later` reports the end of the fault of `earlier`: of the same GPU, or of the same kind and part.

    A report that names no part counts for every part with this kind of fault.
    """
    if not later.signature.recovery or later.event.node != earlier.event.node:
        return False
    if later.gpu is not None and later.gpu == earlier.gpu:
        return True
    names = part_names(later), part_names(earlier)
    return later.event.kind == earlier.event.kind and (not all(names) or not names[0].isdisjoint(names[1]))


def part_names(sighting: evidence_view.CaseSighting) -> set[str]:
    """The part's names: kernel lines name a port's interface, readings its adapter, most of them its PCI function."""
    names = (sighting.gpu or sighting.device, (sighting.event.pci_bus_id or "").lower())
    return {n for n in names if n}


def _sets_up_gpus(later: evidence_view.CaseSighting, sighting: evidence_view.CaseSighting) -> bool:
    """True if the driver was loaded again after a GPU was lost."""
    return later.event.kind == "driver_load" and taxonomy.cause(sighting.cause).until_reset
