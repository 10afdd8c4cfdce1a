"""Finds the GPU of an event, and whether the attempt held it: by UUID, else PCI address, else index."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from probing_cluster.core import digits, records


class PartCertainty(StrEnum):
    """How surely the attempt held the part of an event."""

    HELD = "held"
    WHOLE = "whole"
    """Its GPUs are unknown, but it had the node to itself."""
    MAYBE = "maybe"
    """It shared the node, and its GPUs are unknown."""
    NOT = "not"


def pci_key(address: str | None) -> str | None:
    """`0000:5e:00` for any spelling of a PCI address (long domain, with function, upper case)."""
    if not address:
        return None
    text = address.strip().lower().removeprefix("pci:").split(".", 1)[0]
    parts = text.split(":")
    if len(parts) == 2:
        parts = ["0000", *parts]
    if len(parts) != 3:
        return text
    return f"{parts[0][-4:]:0>4}:{parts[1]:0>2}:{parts[2]:0>2}"


@functools.lru_cache(maxsize=4096)
def index_of(device: str | None) -> int | None:
    """3 for `gpu3`; None for anything else."""
    if device and device.startswith("gpu") and digits.is_number(device[3:]):
        return int(device[3:])
    return None


def gpu_key(event: records.HealthEvent, known: GpuMap) -> str | None:
    """The GPU's key: the same for one GPU, whichever name the source uses."""
    uuid = known.uuid_of(event)
    if uuid:
        return uuid
    device = event.device if index_of(event.device) is not None else None
    return device or known.device_of(event) or pci_key(event.pci_bus_id)


@dataclass(frozen=True, kw_only=True)
class GpuMap:
    """The names of one node's GPUs, as its events show them."""

    uuid_by_pci: Mapping[str, str] = field(default_factory=dict)
    uuid_by_device: Mapping[str, str] = field(default_factory=dict)
    device_by_pci: Mapping[str, str] = field(default_factory=dict)
    device_by_uuid: Mapping[str, str] = field(default_factory=dict)

    def uuid_of(self, event: records.HealthEvent) -> str | None:
        """The GPU's UUID, from the event or from other events."""
        if event.gpu_uuid:
            return event.gpu_uuid
        pci = pci_key(event.pci_bus_id)
        if pci and pci in self.uuid_by_pci:
            return self.uuid_by_pci[pci]
        return self.uuid_by_device.get(event.device or "")

    @property
    def uuids(self) -> frozenset[str]:
        """The GPUs whose UUID an event named."""
        return frozenset((*self.uuid_by_pci.values(), *self.device_by_uuid))

    def device_of(self, event: records.HealthEvent) -> str | None:
        """The GPU's name (`gpu3`), from the event or from other events."""
        if index_of(event.device) is not None:
            return event.device
        pci = pci_key(event.pci_bus_id)
        if pci and pci in self.device_by_pci:
            return self.device_by_pci[pci]
        return self.device_by_uuid.get(event.gpu_uuid or "")

    def is_gpu(self, event: records.HealthEvent) -> bool | None:
        """True if the event's PCI address is a GPU's; None if nothing is known about the node's GPUs."""
        if event.gpu_uuid or index_of(event.device) is not None:
            return True
        pci = pci_key(event.pci_bus_id)
        if pci is None or not (self.uuid_by_pci or self.device_by_pci):
            return None
        return pci in self.uuid_by_pci or pci in self.device_by_pci


def learn(
    events: Iterable[records.HealthEvent], allocations: Iterable[records.JobAllocation]
) -> dict[str, GpuMap]:
    """Node to its GPUs' names: an event or allocation with several names of one GPU connects them."""
    maps: dict[str, tuple[dict[str, str], dict[str, str], dict[str, str], dict[str, str]]] = {}
    for event in events:
        pci = pci_key(event.pci_bus_id)
        device = event.device if index_of(event.device) is not None else None
        if (pci is None) + (device is None) + (not event.gpu_uuid) > 1:
            continue  # a single name connects nothing
        uuid_by_pci, uuid_by_device, device_by_pci, device_by_uuid = maps.setdefault(
            event.node, ({}, {}, {}, {})
        )
        if event.gpu_uuid and pci:
            uuid_by_pci[pci] = event.gpu_uuid
        if event.gpu_uuid and device:
            uuid_by_device[device] = event.gpu_uuid
            device_by_uuid[event.gpu_uuid] = device
        if pci and device:
            device_by_pci[pci] = device
    for allocation in allocations:
        indices = _indices(allocation.gpu_indices)
        if allocation.gpu_uuids and len(indices) == len(allocation.gpu_uuids):
            _, uuid_by_device, _, device_by_uuid = maps.setdefault(allocation.node, ({}, {}, {}, {}))
            for index, uuid in zip(indices, allocation.gpu_uuids, strict=True):
                uuid_by_device.setdefault(f"gpu{index}", uuid)
                device_by_uuid.setdefault(uuid, f"gpu{index}")
    return {
        node: GpuMap(uuid_by_pci=a, uuid_by_device=b, device_by_pci=c, device_by_uuid=d)
        for node, (a, b, c, d) in maps.items()
    }


def _indices(text: str) -> list[int]:
    return [int(part) for part in text.split(",") if digits.is_number(part.strip())]


def hold_of_gpu(
    event: records.HealthEvent,
    attempt: records.JobAttempt,
    known: GpuMap,
    allocation: records.JobAllocation | None,
    *,
    alone: bool,
) -> PartCertainty:
    """How surely `attempt` held the GPU of `event`. `alone`: no other attempt ran on the node meanwhile."""
    if attempt.n_gpus == 0:
        return PartCertainty.NOT
    mine = _uuids(event.node, attempt, allocation)
    if mine is not None and not mine:
        return PartCertainty.NOT
    uuid = known.uuid_of(event)
    if mine is not None and uuid:
        return PartCertainty.HELD if uuid in mine else PartCertainty.NOT
    index = index_of(event.device) if index_of(event.device) is not None else index_of(known.device_of(event))
    if allocation is not None and allocation.gpu_indices and index is not None:
        return PartCertainty.HELD if index in _indices(allocation.gpu_indices) else PartCertainty.NOT
    if mine is not None and known.uuids - mine:
        return PartCertainty.MAYBE  # the node has other GPUs
    # A job of one CPU whose GPUs are unknown often has none.
    small = attempt.n_gpus is None and attempt.n_cpus == 1
    return PartCertainty.WHOLE if alone and not small else PartCertainty.MAYBE


def _uuids(
    node: str, attempt: records.JobAttempt, allocation: records.JobAllocation | None
) -> frozenset[str] | None:
    if attempt.gpus is not None and node in attempt.gpus:
        return frozenset(attempt.gpus[node])
    if allocation is not None and allocation.gpu_uuids is not None:
        return frozenset(allocation.gpu_uuids)
    return None
