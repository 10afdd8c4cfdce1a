"""What a round of tests found, for people and as JSON: whose fault first, then each result that is not plainly good."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from probing_cluster.control_plane.repair import round_findings, speed
from probing_cluster.control_plane.terminal import table
from probing_cluster.core import clock, records

_SLOW = {
    speed.COMPUTE: "it computes slower than the others, each time",
    "network": "its links are slower than those of the others, with every partner",
}
"""What a node is slow by, in words."""


def at_fault(found: round_findings.Findings, names: Sequence[str]) -> dict[str, list[str]]:
    """Node to what stands against it."""
    against = {name: round_findings.against(found, name) for name in names}
    for name, by in found.slow_nodes.items():
        against.setdefault(name, []).append(
            _SLOW.get(by, f"slower in {by} than in its own or its model's past")
        )
    return {name: words for name, words in against.items() if words}


def text(found: round_findings.Findings, names: Sequence[str]) -> str:
    """The whole answer."""
    lines = []
    for name, words in at_fault(found, names).items():
        lines.append(f"{name}: {'; '.join(words)}")
    lines += [f"link {a} - {b}: bad, both nodes are well" for a, b in found.bad_links]
    lines += [f"link {a} - {b}: slow" for a, b in found.slow_links]
    lines += list(found.noise)
    unclear = {name: round_findings.unanswered(found, name) for name in names}
    lines += [f"{name}: not judged: {words[0]}" for name, words in unclear.items() if words]
    well = [name for name in names if name not in at_fault(found, names) and not unclear[name]]
    lines += [f"{len(well)} of {len(names)} nodes passed every test that could run"]
    place = {name: n for n, name in enumerate(names)}
    ordered = sorted(found.results, key=lambda r: (place.get(r.node, len(place)), r.node, r.peer, r.test))
    shown = [_row(r) for r in ordered if r.outcome is not records.Outcome.ABSENT]
    absent = sorted(
        {r.test for r in found.results if r.outcome is records.Outcome.ABSENT} - {r[1] for r in shown}
    )
    if shown:
        lines += ["", table.render(("NODE", "TEST", "PART", "OUTCOME", "MEASURED", "FOUND"), shown)]
    if absent:
        lines += [f"not installed or not there: {', '.join(absent)}"]
    return "\n".join(lines)


def _row(result: records.DiagnosticResult) -> tuple[str, str, str, str, str, str]:
    node = f"{result.node}-{result.peer}" if result.peer else result.node
    return (node, result.test, result.device or "", result.outcome.value, measured(result), result.message)


def measured(result: records.DiagnosticResult) -> str:
    """A figure with its unit, short."""
    if result.measured is None:
        return ""
    if result.unit == "bytes_s":
        return f"{result.measured / 1e9:.3g} GB/s"
    return (
        f"{result.measured * 1e3:.3g} ms"
        if result.unit == "s"
        else f"{result.measured:.4g} {result.unit or ''}"
    )


def plain(found: round_findings.Findings, names: Sequence[str]) -> dict[str, Any]:
    """The same as JSON."""
    return {
        "nodes": list(names),
        "at_fault": at_fault(found, names),
        "bad_links": [list(link) for link in found.bad_links],
        "slow_links": [list(link) for link in found.slow_links],
        "open": list(found.open_nodes),
        "why_open": found.why,
        "too_noisy": list(found.noise),
        "not_judged": {n: w for n in names if (w := round_findings.unanswered(found, n))},
        "results": [result_row(r) for r in found.results],
    }


def result_row(r: records.DiagnosticResult) -> dict[str, Any]:
    """One result as JSON."""
    return {
        "node": r.node,
        "peer": r.peer,
        "test": r.test,
        "device": r.device,
        "outcome": r.outcome.value,
        "measured": r.measured,
        "unit": r.unit,
        "baseline": r.baseline,
        "threshold": r.threshold,
        "message": r.message,
        "version": r.version,
        "model": r.model,
        "at": clock.iso_z(r.at),
    }
