"""A /sys/class/block as the kernel lays it out, for tests of devices that lie on others."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path


def device(root: Path, name: str, where: str, below: Sequence[str] = ()) -> None:
    """A block device at /sys/devices/`where`, over the devices `below`."""
    real = root / "sys/devices" / where
    (real / "slaves").mkdir(parents=True)
    names = root / "sys/class/block"
    names.mkdir(parents=True, exist_ok=True)
    (names / name).symlink_to(f"../../devices/{where}")
    for one in below:
        (real / "slaves" / one).symlink_to(names / one)
