"""The report for programs: the keys are a promise, documented in docs/report.md."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

from probing_cluster.core import clock, records
from probing_cluster.reports import cost, model, rows


def document(report: model.ReportModel, attempt: int | None = None) -> dict[str, Any]:
    """The report as JSON values; times are ISO 8601 in UTC, what is not known is null."""
    views = [v for v in report.attempts if attempt is None or v.attempt.attempt == attempt]
    return {
        "job_id": report.job_id,
        "job": report.ref,
        "cluster": report.cluster,
        "run_key": report.run_key,
        "run_jobs": list(report.run_jobs),
        "user": report.user,
        "account": report.account,
        "partition": report.partition,
        "name": report.name,
        "state": report.state,
        "requeues": report.n_requeues,
        "submit_at": _at(report.submit_at),
        "start_at": _at(report.start_at),
        "end_at": _at(report.end_at),
        "attempts": [_attempt(v) for v in views],
        "ettr": _ettr(report.run),
        "cost": _cost(report.cost),
        "what_now": list(report.advice),
        "made_at": _at(report.made_at),
    }


def overview(ref: str, found: rows.ReportRows, now: datetime) -> dict[str, Any]:
    """An array asked for by its number alone."""
    return {
        "job": ref,
        "n_tasks": found.n_siblings,
        "tasks": [
            {"job": t.ref, "job_id": t.job_id, "state": t.state, "attempts": t.n_attempts, "cause": t.cause}
            for t in found.siblings
        ],
        "made_at": _at(now),
    }


def dumps(value: dict[str, Any]) -> str:
    """Indented, UTF-8 kept, one newline at the end."""
    return json.dumps(value, indent=2, ensure_ascii=False) + "\n"


def _at(at: datetime | None) -> str | None:
    return None if at is None else clock.iso_z(at)


def _attempt(view: model.AttemptView) -> dict[str, Any]:
    attempt = view.attempt
    return {
        "attempt": attempt.attempt,
        "state": attempt.state,
        "exit_code": attempt.exit_code,
        "exit_signal": attempt.exit_signal,
        "submit_at": _at(attempt.submit_at),
        "eligible_at": _at(attempt.eligible_at),
        "start_at": _at(attempt.start_at),
        "end_at": _at(attempt.end_at),
        "last_seen_at": _at(view.last_seen_at),
        "nodes": list(attempt.nodes),
        "n_gpus": attempt.n_gpus,
        "verdict": None if view.verdict is None else _verdict(view.verdict, view.evidence),
        "other_events": [_event(e) for e in view.others],
        "pace": [_event(e) | {"detail": dict(e.detail)} for e in view.pace],
        "gangs": [_gang(g) for g in view.gangs],
        "logs": [_log(log) for log in view.logs],
        "actions": [_action(d) for d in view.actions],
    }


def _log(log: rows.JobLog) -> dict[str, Any]:
    return {
        "node": log.node,
        "stream": log.stream,
        "path": log.path,
        "tail": list(log.tail),
        "why_not_read": log.why or None,
        "note": log.note or None,
    }


def _gang(gang: records.GangVerdict) -> dict[str, Any]:
    return {
        "kind": gang.kind,
        "ranks": list(gang.ranks),
        "nodes": list(gang.nodes),
        "domain": gang.domain.value,
        "confidence": gang.confidence.value,
        "summary": gang.summary,
        "location": gang.location,
        "proof": list(gang.proof),
        "onset_at": _at(gang.onset_at),
        "made_at": _at(gang.made_at),
        "ended_at": _at(gang.ended_at),
    }


def _verdict(verdict: records.Verdict, evidence: tuple[records.HealthEvent, ...]) -> dict[str, Any]:
    return {
        "cause": verdict.cause,
        "domain": verdict.domain.value,
        "component": verdict.component,
        "node": verdict.node,
        "device": verdict.device,
        "confidence": verdict.confidence.value,
        "summary": verdict.summary,
        "evidence": [_event(e) for e in evidence],
        "ruled_out": list(verdict.ruled_out),
        "next_step": verdict.next_step,
        "onset_at": _at(verdict.onset_at),
        "place": verdict.place,
        "incident_id": None if verdict.incident_id is None else str(verdict.incident_id),
        "author": verdict.author,
        "rules_version": verdict.rules_version,
        "made_at": _at(verdict.made_at),
    }


def _event(event: records.HealthEvent) -> dict[str, Any]:
    return {
        "event_id": str(event.event_id),
        "at": _at(event.at),
        "node": event.node,
        "kind": event.kind,
        "code": event.code,
        "device": event.device,
        "message": event.message,
        "source": event.source,
        "severity": event.severity.value,
        "pci_bus_id": event.pci_bus_id,
        "gpu_uuid": event.gpu_uuid,
        "count": event.count,
    }


def _action(drain: records.Drain) -> dict[str, Any]:
    return {
        "at": _at(drain.at),
        "action": drain.action,
        "node": drain.node,
        "job_id": drain.job_id,
        "state": drain.state,
        "reason": drain.reason,
        "why_state": drain.why_state,
        "owner": drain.owner,
        "event_ids": [str(e) for e in drain.event_ids],
    }


_PARTS = (
    "wall_s",
    "queued_s",
    "productive_s",
    "lost_to_replay_s",
    "restart_s",
    "checkpoint_s",
    "suspended_s",
    "idle_s",
)


def _ettr(run: records.RunAccount | None) -> dict[str, Any]:
    return {
        "measured": None if run is None else run.ettr_measured,
        "expected": None if run is None else run.ettr_expected,
        **{part: None if run is None else getattr(run, part) for part in _PARTS},
        "assumed": None if run is None else not run.measured,
    }


def _cost(lost: cost.Cost | None) -> dict[str, Any] | None:
    if lost is None:
        return None
    return {
        "gpu_h": lost.total_gpu_h,
        "replayed_gpu_h": lost.replayed_gpu_h,
        "restarting_gpu_h": lost.restarting_gpu_h,
        "queued_gpu_h": lost.queued_gpu_h,
        "assumed": not lost.measured,
    }
