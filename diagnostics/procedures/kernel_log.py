"""The end of the node's kernel log, for a ticket."""

from __future__ import annotations

from collections.abc import Sequence

from probing_cluster.core import sanitize
from probing_cluster.diagnostics import machine, registry
from probing_cluster.healthchecks import findings

_LINES = 30


def run(node: machine.Machine) -> Sequence[findings.Finding]:
    code, output = node.run_tool([str(node.tool("dmesg"))], 20.0)
    lines = [sanitize.clean(line, 200) for line in output.splitlines()[-_LINES:]]
    if code != 0 or not lines:
        raise findings.Absent(f"the kernel log may not be read here: {lines[-1] if lines else 'it is empty'}")
    return [findings.ok(lines[-1], detail={f"{n:02}": line for n, line in enumerate(lines)})]


TEST = registry.Test(
    name="kernel-log",
    proves="Nothing: it keeps the last 30 lines of the kernel log, for the ticket of a node that failed.",
    needs="dmesg, and the right to read the log (kernel.dmesg_restrict)",
    fails="never",
    next_step="Read it from its end.",
    run=run,
    scope="after",
    deadline_s=30.0,
)
