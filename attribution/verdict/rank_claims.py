"""Ranks the claims: consequences are folded into their causes, the others are ordered."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from probing_cluster.attribution.verdict import claims, evidence_view, findings, node_faults, taxonomy
from probing_cluster.core import records, vocabulary

_CHAIN = timedelta(seconds=60)
"""Overlapping checks report one hardware fault in any order within this time."""
_ORDER_SLACK = timedelta(seconds=5)
"""A program's error that came this long before the fault is not its consequence."""

_SKEW = timedelta(minutes=5)
"""The last rank may still compute this long after the first began to wait for it."""

_SEVERITY = {records.Severity.HIGH: 2, records.Severity.LOW: 1, records.Severity.INFO: 0}
_INFRASTRUCTURE = frozenset({records.Domain.HARDWARE, records.Domain.SYSTEM_SOFTWARE})
_BY_STATE = frozenset({"scheduler", "node_lost"})
"""Rules that follow Slurm's state."""
ENDINGS = frozenset({"user_cancelled", "time_limit"})
"""Ways in which a hanging job is ended."""
LOSSES = frozenset({"node_lost", "node_reboot"})
"""Ways in which a node goes away; of a job that hung before, they are only its end."""
_SOFT = frozenset(
    {"user_error", "unknown", "missing_rank", "rank_killed", "rank_stopped", "requeued_by_user"}
)
"""Causes that only describe how the job failed."""

_WAYS = frozenset({"eth_link", "ib_link"})


@dataclass(frozen=True, kw_only=True)
class Ranking:
    """The ranked claims."""

    winner: claims.Claim
    absorbed: tuple[claims.Claim, ...]
    """Claims that the winner explains."""
    rivals: tuple[claims.Claim, ...]
    """Other explanations, best first."""
    confidence: records.Confidence


def rank(view: evidence_view.EvidenceView, made: Iterable[claims.Claim]) -> Ranking | None:
    """The best claim, the claims it explains and its rivals; None if no claim reaches "possible"."""
    made = list(made)
    named = frozenset(c.node for c in made if c.rule == "gang" and c.node is not None)
    possible = [c for c in (_in_context(view, c, named) for c in made) if c.weight >= claims.POSSIBLE]
    if not possible:
        return None
    # A start that an agent refused had not begun: nothing else that its nodes met ended it.
    possible = [c for c in possible if c.cause == "node_refused" and c.proven] or possible
    if len(possible) == 1:
        return Ranking(winner=possible[0], absorbed=(), rivals=(), confidence=_confidence(possible[0], ()))
    keys = _keys(view, possible)
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
    """True if `claim` is below `root` already, directly or through other claims."""
    while (parent := parents.get(id(claim))) is not None:
        if parent is root:
            return True
        claim = parent
    return False


def _keys(
    view: evidence_view.EvidenceView, possible: Sequence[claims.Claim]
) -> Mapping[int, tuple[Any, ...]]:
    """Each claim's sort key, by its id. What began after the end stands at best just behind the hang of a rank that was seen."""
    keys = {id(c): _key(view, c) for c in possible}
    gang = next((keys[id(c)] for c in possible if c.rule == "gang" and c.node is not None), None)
    late = {id(c) for c in possible if _began_after_the_end(view, c)}
    return {
        n: (max(key, gang), True, key) if gang and n in late else (key, False, key) for n, key in keys.items()
    }


def _key(view: evidence_view.EvidenceView, claim: claims.Claim) -> tuple[Any, ...]:
    """Sort key: confidence, node evidence before job-side evidence, severity, specificity, nearness, number of nodes, sources; then names."""
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
    """True if `claim` is a consequence of `root`."""
    if claim.cause in root.explains:
        anywhere = _SOFT | ENDINGS | (LOSSES if root.rule == "gang" else frozenset())
        return claim.cause in anywhere or claim.node == root.node
    if claim.cause not in root.info.leads_to or claim.cause == root.cause:
        return False
    if root.cause in claim.explains:
        return False
    if root.cause in claim.info.leads_to and not _before(root, claim):
        return False
    soft = claim.cause in _SOFT
    located = _has_node_evidence(root) or root.info.domain not in _INFRASTRUCTURE
    yields = claim.cause == "unknown" or (claim.by_elimination and located)
    # Both concern one part: if the job held it in one claim, it held it in the other. A weak sign explains no surer fault of it.
    same_part = (
        claim.device is not None
        and (root.node, root.device) == (claim.node, claim.device)
        and claims.rank_of(root.confidence) >= claims.rank_of(claim.confidence)
    )
    # A mount that is gone was in use, and so was the link to its server.
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
    """True if `root` is the more specific of two causes that can lead to each other."""
    return root.info.specificity > claim.info.specificity


_NOT_CERTAIN, _DISCOUNTED = 0.95, 0.5
"""Upper bound of a weight below certain; the share that a doubtful claim keeps."""


def _in_context(
    view: evidence_view.EvidenceView, claim: claims.Claim, named: Collection[str]
) -> claims.Claim:
    """The claim, weighted by the state in which Slurm says that the attempt ended; `named` are the nodes of the ranks for which the others waited."""
    if claim.rule in ("scheduler", "memory_limit") or claim.cause in (
        "node_lost",
        "node_set_down",
        "unknown",
    ):
        return claim
    at_end = _has_node_evidence(claim) and node_faults.noticed_at_the_end(view, claim.cause, claim.at)
    at_end = at_end and (not named or claim.node in named)
    by_ending = _BY_ENDING.get(view.state, _ended_by_itself)
    if at_end and by_ending is _ended_from_outside:
        weight = min(claim.weight, _NOT_CERTAIN)  # it may be why somebody had to end the job
    else:
        weight = by_ending(view, claim)
    if came_into_the_hang(view, claim):
        # A part that is gone beside a hang is seldom chance: often it is noticed only when the job is ended.
        gone = at_end or (claim.cause in _DOES_NOT_COME_BACK and weight >= claims.LIKELY)
        if any(e.event_id in view.requeue_event_ids for e in claim.evidence):
            weight = min(weight, _NOT_CERTAIN)  # our requeue for it ended the job, which already hung
        else:
            weight = min(weight, claims.POSSIBLE) if gone else weight * _DISCOUNTED
    return claim if weight == claim.weight else claims.replace_claim(claim, weight=weight)


def _node_given_up(view: evidence_view.EvidenceView, claim: claims.Claim) -> float:
    lost = node_faults.lost_nodes(view)
    of_lost_node = not lost or claim.node in lost
    return (
        min(claim.weight, _NOT_CERTAIN)
        if of_lost_node or claim.explains >= LOSSES
        else claim.weight * _DISCOUNTED
    )


def _out_of_memory(_view: evidence_view.EvidenceView, claim: claims.Claim) -> float:
    return claim.weight * 0.9


def _ended_from_outside(view: evidence_view.EvidenceView, claim: claims.Claim) -> float:
    if claim.info.until_reset or (view.left_waiting and claim.cause == "user_error"):
        # The job could not continue without the part. Since somebody else ended it, the verdict stays below certain.
        return min(claim.weight, _NOT_CERTAIN)
    if (claim.weight < claims.CERTAIN or view.log_stall) and not claim.explains >= ENDINGS:
        # The log dates the stall to the minute: a fault of another time is not certain.
        return claim.weight * 0.7
    alone = claim.cause == "user_error" and _printed_more_alone(view, claim)
    return claim.weight * _DISCOUNTED if alone else claim.weight


def _ended_by_itself(view: evidence_view.EvidenceView, claim: claims.Claim) -> float:
    hardware = claim.info.domain is records.Domain.HARDWARE
    if hardware and view.end_at - claim.at > _AT_ONCE and _is_silent(view):
        # A program that uses the part fails at once, and usually says so.
        return min(claim.weight, _NOT_CERTAIN)
    return claim.weight


_BY_ENDING: Mapping[str, Callable[[evidence_view.EvidenceView, claims.Claim], float]] = {
    **dict.fromkeys(("NODE_FAIL", "BOOT_FAIL"), _node_given_up),
    "OUT_OF_MEMORY": _out_of_memory,
    **dict.fromkeys(("TIMEOUT", "DEADLINE", "CANCELLED"), _ended_from_outside),
}
"""State to a claim's weight in it; other states are those of jobs that ended by themselves."""


def _printed_more_alone(view: evidence_view.EvidenceView, claim: claims.Claim) -> bool:
    """True if a single program printed more after the error until somebody ended the job."""
    return not view.has_ranks and bool(claim.evidence) and bool(claim.evidence[0].detail.get("behind"))


_AT_ONCE = timedelta(seconds=5)


def _is_silent(view: evidence_view.EvidenceView) -> bool:
    """True if the job exited with a code of its own and its output, which was read, shows no error."""
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
"""Causes that stay until somebody acts. Links and file systems recover, so theirs may be chance."""


def came_into_the_hang(view: evidence_view.EvidenceView, claim: claims.Claim) -> bool:
    """True for a fault first seen well after the hang began: it may not be its cause.

    A rank that reports this fault itself was working until then, so its peers' timeout does not date the onset.
    """
    if any(_names_the_part(f, claim) for f in view.findings):
        return False
    if view.log_stall is not None and view.log_stall in claim.evidence:
        return False  # it lies within a few of the log's own gaps
    # The ranks' own stall dates the last progress of all of them.
    dated = claim.cause in _WAYS and view.ranks_stalled
    skew = (node_faults.LINK_FOUND if dated else _SKEW) + node_faults.longest_step(view)
    hung = view.end_at - view.onset_at > skew and view.state not in ("NODE_FAIL", "BOOT_FAIL")
    return hung and _has_node_evidence(claim) and claim.at > view.onset_at + skew


def _began_after_the_end(view: evidence_view.EvidenceView, claim: claims.Claim) -> bool:
    late = node_faults.began_after_the_end(view, claim.cause, claim.at)
    return late and _has_node_evidence(claim) and claim.cause not in LOSSES


def _names_the_part(found: evidence_view.CaseFinding, claim: claims.Claim) -> bool:
    """True if the job's side names the part of the claim, not only a symptom of its loss."""
    part = taxonomy.cause(found.signature.cause).component
    same = part and part == claim.info.component and found.signature.supports(claim.cause)
    return bool(same) and found.signature.role is findings.FindingRole.HINT


def with_clocks(word: records.Confidence, offsets_s: Mapping[str, float]) -> records.Confidence:
    """The confidence, at most "likely": the order of cause and effect rests on a measured offset."""
    certain = word is records.Confidence.CERTAIN
    return records.Confidence.LIKELY if certain and offsets_s else word


def _confidence(winner: claims.Claim, rivals: Sequence[claims.Claim]) -> records.Confidence:
    """The winner's confidence, one step lower if a rival is nearly as likely."""
    word = winner.confidence
    if winner.cause == "user_error" and any(map(findings.may_be_machines, winner.evidence[:1])):
        # It loses against no fault of another part, and is not surely the program's for that.
        word = claims.less_confident(word, records.Confidence.POSSIBLE)
    if winner.cause == "unknown":
        return records.Confidence.UNKNOWN
    if winner.proven:
        return word
    others = [r for r in rivals if r.cause != winner.cause and r.cause != "unknown"]
    # Slurm records who ended a job, not why. Any other plausible cause lowers the confidence.
    level = 1 if winner.cause in ENDINGS else claims.rank_of(word)
    near = [r for r in others if claims.rank_of(r.confidence) >= min(level, 2)]
    return claims.one_below(word) if near else word
