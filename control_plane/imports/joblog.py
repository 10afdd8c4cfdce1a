"""A job's output file as evidence of what the job said (source `joblog`)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields
from datetime import datetime
from typing import Any

from probing_cluster.core import records, sanitize
from probing_cluster.evidence.joblog import grammar, reader

_COLUMNS = frozenset({"kind", "message", "pid", "detail", "meaning"})


def read(lines: Iterable[bytes], attempt: records.JobAttempt, read_at: datetime) -> list[records.HealthEvent]:
    """The findings of one attempt's output, placed at its end: a job's own clock is not evidence."""
    texts = (raw.decode("utf-8", "replace") for raw in lines)
    return [_event(found, attempt, read_at) for found in reader.read(texts)]


def _event(found: grammar.JobFinding, attempt: records.JobAttempt, read_at: datetime) -> records.HealthEvent:
    at = attempt.end_at or attempt.start_at or attempt.submit_at
    node = found.host if found.host in attempt.nodes else next(iter(attempt.nodes), "")
    position = f"{attempt.job_id}:{attempt.submit_at.isoformat()}:{found.line}:{found.kind}"
    return records.HealthEvent(
        event_id=records.make_event_id(attempt.cluster, node or "", "joblog", position),
        cluster=attempt.cluster,
        node=node or "",
        at=at,
        observed_at=read_at,
        kind=found.kind,
        severity=records.Severity.INFO,
        pid=found.pid,
        job_id=attempt.job_id,
        source="joblog",
        message=sanitize.clean(found.message),
        detail=_detail(found),
    )


def _detail(found: grammar.JobFinding) -> dict[str, Any]:
    told = {f.name: getattr(found, f.name) for f in fields(found) if f.name not in _COLUMNS}
    told["role"] = found.role.name.lower()
    told["domains"] = list(found.domains)
    return {**found.detail, **{k: v for k, v in told.items() if v is not None}}
