"""Nights as the lemon room stores them, without a database."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from probing_cluster.core import clock, records
from probing_cluster.lemon import nightly

DAY = datetime(2026, 11, 20, tzinfo=UTC)
NOW = DAY + timedelta(days=1, hours=6)


def score(
    node: str, status: str, probability: float = 0.97, n: int = 3, **changes: Any
) -> records.LemonScore:
    """A node in that state with `n` failures, the newest yesterday."""
    verdict = {"new": "lemon", "still": "lemon", "suspect": "suspect", "recovered": "recovered"}.get(
        status, "ok"
    )
    when = [clock.iso_z(DAY - timedelta(days=3 * (n - i)) + timedelta(hours=14)) for i in range(n)]
    detail: dict[str, Any] = {"model": probability, "usual": 0.2, "failed_at": when}
    if status:
        detail |= {
            "status": status,
            "since": clock.iso_z(DAY - timedelta(days=4)),
            "cost": {"gpu_h": 56.5, "jobs": n, "users": 2, "unknown_gpus": 0},
            "failures": [
                {"job_id": 4240 + i, "attempt": 1, "at": at, "n_nodes": 2, "n_gpus": 16, "user": "alice",
                 "cause": "gpu_lost", "device": "gpu3", "confidence": "certain", "summary": "", "counts": True}
                for i, at in enumerate(when)
            ],
        }  # fmt: skip
    values: dict[str, Any] = {
        "cluster": "c", "node": node, "day": DAY, "multi_node_node_fails": n, "score": probability,
        "reasons": (f"{n} attempts failed because of it.", "It failed again after 1 repair.") if status else (),
        "verdict": verdict, "signals": detail, "made_at": NOW,
    }  # fmt: skip
    return records.LemonScore(**(values | changes))


def night(*scores: records.LemonScore, **changes: Any) -> nightly.Night:
    """These scores beside two ordinary nodes."""
    ordinary = (score("n90", "", 0.001, 1), score("n91", "", 0.001, 0))
    values: dict[str, Any] = {
        "cluster": "c", "day": DAY, "previous_day": DAY - timedelta(days=1), "scores": (*scores, *ordinary),
        "window_days": 28, "remarks": ("Not recalibrated: 0 confirmed and 0 denied so far.",),
    }  # fmt: skip
    return nightly.Night(**(values | changes))


def busy() -> nightly.Night:
    """One of each."""
    return night(
        score("n7", "new", 0.999, 6),
        score("n8", "still", 0.93),
        score("n9", "recovered", 0.2),
        score("n10", "suspect", 0.45, 2),
    )
