"""Which GPU is meant: kernel lines say PCI addresses, NVML says UUIDs and indices, Slurm says numbers."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

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

    def merged(self, seen: Iterable[Gpu]) -> Inventory:
        """With what NVML shows now: new facts win; a GPU that is not seen is kept until its place is taken."""
        now = {g.uuid: g for g in seen}
        taken = {pci_key(g.pci_bus_id) for g in now.values()}
        kept = {g.uuid: g for g in self.gpus if g.uuid not in now and pci_key(g.pci_bus_id) not in taken}
        return Inventory(gpus=tuple(sorted((kept | now).values(), key=lambda g: (g.index, g.uuid))))

    def of_job(self, numbers: str, numbering: str = "auto") -> tuple[str, ...] | None:
        """UUIDs behind SLURM_JOB_GPUS; None when they cannot be told for certain.

        The Prolog's SLURM_JOB_GPUS holds Slurm's GRES index (`gres_device->index`), not a minor number. With
        AutoDetect=nvml that is the order of PCI addresses, which is NVML's index; with `File=/dev/nvidia[0-7]`
        it is the order of the files, which is the minor number. Where the two agree the answer is the same
        whatever gres.conf says; where they differ the site says which (`numbering` = nvml or minor), or
        nothing is claimed. UUIDs pass through when the node has them.
        """
        words = [w.strip() for w in numbers.split(",") if w.strip()]
        found = [self._one(w, numbering) for w in words]
        if any(g is None for g in found):
            return None
        return tuple(g.uuid for g in found if g is not None)

    def _one(self, word: str, numbering: str) -> Gpu | None:
        if not word.isdigit():
            return self.by_uuid(word)
        number = int(word)
        by_index = [g for g in self.gpus if g.index == number]
        by_minor = [g for g in self.gpus if g.minor == number]
        if numbering == "nvml":
            return _only(by_index)
        if numbering == "minor":
            return _only(by_minor)
        first = _only(by_index)
        if first is None or (first.minor is not None and first.minor != number):
            return None
        return first


def _only(found: Sequence[Gpu]) -> Gpu | None:
    return found[0] if len(found) == 1 else None
