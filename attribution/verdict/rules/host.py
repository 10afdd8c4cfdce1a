"""The host itself: main memory, processor, power and cooling, system services."""

from __future__ import annotations

from collections.abc import Iterable

from probing_cluster.attribution.verdict import claims, evidence_view, findings, phrases
from probing_cluster.core import records

SERVICES = "system_services"
CAUSES = ("main_memory", "cpu_mce", "thermal_power", "kernel_panic", SERVICES)
SIGHTED = frozenset(CAUSES)
_NAMES = {"account_not_found": claims.LIKELY, "name_not_resolved": 0.7}
"""Finding of a failed lookup to its weight; hosts are often resolved elsewhere than accounts."""


def rule(view: evidence_view.EvidenceView) -> Iterable[claims.Claim]:
    """One claim per part; machine checks about memory belong to main_memory's signatures."""
    for cause in CAUSES:
        yield from claims.collect(view, cause, "host", view.of(cause))
    if not any(claims.weigh(s) > 0 for s in view.of(SERVICES)):
        yield from claims.hints(view, SERVICES, "host", findings.FindingRole.HINT)
    yield from _unknown_names(view)


def _unknown_names(view: evidence_view.EvidenceView) -> Iterable[claims.Claim]:
    """Claims for a failed lookup of an account or host on a node whose name service had lost its server."""
    lost = [s for s in view.of(SERVICES) if s.event.kind == "name_service" and s.at <= view.end_at]
    for kind, weight in _NAMES.items():
        missed = [f.event for f in view.findings if f.signature is findings.named(kind)]
        for s in lost[:1] if missed else ():
            yield claims.Claim(
                cause=SERVICES,
                weight=weight,
                at=s.at,
                rule="host",
                node=s.event.node,
                evidence=(s.event, *missed),
                nodes=frozenset({s.event.node}),
                n_sources=2,
                # Any user who may log on the node could have written it.
                cap=records.Confidence.LIKELY,
                sentence=f"{findings.named(kind).words}, and the name service of {s.event.node} could not reach its server: {phrases.clean(s.event.message)}",
                explains=frozenset({"user_error"}),
            )
