"""How much the checks see: failures that none of them saw, and good jobs beside a failed one."""

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
    """Attempts that infrastructure ended for one cause, by who saw it."""

    cause: str
    n_attempts: int
    n_by_check: int
    """A failed check is among the evidence."""
    n_by_node: int
    """Any source of the node itself is: a check, the kernel, a counter."""
    n_without: int
    """No source of the node is: the job's own side or Slurm alone says so."""


@dataclass(frozen=True, kw_only=True)
class CheckYield:
    """One check (of one version) and what it found in the span."""

    name: str
    version: str
    n_results: int
    """Changes of its outcome on any node."""
    n_failed: int
    """Changes to failed; 0: it found nothing."""


@dataclass(frozen=True, kw_only=True)
class CheckCoverage(base.Figure):
    """Which sources saw the failures that infrastructure caused, and how often a check fails beside a job that ends well."""

    causes: tuple[CauseCoverage, ...]
    checks: tuple[CheckYield, ...]
    """The one that found least first; empty where results of checks are not kept."""
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
    """Failures no check saw, and the share of good jobs that saw a failed check (under 1 % in the paper)."""
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
