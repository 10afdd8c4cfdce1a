"""The identity of a simulated node and its parts; the same name always gives the same hardware."""

from __future__ import annotations

import random
import uuid
from dataclasses import dataclass

_GPU_BUSES = (0x1B, 0x43, 0x52, 0x61, 0x9D, 0xC3, 0xD1, 0xDF, 0x0F, 0x2D, 0x36, 0x70, 0x86, 0xAB, 0xB7, 0xEB)
_HCA_BUSES = (0x18, 0x40, 0x4F, 0x5E, 0x9A, 0xC0, 0xCE, 0xDC, 0x0C, 0x2A, 0x33, 0x6D, 0x83, 0xA8, 0xB4, 0xE8)
ETHERNET_PCI = "0000:29:00.0"
NVME_PCI = "0000:0a:00.0"


@dataclass(frozen=True, kw_only=True)
class TreeGpu:
    """One GPU; its NVML index, its minor number and its place on the bus all differ, as they may."""

    index: int
    minor: int
    pci: str
    uuid: str
    serial: str


@dataclass(frozen=True, kw_only=True)
class Hca:
    """One InfiniBand adapter."""

    name: str
    netdev: str
    pci: str
    guid: str
    lid: int


@dataclass(frozen=True, kw_only=True)
class TreeIdentity:
    """One node's hardware."""

    node: str
    number: int
    gpus: tuple[TreeGpu, ...]
    hcas: tuple[Hca, ...]


def identity(node: str, number: int, gpus: int) -> TreeIdentity:
    """The hardware of the node called `node`, with as many adapters as GPUs (at least one)."""
    rng = random.Random(f"probing-sandbox:{node}")
    minors = _shuffled(rng, range(gpus))
    buses = _shuffled(rng, _GPU_BUSES[:gpus])
    return TreeIdentity(
        node=node,
        number=number,
        gpus=tuple(
            TreeGpu(
                index=i,
                minor=minors[i],
                pci=f"0000:{buses[i]:02x}:00.0",
                uuid=f"GPU-{uuid.UUID(int=rng.getrandbits(128), version=4)}",
                serial=f"165{rng.randrange(10**10):010d}",
            )
            for i in range(gpus)
        ),
        hcas=tuple(_hca(number, i) for i in range(max(1, gpus))),
    )


def _shuffled(rng: random.Random, values: range | tuple[int, ...]) -> list[int]:
    """The values in an order that keeps none of them in place, where that is possible."""
    order = list(values)
    while len(order) > 1 and any(a == b for a, b in zip(order, values, strict=True)):
        rng.shuffle(order)
    return order


def _hca(number: int, i: int) -> Hca:
    return Hca(
        name=f"mlx5_{i}",
        netdev=f"ib{i}",
        pci=f"0000:{_HCA_BUSES[i]:02x}:00.0",
        guid=f"a088:c203:{number:04x}:{0xB200 + i:04x}",
        lid=number * 16 + i + 1,
    )
