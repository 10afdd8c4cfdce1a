"""Attribution at fleet scale, each step beside the best DuckDB, Polars and pandas formulation in the same run.

    python -m benchmarks.attribution.scale [--scale full|medium|days|small] [--rounds 3] [--directory DIR] [--postgres]

Every measurement is a process of its own (time, CPU time and peak resident memory of that process alone); the engines take
turns in each round, so that noise of the machine strikes them alike, and ratios are taken per round. `--postgres` also loads
the last days into an embedded Postgres and measures an incremental pass over a day, read and write included.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds

from benchmarks.attribution import core_join, figures, generate, incremental, processes
from probing_cluster.attribution.passes import distributed

_SCALES = {"full": generate.FULL, "medium": generate.MEDIUM, "days": generate.DAYS, "small": generate.SMALL}


def measure(task: str, engine: str, directory: Path) -> dict[str, Any]:
    """Run one task of one engine in a process of its own."""
    command = [
        sys.executable,
        "-m",
        "benchmarks.attribution.scale",
        "--one",
        task,
        engine,
        "--directory",
        str(directory),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        return {"engine": engine, "failed": done.stderr.strip().splitlines()[-1:]}
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answer


def one(task: str, engine: str, directory: Path) -> dict[str, Any]:
    """The task in this process."""
    begin, cpu = time.perf_counter(), time.process_time()
    if task == "core":
        answer: Any = core_join.checksum(core_join.ENGINES[engine](directory))
    elif task == "figures":
        answer = figures.ENGINES[engine](directory)
    else:
        answer = _reattribute(directory)
    took, used = time.perf_counter() - begin, time.process_time() - cpu
    peak = processes.peak_mb()
    return {"engine": engine, "s": round(took, 3), "cpu_s": round(used, 3), "peak_mb": peak, "answer": answer}


def _reattribute(directory: Path) -> dict[str, Any]:
    found = pa.concat_tables(
        list(distributed.run(directory, core_join.SINCE, core_join.UNTIL, memory_bytes=2 << 30))
    )
    given = ds.dataset(directory / "attempts", partitioning="hive").to_table(
        columns=["attempt_id", "label", "state"]
    )
    joined = found.select(["attempt_id", "cause", "domain"]).join(given, "attempt_id")
    labels, causes = joined["label"].to_pylist(), joined["cause"].to_pylist()
    domains, states = joined["domain"].to_pylist(), joined["state"].to_pylist()
    planted = [(a, b) for a, b in zip(labels, causes, strict=True) if a]
    user = [d for a, d, s in zip(labels, domains, states, strict=True) if not a and s == "FAILED"]
    return {
        "attempts": found.num_rows,
        "planted": len(planted),
        "planted_right": sum(a == b for a, b in planted),
        "user_bugs": len(user),
        "user_bugs_called_hardware": sum(d in ("hardware", "system_software") for d in user),
    }


def table(title: str, rounds: list[list[dict[str, Any]]], against: str) -> None:
    """Medians over the rounds, and the ratio to one engine taken round by round."""
    print(f"\n{title}")
    print(f"{'engine':24} {'s':>8} {'cpu s':>8} {'peak MB':>8} {'x ' + against:>10}")
    first = {r["engine"]: r for r in rounds[0]}
    for engine in first:
        rows = [next(r for r in one_round if r["engine"] == engine) for one_round in rounds]
        if any("failed" in r for r in rows):
            print(f"{engine:24} failed: {rows[0].get('failed')}")
            continue
        base = [next(r for r in one_round if r["engine"] == against) for one_round in rounds]
        ratios = [a["s"] / b["s"] for a, b in zip(rows, base, strict=True) if "s" in b]
        same = all(r["answer"] == rows[0]["answer"] for r in rows) and rows[0]["answer"] == base[0].get(
            "answer"
        )
        middle = {k: statistics.median(r[k] for r in rows) for k in ("s", "cpu_s", "peak_mb")}
        ratio = f"{statistics.median(ratios):10.2f}" if ratios else ""
        print(
            f"{engine:24} {middle['s']:8.2f} {middle['cpu_s']:8.2f} {middle['peak_mb']:8.0f} {ratio}{'' if same else '  DIFFERENT ANSWER'}"
        )


def main() -> int:
    """Generate (once per directory), measure, print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--scale", choices=tuple(_SCALES), default="small")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--directory", type=Path)
    parser.add_argument("--postgres", action="store_true")
    parser.add_argument("--one", nargs=2, metavar=("TASK", "ENGINE"), help=argparse.SUPPRESS)
    given = parser.parse_args()
    directory = given.directory or Path(tempfile.mkdtemp(prefix="probing-scale-"))
    if given.one:
        print(json.dumps(one(*given.one, directory)))
        return 0
    if not (directory / "sorts.parquet").exists():
        made = generate.generate(directory, _SCALES[given.scale])
        print(f"generated {made} in {directory}")
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}, {given.rounds} rounds, medians")
    for title, task, engines in (
        ("core join: strongest event per failed attempt", "core", core_join.ENGINES),
        ("figures: attempts, GPU time and failures by size", "figures", figures.ENGINES),
    ):
        table(title, [[measure(task, e, directory) for e in engines] for _ in range(given.rounds)], "duckdb")
    again = measure("reattribute", "probing", directory)
    print(f"\nfull re-attribution (judge's own answers): {again}")
    if given.postgres:
        print(f"\nincremental pass over a day: {incremental.measure(directory, given.rounds)}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
