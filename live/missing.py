"""`cluster.missing`: what did not answer. The asker's own table: no node can tell that it is silent."""

from __future__ import annotations

from probing_cluster.live.table import Column

NAME = "cluster.missing"
MEANING = "What did not answer this statement; in a statement of its own, what did not answer the one before it, else who is silent now."
COLUMNS = (
    Column(name="node", kind="text", meaning="Slurm's name of the node; null where it is not known which"),
    Column(name="rank", kind="int", meaning="the rank; null for the whole node"),
    Column(name="table", kind="text", meaning="the table it is missing in; null for all"),
    Column(name="reason", kind="text", meaning="why"),
    Column(name="at", kind="time", meaning="when it was asked"),
)
