"""NVIDIA SXid numbers: what the NVSwitch driver reports about a switch."""

from __future__ import annotations

from functools import cache

from probing_cluster.core.catalogue import entries

SXidEntry = entries.CatalogueEntry


@cache
def table() -> dict[int, SXidEntry]:
    """Every SXid we know, by number."""
    return entries.load("sxid.tsv")


def lookup(code: int) -> SXidEntry:
    """The entry of SXid `code`; an unknown one has meaning 'unknown' and severity info."""
    return table().get(code) or entries.unknown(code)
