"""The tables there are: a folder for each schema, then those that sites and users bring as plugins (docs/extending.md)."""

from __future__ import annotations

import functools
from collections.abc import Mapping

from probing_cluster.live import plugins
from probing_cluster.live.table import LazySchema, Registered, Table
from probing_cluster.live.tables import cluster, cpu, gpu, kernel, nic, process, python, torch

TABLES: tuple[Registered, ...] = (
    *cluster.TABLES,
    *python.TABLES,
    *torch.TABLES,
    *process.TABLES,
    *gpu.TABLES,
    *nic.TABLES,
    *cpu.TABLES,
    *kernel.TABLES,
)


@functools.cache
def built_in() -> Mapping[str, Table]:
    """Our own tables with known columns, by full name."""
    return {one.full_name: one for one in TABLES if isinstance(one, Table)}


def find(full_name: str) -> Registered | None:
    """The table of that name, else the lazy schema that may resolve it; None for neither. May run a plugin's code."""
    schema = full_name.partition(".")[0]
    found: Registered | None = built_in().get(full_name)
    if found is None:
        found = next((t for t in TABLES if isinstance(t, LazySchema) and t.schema == schema), None)
    return found or plugins.find(full_name)
