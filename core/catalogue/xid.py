"""NVIDIA Xid numbers: what the GPU driver reports about a GPU."""

from __future__ import annotations

from functools import cache

from probing_cluster.core.catalogue import entries

XidEntry = entries.CatalogueEntry


@cache
def table() -> dict[int, XidEntry]:
    """Every Xid we know, by number."""
    return entries.load("xid.tsv")


def lookup(code: int) -> XidEntry:
    """The entry of Xid `code`; an unknown one has meaning 'unknown' and severity info."""
    return table().get(code) or entries.unknown(code)
