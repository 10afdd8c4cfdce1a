"""Failed tests as health events, so that verdicts, lemons and reports see them: source `diagnostic`, code the test's name.

A test that fails on a GPU is a `gpu_test`, on another part a `node_test`, between nodes a `link_test`. What gave no answer,
a group of which nobody can tell who is at fault, and a pair whose two ends are not told apart make no event.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from probing_cluster.core import records
from probing_cluster.diagnostics import registry

_GPU = re.compile(r"^gpu\d+$|gpu\d+$")
_ON_GPUS = frozenset({"nccl-tests", "dcgmi", "pcie"})


def events(results: Iterable[records.DiagnosticResult]) -> list[records.HealthEvent]:
    """One event for each result that says what is wrong with one node, or with one link; the same result gives the same event."""
    known = registry.load()
    return [
        _event(one, known[one.test].scope)
        for one in results
        if one.test in known and _accuses(one, known[one.test].scope)
    ]


def _accuses(result: records.DiagnosticResult, scope: str) -> bool:
    if result.outcome not in (records.Outcome.FAIL, records.Outcome.WARN) or scope == "group":
        return False
    # A pair that fails is somebody's fault; whose, the round's conclusions say.
    return scope == "node" or result.detail.get("conclusion") is not None


def _severity(result: records.DiagnosticResult) -> records.Severity:
    """Wrong is high; a bad link is low, for a switch may be it as well; slow is for the record."""
    if result.outcome is not records.Outcome.FAIL:
        return records.Severity.INFO
    return records.Severity.LOW if result.peer else records.Severity.HIGH


def _event(result: records.DiagnosticResult, scope: str) -> records.HealthEvent:
    device, gpu = result.device, _GPU.search(result.device or "")
    kind = "link_test" if scope == "pair" else "gpu_test" if gpu or result.test in _ON_GPUS else "node_test"
    return records.HealthEvent(
        event_id=records.make_event_id(result.cluster, result.node, "diagnostic", str(result.result_id)),
        cluster=result.cluster,
        node=result.node,
        at=result.at,
        observed_at=result.at,
        kind=kind,
        code=result.test,
        severity=_severity(result),
        device=gpu[0] if gpu else device or (f"link to {result.peer}" if result.peer else None),
        job_id=None,
        source="diagnostic",
        message=result.message,
        measured=result.measured,
        threshold=result.threshold,
        unit=result.unit,
        detail={
            "round_id": str(result.round_id),
            "version": result.version,
            "model": result.model,
            **({"baseline": result.baseline} if result.baseline is not None else {}),
            **({"peer": result.peer} if result.peer else {}),
            **({"incident_id": str(result.incident_id)} if result.incident_id else {}),
        },
    )
