"""A node that stopped answering or rebooted, and one that lives on or answers again."""

from probing_cluster.attribution.verdict.rules.node_lost.gone import rule

__all__ = ["rule"]
