"""Schema `cluster`: the job: its nodes and ranks."""

from __future__ import annotations

from probing_cluster.live.table import Registered
from probing_cluster.live.tables.cluster import nodes, ranks

TABLES: tuple[Registered, ...] = (nodes.TABLE, ranks.TABLE)
