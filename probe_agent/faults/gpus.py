"""Which GPU is meant: kernel lines say PCI addresses, NVML and AMD SMI say UUIDs and indices, Slurm says numbers."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from probing_cluster.core import digits, records
from probing_cluster.probe_agent.faults import gres_conf

NVIDIA, AMD = "nvidia", "amd"
"""Makers, each with a library and a source of its own."""
_ROCR = re.compile(r"gpu-([0-9a-f]{8,32})$")
"""How ROCR_VISIBLE_DEVICES names an AMD GPU: by the number that its chip carries."""
_PCI = re.compile(r"^(?:([0-9a-f]{4,8}):)?([0-9a-f]{2}):([0-9a-f]{2})(?:\.[0-7])?$")


def pci_key(address: str | None) -> str | None:
    """`domain:bus:device` in lower case, domain of four digits (NVML writes eight), no function; None when it is none."""
    found = _PCI.match((address or "").strip().lower())
    if found is None:
        return None
    return f"{int(found[1] or '0', 16):04x}:{found[2]}:{found[3]}"


@dataclass(frozen=True, kw_only=True)
class Gpu:
    """One GPU as its maker's library named it when it last answered."""

    uuid: str
    index: int
    """The library's index: of NVML the order of PCI addresses."""
    minor: int | None = None
    """N of /dev/nvidiaN or of /dev/dri/renderDN; differs from the index on some boards."""
    pci_bus_id: str = ""
    serial: str = ""
    name: str = ""
    maker: str = NVIDIA

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
        return cls(gpus=tuple(Gpu(**records.known_fields(Gpu, row)) for row in rows or ()))

    def to_state(self) -> list[dict[str, Any]]:
        return [asdict(gpu) for gpu in self.gpus]

    def of_maker(self, maker: str) -> Inventory:
        """The GPUs of one maker: those that its library can show."""
        return Inventory(gpus=tuple(g for g in self.gpus if g.maker == maker))

    def with_maker(self, maker: str, gpus: Inventory) -> Inventory:
        """With `gpus` in place of those of `maker`; another maker's stay."""
        return Inventory(gpus=(*(g for g in self.gpus if g.maker != maker), *gpus.gpus))

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

    def of_job(self, numbers: str, numbering: gres_conf.GpuNumbering | None) -> tuple[str, ...] | None:
        """UUIDs behind SLURM_JOB_GPUS; None when they are not certain.

        Nothing is certain without `numbers`: Slurm sets none for a job without GPUs, nor where it does not manage GPUs.
        Without a `numbering` a number counts only where the order of PCI addresses and the minor number
        agree on the GPU. UUIDs pass through when the node has them, and AMD's GPUs by their chip's number, as
        ROCR_VISIBLE_DEVICES writes them.
        """
        words = [w.strip() for w in numbers.split(",") if w.strip()]
        found = [self._one(w, numbering) for w in words]
        if not words or any(g is None for g in found):
            return None
        return tuple(g.uuid for g in found if g is not None)

    def _place(self, gpu: Gpu) -> int | None:
        """The number of its device file; AMD's render devices are counted from the node's first one."""
        if gpu.maker == NVIDIA or gpu.minor is None:
            return gpu.minor
        minors = [g.minor for g in self.gpus if g.minor is not None]
        return sorted(minors).index(gpu.minor) if len(minors) == len(self.gpus) else None

    def _by_chip(self, number: str) -> Gpu | None:
        wanted = number.lstrip("0")
        return _only(
            [
                g
                for g in self.gpus
                if g.maker == AMD and g.serial.lower().removeprefix("0x").lstrip("0") == wanted
            ]
        )

    def _one(self, word: str, numbering: gres_conf.GpuNumbering | None) -> Gpu | None:
        if not digits.is_number(word):
            chip = _ROCR.match(word.lower())
            return self.by_uuid(word) or (self._by_chip(chip[1]) if chip else None)
        number = int(word)
        ordered = sorted(self.gpus, key=lambda g: pci_key(g.pci_bus_id) or "")
        by_pci = ordered[number] if number < len(ordered) and all(g.pci_bus_id for g in ordered) else None
        if numbering is None:
            return by_pci if by_pci is not None and self._place(by_pci) == number else None
        if numbering.by_pci:
            return by_pci
        minors = numbering.minors
        if minors is None:
            return _only([g for g in self.gpus if g.minor == number])
        return _only([g for g in self.gpus if number < len(minors) and g.minor == minors[number]])


def _only(found: Sequence[Gpu]) -> Gpu | None:
    return found[0] if len(found) == 1 else None
