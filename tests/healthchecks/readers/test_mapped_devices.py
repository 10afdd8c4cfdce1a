"""Device-mapper devices over drives, over image files, and over what was there."""

from __future__ import annotations

from pathlib import Path

import pytest

from probing_cluster.healthchecks.readers import mapped_devices
from tests import block_tree


@pytest.fixture
def block(tmp_path: Path) -> Path:
    """Drives, a volume on an encrypted partition, a RAID, users' images, and a snapshot of a drive that a loop device holds."""
    for name, where, below in (
        ("sda", "pci0000:00/ata1/block/sda", []),
        ("sda3", "pci0000:00/ata1/block/sda/sda3", []),
        ("nvme0n1", "virtual/nvme-subsystem/nvme-subsys0/nvme0n1", []),
        ("loop3", "virtual/block/loop3", []),
        ("zram0", "virtual/block/zram0", []),
        ("md0", "virtual/block/md0", ["sda3", "nvme0n1"]),
        ("md1", "virtual/block/md1", ["loop3"]),
        ("dm-0", "virtual/block/dm-0", ["sda3"]),
        ("dm-1", "virtual/block/dm-1", ["dm-0"]),
        ("dm-2", "virtual/block/dm-2", ["nvme0n1"]),
        ("dm-3", "virtual/block/dm-3", ["md0"]),
        ("dm-4", "virtual/block/dm-4", ["lost"]),
        ("dm-10", "virtual/block/dm-10", ["loop3"]),
        ("dm-11", "virtual/block/dm-11", ["dm-10"]),
        ("dm-12", "virtual/block/dm-12", ["sda3", "loop3"]),
        ("dm-13", "virtual/block/dm-13", ["zram0"]),
        ("dm-14", "virtual/block/dm-14", []),
        ("dm-15", "virtual/block/dm-15", ["md1"]),
    ):
        block_tree.device(tmp_path, name, where, below)
    return tmp_path / "sys/class/block"


@pytest.mark.parametrize("device", ["dm-0", "/dev/dm-0", "dm-0-8", "dm-1", "dm-2", "dm-3", "dm-4"])
def test_what_lies_on_drives_counts(block: Path, device: str) -> None:
    """Also through another device, a RAID, an NVMe drive of several paths, and a drive that was lost since."""
    assert not mapped_devices.without_a_drive(block, device)


@pytest.mark.parametrize("device", ["dm-10", "dm-10-8", "dm-11", "dm-12", "dm-13", "dm-14", "dm-15", "dm-99"])
def test_what_a_user_can_have_does_not(block: Path, device: str) -> None:
    """An image, another one over it, a snapshot into one, memory, an error target, a RAID of images, a device that is gone."""
    assert mapped_devices.without_a_drive(block, device)


@pytest.mark.parametrize("device", ["sda", "md0", "nvme0n1p2", "dm", "dm-", "dm-x", "../dm-10", "", None])
def test_no_other_device_is_judged(block: Path, device: str | None) -> None:
    assert not mapped_devices.without_a_drive(block, device)
