"""Wall time of short jobs on a real Slurm, with our hooks and agents and without them.

    python benchmarks/job_start.py [--jobs 100] [--blocks 4] [--json]

Boots a sandbox with everything of ours, then runs `srun true` one after the other in alternating blocks: with the
hooks in slurm.conf, and with Prolog, Epilog, HealthCheckProgram and the SPANK plugin taken out and Slurm
reconfigured. The difference of the medians, with a bootstrap interval, is the figure. srun itself waits in steps for
the Prolog (0, 100, 300, 600 ms in 22.05; 0, 100, 1,100 ms since 23.02), so the share of jobs above 300 ms is told too.
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

from probing_cluster.sandbox import cluster, scratch

OURS = ("Prolog", "Epilog", "HealthCheckProgram", "PlugStackConfig")


def switch(box: cluster.Sandbox, original: str, *, ours: bool) -> None:
    """slurm.conf with or without our hooks, taken up by every daemon.

    PrologFlags=Alloc stays in both. Where the SPANK plugin is built, the sandbox's TaskProlog is no hook of
    ours (it only marks the sandbox's processes) and stays as well.
    """
    names = OURS if "PlugStackConfig=" in original else (*OURS, "TaskProlog")
    pattern = re.compile(rf"^({'|'.join(names)})=.*$", re.MULTILINE)
    text = original if ours else pattern.sub("# \\g<0>", original)
    box.layout.slurm_conf.write_text(text)
    plugstack, aside = box.layout.etc / "plugstack.conf", box.layout.etc / "plugstack.aside"
    if not ours and plugstack.exists():
        plugstack.rename(aside)
    elif ours and aside.exists():
        aside.rename(plugstack)
    box.run(["scontrol", "reconfigure"])
    time.sleep(3)


def jobs_ms(box: cluster.Sandbox, count: int) -> list[float]:
    """Wall milliseconds of each of `count` short jobs, one after the other."""
    found = []
    for _ in range(count):
        begin = time.perf_counter()
        subprocess.run(["srun", "-N1", "-n1", "true"], env=box.env, check=True, capture_output=True)
        found.append((time.perf_counter() - begin) * 1e3)
    return found


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
    found: dict[bool, list[float]] = {True: [], False: []}
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
        jobs_ms(box, 3)
        for block in range(options.blocks * 2):
            ours = block % 2 == 0
            switch(box, original, ours=ours)
            jobs_ms(box, 3)
            found[ours] += jobs_ms(box, options.jobs // options.blocks)
        switch(box, original, ours=True)
    low, high = interval(found[True], found[False])
    told = {
        "jobs": len(found[True]),
        "with_ms": round(statistics.median(found[True]), 1),
        "without_ms": round(statistics.median(found[False]), 1),
        "difference_ms": [round(low, 1), round(high, 1)],
        "with_over_300_ms": sum(ms > 300 for ms in found[True]),
        "without_over_300_ms": sum(ms > 300 for ms in found[False]),
    }
    if options.json:
        print(json.dumps(told))
    else:
        print(
            "{jobs} jobs each: median {with_ms} ms with us, {without_ms} ms without;".format(**told), end=" "
        )
        print("{with_over_300_ms} and {without_over_300_ms} above 300 ms;".format(**told), end=" ")
        print(f"difference, 95 % interval: {low:.1f} to {high:.1f} ms")
    return 0


if __name__ == "__main__":
    sys.exit(main())
