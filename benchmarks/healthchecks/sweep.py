"""CPU and wall of the full check sweep on a simulated GPU node, beside NHC on this machine.

    python -m benchmarks.healthchecks.sweep [--rounds N] [--nodes N] [--nhc CHECKOUT]

`--nhc` is a checkout of github.com/mej/nhc (1.4.3 was used); without it only our own figures are
printed. Prints one JSON object; every figure is the median of the rounds. CPU is user + system of
everything that was started. NHC is given as many of its checks as have an equal one of ours, and
ours are then run on the same files of this machine.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks.healthchecks import nhc_run
from probing_cluster.healthchecks import registry, sweep
from probing_cluster.sandbox.c_libraries import nvml_build
from probing_cluster.sandbox.nodetree import build

EQUAL = (
    "mount_present", "mount_writable", "disk_space", "disk_inodes", "memory_size", "swap", "cpu_count", "eth_link",
    "load", "unauthorized_processes", "slurmd", "mount_responsive",
)  # fmt: skip
"""Ours, line by line; the last stands for the file test."""


def children_cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def measured(rounds: int, run: Callable[[], object]) -> dict[str, float]:
    """Median wall and CPU (of children that ended) in ms."""
    walls, cpus = [], []
    for _ in range(rounds):
        cpu, began = children_cpu_s(), time.monotonic()
        run()
        walls.append(time.monotonic() - began)
        cpus.append(children_cpu_s() - cpu)
    return {
        "wall_ms": round(1000 * statistics.median(walls), 1),
        "cpu_ms": round(1000 * statistics.median(cpus), 1),
    }


def resident(config: sweep.Config, rounds: int, names: tuple[str, ...] | None = None) -> dict[str, object]:
    """Sweeps of a process that stays: what the agent pays every time."""
    embedded = sweep.Sweep(config)
    try:
        results = embedded.run(names=names, force=True)
        walls, cpus = [], []
        for _ in range(rounds):
            began = time.monotonic()
            results = embedded.run(names=names, force=True)
            walls.append(time.monotonic() - began)
            assert embedded.heartbeat is not None
            cpus.append(embedded.heartbeat.detail["cpu_s"])
        status = Path(f"/proc/{embedded.pid}/status").read_text()
    finally:
        embedded.close()
    counts = {o: sum(r.outcome == o for r in results) for o in ("ok", "warn", "fail", "error", "absent")}
    rss_kb = next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS"))
    return {
        "checks": len(results),
        **counts,
        "wall_ms": round(1000 * statistics.median(walls), 1),
        "cpu_ms": round(1000 * statistics.median(cpus), 1),
        "rss_mib": round(rss_kb / 1024, 1),
    }


def cold(arguments: list[str], rounds: int) -> dict[str, float]:
    """`probing-check run` from nothing, as a person types it."""
    command = [sys.executable, "-I", "-m", "probing_cluster.healthchecks.cli", "run", *arguments]
    return measured(rounds, lambda: subprocess.run(command, capture_output=True, check=False))


def nhc(checkout: Path, scratch: Path, rounds: int) -> dict[str, object]:
    """NHC's one run of its twelve checks."""
    command = nhc_run.command(checkout, scratch)
    figures = measured(rounds, lambda: subprocess.run(command, capture_output=True, check=False))
    return {"checks": nhc_run.CHECKS, **figures}


def many_nodes(scratch: Path, library: str, number: int) -> dict[str, object]:
    """One sweep of each of many simulated nodes, one after another, each by a runner of its own."""
    outcomes = dict.fromkeys(("ok", "warn", "fail", "error", "absent"), 0)
    cpu_s, began = 0.0, time.monotonic()
    for i in range(1, number + 1):
        home = scratch / "many" / f"n{i}"
        build.build(home, f"n{i}", number=i)
        os.environ["PROBING_NVML_STATE"] = str(home / build.NVML_STATE)
        engine = sweep.make_runner(sweep.Config(node=f"n{i}", root=str(home / "root"), nvml_library=library))
        swept = engine.run(force=True)
        cpu_s += swept.cpu_s
        for outcome in outcomes:
            outcomes[outcome] += swept.heartbeat.detail[outcome]
    wall_s = time.monotonic() - began
    return {"nodes": number, "wall_s": round(wall_s, 2), "cpu_s": round(cpu_s, 2), **outcomes}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--nhc", type=Path)
    parser.add_argument("--nodes", type=int, default=64)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as made:
        scratch = Path(made)
        build.build(scratch / "n1", "n1")
        os.environ["PROBING_NVML_STATE"] = str(scratch / "n1" / build.NVML_STATE)
        library = str(nvml_build.build(scratch))
        root = str(scratch / "n1" / "root")
        node = sweep.Config(node="n1", root=root, nvml_library=library)
        here = sweep.Config(node="here")
        python = measured(
            args.rounds, lambda: subprocess.run([sys.executable, "-I", "-S", "-c", "pass"], check=True)
        )
        figures: dict[str, object] = {
            "python -I -S -c pass": python,
            "sweep_8_gpu_node": resident(node, args.rounds),
            "sweep_without_gpu_lane": resident(
                node, args.rounds, tuple(n for n in registry.load() if not n.startswith(("gpu_", "nvswitch")))
            ),
            "recheck_one": resident(node, args.rounds, ("ib_link",)),
            "probing-check run, 8-GPU node": cold(
                ["--root", root, "--node", "n1", "--nvml-library", library], args.rounds
            ),
            "equal_checks_resident": resident(here, args.rounds, EQUAL),
            "equal_checks_cold": cold(list(EQUAL), args.rounds),
        }
        figures["many_nodes"] = many_nodes(scratch, library, args.nodes)
        if args.nhc:
            figures["nhc"] = nhc(args.nhc.resolve(), scratch, args.rounds)
            figures["ratios"] = _ratios(figures)
    print(json.dumps(figures, indent=2))


def _ratios(figures: dict[str, object]) -> dict[str, float]:
    other = figures["nhc"]
    ours = {
        "full_sweep": "sweep_8_gpu_node",
        "equal_resident": "equal_checks_resident",
        "equal_cold": "equal_checks_cold",
    }
    return {
        f"{name}_{figure}_over_nhc": round(figures[key][f"{figure}_ms"] / other[f"{figure}_ms"], 3)  # type: ignore[index]
        for name, key in ours.items()
        for figure in ("cpu", "wall")
    }


if __name__ == "__main__":
    main()
