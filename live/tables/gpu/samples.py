"""`gpu.samples`: the last readings of the job's GPUs, as the agent's polls took them."""

from __future__ import annotations

from collections.abc import Iterator

from probing_cluster.live.node import view as node_view
from probing_cluster.live.table import NODE_PLACE, Column, Row, Scan, Table

COLUMNS = (
    Column(name="index", kind="int", meaning="NVML's number of the GPU"),
    Column(name="uuid", kind="text", meaning="its UUID"),
    Column(name="utilization_frac", kind="float", meaning="share of the moment with a kernel on it, 0..1"),
    Column(name="power_w", kind="float", meaning="power drawn, watts"),
    Column(name="temperature_c", kind="float", meaning="temperature of the GPU, °C"),
    Column(name="memory_temperature_c", kind="float", meaning="temperature of its memory, °C"),
    Column(name="throttle_reasons", kind="int", meaning="NVML's bit mask of what slows it down"),
)


def rows(view: node_view.NodeView, _: Scan) -> Iterator[Row]:
    """One per reading and GPU, oldest first."""
    for found in view.agent.ask("gpus", view.left_s())["samples"]:
        yield {"node": view.node, "at": found.get("at_ns"), **{c.name: found.get(c.name) for c in COLUMNS}}


TABLE = Table(
    schema="gpu",
    name="samples",
    meaning="The job's GPUs over the last ten minutes, a row per poll of the agent.",
    source="the node's agent",
    rows=rows,
    columns=(*NODE_PLACE, *COLUMNS),
)
