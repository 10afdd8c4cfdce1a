"""NVIDIA's own collection, made on the node and left there: megabytes that only the vendor reads."""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Sequence
from pathlib import Path

from probing_cluster.diagnostics import machine, registry
from probing_cluster.healthchecks import findings


def run(node: machine.Machine) -> Sequence[findings.Finding]:
    program = str(node.tool("nvidia-bug-report.sh"))
    where = Path(node.options.disk_directory or tempfile.gettempdir())
    target = where / f"probing-bug-report-{node.node}-{node.options.seed}.log.gz"
    code, output = node.run_tool([program, "--output-file", str(target)], TEST.deadline_s - 10)
    # Some versions add the ending themselves.
    found = next((p for p in (target, target.with_name(target.name + ".gz")) if p.is_file()), None)
    if found is None:
        last = (output.strip().splitlines() or ["no output"])[-1]
        raise findings.Undetermined(f"nvidia-bug-report.sh ended with {code} and wrote nothing: {last[:200]}")
    found.chmod(0o600)
    content = found.read_bytes()
    detail = {"path": str(found), "sha256": hashlib.sha256(content).hexdigest(), "bytes": len(content)}
    return [findings.ok(f"{found} on {node.node}, {len(content) / 1e6:.3g} MB", detail=detail)]


TEST = registry.Test(
    name="bug-report",
    proves="Nothing: it runs nvidia-bug-report.sh, for the ticket of a node that failed.",
    needs="nvidia-bug-report.sh, which wants root for most of what it collects",
    fails="never",
    next_step="Fetch the file from the node (the ticket names it) before the node is wiped, and give it to NVIDIA.",
    run=run,
    scope="after",
    deadline_s=300.0,
)
