"""Isolates an attempt on which the rules fail, so that the others still get their verdicts."""

from __future__ import annotations

import errno
import logging
from collections.abc import Callable, Sequence
from datetime import datetime

from probing_cluster.attribution.verdict import judge, taxonomy
from probing_cluster.core import errors, records

LOG = logging.getLogger("probing.attribution")
Attempts = Sequence[records.JobAttempt]
Judge = Callable[[Attempts], list[records.Verdict]]


def verdicts(attempts: Attempts, judge_some: Judge, made_at: datetime) -> list[records.Verdict]:
    """`judge_some` of all attempts; if it fails, of halves, down to the attempts on which it fails.

    Splitting a batch changes no verdict. Errors of the environment still end the pass; its attempts are judged later.
    """
    try:
        return judge_some(attempts)
    except Exception as exc:
        if not _is_of_an_attempt(exc):
            raise
        if len(attempts) == 1:
            return [_unjudged(attempts[0], made_at, exc)]
    half = len(attempts) // 2
    return [v for part in (attempts[:half], attempts[half:]) for v in verdicts(part, judge_some, made_at)]


def _is_of_an_attempt(exc: Exception) -> bool:
    """True if an attempt's evidence may cause the error; False for errors of the database, the disk or the memory."""
    if isinstance(exc, OSError):
        return exc.errno == errno.EOVERFLOW  # `datetime` raises it for a number that is no valid time
    return not isinstance(exc, (errors.ProbingError, MemoryError))


def _unjudged(attempt: records.JobAttempt, made_at: datetime, exc: Exception) -> records.Verdict:
    """A verdict `unknown`; the log has the error, which is a defect of ours."""
    fields = {"job_id": attempt.job_id, "cluster": attempt.cluster, "submit_at": str(attempt.submit_at)}
    LOG.error("the rules failed on an attempt", exc_info=exc, extra={"fields": fields})
    return records.Verdict(
        cluster=attempt.cluster,
        job_id=attempt.job_id,
        submit_at=attempt.submit_at,
        attempt=attempt.attempt,
        cause=taxonomy.UNKNOWN,
        domain=records.Domain.UNKNOWN,
        confidence=records.Confidence.UNKNOWN,
        summary="not judged: the rules failed on its evidence, which is a defect of Probing Cluster",
        next_step="Report the service's log line `the rules failed on an attempt`.",
        onset_at=attempt.end_at,
        rules_version=judge.rules_version(),
        made_at=made_at,
    )
