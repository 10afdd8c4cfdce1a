"""Schema `kernel`: the kernel log of the node."""

from __future__ import annotations

from probing_cluster.live.table import Registered
from probing_cluster.live.tables.kernel import events

TABLES: tuple[Registered, ...] = (events.TABLE,)
