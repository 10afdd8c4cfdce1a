"""Events of GPUs, their switches and their slots that no vendor's table lists: whether one is a fault is not known."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

from probing_cluster.core import digits
from probing_cluster.core.catalogue import sxid, xid

_AER, _PART_OF_REPORT = "pcie_aer", "unknown"
"""A part of a PCIe error report whose first line, which has the grade, is missing."""
GRADED_BY = ("grade", "part")
"""Keys in the detail of a line that grades itself (`Non-fatal`), or that continues one."""


@functools.cache
def tables() -> Mapping[str, frozenset[str]]:
    """Kind to the codes that its vendor's table lists."""
    return {"xid": frozenset(map(str, xid.table())), "sxid": frozenset(map(str, sxid.table()))}


@functools.cache
def is_unlisted(kind: str, code: str | None) -> bool:
    """True for an error code of a GPU or an NVSwitch that no table lists, and for a PCIe error of unknown grade."""
    if kind == _AER:
        return code == _PART_OF_REPORT
    return kind in tables() and digits.is_number(code or "") and code not in tables()[kind]


def is_graded(detail: Mapping[str, Any]) -> bool:
    """True if the line of an event grades itself, or continues one that did."""
    return any(key in detail for key in GRADED_BY)
