"""Schema `cpu`: the processors of the node."""

from __future__ import annotations

from probing_cluster.live.table import Registered
from probing_cluster.live.tables.cpu import samples

TABLES: tuple[Registered, ...] = (samples.TABLE,)
