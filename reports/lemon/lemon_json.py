"""A night as JSON with stable keys: for `--json` and for the webhook."""

from __future__ import annotations

import json
from typing import Any

from probing_cluster.core import clock, records, vocabulary
from probing_cluster.lemon import nightly
from probing_cluster.reports.lemon import lemon_view

VERSION = 1


def document(night: nightly.Night) -> dict[str, Any]:
    """The whole night; every time is UTC, ISO 8601 with Z."""
    return {
        "version": VERSION,
        "cluster": night.cluster,
        "day": f"{night.day:%Y-%m-%d}",
        "previous_day": f"{night.previous_day:%Y-%m-%d}" if night.previous_day else None,
        "window_days": night.window_days,
        "headline": lemon_view.headline(night),
        "quiet": night.uneventful,
        "n_nodes": len(night.scores),
        "new": [score(s) for s in night.new],
        "still": [score(s) for s in night.still],
        "gone": [score(s) for s in night.gone],
        "suspects": [score(s) for s in night.suspects],
        "remarks": list(night.remarks),
    }


def score(lemon_score: records.LemonScore) -> dict[str, Any]:
    """One node on one day."""
    signals = lemon_score.signals
    return {
        "node": lemon_score.node,
        "day": f"{lemon_score.day:%Y-%m-%d}",
        "verdict": lemon_score.verdict,
        "status": signals.get("status", ""),
        "probability": lemon_score.score,
        "since": signals.get("since"),
        "reasons": list(lemon_score.reasons),
        "cost": dict(signals["cost"]) if "cost" in signals else None,
        "failures": list(signals.get("failures", ())),
        "signals": {name: getattr(lemon_score, name) for name in vocabulary.LEMON_SIGNALS},
        "model": {
            k: signals[k] for k in ("model", "usual", "expected", "shared", "exposure_days") if k in signals
        },
        "made_at": clock.iso_z(lemon_score.made_at),
    }


def dumps(value: Any) -> str:
    """The document as JSON text, as it is printed and sent."""
    return json.dumps(value, indent=2, ensure_ascii=True) + "\n"
