"""What each task of the service costs at 250, 500, 1,000 and 2,000 nodes, and how that grows: one table with fitted exponents.

    .venv/bin/python -m benchmarks.control_plane.service_cost [--nodes 250,500,1000,2000] [--rounds 2] [--tasks pass,gangs]

Per size a database of its own: a week of jobs (6.5 ends per node and day) and events (30 per node and day) as full_size.sql makes them, every
agent's last beat. Each task is the service's own function in this process; Slurm is a twin in memory. Given is the processor time of
this process and that of the database, the least of the rounds, in which the sizes take turns; exponents are the slope of log time over log nodes.
What this process holds is printed after each round: it must not grow from one to the next.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import math
import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import cast

import psutil

from benchmarks.attribution import processes
from benchmarks.control_plane import service_tasks
from benchmarks.db import full_size
from probing_cluster.control_plane import context
from probing_cluster.control_plane.policy import actions as policy_actions
from probing_cluster.core import settings
from probing_cluster.db import migrate, partitions
from probing_cluster.db import store as db_store
from probing_cluster.db.server import embedded

ENDS_PER_NODE_DAY, EVENTS_PER_NODE_DAY = 6.5, 30
_SECTIONS = ("helpers", "attempts", "verdicts", "events", "runs", "heartbeats")


@dataclasses.dataclass(frozen=True, kw_only=True)
class CpuTime:
    """Processor seconds of one run of a task: this process's, and the database server's."""

    service_s: float
    server_s: float

    @property
    def both_s(self) -> float:
        """Of both together."""
        return self.service_s + self.server_s


class Site:
    """A cluster of so many nodes: its database and its service."""

    def __init__(self, n_nodes: int) -> None:
        self.n_nodes = n_nodes
        self._home = Path(tempfile.mkdtemp(prefix="probing-cost-"))
        self._home.chmod(0o755)
        url = embedded.ensure(self._home)
        migrate.upgrade(url)
        partitions.maintain(url, retention_days=400)
        made = (
            round(n_nodes * service_tasks.DAYS * each) for each in (ENDS_PER_NODE_DAY, EVENTS_PER_NODE_DAY)
        )
        full_size.fill(url, *made, n_nodes=n_nodes, n_days=service_tasks.DAYS, only=_SECTIONS, show=False)
        self._store = db_store.Store.open(url)
        slurm = service_tasks.Slurm(n_nodes, self._store, datetime.now(UTC))
        self._service = context.Context(
            config=settings.Settings(
                cluster=settings.ClusterSettings(name=service_tasks.CLUSTER),
                mail=settings.MailSettings(host="localhost", spool_directory=str(self._home / "mail")),
                # A file that is not there: what is told stays in the outbox.
                notices=settings.NoticesSettings(
                    routes=(settings.NoticeRoute(name="ops", url_file=str(self._home / "urls")),)
                ),
            ),
            store=self._store,
            run_slurm=slurm,
            slurm=cast("policy_actions.SlurmOperations", slurm),
        )

    def close(self) -> None:
        """Stop the server and remove it."""
        self._store.close()
        embedded.stop(self._home)
        shutil.rmtree(self._home, ignore_errors=True)

    def used(self, task: service_tasks.ServiceTask) -> CpuTime:
        """What one run of a task costs."""
        task.before(self._service, self.n_nodes)
        own, server = time.process_time(), processes.server_cpu_s(self._home)
        task.run(self._service, self.n_nodes)
        server_s = processes.server_cpu_s(self._home) - server
        return CpuTime(service_s=time.process_time() - own, server_s=server_s)


def exponent(nodes: Sequence[int], seconds: Sequence[float]) -> float:
    """The slope of log seconds over log nodes."""
    return statistics.linear_regression(
        [math.log(n) for n in nodes], [math.log(max(s, 1e-3)) for s in seconds]
    ).slope


def main() -> None:
    """Measure every size, print one table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--nodes", default="250,500,1000,2000")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--tasks", default="", help="only those whose name begins with one of these words")
    wanted = parser.parse_args()
    sizes = sorted(int(n) for n in wanted.nodes.split(","))
    tasks = [task for task in service_tasks.TASKS if task.name.startswith(tuple(wanted.tasks.split(",")))]
    found: dict[int, dict[str, CpuTime]] = {n: {} for n in sizes}
    with contextlib.ExitStack() as stack:
        sites = []
        for n_nodes in sizes:
            sites.append(Site(n_nodes))
            stack.callback(sites[-1].close)
        # The sizes take turns, so that the machine's other work strikes them alike; the first round opens connections.
        for number in range(wanted.rounds + 1):
            for site in sites:
                used = {task.name: site.used(task) for task in tasks}
                if number:
                    best = found[site.n_nodes]
                    for name, cost in used.items():
                        best[name] = min(cost, best.get(name, cost), key=lambda each: each.both_s)
                held_mb = psutil.Process().memory_info().rss / 1e6
                each = ", ".join(
                    f"{name.split(':')[0]} {cost.service_s:.2f} + {cost.server_s:.2f}"
                    for name, cost in used.items()
                )
                at = f"round {number}, {site.n_nodes:,} nodes, load {os.getloadavg()[0]:.1f}"
                print(f"{at}, {held_mb:.0f} MB resident: {each}", flush=True)
    print(table(sizes, [task for task in tasks if wanted.rounds], found))


def table(
    sizes: Sequence[int],
    tasks: Sequence[service_tasks.ServiceTask],
    found: Mapping[int, Mapping[str, CpuTime]],
) -> str:
    """What each task costs at each size (the service + the server), and how that grows: of both, of the service, of the server."""
    heads = [f"{n:,} nodes" for n in sizes]
    lines = [
        f"| task, CPU seconds: service + server | {' | '.join(heads)} | exponent (service, server) | a day at the last size |",
        "|---" * (len(sizes) + 3) + "|",
    ]
    for task in tasks:
        costs = [found[n][task.name] for n in sizes]
        cells = " | ".join(f"{c.service_s:.2f} + {c.server_s:.2f}" for c in costs)
        both, own, server = (
            exponent(sizes, [seconds(c) for c in costs])
            for seconds in (lambda c: c.both_s, lambda c: c.service_s, lambda c: c.server_s)
        )
        day_s = costs[-1].both_s * task.per_day
        lines.append(f"| {task.name} | {cells} | {both:.2f} ({own:.2f}, {server:.2f}) | {day_s:.0f} s |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
