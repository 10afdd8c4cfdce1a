"""`probing-ctl sql`: an open console on a node with eight ranks, and 2,000 simulated nodes of eight ranks at the asker.

    python -m benchmarks.live.sql [--nodes 2000] [--times 200] [--questioned 20] [--cold CLUSTER_DIRECTORY JOBID]

Figures are medians. `--cold` adds the whole command over Slurm on the nodes of a running job of a sandbox.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from probing_cluster.core import digits, settings
from probing_cluster.live import packing
from probing_cluster.live.session import session
from probing_cluster.live.table import Columns, Scan
from probing_cluster.live.ways import choosing, streams
from probing_cluster.probe_agent import inject

RANKS, STEPS = 8, 64
TRAIN = """
import sys, time
from _probing_probe import page
page.open_page()
page.write_identity(rank=int(sys.argv[1]), world=8, backend="gloo")
for _ in range(100):
    page.step_done()
print("ready", flush=True)
time.sleep(600)
"""


def timed(work: Callable[[], object], times: int) -> str:
    """Median and least wall time, and this process's processor time, which other work hardly moves."""
    work()
    taken = []
    used_s = time.process_time()
    for _ in range(times):
        began = time.perf_counter()
        work()
        taken.append((time.perf_counter() - began) * 1000)
    used_ms = (time.process_time() - used_s) * 1000 / times
    return (
        f"median {statistics.median(taken):.2f} ms, least {min(taken):.2f} ms, asker's CPU {used_ms:.2f} ms"
    )


def collector_cpu_s(pid: int) -> float:
    """Processor time of a collector, of the readers it has had and of those it has."""
    ticks = 0
    for process in Path("/proc").iterdir():
        with contextlib.suppress(OSError):  # it has ended meanwhile
            if digits.is_number(process.name):
                fields = (process / "stat").read_text().rpartition(")")[2].split()
                if str(pid) in (process.name, fields[1]):
                    ticks += sum(map(int, fields[11:15]))
    return ticks / os.sysconf("SC_CLK_TCK")


def questioned_every_second(asking: session.Session, seconds: int) -> None:
    """What asking once a second costs on the node: the most that it can take from the ranks, wherever they run."""
    (collector,) = (
        int(p.name) for p in Path("/proc").iterdir() if digits.is_number(p.name) and is_collector(p)
    )
    before_s = collector_cpu_s(collector)
    for _ in range(seconds):
        asking.sql("SELECT * FROM cluster.ranks")
        time.sleep(1)
    each_ms = (collector_cpu_s(collector) - before_s) * 1000 / seconds
    print(
        f"asked every second, {RANKS} ranks: {each_ms:.1f} ms of CPU a second on the node: {each_ms / 10:.2f} % of one core"
    )


def is_collector(process: Path) -> bool:
    """Our own child that runs the collector."""
    try:
        parent = (process / "stat").read_text().rpartition(")")[2].split()[1]
        return int(parent) == os.getpid() and b"collector" in (process / "cmdline").read_bytes()
    except OSError:
        return False


def open_console(times: int, seconds: int) -> None:
    """Eight real processes with pages, one collector, statements one after another."""
    with tempfile.TemporaryDirectory() as base:
        directory = Path(base) / "jobs/7"
        directory.mkdir(parents=True)
        environment = {"PROBING_PAGE_DIR": str(directory), "PYTHONPATH": str(inject.SITE_DIRECTORY)}
        argv = [sys.executable, "-S", "-c", TRAIN]
        started = [
            subprocess.Popen([*argv, str(n)], env=environment, stdout=subprocess.PIPE) for n in range(RANKS)
        ]
        for process in started:
            assert process.stdout is not None
            process.stdout.readline()
        config = settings.parse(f'[agent]\nnode = "n1"\njob_directory = "{base}/jobs"\n')
        nodes = choosing.open_nodes(config, "7", "local")
        asking = session.Session(nodes, timeout_s=30)
        for statement in (
            "SELECT 1",
            "SELECT * FROM cluster.ranks",
            "SELECT rank, avg(duration_s) FROM torch.steps GROUP BY rank",
            "SELECT rank, rss_bytes FROM process.memory",
        ):
            print(
                f"open console, {RANKS} ranks: {statement}: {timed(lambda s=statement: asking.sql(s), times)}"
            )
        questioned_every_second(asking, seconds)
        nodes.close()
        for process in started:
            process.kill()
            process.wait()


class ManyNodes:
    """Answers of many nodes that have arrived already."""

    def __init__(self, n: int) -> None:
        self.nodes = tuple(f"n{i}" for i in range(n))
        self.frames = [(f"n{i}", self._frame(i)) for i in range(n)]

    def ask(self, _: Sequence[Scan], __: float) -> streams.Reply:
        return streams.Reply(frames=self.frames, answered=set(self.nodes))

    @staticmethod
    def _frame(node: int) -> bytes:
        ranks = [node * RANKS + r for r in range(RANKS) for _ in range(STEPS)]
        durations = [0.1 + (r % 7) / 1000 for r in ranks]
        columns = Columns(names=("rank", "duration_s"), kinds=("int", "float"), values=(ranks, durations))
        header: dict[str, Any] = {"node": f"n{node}", "table": "torch.steps", "missing": []}
        return packing.pack(header, columns)


def many_nodes(n: int, times: int) -> None:
    """Every rank's steps of `n` nodes, grouped by rank."""
    nodes = ManyNodes(n)
    before_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    asking = session.Session(nodes, timeout_s=30)
    statement = "SELECT rank, avg(duration_s) AS d FROM torch.steps GROUP BY rank"
    rows = asking.sql(statement).rows.num_rows
    assert rows == n * RANKS, rows
    sent_mb = sum(len(frame) for _, frame in nodes.frames) / 1e6
    took = timed(lambda: asking.sql(statement), times)
    peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(
        f"{n} nodes x {RANKS} ranks x {STEPS} steps ({sent_mb:.0f} MB), grouped by rank: {took}; peak {peak_mb:.0f} MB ({before_mb:.0f} before)"
    )


def cold(directory: str, job: str, times: int) -> None:
    """The whole command, process start included."""
    environment = {
        **os.environ,
        "SLURM_CONF": f"{directory}/etc/slurm.conf",
        "PROBING_CONFIG": f"{directory}/etc/probing.toml",
    }
    argv = [sys.executable, "-m", "probing_cluster.control_plane.cli.main", "sql", job]
    ask = [*argv, "SELECT rank, node, step, inside, seconds_inside FROM cluster.ranks"]
    took = timed(lambda: subprocess.run(ask, env=environment, check=True, capture_output=True), times)
    print(f"cold command over Slurm: {took}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=2000)
    parser.add_argument("--times", type=int, default=200)
    parser.add_argument(
        "--questioned", type=int, default=20, metavar="S", help="seconds of being asked every second"
    )
    parser.add_argument("--cold", nargs=2, metavar=("CLUSTER_DIRECTORY", "JOBID"))
    args = parser.parse_args()
    # First, in a process that has loaded nothing yet: the peak is this one's.
    many_nodes(args.nodes, max(3, args.times // 20))
    open_console(args.times, args.questioned)
    if args.cold:
        cold(*args.cold, max(3, args.times // 20))


if __name__ == "__main__":
    main()
