"""What the agent costs when nothing happens: CPU and memory of the daemon and of its children.

    python -m benchmarks.probe_agent.idle [--seconds N] [--json]

Intervals are the installed defaults (poll and beat 10 s). The check sweep of every 300 s is left out, it has its own
benchmark: 1 ms of it adds 0.0003 %. The process that waits for it is there.
"""

from __future__ import annotations

import argparse
import json
import os
import time

from benchmarks.probe_agent import agent_rig

GOAL_CPU_FRAC, GOAL_RSS_MIB = 0.002, 50.0


def measure(seconds: float) -> dict[str, object]:
    """Shares of one core and MiB, by process."""
    real = os.access("/dev/kmsg", os.R_OK) and os.geteuid() == 0
    with agent_rig.running(real_kernel_log=real, sweep_s=86400.0) as rig:
        time.sleep(25)
        names = rig.processes()
        before = {pid: agent_rig.cpu_s(pid) for pid in names}
        began = time.monotonic()
        time.sleep(seconds)
        wall = time.monotonic() - began
        used = {pid: agent_rig.cpu_s(pid) - before[pid] for pid in names}
        memory = {pid: agent_rig.memory_mib(pid) for pid in names}
    rows = {
        f"{name} ({pid})": {
            "cpu_frac": round(used[pid] / wall, 5),
            "rss_mib": round(memory[pid][0], 1),
            "pss_mib": round(memory[pid][1], 1),
        }
        for pid, name in names.items()
    }
    return {
        "seconds": round(wall, 1),
        "kernel_log": "/dev/kmsg" if real else "a file",
        "processes": rows,
        "cpu_frac": round(sum(used.values()) / wall, 5),
        "pss_mib": round(sum(m[1] for m in memory.values()), 1),
        "goals": {"cpu_frac": GOAL_CPU_FRAC, "rss_mib": GOAL_RSS_MIB},
    }


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=120.0)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    found = measure(args.seconds)
    if args.json:
        print(json.dumps(found, indent=2))
        return 0
    for name, row in found["processes"].items():  # type: ignore[attr-defined]
        print(
            f"{name:32} {row['cpu_frac']:8.3%} of a core  {row['rss_mib']:6.1f} MiB resident  {row['pss_mib']:6.1f} MiB own share"
        )
    print(
        f"{'together':32} {found['cpu_frac']:8.3%} (goal {GOAL_CPU_FRAC:.1%})   "
        f"{found['pss_mib']} MiB own share, goal {GOAL_RSS_MIB:.0f} MiB"
    )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
