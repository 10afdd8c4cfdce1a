"""Sub-codes of Xid 144 to 150: what the two hexadecimal words of an NVLink5 line say.

The table has two layouts of the first word (driver before R575, from R575 on); a line names its unit,
and unit and bits together pick the row.
"""

from __future__ import annotations

from functools import cache

from probing_cluster.core.catalogue import entries
from probing_cluster.core.records import Severity, doc, record

_STRENGTH = {Severity.INFO: 0, Severity.LOW: 1, Severity.HIGH: 2}


@record
class NvlinkRule:
    """One row: which lines it is about and what they mean."""

    xid: int = doc("144 to 150")
    units: tuple[str, ...] = doc("names of the reporting unit, older driver first")
    masks: tuple[tuple[int, int], ...] = doc("(mask, value) pairs of the first word, one per driver layout")
    reset_masks: tuple[tuple[int, int], ...] = doc("pairs that, when they match too, call for a GPU reset")
    statuses: tuple[int, ...] = doc("bits or values of the second word; empty = any")
    severity: Severity = doc("high for fatal, else info")
    domains: tuple[str, ...] = doc("failure domains")
    next_step: str = doc("what to do")
    source: str = doc("the document the row was made from")
    date: str = doc("month of that document, YYYY-MM")


def _pair(bits: str) -> tuple[int, int]:
    mask = int("".join("0" if b == "-" else "1" for b in bits), 2)
    return mask, int(bits.replace("-", "0"), 2)


@cache
def table() -> tuple[NvlinkRule, ...]:
    """Every rule, in the table's order."""
    return tuple(
        NvlinkRule(
            xid=int(row["xid"]),
            units=tuple(row["units"].split("/")),
            masks=(_pair(row["mask_v1"]), _pair(row["mask_v2"])),
            reset_masks=tuple(_pair(row[k]) for k in ("reset_mask_v1", "reset_mask_v2") if row[k]),
            statuses=tuple(int(s, 16) for s in row["status"].split("/") if s),
            severity=Severity(row["severity"]),
            domains=tuple(row["domains"].split("|")),
            next_step=row["next_step"],
            source=row["source"],
            date=row["date"],
        )
        for row in entries.rows("nvlink5.tsv")
    )


def _fits(rule: NvlinkRule, info: int, status: int) -> int:
    """0 no, 1 some status bits match, 2 exactly."""
    if not any(info & mask == value for mask, value in rule.masks):
        return 0
    if not rule.statuses or status in rule.statuses:
        return 2
    return 1 if any(status & s for s in rule.statuses) else 0


def decode(xid: int, unit: str, info: int, status: int) -> NvlinkRule | None:
    """The rule for a line of `unit` with words `info` and `status`; None when the table has none.

    Several status bits at once: the most severe rule speaks.
    """
    fits = [(r, f) for r in table() if r.xid == xid and unit in r.units and (f := _fits(r, info, status))]
    if not fits:
        return None
    best = max(f for _, f in fits)
    return max((r for r, f in fits if f == best), key=lambda r: _STRENGTH[r.severity])


def sub_code(info: int) -> int:
    """Bits 25 to 20 of the first word: the reason number, e.g. why a link went down."""
    return (info >> 20) & 0x3F


def needs_reset(rule: NvlinkRule, info: int) -> bool:
    """Whether a bit outside the row's own mask asks for a GPU reset that the row alone would not."""
    return any(info & mask == value for mask, value in rule.reset_masks)
