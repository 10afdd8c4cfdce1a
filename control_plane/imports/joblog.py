"""A job's output file as evidence of what the job said (source `joblog`)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields
from datetime import UTC, datetime, tzinfo
from typing import Any

from probing_cluster.control_plane.imports import log_stall
from probing_cluster.core import records, sanitize, storable
from probing_cluster.evidence.joblog import appended, grammar, reader, standstill
from probing_cluster.evidence.joblog.messages import slurm

_LAST_CHARS = 200
_COLUMNS = frozenset({"kind", "message", "pid", "detail", "meaning", "labelled"})


def read(
    lines: Iterable[bytes],
    attempt: records.JobAttempt,
    read_at: datetime,
    zone: tzinfo | None = None,
    written_at: datetime | None = None,
) -> list[records.HealthEvent]:
    """The findings of one attempt's output, placed at its end: a job's own clock is not evidence.

    `written_at`: the file's own time of its last write; without it a log that names no times dates no standstill.
    What former attempts and jobs wrote into the same file is left out; Slurm dates their ends in the cluster's `zone`.
    """
    own = appended.AppendedLog(attempt.start_at, zone or UTC)
    began = attempt.start_at.astimezone(zone).replace(tzinfo=None) if attempt.start_at else None
    numbers = (attempt.job_id, attempt.array_job_id, attempt.het_job_id)
    others = slurm.OtherJobs(n for n in numbers if n is not None)
    engine, found, steps = reader.JobLogReader(), list[grammar.JobFinding](), _steps(zone)
    last_line = ""
    for number, raw in enumerate(lines, 1):
        line = raw.decode("utf-8", "replace")
        text = line.rstrip("\r\n")
        ended = slurm.ended_before(text, began)
        if ended or own.begins(text):
            engine, found, steps = reader.JobLogReader(), [], _steps(zone)
        if ended or others.wrote(text):
            continue
        found += engine.feed(number, text)
        steps.feed(number, line)
        if text.strip() and not standstill.is_of_slurm(text):
            last_line = text.strip()[-_LAST_CHARS:]
    found += engine.close()
    events = [_event(f, attempt, read_at) for f in found]
    stall = log_stall.finding(steps, attempt, found, read_at)
    if stall is None and written_at is not None:
        stall = log_stall.by_file_time(last_line, attempt, written_at, read_at)
    return [event for event in (*events, *filter(None, (stall,))) if storable.why_not(event) is None]


def _steps(zone: tzinfo | None) -> standstill.LogSteps:
    return standstill.LogSteps(zone or UTC, is_sure=zone is not None)


def _event(
    finding: grammar.JobFinding, attempt: records.JobAttempt, read_at: datetime
) -> records.HealthEvent:
    at = attempt.end_at or attempt.start_at or attempt.submit_at
    node = finding.host if finding.host in attempt.nodes else next(iter(attempt.nodes), "")
    position = f"{attempt.job_id}:{attempt.submit_at.isoformat()}:{finding.line}:{finding.kind}"
    return records.HealthEvent(
        event_id=records.make_event_id(attempt.cluster, node or "", "joblog", position),
        cluster=attempt.cluster,
        node=node or "",
        at=at,
        observed_at=read_at,
        kind=finding.kind,
        severity=records.Severity.INFO,
        pid=finding.pid,
        job_id=attempt.job_id,
        source="joblog",
        message=sanitize.clean(finding.message),
        detail=_detail(finding),
    )


def _detail(finding: grammar.JobFinding) -> dict[str, Any]:
    detail = {f.name: getattr(finding, f.name) for f in fields(finding) if f.name not in _COLUMNS}
    detail["role"] = finding.role.name.lower()
    detail["domains"] = list(finding.domains)
    return {**finding.detail, **{k: v for k, v in detail.items() if v is not None}}
