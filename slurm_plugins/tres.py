"""Counts out of Slurm's trackable-resource text: `billing=24,cpu=8,gres/gpu:v100=2,gres/gpu=2,mem=199G`."""

from __future__ import annotations

import re

_COUNT = re.compile(r"(\d{1,20}(?:\.\d{1,20})?)([KMGTPE]?)", re.ASCII | re.IGNORECASE)
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40, "P": 1 << 50, "E": 1 << 60}
_SOCKETS = re.compile(r"\([^)]*\)")


def number(text: str) -> int | None:
    """`20480` or `20K` as a number; None for anything else."""
    match = _COUNT.fullmatch(text.strip())
    return None if match is None else round(float(match[1]) * _UNITS[match[2].upper()])


def count(name: str, tres: str) -> int | None:
    """What TRES text says of `name`, such as 80 of `cpu=80,node=2`; None when it does not name it."""
    items = (item.strip().partition("=") for item in tres.split(","))
    return next((number(value) for key, _, value in items if key == name), None)


def gpus(tres: str) -> int | None:
    """GPUs named in TRES text; None when it names none. The untyped total wins over the sum of the types."""
    total: int | None = None
    typed = 0
    any_typed = False
    for item in tres.split(","):
        name, _, value = item.strip().partition("=")
        count = number(value)
        if count is None:
            continue
        if name == "gres/gpu":
            total = count
        elif name.startswith("gres/gpu:"):
            typed, any_typed = typed + count, True
    return total if total is not None else (typed if any_typed else None)


def gpus_of_gres(gres: str, n_nodes: int) -> int | None:
    """GPUs in gres text: AllocGRES `gpu:8` is a total, ReqGRES `PER_NODE:gpu:8` is per node; None if unsaid.

    Also a node's own `gpu:a100:4(S:0-1)` and a job's `gpu:2(IDX:0-1)`.
    """
    found: int | None = None
    for item in _SOCKETS.sub("", gres).split(","):
        words = item.strip().removeprefix("gres:").replace("=", ":").split(":")
        times = 1
        if words[0].startswith("PER_"):
            if words[0] not in {"PER_NODE", "PER_JOB"}:
                continue
            times, words = (n_nodes if words[0] == "PER_NODE" else 1), words[1:]
        if not words or words[0] not in {"gpu", "gres/gpu"}:
            continue
        count = 1 if len(words) == 1 else number(words[-1])
        if count is not None:
            found = (found or 0) + count * times
    return found
