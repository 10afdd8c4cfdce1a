"""Each InfiniBand adapter writes to itself, where perftest is installed."""

from __future__ import annotations

import re
import threading
from collections.abc import Sequence

from probing_cluster.core import sanitize
from probing_cluster.diagnostics import machine, registry
from probing_cluster.healthchecks import findings

_ROW = re.compile(r"^\s*(\d+)\s+(\d+)\s+([0-9.]+)\s+([0-9.]+)\s+[0-9.]+\s*$", re.MULTILINE)


def run(node: machine.Machine) -> Sequence[findings.Finding]:
    program = str(node.tool("ib_write_bw"))
    folder = node.root / "sys/class/infiniband"
    adapters = sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []
    if not adapters:
        raise findings.Absent("the node has no RDMA adapter")
    return [_of_adapter(node, program, adapter, 18515 + n) for n, adapter in enumerate(adapters)]


def _of_adapter(node: machine.Machine, program: str, adapter: str, port: int) -> findings.Finding:
    command = [program, "-d", adapter, "-p", str(port), "--report_gbits", "-D", "3"]
    server = threading.Thread(target=_serve, args=(node, command), daemon=True)
    server.start()
    code, output = node.run_tool(["/bin/sh", "-c", 'sleep 1; exec "$@"', "sh", *command, "localhost"], 30.0)
    server.join(30.0)
    return judge(adapter, code, output)


def _serve(node: machine.Machine, command: Sequence[str]) -> None:
    try:
        node.run_tool(command, 30.0)
    except findings.Undetermined:
        return  # the client says so, too


def judge(adapter: str, code: int, output: str) -> findings.Finding:
    """What the client printed."""
    row = _ROW.search(output)
    if code != 0 or row is None:
        last = (output.strip().splitlines() or ["no output"])[-1]
        return findings.fail(
            f"{adapter} does not write to itself: {sanitize.clean(last, 200)}", device=adapter
        )
    gbit_s = float(row[4])
    return findings.ok(
        f"{gbit_s:g} Gbit/s",
        device=adapter,
        measured=gbit_s * 1e9 / 8,
        unit="bytes_s",
        detail={"engine": "ib_write_bw"},
    )


TEST = registry.Test(
    name="ib_write_bw",
    proves="Each RDMA adapter writes to itself at the usual speed: a slow one hangs on a bad PCIe link.",
    needs="ib_write_bw of perftest, and an adapter",
    fails="the adapter's own loopback fails",
    next_step="Look at the adapter's PCIe link and its cable (probing-check run pcie_link ib_link ib_counters).",
    run=run,
    unit="bytes_s",
    lower_is_better=False,
    deadline_s=300.0,
)
