"""Keeps the places of nodes from Slurm's topology and the site's table, with since when."""

from __future__ import annotations

from pathlib import Path

from probing_cluster.control_plane import context
from probing_cluster.control_plane.imports import places_file
from probing_cluster.slurm_plugins import topology


def run(service: context.Context) -> str:
    """One look at both; how many nodes moved."""
    cluster, now = service.config.cluster, service.clock.now()
    changed = service.store.save_places(cluster.name, topology.KINDS, service.slurm.places(), now)
    if cluster.places_file:
        kinds, rows = places_file.read(Path(cluster.places_file))
        changed += service.store.save_places(cluster.name, kinds, rows, now)
    return f"{changed} places of nodes changed" if changed else ""


TASK = context.Task(
    name="places",
    meaning="keeps on which switch, in which rack and on which feed every node is",
    run=run,
    every_s=lambda _: 3600.0,
)
