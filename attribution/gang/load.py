"""Evidence from the GPUs and network adapters of a stalled gang's nodes: waiting kernels, no traffic."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from probing_cluster.core import digits, records

BUSY_FRAC = 0.95
WAITING_POWER_FRAC = 0.4
"""NCCL's waiting kernels keep a GPU at 100 % with a fifth to a third of its power; training takes well over half."""
IDLE_BYTES_PER_S = 1e6
"""A waiting node moves less on its busiest adapter (subnet management, logins, our own rows); training moves gigabytes."""
MOVING_FACTOR = 10.0
"""Factor by which the other nodes must move more, so that a node counts as silent."""
MAX_PROOF = 4

Snapshots = Sequence[records.HealthEvent]


def proof(snapshots: Snapshots) -> list[str]:
    """Sentences with what the snapshots prove, the strongest first."""
    sentences = [words for s in snapshots if (words := _spinning(s))][:MAX_PROOF]
    rates = {
        s.node: (rate, over_s)
        for s in snapshots
        if (rate := busiest(s)) is not None and (over_s := _over_s(s))
    }
    idle = silent(snapshots)
    if idle:
        others = min(rate for node, (rate, _) in rates.items() if node not in idle)
        sentences += [
            f"{node}: its network adapters moved {_rate(rates[node][0])} over {rates[node][1]:.0f} s, "
            f"those of every other node at least {_rate(others)}"
            for node in idle
        ]
    elif (
        rates and len(rates) == len(snapshots) and all(rate < IDLE_BYTES_PER_S for rate, _ in rates.values())
    ):
        most, over_s = max(rates.values())
        where = "this node" if len(rates) == 1 else f"all {len(rates)} nodes"
        sentences.append(f"the network adapters of {where} moved at most {_rate(most)} over {over_s:.0f} s")
    return sentences


def silent(snapshots: Snapshots) -> tuple[str, ...]:
    """The few nodes without traffic while every other node has some; empty if a node was not measured."""
    rates = {s.node: busiest(s) for s in snapshots}
    known = {node: rate for node, rate in rates.items() if rate is not None}
    idle = {node for node, rate in known.items() if rate < IDLE_BYTES_PER_S}
    moving = [rate for node, rate in known.items() if node not in idle]
    if len(known) < len(rates) or not idle or len(idle) >= len(moving):
        return ()
    if min(moving) < MOVING_FACTOR * max(IDLE_BYTES_PER_S, *(known[n] for n in idle)):
        return ()
    return tuple(sorted(idle))


def is_stuck(snapshots: Snapshots) -> bool:
    """True if every node has waiting GPUs and no adapter has traffic: a collective that does not end."""
    rates = [busiest(s) for s in snapshots]
    idle = all(rate is not None and rate < IDLE_BYTES_PER_S for rate in rates)
    return bool(rates) and idle and all(_spinning(s) for s in snapshots)


def busiest(snapshot: records.HealthEvent) -> float | None:
    """Bytes per second, both ways, of the node's busiest adapter during the stall; None if not measured."""
    nics = snapshot.detail.get("nics")
    ports = nics.get("ports") if isinstance(nics, Mapping) else None
    rows = [p for p in ports if isinstance(p, Mapping)] if isinstance(ports, list) else []
    rates = [_reading(p.get("tx_bytes_per_s")) + _reading(p.get("rx_bytes_per_s")) for p in rows]
    return max(rates, default=None)


def _over_s(snapshot: records.HealthEvent) -> float:
    nics: Mapping[str, Any] = snapshot.detail["nics"]
    return _reading(nics.get("over_s"))


def _spinning(snapshot: records.HealthEvent) -> str:
    """Sentence about the node's GPUs that are fully busy at little power, so that their kernels only wait; else empty."""
    waiting = []
    reported = snapshot.detail.get("gpus")
    gpus = [g for g in reported if isinstance(g, dict)] if isinstance(reported, list) else []
    for gpu in gpus:
        busy, power, limit = (_reading(gpu.get(n)) for n in ("utilization_frac", "power_w", "power_limit_w"))
        if busy >= BUSY_FRAC and 0 < power <= WAITING_POWER_FRAC * limit:
            waiting.append((power, limit))
    if not waiting:
        return ""
    power, limit = max(waiting)
    few = f"{len(waiting)} of {len(gpus)} GPUs are"
    return f"{snapshot.node}: {few} fully busy on at most {power:.0f} of {limit:.0f} W: their kernels wait"


def _rate(bytes_per_s: float) -> str:
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if bytes_per_s >= size:
            return f"{bytes_per_s / size:.1f} {unit}/s"
    return f"{bytes_per_s:.0f} B/s"


def _reading(value: object) -> float:
    """The reading as a number; a missing one counts as no load and no power."""
    return digits.number(value) or 0.0
