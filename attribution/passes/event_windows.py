"""Counts events on some nodes in many windows at once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from probing_cluster.attribution.passes import event_weight
from probing_cluster.attribution.verdict import co_residency

Flags = npt.NDArray[np.bool_]
Bounds = tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]
"""For each window: the index of its first event, and of the first event after it."""


class EventWindows:
    """Events on some nodes, by node and time."""

    def __init__(
        self,
        events: pa.Table,
        sorts: Sequence[event_weight.EventSort],
        of: co_residency.Numbers,
        names: pa.Array,
    ) -> None:
        here = pc.is_in(events["node"], value_set=names)
        events, of = events.filter(here), of[np.asarray(here, np.bool_)]
        node = co_residency.ints(pc.index_in(events["node"], value_set=names))
        at = co_residency.microseconds(events["at"])
        self._base = at.min() if len(at) else 0
        self._span = (at.max() - self._base + 2) if len(at) else 2
        order = np.lexsort((at, node))
        self._key = (node * self._span + at - self._base)[order]
        self._at, self._sort, self._sorts = at[order], of[order], sorts
        self._last = co_residency.microseconds(events["last_at"])[order]
        self.weight = np.array([s.weight for s in sorts], np.int64)[of][order]
        self.changes_preempted = np.array([s.changes_preempted for s in sorts], np.bool_)[of][order]
        self.root = np.array([s.root for s in sorts], np.bool_)[of][order]
        self.of_gpu = np.array([s.of_gpu for s in sorts], np.bool_)[of][order]
        self._channel = np.array([s.channel for s in sorts])[of][order]

    def within(self, windows: Bounds, which: Flags) -> Flags:
        """For each window: True if one of the flagged events lies in it."""
        low, high = windows
        total = np.concatenate([[0], np.cumsum(which)])
        return total[np.maximum(high, low)] > total[low]

    def what(self, windows: Bounds, which: Flags) -> Iterator[list[tuple[int, str]]]:
        """For each window: times (microseconds) and names of the flagged events in it."""
        for low, high in zip(*windows, strict=True):
            there = low + np.flatnonzero(which[low:high])
            yield [(int(self._at[i]), self._sorts[self._sort[i]].what) for i in there]

    def reaching(self, windows: Bounds, ends: co_residency.Numbers) -> Flags:
        """For each window: True if an event that began in it still lasted at its entry of `ends`."""
        goes_on = np.where(self.weight != event_weight.Weight.INERT, self._last, np.iinfo(np.int64).min)
        low, high = windows
        n_before = np.concatenate([[0], np.cumsum(goes_on > 0)])
        found = np.zeros(len(ends), np.bool_)
        for window in np.flatnonzero(n_before[np.maximum(high, low)] > n_before[low]):
            found[window] = goes_on[low[window] : high[window]].max() >= ends[window]
        return found

    def faint_by_channel(self) -> Iterable[Flags]:
        """Flags of the faint events, one array per channel."""
        faint = self.weight == event_weight.Weight.FAINT
        return [faint & (self._channel == channel) for channel in sorted(set(self._channel[faint]))]

    def between(
        self, node: co_residency.Numbers, since: co_residency.Numbers, until: co_residency.Numbers
    ) -> Bounds:
        """Windows of time on one node each; both bounds belong to them."""
        low = node * self._span + np.clip(since - self._base, 0, self._span - 1)
        high = node * self._span + np.clip(until - self._base, -1, self._span - 2)
        return np.searchsorted(self._key, low, "left"), np.searchsorted(self._key, high, "right")
