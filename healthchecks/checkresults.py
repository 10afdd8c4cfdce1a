"""Check results between processes and between sweeps: as JSON, by name, and what changed."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from probing_cluster.core import records


def to_json(result: records.CheckResult) -> dict[str, Any]:
    """A result as JSON-ready values."""
    return {**dataclasses.asdict(result), "at": result.at.isoformat()}


def from_json(row: Mapping[str, Any]) -> records.CheckResult:
    """The result that `to_json` wrote; raises KeyError, TypeError or ValueError for anything else."""
    return records.CheckResult.from_row(
        {
            **row,
            "at": datetime.fromisoformat(row["at"]),
            "outcome": records.Outcome(row["outcome"]),
            "severity": records.Severity(row["severity"]),
        }
    )


def by_name(results: Iterable[records.CheckResult]) -> dict[str, records.CheckResult]:
    """The results by check name."""
    return {r.name: r for r in results}


def changed(
    previous: Mapping[str, records.CheckResult], results: Iterable[records.CheckResult]
) -> list[records.CheckResult]:
    """The results that differ from `previous` in what matters; a value that moved within its limits does not."""
    return [r for r in results if r.name not in previous or _essence(previous[r.name]) != _essence(r)]


def _essence(result: records.CheckResult) -> tuple[Any, ...]:
    listed = result.detail.get("findings", ())
    parts = tuple(sorted((str(f.get("device")), str(f.get("outcome"))) for f in listed))
    return result.outcome, result.severity, result.device, result.timed_out, parts
