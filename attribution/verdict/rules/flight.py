"""Flight-recorder dumps of several nodes: joins the digests that each node sends."""

from __future__ import annotations

from collections.abc import Iterable

from probing_cluster.attribution.verdict import claims, evidence_view, findings
from probing_cluster.core import records
from probing_cluster.evidence.flight_recorder import digest, verdict

_ARGUES = frozenset({"missing_rank", "mismatch_op", "mismatch_shape", "all_inside"})
"""Verdicts that make a claim. A stalled device is shown by its node's events, and nothing explains a missing dump."""

SIGHTED: frozenset[str] = frozenset()


def rule(view: evidence_view.EvidenceView) -> Iterable[claims.Claim]:
    """At most one claim; none if one node had every rank's dump and judged them itself."""
    dumps = [f.event for f in view.findings if f.event.source == "dump"]
    if any(e.kind in findings.kinds() and e.kind != "dump" for e in dumps):
        return
    by_rank = {
        d.rank: (d, e) for e in dumps if e.kind == "dump" and (d := digest.parse(e.detail)) is not None
    }
    if len(by_rank) < 2:
        return
    dump_verdict = verdict.judge(
        [d for d, _ in by_rank.values()],
        world_size=digest.world_size([e.detail for _, e in by_rank.values()]),
    )
    if dump_verdict.kind not in _ARGUES:
        return
    signature = findings.named(dump_verdict.kind)
    faulty = [e for r in dump_verdict.ranks if (e := by_rank.get(r, (None, None))[1]) is not None]
    rest = [e for _, (_, e) in sorted(by_rank.items()) if e not in faulty]
    nodes = {e.node for e in faulty}
    yield claims.Claim(
        cause=signature.cause,
        weight=signature.weight,
        at=view.end_at,
        rule="flight",
        node=nodes.pop() if len(nodes) == 1 else None,
        evidence=(*faulty, *rest),
        cap=records.Confidence.LIKELY,
        n_sources=1,
        words=dump_verdict.meaning + (f" It was in {dump_verdict.doing[0]}." if dump_verdict.doing else ""),
    )
