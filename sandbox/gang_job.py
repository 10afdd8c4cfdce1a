"""A user's training of eight ranks in which one thing goes wrong: `python gang_job.py CASE DIRECTORY [CHECKPOINTS]`.

It knows nothing of Probing Cluster. Compute is modelled by sleeping, since the ranks share few cores, with a seeded
jitter; gradients are averaged by an all_reduce of the whole world, as real as gloo makes it.
The cases are those of sandbox.gangs. In the environment `STEPS` bounds the training, `GLOO_TIMEOUT_S` is how long a
collective waits, and `ONCE` lets only the job's first start go wrong.
"""

from __future__ import annotations

import ctypes
import os
import random
import signal
import subprocess
import sys
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader

CULPRIT = 5
"""On the third node of two ranks each."""
FAILS_AT = 20
"""The step at which it goes wrong."""
STEP_S = 0.1
JITTER_FRAC = 0.02
SAVE_EVERY = 200
"""Steps of a healthy gang between two checkpoints."""
LONG_S = 18.0
"""How long what legitimately takes long takes."""
TIMEOUT_S = 40.0
"""Timeout of gloo's collectives, unless the environment sets another."""
FOR_EVER_S = 3600


class Batches:
    """A data set; the batches of one rank may never come."""

    def __init__(self, n: int, *, stuck: bool) -> None:
        self.n, self.stuck = n, stuck

    def __len__(self) -> int:
        return self.n

    def __getitem__(self, i: int) -> Any:
        if self.stuck and i >= FAILS_AT:
            time.sleep(FOR_EVER_S)
        return torch.full((8, 64), float(i))


class SlowFile:
    """Takes a megabyte a second, for a while."""

    def __init__(self, path: Path) -> None:
        self.file = path.open("wb")
        self.until_s = time.monotonic() + LONG_S

    def write(self, data: bytes) -> int:
        """The first write takes it all."""
        while time.monotonic() < self.until_s:
            self.file.write(bytes(1 << 20))
            self.file.flush()
            time.sleep(1.0)
        return len(data)

    def flush(self) -> None:
        """As of a file."""
        self.file.flush()


class Descent(torch.optim.Optimizer):  # type: ignore[misc] # mypy does not read torch's types
    """SGD. Each method of torch's own loads the compiler first, which costs a rank as much processor as importing torch does."""

    add_param_group = torch.optim.Optimizer.add_param_group.__wrapped__
    zero_grad = torch.optim.Optimizer.zero_grad.__wrapped__

    def __init__(self, parameters: Any) -> None:
        super().__init__(parameters, {"lr": 0.01})

    def step(self) -> None:
        """Against the gradient."""
        with torch.no_grad():
            for group in self.param_groups:
                for parameter in group["params"]:
                    parameter.add_(parameter.grad, alpha=-group["lr"])


class Training:
    """One rank."""

    def __init__(self, case: str, directory: Path, checkpoints: Path) -> None:
        start = int(os.environ.get("SLURM_RESTART_COUNT", "0"))
        self.case = "healthy" if start and os.environ.get("ONCE") else case
        self.directory, self.checkpoints = directory, checkpoints
        self.rank, self.world = int(os.environ["SLURM_PROCID"]), int(os.environ["SLURM_NTASKS"])
        self.mine = self.rank == CULPRIT
        node = os.environ.get("SLOW_NODE")
        on_it = node == os.environ.get("SLURMD_NODENAME")
        self.slowness = 1.2 if self.mine and not node else 2.0 if node and on_it else 1.0
        self.jitter = random.Random(self.rank)
        torch.set_num_threads(1)
        self.model = torch.nn.Linear(64, 64)
        self.optimizer = Descent(self.model.parameters())
        dist.init_process_group(
            "gloo",
            init_method=f"file://{directory}/store.{start}",
            rank=self.rank,
            world_size=self.world,
            timeout=timedelta(seconds=float(os.environ.get("GLOO_TIMEOUT_S", TIMEOUT_S))),
        )
        self.groups = [dist.new_group([CULPRIT - 1, CULPRIT]) for _ in range(2)]

    def train(self, steps: int) -> None:
        """To the end of the data."""
        n = FAILS_AT if self.case == "uneven_input" and self.mine else steps
        stuck = self.case == "dataloader"
        # As users do: for whoever wants to know afterwards how even the steps were.
        times = (self.directory / f"steps.{self.rank}").open("w", buffering=1)
        data: Any = Batches(n, stuck=stuck and self.mine)
        for step, batch in enumerate(DataLoader(data, batch_size=None, num_workers=int(stuck))):
            began_s = time.monotonic()
            self.optimizer.zero_grad()
            self.model(batch).pow(2).mean().backward()
            compute_s = self.compute()
            if self.saves(step):
                self.save(step)
            if step == FAILS_AT:
                self.go_wrong(step)
            for parameter in self.model.parameters():
                dist.all_reduce(parameter.grad)
            self.optimizer.step()
            times.write(f"{compute_s:.6f} {time.monotonic() - began_s:.6f}\n")
        dist.barrier()
        # Else torch ends its threads as the process exits, and now and then aborts it ("terminate called without an active exception").
        dist.destroy_process_group()

    def saves(self, step: int) -> bool:
        """Whether a checkpoint is due."""
        if self.case == "healthy":
            return step > 0 and step % SAVE_EVERY == 0
        return self.case.startswith("checkpoint") and step in (4, 8)

    def compute(self) -> float:
        """A step's forward and backward pass; what it took, seconds."""
        factor = self.slowness if self.case == "slow" else 1.0
        began_s = time.monotonic()
        time.sleep(STEP_S * factor * (1 + self.jitter.uniform(-JITTER_FRAC, JITTER_FRAC)))
        return time.monotonic() - began_s

    def go_wrong(self, step: int) -> None:
        """What this case is about."""
        if self.case in ("checkpoint_io", "checkpoint_long"):
            self.save(step)
        elif self.case == "compile_long":
            torch.compile(lambda x: x * 2 + 1, backend=slow_compiler)(torch.ones(4))
        elif self.case == "deadlock" and self.rank in (CULPRIT - 1, CULPRIT):
            for group in self.groups if self.mine else self.groups[::-1]:
                dist.all_reduce(torch.zeros(8), group=group)
        elif self.case == "node_killed" and self.rank in (CULPRIT - 1, CULPRIT):
            os.kill(os.getpid(), signal.SIGKILL)
        elif self.mine:
            self.go_wrong_alone()

    def go_wrong_alone(self) -> None:
        """What only the culprit does."""
        if self.case == "python_loop":
            endless()
        elif self.case == "gil_held":
            ctypes.PyDLL(None).sleep(FOR_EVER_S)
        elif self.case == "gil_burnt":
            burn()
        elif self.case == "rank_stopped":
            subprocess.run(["sh", "-c", f"kill -STOP {os.getpid()}"], check=True)  # by another process
        elif self.case == "rank_dead":
            os.kill(os.getpid(), signal.SIGKILL)
        elif self.case == "other_collective":
            dist.broadcast(torch.zeros(64 * 64), 0)
        elif self.case == "other_shape":
            dist.all_reduce(torch.zeros(7))
        elif self.case == "gpu_lost":
            wait_for_gpu()
        elif self.case == "link_down":
            fall_silent()

    def save(self, step: int) -> None:
        """The culprit's shard of a checkpoint; everybody waits for it."""
        if self.mine:
            target: Any = self.directory / ("last.pt" if self.case == "healthy" else f"step{step}.pt")
            if step >= FAILS_AT and self.case != "healthy":
                slow = self.case == "checkpoint_long"
                target = SlowFile(self.directory / "slow.pt") if slow else self.checkpoints / "step.pt"
            torch.save(self.model.state_dict(), target)
        dist.barrier()


def endless() -> None:
    """A loop that never ends."""
    count = 0
    while count >= 0:
        count += 1
        if count > 1000:
            count = 0


def burn() -> None:
    """C code that spins and holds the GIL: the C library searches a list of elements of no size, practically for ever."""
    c = ctypes.PyDLL(None)
    c.lfind(b"a", b"b", ctypes.byref(ctypes.c_size_t(1 << 62)), ctypes.c_size_t(0), c.strcmp)


def wait_for_gpu() -> None:
    """Waits like a program whose GPU has gone waits for its stream: in C, without the GIL."""
    ctypes.CDLL(None).sleep(FOR_EVER_S)


def fall_silent() -> None:
    """Acts like a node without a link: gloo's threads stop, so that nothing is sent or received, while the program waits."""
    c = ctypes.CDLL(None)
    c.signal(signal.SIGUSR1, c.pause)
    for thread in Path("/proc/self/task").iterdir():
        if int(thread.name) != os.getpid():
            c.tgkill(os.getpid(), int(thread.name), signal.SIGUSR1)


def slow_compiler(graph: Any, _inputs: Any) -> Any:
    """A compiler that takes its time."""
    time.sleep(LONG_S)
    return graph.forward


if __name__ == "__main__":
    words = [*sys.argv[1:], "."]
    Training(words[0], Path(words[1]), Path(words[2])).train(int(os.environ.get("STEPS", "5000")))
