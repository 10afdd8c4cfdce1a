"""Coverage of the checks: failures without a failed check, and completed jobs beside one."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from probing_cluster.attribution.history import source as sources
from probing_cluster.attribution.reliability.fleet import base

ATTEMPTS = sources.NeededPart(
    columns=frozenset({
        "cluster", "job_id", "submit_us", "attempt", "start_us", "end_us", "state", "nodes", "domain", "cause", "evidence",
    }),
    rows="only_attempts_of_coverage",
)  # fmt: skip
EVENTS = sources.NeededPart(
    columns=frozenset({"event_id", "cluster", "node", "at_us", "severity", "source", "recovered"}),
    rows="only_events_of_coverage",
)


@dataclass(frozen=True, kw_only=True)
class CauseCoverage:
    """Attempts that infrastructure ended for one cause, by the source of their evidence."""

    cause: str
    n_attempts: int
    n_by_check: int
    """Attempts with a failed check in the evidence."""
    n_by_node: int
    """Attempts with evidence from any source of the node: a check, the kernel, a counter."""
    n_without: int
    """Attempts with evidence from the job's side or Slurm only."""


@dataclass(frozen=True, kw_only=True)
class CheckYield:
    """The results of one check (of one version) in the span."""

    name: str
    version: str
    n_results: int
    """Changes of its outcome on any node."""
    n_failed: int
    """Changes to failed; 0: it found nothing."""


@dataclass(frozen=True, kw_only=True)
class CheckCoverage(base.Figure):
    """Sources that saw infrastructure failures, and how often a check fails beside a completed job."""

    causes: tuple[CauseCoverage, ...]
    checks: tuple[CheckYield, ...]
    """The one with the fewest findings first; empty if check results are not kept."""
    n_good: int
    """Completed attempts."""
    n_good_with_failed_check: int
    """Completed attempts with a failed check on one of their nodes while they ran."""
    good_with_failed_check_frac: float | None


def check_coverage(
    source: base.Given,
    since: datetime,
    until: datetime,
    partition: str | None = None,
    users: Iterable[str] | None = None,
) -> CheckCoverage:
    """Failures without a failed check, and the share of completed jobs beside one (under 1 % in the paper)."""
    span = base.FleetSpan(source, since, until, partition, users, attempts=ATTEMPTS, events=EVENTS)
    good = span.one("fleet_good_jobs")
    return CheckCoverage(
        **span.about,
        causes=tuple(CauseCoverage(**row) for row in span.rows("fleet_coverage")),
        checks=tuple(
            CheckYield(**{key: check[key] for key in ("name", "version", "n_results", "n_failed")})
            for check in sorted(span.checks(), key=lambda c: (c["n_failed"], c["name"], c["version"]))
            if check["first_us"] < span.bounds["until_us"]
        ),
        n_good=good["n_good"],
        n_good_with_failed_check=good["n_checked_bad"],
        good_with_failed_check_frac=good["n_checked_bad"] / good["n_good"] if good["n_good"] else None,
    )
