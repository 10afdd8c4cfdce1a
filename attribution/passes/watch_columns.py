"""By column: which attempts ended where nothing watched a node, or where a node's clock was off."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from probing_cluster.attribution.passes import assign_rows, node_clocks
from probing_cluster.core import clock

Flags = npt.NDArray[np.bool_]
Ints = npt.NDArray[np.int64]


def unwatched(
    names: Sequence[str], watched: Mapping[str, assign_rows.AgentWatch], node: Ints, end: Ints
) -> Flags:
    """For each pair of an attempt and a node (`node`: index in `names`): True if nothing watched the node at the attempt's end, for however short.

    `end`: the end of the pair's attempt, microseconds.
    """
    never = np.iinfo(np.int64).min
    last = np.array([clock.to_us(watched[n].last) if n in watched else never for n in names], np.int64)
    by_log = np.array([n in watched and not watched[n].beats for n in names], np.bool_)
    unseen: Flags = (last[node] < end - 60_000_000) | by_log[node]
    gaps = [(i, *gap) for i, n in enumerate(names) if n in watched for gap in watched[n].gaps]
    if gaps:
        nodes, froms, tos = zip(*gaps, strict=True)
        of = np.array(nodes, np.int64)
        since = np.array([never if at is None else clock.to_us(at) for at in froms], np.int64)
        until = np.array([clock.to_us(at) for at in tos], np.int64)
        # The last gap of the pair's node that began before the end: gaps are ordered by node and time.
        before, width = end.min() - 1, end.max() - end.min() + 2
        began = of * width + np.maximum(since, before) - before
        which = np.searchsorted(began, node * width + end - before) - 1
        mine = (which >= 0) & (of[which] == node)
        unseen |= mine & (end < until[which])
    return unseen


def clock_was_off(
    names: Sequence[str], clocks: node_clocks.NodeClocks, node: Ints, since: Ints, until: Ints
) -> Flags:
    """For each pair: True if the node's clock was off at some instant of the attempt's window: its verdict states so.

    `since`, `until`: the window of the pair's attempt, microseconds.
    """
    flags = np.zeros(len(node), np.bool_)
    off = np.isin(node, [i for i, name in enumerate(names) if name in clocks.spans])
    for place in np.flatnonzero(off):
        window = clock.from_us(int(since[place])), clock.from_us(int(until[place]))
        flags[place] = bool(clocks.offsets_s([names[node[place]]], *window))
    return flags
