"""Stacks of many ranks as one tree with rank ranges, and the activity of a single stack."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from probing_cluster.attribution.gang import views

_WAITING = ("torch/distributed/", "torch/autograd/graph.py", "torch/nn/parallel/distributed.py")
_LOADING = ("torch/utils/data/", "multiprocessing/queues.py", "multiprocessing/connection.py")
_CHECKPOINT = ("torch/serialization.py", "torch/distributed/checkpoint/")
_COMPILE = ("torch/_dynamo/", "torch/_inductor/", "triton/")


def doing(stack: Sequence[views.StackFrame]) -> str:
    """The activity of a stack: checkpoint, compile, dataloader, collective, python; '' without a stack.

    The innermost telling frame decides: a data loader that calls a collective waits in the collective, and so does a
    checkpoint that gathers over the network.
    """
    for frame in stack:
        path = frame.file.replace("\\", "/")
        if any(part in path for part in _CHECKPOINT):
            return "checkpoint"
        if any(part in path for part in _COMPILE):
            return "compile"
        if any(part in path for part in _LOADING):
            return "dataloader"
        if any(part in path for part in _WAITING) and "distributed/checkpoint" not in path:
            return "collective"
    return "python" if stack else ""


_LIBRARY = ("site-packages/", "dist-packages/", "/lib/python3", "_probing_probe/")


def user_frame(stack: Sequence[views.StackFrame]) -> views.StackFrame | None:
    """The innermost frame outside the interpreter and installed libraries, else the innermost one."""
    for frame in stack:
        path = frame.file
        ours = path.endswith(".py") and not path.startswith(("<", "torch/"))
        if ours and not any(part in path for part in _LIBRARY):
            return frame
    return stack[0] if stack else None


@dataclass
class StackNode:
    """One frame of the merged tree and the ranks that have it."""

    frame: str
    ranks: list[int] = field(default_factory=list)
    children: dict[str, StackNode] = field(default_factory=dict)


def merge(stacks: Iterable[tuple[int, Sequence[views.StackFrame]]]) -> StackNode:
    """The stacks of all ranks as one tree, outermost frame first."""
    root = StackNode(frame="")
    for rank, stack in sorted(stacks, key=lambda item: item[0]):
        here = root
        here.ranks.append(rank)
        for frame in reversed(stack):
            here = here.children.setdefault(str(frame), StackNode(frame=str(frame)))
            here.ranks.append(rank)
    return root


@dataclass(frozen=True, kw_only=True)
class Fork:
    """Frames that the same ranks share, and the forks at which they part; ranks in no fork end here."""

    ranks: tuple[int, ...]
    frames: tuple[str, ...]
    """Outermost first; empty at the root if the ranks share no frame."""
    forks: tuple[Fork, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """The tree as plain values, with ranks as ranges."""
        return {
            "ranks": ranges(self.ranks),
            "frames": list(self.frames),
            "forks": [f.to_json() for f in self.forks],
        }


def fold(root: StackNode) -> Fork:
    """The merged tree with each chain of frames of the same ranks joined; larger groups come first."""
    frames, here = [], root
    while len(here.children) == 1:
        (only,) = here.children.values()
        if len(only.ranks) != len(root.ranks):
            break
        here = only
        frames.append(here.frame)
    below = sorted(here.children.values(), key=lambda n: (-len(n.ranks), n.ranks))
    forks = tuple(_fork(child) for child in below)
    return Fork(ranks=tuple(root.ranks), frames=tuple(frames), forks=forks)


def _fork(first: StackNode) -> Fork:
    inner = fold(first)
    return Fork(ranks=inner.ranks, frames=(first.frame, *inner.frames), forks=inner.forks)


def render(root: StackNode) -> list[str]:
    """The tree as indented lines, `[0-3,7] train (train.py:12)`; a single child is not indented further."""
    lines: list[str] = []
    pending = [(child, 0) for child in reversed(list(root.children.values()))]
    while pending:
        node, depth = pending.pop()
        lines.append(f"{'  ' * depth}[{ranges(node.ranks)}] {node.frame}")
        deeper = depth + (1 if len(node.children) > 1 else 0)
        pending += [(child, deeper) for child in reversed(list(node.children.values()))]
    return lines


def ranges(ranks: Iterable[int]) -> str:
    """`0-3,7` for a set of ranks."""
    parts: list[str] = []
    ordered = sorted(set(ranks))
    start = 0
    for i in range(1, len(ordered) + 1):
        if i == len(ordered) or ordered[i] != ordered[i - 1] + 1:
            first, last = ordered[start], ordered[i - 1]
            parts.append(str(first) if first == last else f"{first}-{last}")
            start = i
    return ",".join(parts)
