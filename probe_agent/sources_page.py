"""The table of sources in docs/agent.md, from the sources themselves: `python -m probing_cluster.probe_agent.sources_page`."""

from __future__ import annotations

import re
from pathlib import Path

from probing_cluster.probe_agent import sweep
from probing_cluster.probe_agent.sources import polled, registry

_TABLE = re.compile(r"(?<=^\|---\|---\|---\|---\|---\|\n)(?:\| `\w+` \|.*\n)+", re.MULTILINE)
_PAGE = Path(__file__).resolve().parents[1] / "docs" / "agent.md"


def row(source: polled.Polled) -> str:
    """One source's row."""
    period = source.period or ("poll" if source.every == 1 else f"{source.every} polls")
    return f"| `{source.name}` | {source.source} | {period} | {source.reads} | {source.stands} |\n"


def current(text: str) -> str:
    """The page as it should be; the first row stays, the kernel log being no polled source."""
    found = _TABLE.search(text)
    if found is None:
        raise ValueError("docs/agent.md has no table of sources")
    first = found[0].splitlines(keepends=True)[0]
    rows = "".join([first, *map(row, (*registry.POLLED, sweep.SOURCE))])
    return text[: found.start()] + rows + text[found.end() :]


if __name__ == "__main__":
    _PAGE.write_text(current(_PAGE.read_text(encoding="utf-8")), encoding="utf-8")
