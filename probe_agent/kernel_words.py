"""The live kernel log's reader of meaning: evidence.kernel, behind one cheap look for words that could matter."""

from __future__ import annotations

import re

from probing_cluster.evidence.kernel import grammar, reader
from probing_cluster.probe_agent.sources import kernel_log


def classifier() -> kernel_log.Classify:
    """A function from one kernel message to its finding; it remembers what earlier lines of a report said."""
    engine = reader.KernelReader()
    matters = re.compile("|".join(re.escape(t) for t in reader.TRIGGERS)).search

    def classify(text: str) -> grammar.KernelFinding | None:
        return engine.read_message(text) if matters(text) else None

    return classify
