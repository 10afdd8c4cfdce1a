"""`nic.samples`: bytes that the node's adapters have moved, over the last minutes."""

from __future__ import annotations

from collections.abc import Iterator

from probing_cluster.live.node import view as node_view
from probing_cluster.live.table import NODE_PLACE, Column, Row, Scan, Table


def rows(view: node_view.NodeView, _: Scan) -> Iterator[Row]:
    """One per reading and adapter, oldest first."""
    before: dict[str, Row] = {}
    for sample in view.agent.ask("nics", view.left_s())["samples"]:
        device = str(sample.get("device"))
        last = before.get(device)
        before[device] = sample
        yield {
            "node": view.node,
            "at": sample["at_ns"],
            "device": device,
            "tx_bytes_total": sample["tx_bytes"],
            "rx_bytes_total": sample["rx_bytes"],
            "tx_bytes_per_s": _rate(last, sample, "tx_bytes"),
            "rx_bytes_per_s": _rate(last, sample, "rx_bytes"),
        }


def _rate(last: Row | None, now: Row, counter: str) -> float | None:
    """Per second since the reading before; null for the first, and where the counter was cleared or wrapped."""
    if last is None or now[counter] < last[counter] or now["at_ns"] <= last["at_ns"]:
        return None
    moved, over_ns = int(now[counter]) - int(last[counter]), int(now["at_ns"]) - int(last["at_ns"])
    return moved / (over_ns / 1e9)


TABLE = Table(
    schema="nic",
    name="samples",
    meaning="What the node's adapters (RDMA and Ethernet hardware) moved, a row per look of the agent at its jobs.",
    source="the node's agent, from sysfs",
    rows=rows,
    columns=(
        *NODE_PLACE,
        Column(name="device", kind="text", meaning="the adapter, with `:port` beyond the first"),
        Column(name="tx_bytes_total", kind="int", meaning="bytes sent so far"),
        Column(name="rx_bytes_total", kind="int", meaning="bytes received so far"),
        Column(name="tx_bytes_per_s", kind="float", meaning="bytes sent per second since the row before"),
        Column(name="rx_bytes_per_s", kind="float", meaning="bytes received per second since the row before"),
    ),
)
