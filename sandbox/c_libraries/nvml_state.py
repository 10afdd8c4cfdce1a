"""What a node's NVML stub answers: a flat file of `key=value` lines, replaced whole.

Keys of one GPU are `gpu.<NVML index>.<key>`, of every GPU `gpu.<key>`, of the node without `gpu.`;
docs/sandbox.md lists them. A call about a key that is nowhere is "Not Supported".
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator, Mapping
from pathlib import Path

XID_EVENT = 0x8
"""nvmlEventTypeXidCriticalError."""

State = dict[str, str]
Values = Mapping[str, str | int | None]


def read(path: Path) -> State:
    """The present state; raises FileNotFoundError when the node has no NVML."""
    pairs = (line.partition("=") for line in path.read_text().splitlines())
    return {key: value for key, _, value in pairs if key}


def write(path: Path, state: Values) -> None:
    """Replaces the state; a reader sees the old file or the new one, never half."""
    fresh = path.with_name(f".{path.name}.{os.getpid()}")
    fresh.write_text("".join(f"{key}={value}\n" for key, value in state.items() if value is not None))
    fresh.replace(path)


@contextlib.contextmanager
def changing(path: Path) -> Iterator[State]:
    """The state as a dict to change; written when the block ends, one writer at a time."""
    with path.with_name(f".{path.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        state = read(path)
        yield state
        write(path, state)


def update(path: Path, values: Values) -> None:
    """Sets keys; `None` removes one."""
    with changing(path) as state:
        for key, value in values.items():
            if value is None:
                state.pop(key, None)
            else:
                state[key] = str(value)


def set_gpu(path: Path, gpu: int, values: Values) -> None:
    """Sets keys of the GPU with NVML index `gpu`; `None` goes back to what is true of every GPU."""
    update(path, {f"gpu.{gpu}.{key}": value for key, value in values.items()})


def add(path: Path, gpu: int, key: str, amount: int = 1) -> int:
    """Raises a counter of one GPU and returns its new value."""
    with changing(path) as state:
        name = f"gpu.{gpu}.{key}"
        value = int(state.get(name, state.get(f"gpu.{key}", "0"))) + amount
        state[name] = str(value)
        return value


def add_event(path: Path, gpu: int, data: int, event_type: int = XID_EVENT) -> int:
    """Adds an event that registered event sets will deliver; returns its number."""
    with changing(path) as state:
        number = int(state.get("event.count", "0")) + 1
        state[f"event.{number}"] = f"{gpu} {event_type} {data}"
        state["event.count"] = str(number)
        return number


def gpus(state: State) -> range:
    """The NVML indices of the node's GPUs."""
    return range(int(state.get("gpu.count", "0")))


def index_of_slurm(state: State, position: int) -> int:
    """The NVML index of what Slurm calls GPU `position` (SLURM_JOB_GPUS): its device files by minor number."""
    by_minor = sorted(gpus(state), key=lambda i: int(state[f"gpu.{i}.minor"]))
    return by_minor[position]
