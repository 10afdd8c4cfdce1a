"""`gpu.devices`: the job's GPUs as NVML has them now."""

from __future__ import annotations

from collections.abc import Iterator

from probing_cluster.live.node import view as node_view
from probing_cluster.live.table import NODE_PLACE, Column, Row, Scan, Table

COLUMNS = (
    Column(name="index", kind="int", meaning="NVML's number"),
    Column(name="uuid", kind="text", meaning="its UUID"),
    Column(name="name", kind="text", meaning="its model"),
    Column(name="pci_bus_id", kind="text", meaning="its PCI address"),
    Column(name="lost", kind="text", meaning="NVML's word when it cannot be reached; null while it can"),
    Column(
        name="utilization_frac", kind="float", meaning="share of the last moment with a kernel on it, 0..1"
    ),
    Column(name="memory_used_bytes", kind="int", meaning="memory in use"),
    Column(name="memory_total_bytes", kind="int", meaning="memory"),
    Column(name="power_w", kind="float", meaning="power drawn, watts"),
    Column(name="power_limit_w", kind="float", meaning="the limit enforced now, watts"),
    Column(name="temperature_c", kind="float", meaning="temperature of the GPU, °C"),
    Column(name="memory_temperature_c", kind="float", meaning="temperature of its memory, °C"),
    Column(name="sm_clock_mhz", kind="float", meaning="clock of the multiprocessors, MHz"),
    Column(name="sm_clock_max_mhz", kind="float", meaning="the most it can be, MHz"),
    Column(name="throttle_reasons", kind="int", meaning="NVML's bit mask of what slows it down"),
    Column(
        name="ecc_uncorrected_volatile_total",
        kind="int",
        meaning="uncorrectable memory errors since the driver was loaded",
    ),
    Column(name="ecc_corrected_volatile_total", kind="int", meaning="corrected ones"),
    Column(name="pcie_generation", kind="int", meaning="PCIe generation now"),
    Column(name="pcie_width", kind="int", meaning="PCIe lanes now"),
)


def rows(view: node_view.NodeView, _: Scan) -> Iterator[Row]:
    """One per GPU of the job on this node."""
    for found in view.agent.ask("gpus", view.left_s())["gpus"]:
        yield {**view.node_place(), **{c.name: found.get(c.name) for c in COLUMNS}}


TABLE = Table(
    schema="gpu",
    name="devices",
    meaning="The job's GPUs now.",
    source="the node's agent, which asks NVML",
    rows=rows,
    columns=(*NODE_PLACE, *COLUMNS),
)
