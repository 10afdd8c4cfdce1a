"""Schema `torch`: torch in each rank: steps, collectives, checkpoints, modules, memory."""

from __future__ import annotations

from probing_cluster.live.table import Registered
from probing_cluster.live.tables.torch import checkpoints, collectives, memory, modules, steps, transfers

TABLES: tuple[Registered, ...] = (
    steps.TABLE,
    collectives.TABLE,
    transfers.TABLE,
    checkpoints.TABLE,
    modules.TABLE,
    memory.TABLE,
)
