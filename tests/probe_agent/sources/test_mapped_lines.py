"""Kernel lines about device-mapper devices count as the node's /sys shows drives below them."""

from __future__ import annotations

from typing import Any

import pytest

from probing_cluster.probe_agent.sources import kernel_log, kernel_words, kmsg
from tests import block_tree

LINES = (
    "EXT4-fs (dm-3): Remounting filesystem read-only",
    "Aborting journal on device dm-3-8.",
    "Buffer I/O error on dev dm-3, logical block 3, lost async page write",
    "XFS (dm-3): log I/O error -5",
    "python: attempt to access beyond end of device\ndm-3: rw=0, sector=8, nr_sectors = 8 limit=4",
)


@pytest.mark.parametrize("line", LINES)
@pytest.mark.parametrize(("below", "counts"), [("sda", True), ("loop3", False), (None, False)])
def test_a_users_mapped_device_is_no_drive(bare: Any, line: str, below: str | None, *, counts: bool) -> None:
    """A fault that drains the node over a drive, information over a loop device and of a device that is not there."""
    block_tree.device(bare.root, "sda", "pci0000:00/ata1/block/sda")
    block_tree.device(bare.root, "loop3", "virtual/block/loop3")
    if below is not None:
        block_tree.device(bare.root, "dm-3", "virtual/block/dm-3", [below])
    log = kernel_log.KernelLog(bare, kernel_words.classifier(), state=None)
    (found,) = log.take([kmsg.KmsgLine(seq=1, ts_us=1, facility=0, text=line)], caught_up=False, place={})
    assert (found.code != "image_file", str(found.severity) != "info") == (counts, counts)
    assert found.kind == "block_io"
