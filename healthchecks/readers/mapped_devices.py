"""What lies below a device-mapper device: drives of the node, or an image file.

Users' containers, encrypted images and snapshots are device-mapper devices, too; their errors say nothing about the node.
"""

from __future__ import annotations

import re
from pathlib import Path

BLOCK = "/sys/class/block"
_MAPPED = re.compile(r"(?:/dev/)?(dm-\d{1,9})(?:-\d{1,9})?", re.ASCII)
"""Also its journal, `dm-3-8`."""
_VIRTUAL = "/devices/virtual/block/"
"""Where the kernel shows devices without a drive: loop, zram, nbd, and those of device-mapper and md themselves."""
_DEEPEST = 8


def without_a_drive(block: Path, device: str | None) -> bool:
    """Whether `device`, as a kernel line names it, is a device-mapper device that does not lie wholly on drives; `block` is /sys/class/block.

    False of every other device. A device that is gone lies on nothing.
    """
    found = _MAPPED.fullmatch(device or "")
    return found is not None and not _on_drives(block, found[1], _DEEPEST)


def _on_drives(block: Path, name: str, deepest: int) -> bool:
    try:
        below = [p.name for p in (block / name / "slaves").iterdir()]
    except OSError:
        below = []
    if below:
        return deepest > 0 and all(_on_drives(block, one, deepest - 1) for one in below)
    try:
        real = str((block / name).resolve(strict=True))
    except OSError:
        # A drive that has been lost leaves its name below the device that it carried.
        return deepest < _DEEPEST
    return _VIRTUAL not in real and not _MAPPED.fullmatch(name)
