"""`python -m benchmarks.blind.figures`: histories of accounting, and whether our rates count what a careful human counts.

Each history is imported and attributed as a site's own would be; incidents that ended jobs with GPUs and GPU-hours are those of
`failure_rates`. A label may say what else is right (`also`).
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

from benchmarks.blind import __main__ as runner
from benchmarks.blind import ask
from benchmarks.blind import case as cases
from probing_cluster.attribution.passes import attribute
from probing_cluster.attribution.reliability.fleet import rates
from probing_cluster.control_plane.imports import load
from probing_cluster.core import clock
from probing_cluster.db import store as db_store

_CLOSE_H = 0.05
"""Hours: labels are rounded."""


def counted(history: Mapping[str, Any], database: str) -> dict[str, float]:
    """What the product counts in one history."""
    with db_store.Store.open(database, upgrade=True) as store, tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch) / "sacct"
        path.write_text(history["sacct"])
        order = load.LoadOrder(
            sacct=[path], timezone=history.get("timezone"), cluster="blind", now=clock.SYSTEM.now()
        )
        load.load(store, order)
        attempts = store.attempts()
        ends = [a.end_at for a in attempts if a.end_at]
        attribute.attribute(store, at=ask.At(max(ends) + timedelta(hours=1)))
        since = min(a.submit_at for a in attempts) - timedelta(days=1)
        made = rates.failure_rates(store, since, max(ends) + timedelta(days=1))
    n_failures = sum(c.n_failures for c in made.components)
    return {"incidents_of_gpu_jobs": n_failures, "gpu_hours": made.gpu_h}


def right(name: str, value: float, history: Mapping[str, Any]) -> bool:
    """Whether the value is the label's, or one that the label takes as well."""
    also = history.get("also", {}).get(name, [])
    wanted = [history["expected"][name], *(also if isinstance(also, list) else [])]
    close = _CLOSE_H if name == "gpu_hours" else 0
    return any(abs(value - w) <= close for w in wanted)


def main() -> int:
    """Every history of every file of figures; what was counted otherwise is said."""
    n_right = n_cases = 0
    with runner.databases(True) as fresh:
        for path in sorted(cases.HOME.glob("figures-*.json")):
            for history in json.loads(path.read_text("utf-8"))["histories"]:
                found = counted(history, next(fresh))
                wrong = {k: v for k, v in found.items() if not right(k, v, history)}
                n_cases, n_right = n_cases + 1, n_right + (not wrong)
                if wrong:
                    print(
                        f"{history['id']}: counted {wrong}, expected {history['expected']}: {history['why']}"
                    )
    print(f"{n_right} of {n_cases} histories are counted as their labels say")
    return 0


if __name__ == "__main__":
    sys.exit(main())
