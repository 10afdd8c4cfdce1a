"""Schema `python`: the Python of each rank: stacks, variables, and tables of its own."""

from __future__ import annotations

from probing_cluster.live.table import Registered
from probing_cluster.live.tables.python import backtrace, own, tables, variables

TABLES: tuple[Registered, ...] = (backtrace.TABLE, variables.TABLE, tables.TABLE, own.SCHEMA)
