"""What a figure leaves out on purpose, as sentences."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from probing_cluster.core import vocabulary


def sentences(figure: Mapping[str, Any]) -> list[str]:
    """The attempts that are no failure of the infrastructure although Slurm calls them one; empty without any."""
    n = figure.get("n_attempts_set_down")
    if not n:
        return []
    return [f"Not counted: {vocabulary.plural(n, 'attempt')} that a person ended by setting a node DOWN."]
