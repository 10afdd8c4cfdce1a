"""Schema `nic`: the network ports of the node."""

from __future__ import annotations

from probing_cluster.live.table import Registered
from probing_cluster.live.tables.nic import ports, samples

TABLES: tuple[Registered, ...] = (ports.TABLE, samples.TABLE)
