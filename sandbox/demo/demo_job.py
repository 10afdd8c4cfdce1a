"""What `make demo` trains: a few dozen steps with checkpoints; a requeued job goes on from the last one.

Started by srun on each node as `python demo_job.py CHECKPOINT STEPS CHECKPOINT_EVERY`. With PyTorch installed it
is a real (tiny) training, whose steps and checkpoints the probe sees; without, it counts.
Standard library only otherwise; it knows nothing of Probing Cluster, as a user's script would not.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

STEP_S = 0.5

torch: Any = None
with contextlib.suppress(ImportError):
    torch = importlib.import_module("torch")


def main(checkpoint: Path, steps: int, every: int) -> None:
    """Trains from the last checkpoint to step `steps`."""
    rank = int(os.environ.get("SLURM_PROCID", "0"))
    first = load(checkpoint)
    log_line(rank, f"resuming at step {first}" if first else "starting at step 0")
    train = torch_step() if torch else None
    for step in range(first, steps):
        began = time.monotonic()
        loss = train() if train else 4.0 / (1 + step) ** 0.5
        time.sleep(max(0.0, STEP_S - (time.monotonic() - began)))
        if (step + 1) % every == 0:
            if rank == 0:
                save(checkpoint, step + 1)
            log_line(rank, f"checkpoint at step {step + 1}  loss {loss:.3f}")
    log_line(rank, f"done after {steps} steps")


def load(path: Path) -> int:
    """The step to go on from; 0 without a checkpoint."""
    try:
        if torch:
            return int(torch.load(path)["step"])
        return int(json.loads(path.read_text())["step"])
    except FileNotFoundError:
        return 0


def save(path: Path, step: int) -> None:
    """Replaces the checkpoint at once."""
    fresh = path.with_name(f"{path.name}.new")
    if torch:
        torch.save({"step": step}, fresh)
    else:
        fresh.write_text(json.dumps({"step": step}))
    fresh.replace(path)


def torch_step() -> Callable[[], float]:
    """One training step of a tiny model."""
    torch.set_num_threads(1)
    model = torch.nn.Linear(64, 64)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    data = torch.randn(32, 64)

    def step() -> float:
        optimizer.zero_grad()
        loss = (model(data) - data).pow(2).mean()
        loss.backward()
        optimizer.step()
        return float(loss.item())

    return step


def log_line(rank: int, text: str) -> None:
    """Prints once per job, not once per rank."""
    if rank == 0:
        sys.stdout.write(f"{text}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
