"""Nodes whose clocks are off: their events get the times of the server's clock."""

from __future__ import annotations

from probing_cluster.attribution.passes import node_clocks
from probing_cluster.control_plane import context


def run(service: context.Context) -> str:
    """One look at what such nodes delivered; how many events were corrected."""
    n_events = node_clocks.correct(service.store)
    return f"the times of {n_events} events corrected" if n_events else ""


TASK = context.Task(
    name="clocks",
    meaning="corrects the times of events of nodes whose clocks are off",
    run=run,
    every_s=lambda _: 5.0,
)
