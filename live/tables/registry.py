"""The tables there are: one line each, then those that sites and users bring as plugins (docs/extending.md)."""

from __future__ import annotations

import functools
from collections.abc import Mapping

from probing_cluster.live import plugins
from probing_cluster.live.table import LazySchema, Registered, Table
from probing_cluster.live.tables import (
    cluster_nodes,
    cluster_ranks,
    cpu_samples,
    gpu_devices,
    gpu_processes,
    gpu_samples,
    kernel_events,
    nic_ports,
    nic_samples,
    process_envs,
    process_io,
    process_memory,
    process_threads,
    python_backtrace,
    python_own,
    python_tables,
    python_variables,
    torch_checkpoints,
    torch_collectives,
    torch_memory,
    torch_modules,
    torch_steps,
    torch_transfers,
)

TABLES: tuple[Registered, ...] = (
    cluster_nodes.TABLE,
    cluster_ranks.TABLE,
    python_backtrace.TABLE,
    python_variables.TABLE,
    python_tables.TABLE,
    python_own.SCHEMA,
    torch_steps.TABLE,
    torch_collectives.TABLE,
    torch_transfers.TABLE,
    torch_checkpoints.TABLE,
    torch_modules.TABLE,
    torch_memory.TABLE,
    process_envs.TABLE,
    process_threads.TABLE,
    process_io.TABLE,
    process_memory.TABLE,
    gpu_devices.TABLE,
    gpu_processes.TABLE,
    gpu_samples.TABLE,
    nic_ports.TABLE,
    nic_samples.TABLE,
    cpu_samples.TABLE,
    kernel_events.TABLE,
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
