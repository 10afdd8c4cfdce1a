"""Wall time of short jobs on a real Slurm, with our hooks and agents and without them.

    python -m benchmarks.slurm_plugins.job_start [--jobs 100] [--blocks 4] [--json]

Boots a sandbox with everything of ours, then starts jobs one after the other in alternating blocks: with our hooks in
slurm.conf; with a Prolog and an Epilog that are empty shell scripts, which is Slurm's own price for having any; and
with none, the SPANK plugin taken out as well, Slurm reconfigured each time. Measured are `srun true` as a whole, and
for `sbatch` the time from its call to the script's first line. Differences are of medians, with bootstrap intervals.
srun itself waits in steps for the Prolog (0, 100, 300, 600 ms in 22.05; 0, 100, 1,100 ms since 23.02).
"""

from __future__ import annotations

import argparse
import json
import random
import re
import statistics
import subprocess
import sys
import time
from typing import Any

from probing_cluster.sandbox import cluster
from probing_cluster.sandbox.machine import scratch

OURS = ("Prolog", "Epilog", "HealthCheckProgram", "PlugStackConfig")
WITH_US, EMPTY, NONE = "with us", "empty hooks", "no hooks"
SETUPS = (WITH_US, EMPTY, NONE)


def switch(box: cluster.Sandbox, original: str, setup: str) -> None:
    """slurm.conf with our hooks, empty ones or none, taken up by every daemon.

    PrologFlags=Alloc stays in both. Where the SPANK plugin is built, the sandbox's TaskProlog is no hook of
    ours (it only marks the sandbox's processes) and stays as well.
    """
    names = OURS if "PlugStackConfig=" in original else (*OURS, "TaskProlog")
    pattern = re.compile(rf"^({'|'.join(names)})=.*$", re.MULTILINE)
    text = original if setup == WITH_US else pattern.sub("# \\g<0>", original)
    if setup == EMPTY:
        empty = box.layout.bin / "empty-hook"
        empty.write_text("#!/bin/sh\nexit 0\n")
        empty.chmod(0o755)
        text += f"\nProlog={empty}\nEpilog={empty}\n"
    box.layout.slurm_conf.write_text(text)
    plugstack, aside = box.layout.etc / "plugstack.conf", box.layout.etc / "plugstack.aside"
    if setup != WITH_US and plugstack.exists():
        plugstack.rename(aside)
    elif setup == WITH_US and aside.exists():
        aside.rename(plugstack)
    box.run(["scontrol", "reconfigure"])
    time.sleep(3)


def srun_ms(box: cluster.Sandbox) -> float:
    """Wall milliseconds of `srun true`."""
    begin = time.perf_counter()
    subprocess.run(["srun", "-N1", "-n1", "true"], env=box.env, check=True, capture_output=True)
    return (time.perf_counter() - begin) * 1e3


def sbatch_ms(box: cluster.Sandbox) -> float:
    """Milliseconds from the call of `sbatch` to the first line of its script."""
    written = box.layout.directory / "began"
    written.unlink(missing_ok=True)
    command = ["sbatch", "-N1", "-n1", "-o", "/dev/null"]
    script = f"#!/bin/sh\ndate +%s%N > {written}\n"
    begin_ns = time.time_ns()
    subprocess.run(command, input=script, text=True, env=box.env, check=True, capture_output=True)
    # Not --wait, which asks in steps of seconds: the next is to find the nodes idle, no more.
    while box.run(["squeue", "-h"]).stdout.strip():
        time.sleep(0.05)
    return (int(written.read_text()) - begin_ns) / 1e6


KINDS = {"srun": srun_ms, "sbatch": sbatch_ms}


def interval(a: list[float], b: list[float], draws: int = 2000) -> tuple[float, float]:
    """95 % bootstrap interval of the difference of medians, a - b."""
    chance = random.Random(7)
    found = sorted(
        statistics.median(chance.choices(a, k=len(a))) - statistics.median(chance.choices(b, k=len(b)))
        for _ in range(draws)
    )
    return found[int(draws * 0.025)], found[int(draws * 0.975)]


def main() -> int:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--jobs", type=int, default=100, help="jobs with, and as many without")
    parser.add_argument("--blocks", type=int, default=4)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    found: dict[str, dict[str, list[float]]] = {k: {s: [] for s in SETUPS} for k in KINDS}
    with (
        scratch.directory("probing-start-") as directory,
        cluster.Sandbox.up(directory / "box", nodes=2, gpus=4) as box,
    ):
        # The installed default; the sandbox's own ten seconds are there to be quick in tests.
        original = re.sub(
            r"^HealthCheckInterval=.*$",
            "HealthCheckInterval=300",
            box.layout.slurm_conf.read_text(),
            flags=re.MULTILINE,
        )
        for setup in SETUPS * options.blocks:
            switch(box, original, setup)
            for kind, measure in KINDS.items():
                measure(box)  # the first after a reconfiguration waits for it
                found[kind][setup] += [measure(box) for _ in range(options.jobs // options.blocks)]
        switch(box, original, WITH_US)
    summaries = {kind: summary(of) for kind, of in found.items()}
    if options.json:
        print(json.dumps(summaries))
        return 0
    for kind, row in summaries.items():
        medians = ", ".join(f"{setup} {row['median_ms'][setup]} ms" for setup in SETUPS)
        print(f"{kind}, {row['jobs']} jobs each, medians: {medians}")
        for other, (low, high) in row["more_than_ms"].items():
            print(f"  with us less {other}: {low} to {high} ms (95 % interval)")
        print(f"  above 300 ms: {row['over_300_ms']}")
    return 0


def summary(found: dict[str, list[float]]) -> dict[str, Any]:
    """Medians, and how much more a job takes with us than in the other two setups."""
    return {
        "jobs": len(found[WITH_US]),
        "median_ms": {setup: round(statistics.median(ms), 1) for setup, ms in found.items()},
        "more_than_ms": {
            other: [round(x, 1) for x in interval(found[WITH_US], found[other])] for other in (EMPTY, NONE)
        },
        "over_300_ms": {setup: sum(x > 300 for x in ms) for setup, ms in found.items()},
    }


if __name__ == "__main__":
    sys.exit(main())
