"""What a training loop loses by being asked: two ranks of torch under gloo, seconds with a question beside seconds without.

    python -m benchmarks.live.training [--pairs 45]

Of each pair of seconds one, by the dice, begins with a question, and the mean time of a step in the one is compared with the other's. For
the noise of the machine the seconds without a question are compared with each other in the same way. The collector is open on the
same node, as in a console or under --watch. The ranks have the machine's highest priority, so that other work is less in their way;
the asker, which on a cluster is elsewhere, runs on the same cores.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import os
import random
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from probing_cluster.core import settings
from probing_cluster.live.session import session
from probing_cluster.live.ways import choosing
from probing_cluster.probe_agent import inject

RANKS = 2
HIGHEST = -20
LEAST_STEPS = 20
TRAIN = """
import os, struct, sys, time, torch, torch.distributed as dist
rank, base = int(sys.argv[1]), sys.argv[2]
dist.init_process_group("gloo", init_method=f"file://{base}/meet", rank=rank, world_size=2)
torch.manual_seed(1)
model = torch.nn.Sequential(*(torch.nn.Linear(128, 128) for _ in range(4)))
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
data = torch.randn(64, 128)
with open(f"{base}/steps.{rank}", "wb") as steps:
    while not os.path.exists(f"{base}/stop"):
        loss = model(data).square().mean()
        optimizer.zero_grad()
        loss.backward()
        for p in model.parameters():
            dist.all_reduce(p.grad)
        optimizer.step()
        steps.write(struct.pack("<qq", time.monotonic_ns(), time.process_time_ns()))
        steps.flush()
    os._exit(0)
"""
STEP = struct.Struct("<qq")


class Gang:
    """Two ranks that train until `end`."""

    def __init__(self, base: Path) -> None:
        self._base = base
        directory = base / "jobs/7"
        directory.mkdir(parents=True)
        site = str(inject.SITE_DIRECTORY)
        environment = {
            **os.environ,
            "PROBING_PAGE_DIR": str(directory),
            "PYTHONPATH": site,
            "OMP_NUM_THREADS": "1",
            "SLURM_NTASKS": str(RANKS),
        }
        self._ranks = [
            subprocess.Popen(
                [sys.executable, "-c", TRAIN, str(n), str(base)],
                env={**environment, "SLURM_PROCID": str(n), "RANK": str(n), "WORLD_SIZE": str(RANKS)},
            )
            for n in range(RANKS)
        ]
        while any(len(self.steps(n)) < 100 for n in range(RANKS)):
            if any(p.poll() is not None for p in self._ranks):
                raise SystemExit("a rank did not start to train")
            time.sleep(0.2)
        for process in self._ranks:
            with contextlib.suppress(PermissionError):  # root's alone
                os.setpriority(os.PRIO_PROCESS, process.pid, HIGHEST)

    def steps(self, rank: int) -> list[tuple[int, int]]:
        """(monotonic, processor) nanoseconds at the end of each step so far."""
        path = self._base / f"steps.{rank}"
        data = path.read_bytes() if path.exists() else b""
        return list(STEP.iter_unpack(data[: len(data) // STEP.size * STEP.size]))

    def end(self) -> None:
        """Ends both."""
        (self._base / "stop").touch()
        for process in self._ranks:
            process.kill()
            process.wait()


def seconds(asking: session.Session, n_pairs: int) -> list[tuple[bool, int, int]]:
    """(asked, begin, end) of each second, monotonic nanoseconds; two make a pair."""
    dice, found = random.Random(7), []
    for first in (dice.random() < 0.5 for _ in range(n_pairs)):
        for questioned in (first, not first):
            began = time.monotonic()
            if questioned:
                rows = asking.sql("SELECT * FROM cluster.ranks").rows.num_rows
                assert rows == RANKS, rows
            time.sleep(max(0.0, began + 1.0 - time.monotonic()))
            found.append((questioned, int(began * 1e9), time.monotonic_ns()))
    return found


def per_step_ms(steps: Sequence[tuple[int, int]], begin: int, end: int) -> tuple[float, float] | None:
    """Milliseconds of wall and of the rank's processor time per step between two instants; None for too few steps."""
    inside = [s for s in steps if begin <= s[0] <= end]
    n = len(inside) - 1
    if n < LEAST_STEPS:
        return None
    return (inside[-1][0] - inside[0][0]) / n / 1e6, (inside[-1][1] - inside[0][1]) / n / 1e6


def slowdowns(pairs: Sequence[tuple[float, float]]) -> list[float]:
    """Percent by which the first of each pair is above the second."""
    return [100 * (one / other - 1) for one, other in pairs]


def interval(values: Sequence[float]) -> str:
    """The median with its 95 % interval, by drawing again."""
    dice = random.Random(1)
    drawn = sorted(statistics.median(dice.choices(values, k=len(values))) for _ in range(2000))
    return f"{statistics.median(values):+.2f} % ({drawn[50]:+.2f} to {drawn[1949]:+.2f}, {len(values)} pairs)"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=45, help="of seconds")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as text:
        base = Path(text)
        gang = Gang(base)
        config = settings.parse(f'[agent]\nnode = "n1"\njob_directory = "{base}/jobs"\n')
        nodes = choosing.open_nodes(config, "7", "local")
        try:
            asking = session.Session(nodes, timeout_s=30)
            asking.sql("SELECT * FROM cluster.ranks")
            load_before = os.getloadavg()[0]
            spans = seconds(asking, max(2, args.pairs))
            steps = gang.steps(0)
        finally:
            nodes.close()
            gang.end()
    found = [(questioned, per_step_ms(steps, begin, end)) for questioned, begin, end in spans]
    pairs = [sorted(pair, key=lambda f: f[0]) for pair in zip(found[::2], found[1::2], strict=True)]
    whole = [(idle, questioned) for (_, idle), (_, questioned) in pairs if idle and questioned]
    print(
        f"a step takes {statistics.median(unasked[0] for unasked, _ in whole):.2f} ms; {len(pairs) - len(whole)} pairs with too few steps; load {load_before:.1f} to {os.getloadavg()[0]:.1f}"
    )
    for at, name in ((0, "wall time of a step"), (1, "processor time of a step")):
        compared = [(questioned[at], idle[at]) for idle, questioned in whole]
        print(f"{name}, asked every second: {interval(slowdowns(compared))}")
        unasked = [one for _, one in compared]
        print(f"{name}, not asked (noise): {interval(slowdowns(list(itertools.pairwise(unasked))))}")


if __name__ == "__main__":
    main()
