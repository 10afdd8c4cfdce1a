"""The agent's page says what the agent does."""

from __future__ import annotations

import re
from pathlib import Path

from probing_cluster.probe_agent import sources_page, sweep
from probing_cluster.probe_agent.jobs import collect
from probing_cluster.probe_agent.sources import kernel_log, registry

PAGE = (Path(__file__).parents[2] / "docs" / "agent.md").read_text()


def test_every_source_has_its_row_with_the_word_of_its_events() -> None:
    """A new source without a row fails here; a row without a source too."""
    rows = dict(
        re.findall(r"^\| `(\w+)` \| (\w+) \|", PAGE.split("## Sources")[1].split("## ")[0], re.MULTILINE)
    )
    known = {s.name: s.source for s in registry.POLLED} | {kernel_log.NAME: "kernel", sweep.NAME: "check"}
    assert rows == known


def test_the_rows_are_the_sources_own() -> None:
    """What a source reads and names is written where it is registered; the page is made from that."""
    assert sources_page.current(PAGE) == PAGE, "run: python -m probing_cluster.probe_agent.sources_page"


def test_every_operation_of_the_socket_has_its_row() -> None:
    """What a hook may ask is documented."""
    section = PAGE.split("## The hook socket")[1].split("## ")[0]
    assert re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE)[1:] == [
        "prolog", "epilog", "healthcheck", "status", "recheck",
    ]  # fmt: skip


def test_sources_have_names_of_their_own() -> None:
    """Memory, trackers and heartbeats are kept by name."""
    names = [s.name for s in registry.POLLED] + [kernel_log.NAME, sweep.NAME, collect.NAME]
    assert len(set(names)) == len(names)
