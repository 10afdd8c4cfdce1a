"""One attempt's case in, one verdict out; pure, so that the same records always give the same answer."""

from __future__ import annotations

import functools
import hashlib
import uuid
from datetime import datetime
from pathlib import Path

from probing_cluster.attribution.verdict import case as cases
from probing_cluster.attribution.verdict import (
    claims,
    eliminate,
    evidence_view,
    rank_claims,
    rules,
    taxonomy,
    view_builder,
    wording,
)
from probing_cluster.core import records, vocabulary

JUDGED_STATES = frozenset(
    {
        "FAILED",
        "NODE_FAIL",
        "BOOT_FAIL",
        "OUT_OF_MEMORY",
        "TIMEOUT",
        "DEADLINE",
        "CANCELLED",
        "PREEMPTED",
        "REQUEUED",
    }
)
"""States that get a verdict; COMPLETED gets none."""

PAPER_STATES = frozenset({"FAILED", "NODE_FAIL", "REQUEUED"})
"""States the fixed window of the paper is for; REQUEUED counts when we requeued for a fault."""

MAX_EVIDENCE = 20

_ONLY = {"PREEMPTED": frozenset({"scheduler"})}
"""State to the only rules that are applied to its attempts; every rule is applied to those of other states."""


@functools.cache
def rules_version() -> str:
    """The taxonomy's version and a digest of all that makes verdicts of stored records, so that a changed rule shows."""
    digest = hashlib.blake2b(digest_size=4)
    for name, path in sorted(rules_files().items()):
        digest.update(name.encode())
        digest.update(path.read_bytes())
    return f"{taxonomy.load().version}-{digest.hexdigest()}"


_ROOMS = (
    "attribution/verdict",
    "attribution/passes",
    "attribution/gang",
    "attribution/places",
    "evidence/flight_recorder",
)
"""The rooms whose code, tables and queries a verdict depends on; not those that read and store records (`core`, `db`, other evidence)."""


def rules_files() -> dict[str, Path]:
    """Every file that `rules_version` is a digest of, by its path below the package."""
    package = Path(__file__).parents[2]
    found = (path for room in _ROOMS for path in (package / room).rglob("*.*"))
    return {p.relative_to(package).as_posix(): p for p in found if p.suffix in (".py", ".toml", ".sql")}


def judge(case: cases.Case, *, made_at: datetime) -> records.Verdict | None:
    """Why the attempt ended; None when it has not, never began, or ended well."""
    attempt = case.attempt
    if attempt.state not in (PAPER_STATES if case.policy.paper else JUDGED_STATES):
        return None
    found = view_builder.build(case)
    if found is None:
        return None
    made = rules.claims_of(found, _ONLY.get(attempt.state))
    ranking = rank_claims.rank(found, made) or _nothing(found)
    winner = ranking.winner
    info = winner.info
    return records.of_checked(
        records.Verdict,
        {
            "cluster": attempt.cluster,
            "job_id": attempt.job_id,
            "submit_at": attempt.submit_at,
            "attempt": attempt.attempt,
            "cause": winner.cause,
            "domain": winner.domain or info.domain,
            "component": info.component or None,
            "node": _node(winner),
            "device": winner.device,
            "confidence": ranking.confidence,
            "summary": wording.summary(found, ranking),
            "evidence": _evidence(found, ranking),
            "ruled_out": eliminate.ruled_out(found, ranking),
            "next_step": wording.next_step(found, ranking),
            "incident_id": None,
            "place": None,
            "onset_at": min(winner.at, found.onset_at) if winner.evidence else found.onset_at,
            "stalled_at": found.stalled_at,
            "window_start_at": min([found.window.start_at, *_active_since(found, ranking)]),
            "window_end_at": found.window.end_at,
            "author": "rules",
            "rules_version": rules_version(),
            "made_at": made_at,
        },
    )


def _node(winner: claims.Claim) -> str | None:
    """The node the cause is at; of a program's own causes only memory runs out at one, where that node itself saw it."""
    by_node = any(e.source not in vocabulary.JOB_SIDE_SOURCES for e in winner.evidence)
    if winner.info.domain is records.Domain.USER_PROGRAM and not (winner.cause == "oom_host" and by_node):
        return None
    return winner.node


def _active_since(found: evidence_view.EvidenceView, ranking: rank_claims.Ranking) -> list[datetime]:
    """When the faults began that were still active at the end: the window is widened back to the first of them."""
    if not ranking.winner.evidence:
        return []
    active = {s.event.event_id for s in found.sightings if s.still_active}
    return [e.at for e in ranking.winner.evidence if e.event_id in active]


def _nothing(found: evidence_view.EvidenceView) -> rank_claims.Ranking:
    claim = claims.Claim(cause=taxonomy.UNKNOWN, weight=0.0, at=found.end_at, rule="judge")
    return rank_claims.Ranking(winner=claim, absorbed=(), rivals=(), confidence=records.Confidence.UNKNOWN)


def _evidence(found: evidence_view.EvidenceView, ranking: rank_claims.Ranking) -> tuple[uuid.UUID, ...]:
    """Ids the verdict rests on: the winner's own, then what it explains; each once."""
    ids: dict[uuid.UUID, None] = {e.event_id: None for e in ranking.winner.evidence}
    for claim in ranking.absorbed:
        ids.update({e.event_id: None for e in claim.evidence})
    if ranking.winner.info.domain is not records.Domain.UNKNOWN:
        ids.update({s.event.event_id: None for s in found.consequences(ranking.winner.node)})
    return tuple(ids)[:MAX_EVIDENCE]
