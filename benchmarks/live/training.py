"""What a training loop loses by being asked: two ranks of torch under gloo, each question's next moments beside those before it.

    python -m benchmarks.live.training [--questions 300]

A second is the unit, as for somebody who asks every second: in every other one, by the dice, a question is asked at an instant that is
drawn; in the others nothing is, at an instant drawn alike. Steps are counted in the stretch after the instant and in the one before it, with
fractions of a step, so a drift of the machine strikes both; what the loop is slower in the one is what a question costs it, of one second. The
instants without a question say how large the noise is. Beside wall time stands the rank's processor time, in which others' work
hardly shows. The collector is open on the same node, as in a console or under --watch. The ranks have the machine's highest priority. The
asker, which on a cluster is elsewhere, does no more here than to take the answer.
"""

from __future__ import annotations

import argparse
import bisect
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
from probing_cluster.live.table import Scan
from probing_cluster.live.ways import choosing
from probing_cluster.probe_agent import inject

RANKS = 2
HIGHEST = -20
STRETCH_S = 0.3
"""Before and after an instant; a question is over well within it."""
LEAST_STEPS = 5
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


def instants(question_nodes: choosing.Nodes, n_questions: int) -> list[tuple[bool, int]]:
    """(questioned, monotonic nanoseconds) of the instants, half of them with a question, one a second."""
    dice, found = random.Random(7), []
    for first in (dice.random() < 0.5 for _ in range(n_questions)):
        for questioned in (first, not first):
            began = time.monotonic()
            time.sleep(dice.uniform(STRETCH_S, 1.0 - STRETCH_S))
            found.append((questioned, time.monotonic_ns()))
            if questioned:
                ask(question_nodes)
            time.sleep(max(0.0, began + 1.0 - time.monotonic()))
    return found


def ask(question_nodes: choosing.Nodes) -> None:
    """What a node gets of `SELECT * FROM cluster.ranks`."""
    reply = question_nodes.ask([Scan(table="cluster.ranks")], 30.0)
    assert not reply.missing, reply.missing


def at(steps: Sequence[tuple[int, int]], instant: int) -> tuple[float, float] | None:
    """(steps, processor nanoseconds) done by an instant, with the fraction of the step it lies in; None outside of them."""
    after = bisect.bisect_right(steps, (instant, 0))
    if not 0 < after < len(steps):
        return None
    (one, cpu), (other, later) = steps[after - 1], steps[after]
    part = (instant - one) / (other - one)
    return after - 1 + part, cpu + part * (later - cpu)


def lost(steps: Sequence[tuple[int, int]], instant: int) -> tuple[float, float] | None:
    """Percent of a second that the loop is behind after an instant, and of processor time that its steps took more; None for too few."""
    width = int(STRETCH_S * 1e9)
    found = [at(steps, instant + offset) for offset in (-width, 0, width)]
    if None in found:
        return None
    (first, cpu_first), (here, cpu_here), (last, cpu_last) = (f for f in found if f is not None)
    before, after = here - first, last - here
    if min(before, after) < LEAST_STEPS:
        return None
    cpu = (cpu_last - cpu_here) / after / ((cpu_here - cpu_first) / before)
    return 100 * STRETCH_S * (1 - after / before), 100 * STRETCH_S * (cpu - 1)


def interval(values: Sequence[float]) -> str:
    """The median with its 95 % interval, by drawing again."""
    dice = random.Random(1)
    drawn = sorted(statistics.median(dice.choices(values, k=len(values))) for _ in range(2000))
    return (
        f"{statistics.median(values):+.2f} % ({drawn[50]:+.2f} to {drawn[1949]:+.2f}, {len(values)} instants)"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--questions", type=int, default=300, help="each two seconds")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as text:
        base = Path(text)
        gang = Gang(base)
        config = settings.parse(f'[agent]\nnode = "n1"\njob_directory = "{base}/jobs"\n')
        nodes = choosing.open_nodes(config, "7", "local")
        assert isinstance(nodes, choosing.Nodes)
        try:
            ask(nodes)
            load_before = os.getloadavg()[0]
            found = instants(nodes, max(2, args.questions))
            steps = gang.steps(0)
        finally:
            nodes.close()
            gang.end()
    took = [(other - one) / 1e6 for (one, _), (other, _) in itertools.pairwise(steps)]
    print(
        f"a step takes {statistics.median(took):.2f} ms; load {load_before:.1f} to {os.getloadavg()[0]:.1f}"
    )
    for number, name in ((0, "of a second, wall time"), (1, "of a second, processor time of the rank")):
        for wanted, words in ((True, "a question"), (False, "no question (noise)")):
            each = [
                each
                for questioned, instant in found
                if questioned is wanted and (each := lost(steps, instant))
            ]
            print(f"lost {name}, {words}: {interval([values[number] for values in each])}")


if __name__ == "__main__":
    main()
