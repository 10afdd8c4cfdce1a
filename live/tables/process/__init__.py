"""Schema `process`: what the kernel knows of each rank's process."""

from __future__ import annotations

from probing_cluster.live.table import Registered
from probing_cluster.live.tables.process import envs, io, memory, threads

TABLES: tuple[Registered, ...] = (envs.TABLE, threads.TABLE, io.TABLE, memory.TABLE)
