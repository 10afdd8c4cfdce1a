"""Schema `gpu`: the GPUs of the node."""

from __future__ import annotations

from probing_cluster.live.table import Registered
from probing_cluster.live.tables.gpu import devices, processes, samples

TABLES: tuple[Registered, ...] = (devices.TABLE, processes.TABLE, samples.TABLE)
