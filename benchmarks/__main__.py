"""Every measurement of the project, one after the other, and one table at the end.

    python -m benchmarks [--short] [NAME …]      run all of them, or those named
    python -m benchmarks --list                  say what there is

Each one is a process of its own, so that none measures what another left behind, and each can be run alone with more
options (the command is in the list). `--short` takes smaller sizes: it shows that everything runs and gives the
order of magnitude. What cannot run here (no root, no Slurm, a library missing) says so in the table. Results that
were kept are in docs/benchmarks.md.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import platform
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
DEADLINE_S = 3600.0


@dataclass(frozen=True, kw_only=True)
class Benchmark:
    """One measurement: its module below this folder, what it is about, and the arguments of a short and of a whole run."""

    name: str
    about: str
    whole: tuple[str, ...] = ()
    short: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()
    """Keys of NEEDS."""

    def command(self, *, short: bool) -> list[str]:
        """What to type."""
        return ["-m", f"benchmarks.{self.name}", *(self.short if short else self.whole)]


def _library(name: str) -> Callable[[], bool]:
    return lambda: importlib.util.find_spec(name) is not None


NEEDS: dict[str, tuple[str, Callable[[], bool]]] = {
    "slurm": ("root and Debian's Slurm", lambda: os.geteuid() == 0 and shutil.which("slurmctld") is not None),
    "pgbouncer": ("PgBouncer", lambda: Path("/usr/sbin/pgbouncer").exists()),
    "bench": ("the dependency group bench (duckdb, pandas, polars)", _library("duckdb")),
}

BENCHMARKS: tuple[Benchmark, ...] = (
    Benchmark(
        name="live.sql",
        about="SQL over a running job: an open console, 2,000 nodes at the asker",
        short=("--nodes", "200", "--times", "20"),
    ),
    Benchmark(
        name="live.training",
        about="what a training loop loses by being asked every second",
        short=("--questions", "5"),
    ),
    Benchmark(
        name="evidence.parse", about="lines per second through the readers", short=("--lines", "100000")
    ),
    Benchmark(
        name="evidence.fuzz",
        about="mutated lines through every reader, no exception and no hang",
        whole=("--lines", "10000000", "--seed", "3"),
        short=("--lines", "100000"),
    ),
    Benchmark(
        name="probe_agent.idle",
        about="CPU and memory of an agent at rest, default intervals",
        short=("--seconds", "30"),
    ),
    Benchmark(
        name="probe_agent.storm",
        about="a storm of 100,000 kernel lines, and a grave one in it",
        short=("--lines", "20000"),
    ),
    Benchmark(
        name="diagnostics.isolation",
        about="bad and slow nodes on drawn fleets, ours beside DLRover's node check",
        short=("--cases", "100", "--fleets", "30"),
    ),
    Benchmark(
        name="diagnostics.returns",
        about="who returns from a repair and who is accused, on drawn repairs with faults that come and go",
        short=("--repairs", "50"),
    ),
    Benchmark(
        name="attribution.places",
        about="which switch, rack or feed many faults share, on drawn clusters",
        short=("--draws", "100"),
    ),
    Benchmark(
        name="slurm_plugins.hooks", about="wall time of Prolog, Epilog and TaskProlog", short=("--runs", "15")
    ),
    Benchmark(
        name="probe_agent.probe_overhead",
        about="start, memory, call-heavy code and hooks of the probe, beside PyPI probing",
        short=("--runs", "12"),
    ),
    Benchmark(
        name="probe_agent.user_tables",
        about="a row of a user's table beside Probing's; kept tables beside Pco",
        short=("--rounds", "2"),
    ),
    Benchmark(
        name="slurm_plugins.job_start",
        about="start of short jobs on a real Slurm, with us and without",
        short=("--jobs", "12", "--blocks", "2"),
        needs=("slurm",),
    ),
    Benchmark(
        name="healthchecks.sweep",
        about="CPU and wall of the full check sweep",
        short=("--rounds", "5", "--nodes", "4"),
    ),
    Benchmark(
        name="db.delivery",
        about="delivery beside COPY BINARY; 2,000 agents through PgBouncer",
        short=("--batches", "20", "--agents", "200", "--seconds", "10"),
        needs=("pgbouncer",),
    ),
    Benchmark(
        name="control_plane.node_door",
        about="2,000 agents through the door, beside those that come to the database themselves",
        short=("--agents", "100,200", "--direct-agents", "80", "--seconds", "6"),
        needs=("pgbouncer",),
    ),
    Benchmark(
        name="db.full_size",
        about="the store and the ops views on a full-size database",
        short=("--attempts", "40000", "--events", "200000"),
    ),
    Benchmark(
        name="control_plane.serve_memory",
        about="memory of the service on a year's database: start, backlog, at rest",
        short=("--attempts", "20000", "--events", "100000", "--backlog", "2000", "--rest", "15"),
    ),
    Benchmark(
        name="control_plane.service_cost",
        about="each task of the service at 250 to 2,000 nodes, with fitted exponents",
        short=("--nodes", "100,200", "--rounds", "1"),
    ),
    Benchmark(
        name="attribution.scale",
        about="attribution at fleet scale beside DuckDB, Polars and pandas",
        whole=("--scale", "full"),
        short=("--scale", "small", "--rounds", "1"),
        needs=("bench",),
    ),
    Benchmark(
        name="attribution.run_accounts",
        about="accounts of every run of an imported history",
        short=("--runs", "40000"),
    ),
    Benchmark(
        name="lemon.evaluate",
        about="finding lemons, beside the paper's thresholds",
        whole=("--held-out", "--every", "2"),
        short=("--seeds", "1", "--every", "7", "--ours-only"),
    ),
    Benchmark(name="reports.wall", about="wall time of probing-report", short=("--runs", "5")),
    Benchmark(
        name="web.pages",
        about="the web's pages over a year of 2,000 nodes, 16,000 ranks, 200 open pages",
        short=("--attempts", "20000", "--seconds", "3"),
    ),
    Benchmark(
        name="spine",
        about="kernel line to row and to drain on a real Slurm",
        short=("--faults", "1", "--rest", "15"),
        needs=("slurm",),
    ),
)


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What became of one."""

    name: str
    state: str
    seconds: float
    last_line: str


def missing(one: Benchmark) -> str:
    """What it needs and this machine does not have; empty when it can run."""
    return ", ".join(NEEDS[key][0] for key in one.needs if not NEEDS[key][1]())


def run(one: Benchmark, *, short: bool) -> Outcome:
    """Runs one, its output as it comes, and keeps its last words for the table."""
    lacking = missing(one)
    if lacking:
        return Outcome(name=one.name, state="left out", seconds=0.0, last_line=f"needs {lacking}")
    command = one.command(short=short)
    print(f"\n=== {one.name}: {one.about}\n    python {' '.join(command)}", flush=True)
    began, last_line = time.monotonic(), ""
    with subprocess.Popen(
        [sys.executable, *command], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            print(f"    {line}", end="", flush=True)
            # Closing brackets of a JSON answer say nothing.
            last_line = line.strip() if any(c.isalnum() for c in line) else last_line
        code = process.wait(DEADLINE_S)
    # A benchmark with a goal says by its exit status that it was missed; that is a result, not a breakdown.
    state = "ok" if code == 0 else f"exit {code}"
    return Outcome(name=one.name, state=state, seconds=time.monotonic() - began, last_line=last_line)


def table(outcomes: list[Outcome]) -> str:
    """The table of a run, as Markdown."""
    head = f"{datetime.now(UTC):%Y-%m-%d} · {os.cpu_count()} cores · Python {platform.python_version()}"
    rows = [f"| {o.name} | {o.state} | {o.seconds:.0f} | {o.last_line[:140]} |" for o in outcomes]
    return "\n".join([head, "", "| benchmark | state | s | last line |", "|---|---|---|---|", *rows])


def main(words: list[str] | None = None) -> int:
    """Runs what is asked for; 1 when one of them broke."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="which (default: all)")
    parser.add_argument("--short", action="store_true", help="smaller sizes")
    parser.add_argument("--list", action="store_true", help="say what there is and end")
    args = parser.parse_args(words)
    known = {b.name: b for b in BENCHMARKS}
    unknown = sorted(set(args.names) - set(known))
    if unknown:
        parser.error(f"unknown: {', '.join(unknown)}; known: {', '.join(known)}")
    chosen = [known[n] for n in args.names] or list(BENCHMARKS)
    if args.list:
        for one in chosen:
            print(f"{one.name:30} {one.about}\n{'':30} python {' '.join(one.command(short=args.short))}")
        return 0
    outcomes = [run(one, short=args.short) for one in chosen]
    print(f"\n{table(outcomes)}")
    return int(any(o.state not in {"ok", "left out"} for o in outcomes))


if __name__ == "__main__":
    sys.exit(main())
