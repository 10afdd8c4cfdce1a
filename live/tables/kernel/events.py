"""`kernel.events`: what the kernel log said of the job, of its GPUs, or of the whole node."""

from __future__ import annotations

from collections.abc import Iterator

from probing_cluster.live.node import view as node_view
from probing_cluster.live.table import NODE_PLACE, Column, Row, Scan, Table

COLUMNS = (
    Column(name="kind", kind="text", meaning="what happened (docs/evidence.md)"),
    Column(name="code", kind="text", meaning="the kind's own code, such as the number of an Xid"),
    Column(name="severity", kind="text", meaning="high, low or info"),
    Column(name="device", kind="text", meaning="what it happened to"),
    Column(name="gpu_uuid", kind="text", meaning="the GPU, where it is one"),
    Column(name="pci_bus_id", kind="text", meaning="its PCI address"),
    Column(name="job_id", kind="int", meaning="the job whose process it names; null for none"),
    Column(name="message", kind="text", meaning="the line, or what it means"),
)


def rows(view: node_view.NodeView, _: Scan) -> Iterator[Row]:
    """One per event that the agent took in, oldest first."""
    for found in view.agent.ask("kernel", view.left_s())["events"]:
        yield {"node": view.node, "at": found.get("at_ns"), **{c.name: found.get(c.name) for c in COLUMNS}}


TABLE = Table(
    schema="kernel",
    name="events",
    meaning="Events of the kernel log since ten minutes before the job began here: the job's, its GPUs' and the node's.",
    source="the node's agent, which reads the kernel log",
    rows=rows,
    columns=(*NODE_PLACE, *COLUMNS),
)
