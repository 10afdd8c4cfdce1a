"""NVIDIA's own diagnostic, where it is installed."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from probing_cluster.core import sanitize
from probing_cluster.diagnostics import machine, registry
from probing_cluster.healthchecks import findings


def run(node: machine.Machine) -> Sequence[findings.Finding]:
    code, output = node.run_tool([str(node.tool("dcgmi")), "diag", "-r", "2", "-j"], TEST.deadline_s - 5)
    return judge(code, output)


def judge(code: int, output: str) -> list[findings.Finding]:
    """What `dcgmi diag -j` printed: every test that failed, else one finding that none did."""
    start = output.find("{")
    try:
        document = json.loads(output[start : output.rindex("}") + 1]) if start >= 0 else None
    except ValueError:
        document = None
    if document is None:
        last = (output.strip().splitlines() or ["no output"])[-1]
        raise findings.Undetermined(f"dcgmi ended with {code}: {sanitize.clean(last, 200)}")
    results = list(_results(document, ""))
    failed = [(name, words) for name, status, words in results if status == "fail"]
    if failed:
        return [
            findings.fail(sanitize.clean(f"{name}: {words}", 300), device=name) for name, words in failed[:16]
        ]
    passed = sum(status == "pass" for _, status, _ in results)
    if not passed:
        raise findings.Undetermined("dcgmi's answer holds no test that passed or failed")
    return [findings.ok(f"{passed} of DCGM's tests passed", detail={"engine": "dcgmi diag -r 2"})]


def _results(value: Any, name: str) -> Iterator[tuple[str, str, str]]:
    if isinstance(value, Mapping):
        here = str(value.get("name") or value.get("category") or name)
        status = value.get("status")
        if isinstance(status, str):
            words = value.get("warnings") or value.get("info") or ""
            gpu = value.get("gpu_id", value.get("gpu_ids"))
            yield (f"{here} gpu{gpu}" if gpu is not None else here), status.lower(), str(words)
        for inner in value.values():
            yield from _results(inner, here)
    elif isinstance(value, list):
        for inner in value:
            yield from _results(inner, name)


TEST = registry.Test(
    name="dcgmi",
    proves="NVIDIA's own diagnostic of level 2 passes.",
    needs="dcgmi",
    fails="one of DCGM's tests fails",
    next_step="DCGM names the GPU and the subsystem: keep its output for the vendor.",
    run=run,
    deadline_s=600.0,
)
