"""Counters that only grow: how much since last time, and how much within a window.

Measured against the node's uptime, so that a jumping clock invents no rate. A counter that went
down was reset and starts again from zero.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from probing_cluster.healthchecks import nodeview

MAX_KEPT = 500
"""Increments remembered per check; beyond that the oldest are forgotten."""

HOUR_S, DAY_S = 3600.0, 86400.0


@dataclass(frozen=True, kw_only=True)
class Growth:
    """How counters grew since the last look; since boot at the first one."""

    by_key: Mapping[str, int]
    elapsed_s: float
    first: bool
    """No earlier look in this boot: `by_key` counts from the boot on."""

    def per_hour(self, key: str) -> float:
        """The mean rate over the time looked at, which counts as at least one hour."""
        return self.by_key.get(key, 0) / max(self.elapsed_s, HOUR_S) * HOUR_S


def growth(node: nodeview.NodeView, values: Mapping[str, int | None]) -> Growth:
    """Growth of `values` since this check's last look; counters that cannot be read are left out."""
    now_s = since_boot_s(node)
    known = {k: v for k, v in values.items() if v is not None}
    before = node.memory.get("counters")
    node.memory["counters"] = {"at_s": now_s, "values": {**(before or {}).get("values", {}), **known}}
    if before is None:
        return Growth(by_key=known, elapsed_s=max(now_s, 1.0), first=True)
    grown = {k: _delta(before["values"].get(k), v) for k, v in known.items()}
    return Growth(by_key=grown, elapsed_s=max(now_s - before["at_s"], 1.0), first=False)


def _delta(before: int | None, now: int) -> int:
    if before is None:
        return 0  # a counter that was not there before has no past to compare with
    return now - before if now >= before else now


def within(node: nodeview.NodeView, grown: Growth, window_s: float) -> dict[str, int]:
    """Growth of each key within the last `window_s`; what came before our first look is left out."""
    now_s = since_boot_s(node)
    kept: list[list[object]] = [e for e in node.memory.get("grown", []) if now_s - float(e[0]) <= window_s]
    if not grown.first:
        kept += [[now_s, key, n] for key, n in grown.by_key.items() if n]
    node.memory["grown"] = kept[-MAX_KEPT:]
    totals: dict[str, int] = {}
    for _, key, n in node.memory["grown"]:
        totals[key] = totals.get(key, 0) + n
    return totals


def since_cleared(node: nodeview.NodeView, values: Mapping[str, int | None]) -> dict[str, int]:
    """Counts since boot, less what they were when a person cleared the check."""
    known = {k: v for k, v in values.items() if v is not None}
    node.memory["last"] = known
    base = node.memory.get("cleared", {})
    return {k: _delta(int(base.get(k, 0)), v) for k, v in known.items()}


def since_boot_s(node: nodeview.NodeView) -> float:
    """Seconds since boot; where the node does not say, seconds of the clock."""
    return node.uptime_s if node.uptime_s is not None else node.now.timestamp()
