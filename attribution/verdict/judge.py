"""Judges one case: a pure function, so the same records always give the same verdict."""

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
    next_steps,
    phrases,
    rank_claims,
    rules,
    taxonomy,
    view_builder,
    wording,
)
from probing_cluster.core import records, sanitize, vocabulary

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
"""States that the paper's fixed window is used for; REQUEUED gets a verdict when we requeued for a fault."""

MAX_EVIDENCE = 20

_ONLY = {"PREEMPTED": frozenset({"scheduler"})}
"""State to the rules that are applied to its attempts; to attempts of any other state, all rules are."""


@functools.cache
def rules_version() -> str:
    """The taxonomy's version and a digest of every file that decides a verdict, so that a changed rule is visible."""
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
"""Rooms whose code, tables and queries decide a verdict. Code that reads and stores records is not among them."""


def rules_files() -> dict[str, Path]:
    """Path below the package to file, for every file in the digest of `rules_version`."""
    package = Path(__file__).parents[2]
    found = (path for room in _ROOMS for path in (package / room).rglob("*.*"))
    return {p.relative_to(package).as_posix(): p for p in found if p.suffix in (".py", ".toml", ".sql")}


def judge(case: cases.Case, *, made_at: datetime) -> records.Verdict | None:
    """The verdict on why the attempt ended; None if it has not ended, never began, or ended well."""
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
            "component": winner.component or info.component or None,
            "node": _node(winner),
            "device": winner.device,
            "confidence": rank_claims.with_clocks(ranking.confidence, case.clock_offsets_s),
            # Any rule may quote the job's output, and others than its owner may read the verdict.
            "summary": sanitize.without_secrets(
                phrases.with_clocks(wording.summary(found, ranking), case.clock_offsets_s)
            ),
            "evidence": _evidence(found, ranking),
            "ruled_out": tuple(map(sanitize.without_secrets, eliminate.ruled_out(found, ranking))),
            "next_step": sanitize.without_secrets(
                next_steps.with_clocks(next_steps.next_step(found, ranking), case.clock_offsets_s)
            ),
            "incident_id": None,
            "place": None,
            "onset_at": min(winner.at, found.onset_at) if winner.evidence else found.onset_at,
            "stalled_at": found.stalled_at,
            "window_start_at": min([found.window.start_at, *_active_since(found, ranking)]),
            "window_end_at": found.window.end_at,
            "log_read": None,
            "author": "rules",
            "rules_version": rules_version(),
            "made_at": made_at,
        },
    )


def _node(winner: claims.Claim) -> str | None:
    """The node at fault. A cause of the program's own has none, except a memory kill that the node itself reported."""
    by_node = any(e.source not in vocabulary.JOB_SIDE_SOURCES for e in winner.evidence)
    if winner.info.domain is records.Domain.USER_PROGRAM and not (winner.cause == "oom_host" and by_node):
        return None
    return winner.node


def _active_since(found: evidence_view.EvidenceView, ranking: rank_claims.Ranking) -> list[datetime]:
    """Begin times of the evidence that was still active at the end; the verdict's window is widened back to the first."""
    if not ranking.winner.evidence:
        return []
    active = {s.event.event_id for s in found.sightings if s.still_active}
    return [e.at for e in ranking.winner.evidence if e.event_id in active]


def _nothing(found: evidence_view.EvidenceView) -> rank_claims.Ranking:
    claim = claims.Claim(cause=taxonomy.UNKNOWN, weight=0.0, at=found.end_at, rule="judge")
    return rank_claims.Ranking(winner=claim, absorbed=(), rivals=(), confidence=records.Confidence.UNKNOWN)


def _evidence(found: evidence_view.EvidenceView, ranking: rank_claims.Ranking) -> tuple[uuid.UUID, ...]:
    """Ids of the evidence, each once: the winner's first, then that of the claims it explains."""
    ids: dict[uuid.UUID, None] = {e.event_id: None for e in ranking.winner.evidence}
    for claim in ranking.absorbed:
        ids.update({e.event_id: None for e in claim.evidence})
    if ranking.winner.info.domain is not records.Domain.UNKNOWN:
        ids.update({s.event.event_id: None for s in found.consequences(ranking.winner.node)})
    return tuple(ids)[:MAX_EVIDENCE]
