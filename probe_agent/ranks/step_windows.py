"""A rank's last steps folded to one short row: medians over a window of steps that is the same on every rank.

Windows are WINDOW steps long and counted from the first step, so the service can hold the same steps of all
ranks against each other without seeing a single step. The page remembers 64 steps: the last complete window
is always among them.
"""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Mapping, Sequence

from probing_cluster.probe_agent.ranks import pages

WINDOW = 16
LEAST = WINDOW - 2
"""Steps a window must have: its first may lack the end of the one before, one may have been written while read."""
_NS = 1e9


def latest(steps: Sequence[pages.PageStep]) -> dict[str, float] | None:
    """The last complete window of a page's steps (oldest first); None before there is one.

    `index` and `steps` say which and how many; the seconds are medians over its steps: `compute_s` is what is
    left of `total_s` without waiting, input and checkpoints, `host_s` the same without the backward pass.
    """
    index = steps[-1].step // WINDOW - 1 if steps else -1
    spans = _spans(steps, range(index * WINDOW + 1, (index + 1) * WINDOW + 1))
    if index < 0 or len(spans) < LEAST:
        return None
    row: dict[str, float] = {"index": index, "steps": len(spans)}
    return row | {name: round(statistics.median(s[name] for s in spans), 6) for name in spans[0]}


def _spans(steps: Sequence[pages.PageStep], wanted: range) -> list[Mapping[str, float]]:
    """Seconds of each wanted step, where the end of the step before it is known."""
    found = []
    for before, step in itertools.pairwise(steps):
        if step.step in wanted and step.step == before.step + 1 and step.end_ns > before.end_ns:
            found.append(_span(step, step.end_ns - before.end_ns))
    return found


def _span(step: pages.PageStep, total_ns: int) -> Mapping[str, float]:
    own_ns = total_ns - step.input_ns - step.collective_ns - step.checkpoint_ns
    return {
        "total_s": total_ns / _NS,
        "compute_s": max(0, own_ns) / _NS,
        "host_s": max(0, own_ns - step.backward_ns) / _NS,
        "input_s": step.input_ns / _NS,
        "checkpoint_s": step.checkpoint_ns / _NS,
        "waiting_s": step.collective_ns / _NS,
        "backward_s": step.backward_ns / _NS,
    }
