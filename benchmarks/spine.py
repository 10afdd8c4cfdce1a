"""The spine's own figures on a fresh sandbox: agent at rest, kernel line to row and to drain, the report.

    python -m benchmarks.spine [--faults N] [--rest SECONDS]

Needs root and Debian's Slurm. Idle figures are read from /proc of the four agents (children included);
the way of a fault is timed from the moment the kernel line is in the node's log.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import psycopg

from probing_cluster.db.server import embedded
from probing_cluster.sandbox import cluster, services
from probing_cluster.sandbox.machine import processes, scratch

TICKS_PER_S = os.sysconf("SC_CLK_TCK")


def main() -> None:
    """Prints one line per figure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--faults", type=int, default=3)
    parser.add_argument("--rest", type=float, default=60.0)
    options = parser.parse_args()
    nodes = max(4, 2 * options.faults)  # the sandbox's budget lets half of its nodes be drained
    with scratch.directory("probing-bench-") as directory:
        began = time.monotonic()
        with cluster.Sandbox.up(directory / "s", nodes=nodes) as sandbox:
            print(f"sandbox of {nodes} nodes up in {time.monotonic() - began:.1f} s")
            rest(sandbox, options.rest)
            fault_ways(sandbox, options.faults)
            report(sandbox)


def rest(sandbox: cluster.Sandbox, seconds: float) -> None:
    """Resident memory and CPU of the agents with nothing to do."""
    time.sleep(15)  # the first readings and sweep are not rest
    groups = {n: family(sandbox, n) for n in sandbox.layout.node_names}
    before = {n: cpu_s(pids) for n, pids in groups.items()}
    time.sleep(seconds)
    share = [(cpu_s(family(sandbox, n)) - before[n]) / seconds for n in groups]
    alone = [rss_mib(processes.pids_of(sandbox.directory, services.agent_role(n))[:1]) for n in groups]
    whole = [rss_mib(family(sandbox, n)) for n in groups]
    print(
        f"agent at rest over {seconds:.0f} s (poll 2 s, sweep 60 s): {100 * statistics.median(share):.2f} % of a core"
    )
    print(
        f"agent resident: {statistics.median(alone):.0f} MiB alone, {statistics.median(whole):.0f} MiB with its children"
    )


def family(sandbox: cluster.Sandbox, node: str) -> list[int]:
    """The agent of a node and its children."""
    return processes.pids_of(sandbox.directory, services.agent_role(node))


def cpu_s(pids: list[int]) -> float:
    """User and system time, waited-for children included."""
    total = 0
    for pid in pids:
        try:
            total += sum(
                int(f) for f in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:15]
            )
        except FileNotFoundError:
            continue
    return total / TICKS_PER_S


def rss_mib(pids: list[int]) -> float:
    """Resident set, summed."""
    total = 0
    for pid in pids:
        try:
            total += int(Path(f"/proc/{pid}/statm").read_text().split()[1])
        except FileNotFoundError:
            continue
    return total * os.sysconf("SC_PAGE_SIZE") / 2**20


def fault_ways(sandbox: cluster.Sandbox, faults: int) -> None:
    """From the kernel line to the row in Postgres and to the drained node."""
    rows, drains = [], []
    for node in sandbox.layout.node_names[:faults]:
        with psycopg.connect(embedded.url(sandbox.layout.postgres), autocommit=True) as connection:
            began = time.monotonic()
            sandbox.fault(node, "xid", code=79, gpu=1)
            where = (
                "SELECT 1 FROM probing.health_event WHERE node = %s AND kind = 'xid' AND source = 'kernel'"
            )
            rows.append(
                waited(began, lambda w=where, n=node, c=connection: c.execute(w, (n,)).fetchone(), 0.005)
            )
            drains.append(waited(began, lambda n=node: "DRAIN" in state(sandbox, n), 0.02))
    print(
        f"kernel line to row: median {statistics.median(rows):.2f} s, worst {max(rows):.2f} s of {len(rows)}"
    )
    print(f"kernel line to drain: median {statistics.median(drains):.2f} s, worst {max(drains):.2f} s")


def state(sandbox: cluster.Sandbox, node: str) -> str:
    """Slurm's state word of a node."""
    return sandbox.run(["scontrol", "show", "node", "-o", node]).stdout.split("State=", 1)[1].split()[0]


def waited(began: float, ask: Callable[[], object], every_s: float) -> float:
    """Seconds from `began` until `ask` is true; gives up after a minute."""
    while not ask():
        if time.monotonic() - began > 60:
            return float("inf")
        time.sleep(every_s)
    return time.monotonic() - began


def report(sandbox: cluster.Sandbox) -> None:
    """`probing-report` as a whole process."""
    job = sandbox.submit("sleep 1", nodes=1)
    sandbox.wait(job, {"COMPLETED"}, 60)
    time.sleep(8)
    times = []
    for _ in range(7):
        began = time.monotonic()
        subprocess.run(["probing-report", str(job)], env=sandbox.env, check=True, stdout=subprocess.DEVNULL)
        times.append(time.monotonic() - began)
    print(f"probing-report: median {1000 * statistics.median(times):.0f} ms of {len(times)}")


if __name__ == "__main__":
    main()
