"""Which GPU is meant: kernel lines say PCI addresses, NVML says UUIDs and indices, Slurm says numbers."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from probing_cluster.core import digits
from probing_cluster.probe_agent.faults import gres_conf

_PCI = re.compile(r"^(?:([0-9a-f]{4,8}):)?([0-9a-f]{2}):([0-9a-f]{2})(?:\.[0-7])?$")


def pci_key(address: str | None) -> str | None:
    """`domain:bus:device` in lower case, domain of four digits (NVML writes eight), no function; None when it is none."""
    found = _PCI.match((address or "").strip().lower())
    if found is None:
        return None
    return f"{int(found[1] or '0', 16):04x}:{found[2]}:{found[3]}"


@dataclass(frozen=True, kw_only=True)
class Gpu:
    """One GPU as NVML named it when it last answered."""

    uuid: str
    index: int
    """NVML's index: the order of PCI addresses."""
    minor: int | None = None
    """N of /dev/nvidiaN; differs from the index on some boards."""
    pci_bus_id: str = ""
    serial: str = ""
    name: str = ""

    @property
    def device(self) -> str:
        return f"gpu{self.index}"


@dataclass(frozen=True, kw_only=True)
class Inventory:
    """The GPUs this node has, remembered across restarts so that one that is gone still has a name."""

    gpus: tuple[Gpu, ...] = ()

    @classmethod
    def from_state(cls, rows: Any) -> Inventory:
        """The inventory stored by `to_state`; empty when nothing was."""
        return cls(gpus=tuple(Gpu(**row) for row in rows or ()))

    def to_state(self) -> list[dict[str, Any]]:
        return [asdict(gpu) for gpu in self.gpus]

    def by_pci(self, address: str | None) -> Gpu | None:
        """The GPU at a PCI address, however written."""
        key = pci_key(address)
        return next((g for g in self.gpus if key is not None and pci_key(g.pci_bus_id) == key), None)

    def by_uuid(self, uuid: str | None) -> Gpu | None:
        return next((g for g in self.gpus if g.uuid == uuid), None)

    def merged(self, visible: Iterable[Gpu], *, complete: bool) -> Inventory:
        """With what NVML shows now. Unless the set is `complete`, names stay as they were.

        When a GPU is gone the driver counts the others anew; were they renamed, gpu4 of before the fault
        would be gpu3 after it and the evidence would point at the wrong board.
        """
        now = tuple(visible)
        if complete:
            return Inventory(gpus=tuple(sorted(now, key=lambda g: g.index)))
        known = {g.uuid for g in self.gpus}
        fresh = [g for g in now if g.uuid not in known]
        return Inventory(gpus=tuple(sorted((*self.gpus, *fresh), key=lambda g: (g.index, g.uuid))))

    def of_job(self, numbers: str, numbering: gres_conf.Numbering | None) -> tuple[str, ...] | None:
        """UUIDs behind SLURM_JOB_GPUS; None when they cannot be told for certain.

        Without a `numbering` a number counts only where the order of PCI addresses and the minor number
        agree on the GPU. UUIDs pass through when the node has them.
        """
        words = [w.strip() for w in numbers.split(",") if w.strip()]
        found = [self._one(w, numbering) for w in words]
        if any(g is None for g in found):
            return None
        return tuple(g.uuid for g in found if g is not None)

    def _one(self, word: str, numbering: gres_conf.Numbering | None) -> Gpu | None:
        if not digits.is_number(word):
            return self.by_uuid(word)
        number = int(word)
        ordered = sorted(self.gpus, key=lambda g: pci_key(g.pci_bus_id) or "")
        by_pci = ordered[number] if number < len(ordered) and all(g.pci_bus_id for g in ordered) else None
        if numbering is None:
            return by_pci if by_pci is not None and by_pci.minor == number else None
        if numbering.by_pci:
            return by_pci
        minors = numbering.minors
        if minors is None:
            return _only([g for g in self.gpus if g.minor == number])
        return _only([g for g in self.gpus if number < len(minors) and g.minor == minors[number]])


def _only(found: Sequence[Gpu]) -> Gpu | None:
    return found[0] if len(found) == 1 else None
