"""Node tests side by side: each node's figures against its model's, failures, and the day on which a drift began."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from statistics import median
from typing import Any

from probing_cluster.attribution.reliability.fleet import base
from probing_cluster.core import records
from probing_cluster.db import store as db_store
from probing_cluster.diagnostics import baseline

_SPEEDS = frozenset({"bytes_s"})
"""Units in which more is better."""
_LATEST = 5
"""Number of results whose median is a node's present figure."""


@dataclass(frozen=True, kw_only=True)
class NodeDrift:
    """A lasting change of one test's figure on one node."""

    node: str
    test: str
    device: str
    at: datetime
    change_frac: float
    worse: bool
    n_results: int


@dataclass(frozen=True, kw_only=True)
class NodeTests(base.Figure):
    """Nodes by tests."""

    nodes: tuple[Mapping[str, Any], ...]
    """A row per node, a key per test: its time relative to its model's median (1.05: five percent slower), or the failure."""
    drifts: tuple[NodeDrift, ...]
    n_results: int


def node_tests(
    source: db_store.Store,
    since: datetime,
    until: datetime,
    partition: str | None = None,
    users: Iterable[str] | None = None,
) -> NodeTests:
    """Every node tested in the span. Partition and users do not apply."""
    results = base.apart([r for r in source.results(since=since, until=until) if not r.peer])
    series: dict[tuple[str, str, str, str], list[records.DiagnosticResult]] = defaultdict(list)
    for result in results:
        if result.measured is not None and result.outcome in (records.Outcome.OK, records.Outcome.WARN):
            series[
                (result.node, result.test, result.device or "", f"{result.model} {result.version}")
            ].append(result)
    return NodeTests(
        **base.about(source, since, until, partition, users),
        nodes=tuple(_rows(results, series)),
        drifts=tuple(_drifts(series)),
        n_results=len(results),
    )


Series = Mapping[tuple[str, str, str, str], Sequence[records.DiagnosticResult]]


def _rows(results: Iterable[records.DiagnosticResult], series: Series) -> Iterable[Mapping[str, Any]]:
    present = {key: median(r.measured or 0.0 for r in found[-_LATEST:]) for key, found in series.items()}
    alike: dict[tuple[str, str, str], list[float]] = defaultdict(list)
    for (_, test, device, model), value in present.items():
        alike[(test, device.rstrip("0123456789"), model)].append(value)
    cells: dict[str, dict[str, Any]] = defaultdict(dict)
    for (node, test, device, model), value in sorted(present.items()):
        middle = median(alike[(test, device.rstrip("0123456789"), model)])
        if middle <= 0 or value <= 0:
            continue
        unit = series[(node, test, device, model)][-1].unit
        slower = middle / value if unit in _SPEEDS else value / middle
        cells[node][test] = max(cells[node].get(test, 0.0), round(slower, 3))
    latest = {(r.node, r.test): r for r in results if r.outcome is not records.Outcome.ABSENT}
    for (node, test), result in latest.items():
        if result.outcome in (records.Outcome.FAIL, records.Outcome.ERROR):
            cells[node][test] = result.outcome.value
    tests = sorted({test for row in cells.values() for test in row})
    for node in sorted(cells):
        yield {"node": node, **{test: cells[node].get(test) for test in tests}}


def _drifts(series: Series) -> Iterable[NodeDrift]:
    for (node, test, device, _), found in sorted(series.items()):
        changed = baseline.drift([(r.at, r.measured or 0.0) for r in found])
        if changed is not None:
            faster = changed.change_frac > 0
            yield NodeDrift(
                node=node,
                test=test,
                device=device,
                at=changed.at,
                change_frac=changed.change_frac,
                worse=not faster if found[-1].unit in _SPEEDS else faster,
                n_results=len(found),
            )
