"""What a round of tests found, for people and as JSON: whose fault first, then each result that is not plainly good."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from probing_cluster.control_plane.repair import round_findings, speed
from probing_cluster.control_plane.terminal import table
from probing_cluster.core import hostlist, records

_SLOW = {
    speed.COMPUTE: "it computes slower than the others, each time",
    "network": "its links are slower than those of the others, with every partner",
}
"""What a node is slow by, in words."""


def at_fault(found: round_findings.Findings, names: Sequence[str]) -> dict[str, list[str]]:
    """Node to what is proven against it."""
    against = {name: round_findings.proven(found, name) for name in names}
    for name, by in found.slow_nodes.items():
        against.setdefault(name, []).append(
            _SLOW.get(by, f"slower in {by} than in its own or its model's past")
        )
    return {name: words for name, words in against.items() if words}


def is_clean(found: round_findings.Findings, names: Sequence[str]) -> bool:
    """Whether no node or link failed or was slow, known or not whose fault it is."""
    failed = (found.slow_nodes, found.bad_links, found.slow_links, set(found.open_nodes) & set(names))
    return not any(failed) and not any(round_findings.against(found, name) for name in names)


def text(found: round_findings.Findings, names: Sequence[str]) -> str:
    """The whole answer."""
    lines = []
    accused = at_fault(found, names)
    for name, words in accused.items():
        lines.append(f"{name}: {'; '.join(words)}")
    lines += [f"link {a} - {b}: bad, both nodes passed with others" for a, b in found.bad_links]
    lines += [f"link {a} - {b}: slow, both nodes are well" for a, b in found.slow_links]
    if found.open_nodes:
        listed = hostlist.compress(sorted(found.open_nodes))
        lines += [f"{listed}: {round_findings.NEITHER} ({found.why})"]
    lines += list(found.noise)
    unclear = {name: round_findings.unanswered(found, name) for name in names}
    lines += [
        f"{name}: not judged: {words[0]}"
        for name, words in unclear.items()
        if words and round_findings.NEITHER not in words[0]
    ]
    well = [
        name
        for name in names
        if name not in accused and not unclear[name] and not round_findings.against(found, name)
    ]
    lines += [f"{len(well)} of {len(names)} nodes passed every test that could run"]
    place = {name: n for n, name in enumerate(names)}
    ordered = sorted(found.results, key=lambda r: (place.get(r.node, len(place)), r.node, r.peer, r.test))
    shown = _rows([r for r in ordered if r.outcome is not records.Outcome.ABSENT])
    absent = sorted(
        {r.test for r in found.results if r.outcome is records.Outcome.ABSENT} - {r[1] for r in shown}
    )
    if shown:
        lines += ["", table.render(("NODE", "TEST", "PART", "OUTCOME", "MEASURED", "FOUND"), shown)]
    if absent:
        lines += [f"not installed or not there: {', '.join(absent)}"]
    return "\n".join(lines)


def _rows(results: Sequence[records.DiagnosticResult]) -> list[tuple[str, str, str, str, str, str]]:
    """A line a result; a pair that passed again and again is one, with its least figure."""
    passes: dict[tuple[object, ...], list[records.DiagnosticResult]] = {}
    for r in results:
        is_pass = bool(r.peer) and r.outcome is records.Outcome.OK
        passes.setdefault((r.node, r.peer, r.version) if is_pass else (r.result_id,), []).append(r)
    shown = []
    for alike in passes.values():
        r = min(alike, key=lambda one: one.measured or 0.0)
        node = f"{r.node}-{r.peer}" if r.peer else r.node
        words = r.message if len(alike) == 1 else f"{r.message}, the least of {len(alike)}"
        shown.append((node, r.test, r.device or "", r.outcome.value, measured(r), words))
    return shown


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
    measured = ("outcome", "measured", "unit", "baseline", "threshold")
    return records.json_fields(
        r, "node", "peer", "test", "device", *measured, "message", "version", "model", "at"
    )
