"""Which attempts of the past would have been brought back after their ends, and what their runs say of it: `probing-ctl policy simulate`.

Of the past there is no queue: dependents, resubmissions and the place left are not known, and held to have been no hindrance.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta

from probing_cluster.control_plane.policy import restart
from probing_cluster.core import records, settings, vocabulary


@records.record
class Restarts:
    """The outcome of one simulation."""

    n_ended: int = records.doc("attempts that ended in a state about which something is decided")
    back: tuple[records.Verdict, ...] = records.doc("attempts that would have come back, by end")
    refused: Mapping[str, int] = records.doc(
        "why others, whose verdicts name hardware or a node, would not have"
    )
    n_wrong: int = records.doc(
        "of those back, in truth the program's own: a person's verdict says so, or a later one of the rules"
    )
    n_died_alike: int = records.doc("of those back, whose next start died of the program itself")
    n_went_on: int = records.doc("of those back, whose next start completed or runs")


def replay(
    attempts: Iterable[records.JobAttempt],
    verdicts: Iterable[records.Verdict],
    events: Mapping[uuid.UUID, records.HealthEvent],
    history: Mapping[int, Sequence[records.Verdict]],
    policy: settings.PolicySettings,
) -> Restarts:
    """Every ended attempt in the order of ends; `history`: every verdict ever given, by job."""
    current = {(v.cluster, v.job_id, v.submit_at): v for v in verdicts}
    ordered = sorted(attempts, key=lambda a: (a.end_at is None, a.end_at or a.submit_at, a.job_id))
    starts: dict[tuple[str, int], list[records.JobAttempt]] = {}
    for attempt in sorted(ordered, key=lambda a: a.submit_at):
        starts.setdefault((attempt.cluster, attempt.job_id), []).append(attempt)
    back: list[tuple[records.JobAttempt, records.Verdict]] = []
    refused: dict[str, int] = {}
    restarted: dict[tuple[str, str], list[datetime]] = {}
    n_ended = 0
    for attempt in ordered:
        if attempt.state not in restart.CANDIDATES or attempt.end_at is None:
            continue
        n_ended += 1
        first = _first(current.get((attempt.cluster, attempt.job_id, attempt.submit_at)), history)
        if first is None or not restart.concerns(first):
            continue
        why = _against(attempt, first, events, policy, restarted)
        if why:
            refused[why] = refused.get(why, 0) + 1
            continue
        restarted.setdefault((attempt.user, attempt.run_key), []).append(attempt.end_at)
        back.append((attempt, first))
    return Restarts(
        n_ended=n_ended,
        back=tuple(v for _, v in back),
        refused=refused,
        n_wrong=sum(_was_wrong(a, current) for a, _ in back),
        n_died_alike=sum(_next(a, starts, current) == "program" for a, _ in back),
        n_went_on=sum(_next(a, starts, current) == "went on" for a, _ in back),
    )


def _first(
    verdict: records.Verdict | None, history: Mapping[int, Sequence[records.Verdict]]
) -> records.Verdict | None:
    """The verdict as it stood first: a restart would have rested on it."""
    if verdict is None:
        return None
    own = [
        v for v in history.get(verdict.job_id, ()) if v.submit_at == verdict.submit_at and v.author == "rules"
    ]
    return min(own, key=lambda v: v.made_at, default=verdict)


def _against(
    attempt: records.JobAttempt,
    verdict: records.Verdict,
    events: Mapping[uuid.UUID, records.HealthEvent],
    policy: settings.PolicySettings,
    restarted: Mapping[tuple[str, str], Sequence[datetime]],
) -> str:
    assert attempt.end_at is not None
    evidence = [events[i] for i in verdict.evidence if i in events]
    since = attempt.end_at - timedelta(seconds=policy.restart_window_s)
    n = sum(at > since for at in restarted.get((attempt.user, attempt.run_key), ()))
    reasons = (
        (attempt.state == "CANCELLED", "cancelled"),
        (verdict.node is None, "no node named"),
        # A kernel log that was imported stands for what the node's agent would have seen.
        (not any(e.source not in vocabulary.JOB_SIDE_SOURCES for e in evidence), "no node saw it"),
        (n >= policy.restarts_per_run, "restarts_per_run"),
    )
    return next((why for applies, why in reasons if applies), "")


def _was_wrong(
    attempt: records.JobAttempt, current: Mapping[tuple[str, int, datetime], records.Verdict]
) -> bool:
    verdict = current[attempt.cluster, attempt.job_id, attempt.submit_at]
    return verdict.domain is records.Domain.USER_PROGRAM and verdict.confidence in restart.SURE


def _next(
    attempt: records.JobAttempt,
    starts: Mapping[tuple[str, int], Sequence[records.JobAttempt]],
    current: Mapping[tuple[str, int, datetime], records.Verdict],
) -> str:
    """What became of the next start of the same job, where there was one."""
    later = [a for a in starts[attempt.cluster, attempt.job_id] if a.submit_at > attempt.submit_at]
    if not later:
        return ""
    if later[0].state in {"COMPLETED", "RUNNING"}:
        return "went on"
    verdict = current.get((later[0].cluster, later[0].job_id, later[0].submit_at))
    own = verdict is not None and verdict.domain is records.Domain.USER_PROGRAM
    return "program" if own else ""


def by_job(verdicts: Iterable[records.Verdict]) -> dict[int, list[records.Verdict]]:
    """Verdicts by the job they are about, in the order given."""
    found: dict[int, list[records.Verdict]] = {}
    for verdict in verdicts:
        found.setdefault(verdict.job_id, []).append(verdict)
    return found


def to_json(found: Restarts) -> dict[str, object]:
    """The figures with stable keys."""
    return {
        "ended": found.n_ended,
        "back": [v.job_id for v in found.back],
        "refused": dict(sorted(found.refused.items())),
        "wrong": found.n_wrong,
        "next_start_died_of_the_program": found.n_died_alike,
        "next_start_went_on": found.n_went_on,
    }


def sentences(found: Restarts) -> list[str]:
    """The figures for people."""
    against = ", ".join(f"{n} {why}" for why, n in sorted(found.refused.items(), key=lambda r: (-r[1], r[0])))
    return [
        (
            f"of {found.n_ended} attempts that ended badly {len(found.back)} would have come back by themselves"
            + (f"; held back: {against}" if against else "")
        ),
        (
            f"of those {found.n_wrong} wrongly, by what is known now; of their next starts {found.n_went_on} went on and "
            f"{found.n_died_alike} died of the program"
        ),
    ]
