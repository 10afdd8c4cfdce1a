"""The tables there are: a folder for each schema, then those that sites and users bring as plugins (docs/extending.md)."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Mapping
from typing import Any

from probing_cluster.live import plugins
from probing_cluster.live.table import LazySchema, Registered, Table

NAMES = (
    "cluster.nodes",
    "cluster.ranks",
    "python.backtrace",
    "python.variables",
    "python.tables",
    "torch.steps",
    "torch.collectives",
    "torch.transfers",
    "torch.checkpoints",
    "torch.modules",
    "torch.memory",
    "process.envs",
    "process.threads",
    "process.io",
    "process.memory",
    "gpu.devices",
    "gpu.processes",
    "gpu.samples",
    "nic.ports",
    "nic.samples",
    "cpu.samples",
    "kernel.events",
)
"""Our own tables with known columns; `cluster.nodes` is in cluster/nodes.py. A node loads those that it is asked for alone."""
SCHEMAS = tuple(dict.fromkeys(name.partition(".")[0] for name in NAMES))
LAZY = {"python": "python.own"}
"""Schemas whose other tables are found out when a statement names them, and their files."""


@functools.cache
def own(full_name: str) -> Table | None:
    """Our own table of that name; None for none."""
    if full_name not in NAMES:
        return None
    found: Table = _module(full_name).TABLE
    return found


@functools.cache
def lazy_schema(name: str) -> LazySchema | None:
    """Our own lazy schema of that name; None for none."""
    if name not in LAZY:
        return None
    found: LazySchema = _module(LAZY[name]).SCHEMA
    return found


def built_in() -> Mapping[str, Table]:
    """Our own tables with known columns, by full name."""
    return {name: table for name in NAMES if (table := own(name)) is not None}


def load() -> None:
    """Import whatever `find` may need, before this process becomes an account that may not read our files."""
    built_in()
    for schema in LAZY:
        lazy_schema(schema)
    plugins.load()


def find(full_name: str) -> Registered | None:
    """The table of that name, else the lazy schema that may resolve it; None for neither. May run a plugin's code."""
    return own(full_name) or lazy_schema(full_name.partition(".")[0]) or plugins.find(full_name)


def _module(name: str) -> Any:
    return importlib.import_module(f"{__package__}.{name}")
