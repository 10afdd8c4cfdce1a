"""Ranks the claims: consequences are folded into their causes, the rest is ordered."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta

from probing_cluster.attribution.verdict import claims, evidence_view, findings, taxonomy
from probing_cluster.core import records, vocabulary

_CHAIN = timedelta(seconds=60)
"""Overlapping checks see one hardware fault in any order within this time."""
_ORDER_SLACK = timedelta(seconds=5)
"""A program's error this much before the fault is not its consequence."""

_SKEW = timedelta(minutes=5)
"""The last rank may still compute this long after the first began to wait for it."""

_SEVERITY = {records.Severity.HIGH: 2, records.Severity.LOW: 1, records.Severity.INFO: 0}
_INFRASTRUCTURE = frozenset({records.Domain.HARDWARE, records.Domain.SYSTEM_SOFTWARE})
_BY_STATE = frozenset({"scheduler", "node_lost"})
"""Rules that go by Slurm's own word."""
ENDINGS = frozenset({"user_cancelled", "time_limit"})
"""How a job that hangs is ended in the end."""
_SOFT = frozenset(
    {"user_error", "unknown", "missing_rank", "rank_killed", "rank_stopped", "requeued_by_user"}
)
"""Causes that only say how the job felt it."""

_WAYS = frozenset({"eth_link", "ib_link"})


@dataclass(frozen=True, kw_only=True)
class Ranking:
    """The outcome of the argument."""

    winner: claims.Claim
    absorbed: tuple[claims.Claim, ...]
    """Consequences of the winner."""
    rivals: tuple[claims.Claim, ...]
    """Other explanations, best first."""
    confidence: records.Confidence


def rank(view: evidence_view.EvidenceView, made: Iterable[claims.Claim]) -> Ranking | None:
    """The best claim, what it explains and what stands against it; None when nothing reaches "possible"."""
    possible = [c for c in (_in_context(view, c) for c in made) if c.weight >= claims.POSSIBLE]
    if not possible:
        return None
    if len(possible) == 1:
        return Ranking(winner=possible[0], absorbed=(), rivals=(), confidence=_confidence(possible[0], ()))
    keys = {id(c): _key(view, c) for c in possible}
    ordered = sorted(possible, key=lambda c: (not c.explains, *keys[id(c)]))
    parents: dict[int, claims.Claim] = {}
    for claim in reversed(ordered):
        parent = next((r for r in ordered if r is not claim and _explains(r, claim)), None)
        if parent is not None and not _comes_from(parent, claim, parents):
            parents[id(claim)] = parent
    roots = sorted((c for c in ordered if id(c) not in parents), key=lambda c: keys[id(c)])
    winner, rivals = roots[0], tuple(roots[1:])
    absorbed = tuple(c for c in ordered if id(c) in parents and _explains(winner, c))
    return Ranking(winner=winner, absorbed=absorbed, rivals=rivals, confidence=_confidence(winner, rivals))


def _comes_from(claim: claims.Claim, root: claims.Claim, parents: Mapping[int, claims.Claim]) -> bool:
    """Whether `claim` is below `root` already, directly or through other claims."""
    while (parent := parents.get(id(claim))) is not None:
        if parent is root:
            return True
        claim = parent
    return False


def _key(view: evidence_view.EvidenceView, claim: claims.Claim) -> tuple[object, ...]:
    """Strength of evidence, a node's word before the job's, severity, specificity, nearness, share of nodes, independence; then names."""
    minutes = int(abs((claim.at - view.onset_at).total_seconds()) // 60)
    return (
        -claims.rank_of(claim.confidence),
        claim.info.domain in _INFRASTRUCTURE
        and not _has_node_evidence(claim)
        and claim.rule not in _BY_STATE,
        -_SEVERITY[claim.info.severity],
        -claim.info.specificity,
        minutes,
        -len(claim.nodes),
        -claim.n_sources,
        -round(claim.weight, 6),
        claim.at,
        claim.cause,
        claim.node or "",
        claim.device or "",
        claim.rule,
    )


def _explains(root: claims.Claim, claim: claims.Claim) -> bool:
    """True when `claim` is what `root` leaves behind."""
    if claim.cause in root.explains:
        return claim.cause in _SOFT | ENDINGS or claim.node == root.node
    if claim.cause not in root.info.leads_to or claim.cause == root.cause:
        return False
    if root.cause in claim.explains:
        return False
    if root.cause in claim.info.leads_to and not _before(root, claim):
        return False
    soft = claim.cause in _SOFT
    located = _has_node_evidence(root) or root.info.domain not in _INFRASTRUCTURE
    yields = claim.cause == "unknown" or (claim.by_elimination and located)
    # Both are about one part: if the job held it in one case, it held it in the other.
    same_part = claim.device is not None and (root.node, root.device) == (claim.node, claim.device)
    # A mount that is gone was used: so was the link by which its server was reached.
    way = root.cause in _WAYS and claim.cause == "filesystem_mount" and root.node == claim.node
    if root.weight < (claims.POSSIBLE if yields or same_part or way else claims.LIKELY):
        return False
    if soft:
        return root.at <= claim.at + _ORDER_SLACK
    near = root.at <= claim.at + _CHAIN
    return near and (root.info.gang or claim.node is None or root.node == claim.node)


def _has_node_evidence(claim: claims.Claim) -> bool:
    return bool(claim.evidence) and claim.evidence[0].source not in vocabulary.JOB_SIDE_SOURCES


def _before(root: claims.Claim, claim: claims.Claim) -> bool:
    """Whether the first of two causes that can lead to each other is the root: the more specific one is."""
    return root.info.specificity > claim.info.specificity


def _in_context(view: evidence_view.EvidenceView, claim: claims.Claim) -> claims.Claim:
    """The claim's weight in the light of how Slurm says the attempt ended."""
    weight = claim.weight
    if claim.rule in ("scheduler", "memory_limit") or claim.cause in ("node_lost", "unknown"):
        return claim
    if view.state in ("NODE_FAIL", "BOOT_FAIL"):
        lost = view.lost_node
        weight = min(weight, 0.95) if lost is None or lost == claim.node else weight * 0.5
    elif view.state == "OUT_OF_MEMORY":
        weight *= 0.9
    elif (
        _is_silent(view)
        and claim.info.domain is records.Domain.HARDWARE
        and view.end_at - claim.at > _AT_ONCE
    ):
        # A program that uses the part ends at once of its failure, and most often says so.
        weight = min(weight, 0.95)
    elif view.state in ("TIMEOUT", "DEADLINE", "CANCELLED"):
        if claim.info.until_reset or (view.left_waiting and claim.cause == "user_error"):
            # The job could not go on without the part. Since somebody ended it, the verdict stays below certain.
            weight = min(weight, 0.95)
        elif (claim.weight < claims.CERTAIN or view.log_stall) and not claim.explains >= ENDINGS:
            # When the log stood still is known to the minute: what did not stop it then is not certain.
            weight *= 0.7
        elif claim.cause == "user_error" and _went_on_alone(view, claim):
            weight *= 0.5
    if came_into_the_hang(view, claim):
        # A part that is gone beside a hang is seldom chance: often it is only found out when the job is ended.
        gone = claim.cause in _DOES_NOT_COME_BACK and weight >= claims.LIKELY
        weight = claims.POSSIBLE if gone else weight * 0.5
    return claim if weight == claim.weight else claims.replace_claim(claim, weight=weight)


def _went_on_alone(view: evidence_view.EvidenceView, claim: claims.Claim) -> bool:
    """Whether the error's program, or its script, printed more behind it until somebody ended the job, and no other rank waited for it."""
    several = len(view.attempt.nodes) > 1 or (view.attempt.n_gpus or 0) > 1
    return not several and bool(claim.evidence) and bool(claim.evidence[0].detail.get("behind"))


_AT_ONCE = timedelta(seconds=5)


def _is_silent(view: evidence_view.EvidenceView) -> bool:
    """Whether the job left with a code of its own, and its output, which was read, tells of no error at all."""
    by_itself = view.state == "FAILED" and not view.signal and bool(view.attempt.exit_code)
    return by_itself and view.log_was_read and not view.findings and not view.requeue_event_ids


_DOES_NOT_COME_BACK = frozenset(
    {
        "gpu_gsp_timeout",
        "gpu_lost",
        "gpu_memory_uncorrectable",
        "gpu_nvlink",
        "gpu_row_remap_failure",
        "nvswitch",
        "pcie",
    }
)
"""Causes that stay until somebody acts; links and file systems come and go, so theirs may well be chance."""


def came_into_the_hang(view: evidence_view.EvidenceView, claim: claims.Claim) -> bool:
    """True for a fault first seen well after the job had begun to hang: it may not be what began it.

    A rank that reports this fault worked until then, so its peers' timeout does not date the onset.
    """
    if any(_names_the_part(f, claim) for f in view.findings):
        return False
    if view.log_stall is not None and view.log_stall in claim.evidence:
        return False  # it came within a few of the log's own gaps
    hung = view.end_at - view.onset_at > _SKEW and view.state not in ("NODE_FAIL", "BOOT_FAIL")
    return hung and _has_node_evidence(claim) and claim.at > view.onset_at + _SKEW


def _names_the_part(found: evidence_view.CaseFinding, claim: claims.Claim) -> bool:
    """Whether the job's own side names the very part that the claim does, not only what its loss would look like."""
    part = taxonomy.cause(found.signature.cause).component
    same = part and part == claim.info.component and found.signature.supports(claim.cause)
    return bool(same) and found.signature.role is findings.FindingRole.HINT


def _confidence(winner: claims.Claim, rivals: Sequence[claims.Claim]) -> records.Confidence:
    """One step less sure when another explanation stands nearly as well."""
    word = winner.confidence
    if winner.cause == "unknown":
        return records.Confidence.UNKNOWN
    if winner.proven:
        return word
    others = [r for r in rivals if r.cause != winner.cause and r.cause != "unknown"]
    # Slurm records who ended a job, not why. Any other plausible cause lowers the confidence.
    level = 1 if winner.cause in ENDINGS else claims.rank_of(word)
    near = [r for r in others if claims.rank_of(r.confidence) >= min(level, 2)]
    return claims.one_below(word) if near else word
