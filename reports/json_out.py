"""The report as JSON; its keys are stable and documented in docs/report.md."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

from probing_cluster.core import clock, records
from probing_cluster.reports import attempt_view, cost, model, rows


def document(report: model.ReportModel, attempt: int | None = None) -> dict[str, Any]:
    """The report as JSON values. Times are ISO 8601 in UTC; unknown values are null."""
    views = [v for v in report.attempts if attempt is None or v.attempt.attempt == attempt]
    return {
        "job_id": report.job_id,
        "job": report.ref,
        **records.json_fields(
            report, "cluster", "run_key", "run_jobs", "user", "account", "partition", "name", "state"
        ),
        "requeues": report.n_requeues,
        **records.json_fields(report, "submit_at", "start_at", "end_at"),
        "exported_until": _at(report.exported_until),
        "other_submits_at": [_at(at) for at in report.other_submits],
        "other_clusters": list(report.other_clusters),
        "attempts": [_attempt(v) for v in views],
        "ettr": {**_ettr(report.run), "has_steps": report.has_steps},
        "cost": _cost(report.cost),
        "what_now": list(report.advice),
        "made_at": _at(report.made_at),
    }


def overview(ref: str, found: rows.ReportRows, now: datetime) -> dict[str, Any]:
    """The report on a job array that was asked for by its array id: one entry per task."""
    return {
        "job": ref,
        "n_tasks": found.n_siblings,
        "tasks": [
            {
                "job": t.ref,
                "job_id": t.job_id,
                "state": t.state,
                "attempts": t.n_attempts,
                "cause": t.cause,
                "summary": t.summary,
            }
            for t in found.siblings
        ],
        "never_started": [
            records.json_fields(n, "job", "state", "cancelled_by") for n in found.never_started
        ],
        "made_at": _at(now),
    }


def dumps(value: dict[str, Any]) -> str:
    """Indented, UTF-8 kept, one newline at the end."""
    return json.dumps(value, indent=2, ensure_ascii=False) + "\n"


def _at(at: datetime | None) -> str | None:
    return None if at is None else clock.iso_z(at)


def _attempt(view: attempt_view.AttemptView) -> dict[str, Any]:
    ended = ("state", "exit_code", "exit_signal", "submit_at", "eligible_at", "start_at", "end_at")
    return {
        **records.json_fields(view.attempt, "attempt", *ended),
        "last_seen_at": _at(view.last_seen_at),
        **records.json_fields(view.attempt, "nodes", "n_gpus"),
        "verdict": None if view.verdict is None else _verdict(view.verdict, view.evidence),
        "explanation": view.explanation or None,
        "completed_but": view.doubt or None,
        "ran_elsewhere": view.elsewhere or None,
        "own_errors": [_event(e) for e in view.own_errors],
        "other_events": [_event(e) for e in view.others],
        "other_events_left_out": view.others_left_out,
        "pace": [_event(e) | {"detail": dict(e.detail)} for e in view.pace],
        "gangs": [records.json_fields(g, *_GANG_FIELDS) for g in view.gangs],
        "logs": [_log(log) for log in view.logs],
        "log_awaited": view.log_awaited,
        "actions": [records.json_fields(d, *_ACTION_FIELDS) for d in view.actions],
    }


_GANG_FIELDS = (
    "kind", "ranks", "nodes", "domain", "confidence", "summary", "location", "proof", "onset_at", "made_at", "ended_at",
)  # fmt: skip
_ACTION_FIELDS = ("at", "action", "node", "job_id", "state", "reason", "why_state", "owner", "event_ids")
_EVENT_FIELDS = (
    "event_id", "at", "node", "kind", "code", "device", "message", "source", "severity", "pci_bus_id", "gpu_uuid", "count",
)  # fmt: skip


def _log(log: rows.JobLog) -> dict[str, Any]:
    return {
        **records.json_fields(log, "node", "stream", "path", "tail"),
        "error": {"line": log.error, "place": log.error_place} if log.error else None,
        "why_not_read": log.why or None,
        "note": log.note or None,
    }


def _verdict(verdict: records.Verdict, evidence: tuple[records.HealthEvent, ...]) -> dict[str, Any]:
    names = ("cause", "domain", "component", "node", "device", "confidence", "summary")
    behind = (
        "next_step",
        "onset_at",
        "stalled_at",
        "log_read",
        "place",
        "incident_id",
        "author",
        "rules_version",
        "made_at",
    )
    return {
        **records.json_fields(verdict, *names),
        "evidence": [_event(e) for e in evidence],
        "ruled_out": list(verdict.excluded),
        **records.json_fields(verdict, "less_likely", *behind),
    }


def _event(event: records.HealthEvent) -> dict[str, Any]:
    return records.json_fields(event, *_EVENT_FIELDS)


_PARTS = (
    "wall_s", "queued_s", "productive_s", "lost_to_replay_s", "restart_s", "checkpoint_s", "suspended_s", "idle_s",
)  # fmt: skip


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
        **records.json_fields(lost, "hung_gpu_h", "replayed_gpu_h", "restarting_gpu_h", "queued_gpu_h"),
        "assumed": not lost.measured,
    }
