"""Main-memory errors as the memory controllers count them (EDAC); read by the check of them and by the agent."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

ROOT = "/sys/devices/system/edac/mc"
OF_CONTROLLER = ("ce_count", "ue_count", "ce_noinfo_count", "ue_noinfo_count")
PLACES = ("dimm", "rank")
OF_PLACE = ("dimm_ce_count", "dimm_ue_count", "dimm_label")
FILES = (
    *(f"{ROOT}/mc*/{name}" for name in OF_CONTROLLER),
    *(f"{ROOT}/mc*/{place}*/{name}" for place in PLACES for name in OF_PLACE),
)
"""Patterns of the files that `parse` wants."""
_PLACE = re.compile(rf"{ROOT}/(mc\d+)/(?:((?:dimm|rank)\d+)/)?\w+", re.ASCII)
_NUMBER = re.compile(r"\s*\d{1,20}\s*", re.ASCII)


@dataclass(frozen=True, kw_only=True)
class Counts:
    """Errors since boot of one DIMM or controller; None where a count could not be read."""

    corrected: int | None
    uncorrected: int | None


def parse(files: Mapping[str, str | None]) -> dict[str, Counts]:
    """Part (a DIMM's label, or its controller) to its counts, from path to text; None for a file that could not be read.

    A controller that lists DIMMs counts for itself only the errors that no DIMM could be blamed for: its own totals are the
    sum of both.
    """
    places: dict[str, set[str]] = {}
    for path in files:
        if found := _PLACE.fullmatch(path):
            places.setdefault(found[1], set()).update({found[2]} if found[2] else ())
    counted: dict[str, Counts] = {}
    for controller in sorted(places, key=_in_order):
        base = f"{ROOT}/{controller}"
        for place in sorted(places[controller], key=_in_order):
            label = (files.get(f"{base}/{place}/dimm_label") or "").strip() or f"{controller}/{place}"
            # Boards with a label for all: the second of them goes by its place.
            part = f"{controller}/{place}" if label in counted else label
            counted[part] = _counts(files, f"{base}/{place}/dimm_", "count")
        counted[controller] = _counts(files, f"{base}/", "noinfo_count" if places[controller] else "count")
    return counted


def _counts(files: Mapping[str, str | None], prefix: str, suffix: str) -> Counts:
    return Counts(
        corrected=_number(files.get(f"{prefix}ce_{suffix}")),
        uncorrected=_number(files.get(f"{prefix}ue_{suffix}")),
    )


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and _NUMBER.fullmatch(text) else None


def _in_order(name: str) -> tuple[str, int]:
    return name.rstrip("0123456789"), int("0" + name.lstrip("abcdefghijklmnopqrstuvwxyz"))
