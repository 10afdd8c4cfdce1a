"""A storm of kernel lines, a grave line in the middle of it, and the way of a line to its row.

    python -m benchmarks.probe_agent.storm [--lines N] [--json]

Reported: CPU the storm cost the agent, seconds until every line is counted in Postgres, rows it made, and the
time from the writing of a kernel line to its row, alone (median of 20) and inside the storm.
"""

from __future__ import annotations

import argparse
import json
import statistics
import threading
import time

import psycopg

from benchmarks.probe_agent import agent_rig
from probing_cluster.probe_agent.sources import kernel_words
from probing_cluster.sandbox.nodetree import kmsg

NOISE = (
    "pcieport 0000:00:01.0: AER: Corrected error received: 0000:1b:00.0",
    "mlx5_core 0000:18:00.0 ib0: Link down",
    "mlx5_core 0000:18:00.0 ib0: Link up",
    "usb 1-1: new high-speed USB device number 7 using xhci_hcd",
)


def alone_s(rig: agent_rig.Rig, runs: int = 20) -> float:
    """Median seconds from a line's writing to its row."""
    return statistics.median(_one(rig, 10_000 + n) for n in range(runs))


def _one(rig: agent_rig.Rig, pid: int) -> float:
    address = rig.hardware.gpus[1].pci.rpartition(".")[0]
    with psycopg.connect(rig.url, autocommit=True) as connection:
        began = time.monotonic()
        kmsg.append(
            rig.root, f"NVRM: Xid (PCI:{address}): 79, pid={pid}, name=python3, GPU has fallen off the bus."
        )
        while not connection.execute("select 1 from probing.health_event where pid = %s", (pid,)).fetchone():
            time.sleep(0.002)
        took = time.monotonic() - began
    time.sleep(0.2)
    return took


def storm(rig: agent_rig.Rig, lines: int) -> dict[str, float]:
    """Write `lines` of noise as fast as the disk takes them, with one grave line half-way."""
    before = agent_rig.cpu_s(rig.agent.pid)
    began = time.monotonic()
    inside: list[float] = []
    chunk = 1000
    for n in range(lines // chunk):
        kmsg.append(rig.root, *(NOISE[i % len(NOISE)] for i in range(chunk)))
        if n == lines // chunk // 2:
            watcher = threading.Thread(target=lambda: inside.append(_one(rig, 777)))
            watcher.start()
    watcher.join()
    read = kernel_words.classifier()
    expected = lines // len(NOISE) * sum(read(text, 0.0) is not None for text in NOISE)
    query = "select coalesce(sum(count), 0), count(*) from probing.health_event where kind in ('pcie_aer', 'ib_link', 'eth_link') and source = 'kernel'"
    while (found := rig.rows(query)[0])[0] < expected:  # type: ignore[operator]
        if time.monotonic() - began > 120:
            raise SystemExit(f"only {found[0]} of {expected} sightings arrived")
        time.sleep(0.2)
    return {
        "lines": float(lines),
        "sightings": float(found[0]),  # type: ignore[arg-type]
        "rows": float(found[1]),  # type: ignore[arg-type]
        "all_counted_s": round(time.monotonic() - began, 2),
        "agent_cpu_s": round(agent_rig.cpu_s(rig.agent.pid) - before, 2),
        "grave_line_to_row_s": round(inside[0], 3),
    }


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--lines", type=int, default=100_000)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    with agent_rig.running(sweep_s=86400.0) as rig:
        time.sleep(6)
        found = {"line_to_row_s": round(alone_s(rig), 4), **storm(rig, args.lines)}
    if args.json:
        print(json.dumps(found, indent=2))
    else:
        for name, value in found.items():
            print(f"{name:22} {value:g}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
