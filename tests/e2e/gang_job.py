"""A user's training, eight ranks on four nodes, in which one thing goes wrong: `python gang_job.py CASE DIRECTORY`.

It knows nothing of Probing Cluster. Compute is modelled by sleeping (the ranks share few cores), gradients are
averaged by an all_reduce of the whole world, as real as gloo makes it.
"""

from __future__ import annotations

import ctypes
import os
import random
import signal
import sys
import time
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, Dataset

CULPRIT = 5
"""On the third node."""
FAILS_AT = 20
STEP_S = 0.1
JITTER_FRAC = 0.02
LONG_S = 18.0

case, directory = sys.argv[1], Path(sys.argv[2])
rank, world = int(os.environ["SLURM_PROCID"]), int(os.environ["SLURM_NTASKS"])
mine = rank == CULPRIT
jitter = random.Random(rank)
torch.set_num_threads(1)
model = torch.nn.Linear(64, 64)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)


class Batches(Dataset[torch.Tensor]):
    """As many batches as it says; the culprit's may never come, or be fewer."""

    def __init__(self, n: int) -> None:
        self.n = n

    def __len__(self) -> int:
        return self.n

    def __getitem__(self, i: int) -> torch.Tensor:
        if case == "dataloader" and mine and i >= FAILS_AT:
            time.sleep(3600)
        return torch.full((8, 64), float(i))


class SlowFile:
    """Writes a megabyte a second."""

    def __init__(self, path: Path) -> None:
        self.file = path.open("wb")

    def write(self, data: bytes) -> int:
        end = time.monotonic() + LONG_S
        while time.monotonic() < end:
            self.file.write(bytes(1 << 20))
            self.file.flush()
            time.sleep(1.0)
        return len(data)

    def flush(self) -> None:
        self.file.flush()


def endless() -> None:
    """A loop that never ends."""
    count = 0
    while count >= 0:
        count += 1
        if count > 1000:
            count = 0


def slow_compiler(graph: torch.fx.GraphModule, _inputs: list[torch.Tensor]) -> object:
    """A compiler that takes its time."""
    time.sleep(LONG_S)
    return graph.forward


def average() -> None:
    """The gradients of all ranks."""
    for parameter in model.parameters():
        dist.all_reduce(parameter.grad)


def go_wrong(step: int) -> None:
    """What this case is about, at its step."""
    if case == "python_loop" and mine:
        endless()
    elif case == "gil_held" and mine:
        ctypes.PyDLL(None).sleep(3600)
    elif case == "rank_stopped" and mine:
        os.kill(os.getpid(), signal.SIGSTOP)
    elif case == "rank_dead" and mine:
        os.kill(os.getpid(), signal.SIGKILL)
    elif case == "other_collective" and mine:
        dist.broadcast(torch.zeros(64 * 64), 0)
    elif case == "other_shape" and mine:
        dist.all_reduce(torch.zeros(7))
    elif case == "deadlock" and rank in (CULPRIT - 1, CULPRIT):
        for group in groups if mine else groups[::-1]:
            dist.all_reduce(torch.zeros(8), group=group)
    elif case in ("checkpoint_io", "checkpoint_long"):
        save(step)
    elif case == "compile_long":
        torch.compile(lambda x: x * 2 + 1, backend=slow_compiler)(torch.ones(4))


def save(step: int) -> None:
    """The culprit's shard of a checkpoint; everybody waits for it."""
    if mine:
        target: object = directory / f"step{step}.pt"
        if step >= FAILS_AT:
            target = (
                SlowFile(directory / "slow.pt")
                if case == "checkpoint_long"
                else Path(sys.argv[3]) / "step.pt"
            )
        torch.save(model.state_dict(), target)
    dist.barrier()


def compute(step: int) -> None:
    """A step's forward and backward pass."""
    factor = 1.2 if case == "slow" and mine else 1.0
    time.sleep(STEP_S * factor * (1 + jitter.uniform(-JITTER_FRAC, JITTER_FRAC)))


dist.init_process_group(
    "gloo",
    init_method=f"file://{directory}/store",
    rank=rank,
    world_size=world,
    timeout=timedelta(seconds=40),
)
groups = [dist.new_group([CULPRIT - 1, CULPRIT]) for _ in range(2)]
steps = int(os.environ.get("STEPS", "2000"))
fewer = FAILS_AT if case == "uneven_input" and mine else steps
loader = DataLoader(Batches(fewer), batch_size=None, num_workers=1 if case == "dataloader" else 0)
for step, batch in enumerate(loader):
    optimizer.zero_grad()
    model(batch).pow(2).mean().backward()
    compute(step)
    if case.startswith("checkpoint") and step in (4, 8):
        save(step)
    if step == FAILS_AT:
        go_wrong(step)
    average()
    optimizer.step()
dist.barrier()
