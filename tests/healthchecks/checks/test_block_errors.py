"""Disk errors in the kernel log."""

from __future__ import annotations

from typing import Any

import pytest

from probing_cluster.core.records import Outcome
from probing_cluster.healthchecks import memory
from probing_cluster.healthchecks.checks import block_errors
from tests import block_tree


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("I/O error, dev nvme0n1, sector 1234 op 0x0:(READ) flags 0x80700", ("io", "nvme0n1")),
        ("blk_update_request: I/O error, dev sda, sector 0", ("io", "sda")),
        ("critical medium error, dev sdb, sector 99 op 0x0:(READ)", ("io", "sdb")),
        ("Buffer I/O error on dev dm-0, logical block 0, async page read", ("io", "dm-0")),
        ("nvme nvme1: Removing after probe failure status: -19", ("dead", "nvme1")),
        ("EXT4-fs (nvme0n1p2): Remounting filesystem read-only", ("readonly", "nvme0n1p2")),
        ("XFS (md0): Filesystem has been shut down due to log error (0x2).", ("readonly", "md0")),
        ("blk_update_request: I/O error, dev loop3, sector 0", None),
        ("Buffer I/O error on dev sr0, logical block 0", None),
        ("nvme nvme0: controller is down; will reset: CSTS=0x3", None),
        ("nvme nvme0: 16/0/0 default/read/poll queues", None),
        ("EXT4-fs (sda1): mounted filesystem with ordered data mode", None),
        ("block nvme0n1: I/O error, dev nvme0n1, sector 8", ("io", "nvme0n1")),
        ("blk_update_request: critical target error, dev sdc, sector 4", ("io", "sdc")),
        ("critical target error, dev sdc, sector 4 op 0x3:(DISCARD) flags 0x800 phys_seg 1", None),
        ("critical target error, dev sdc, sector 4 op 0x1:(WRITE) flags 0x800", ("io", "sdc")),
        ("I/O error, dev sdc, sector 4 op 0x3:(DISCARD) flags 0x800", ("io", "sdc")),
        ("I/O error, dev ublkb0, sector 4", None),
        ("tmpfs: Unknown parameter 'nvme nvme0: Removing after probe failure status: -19'", None),
        ('overlayfs: unrecognized mount option "XFS (sda1): log I/O error -5" or missing value', None),
        ("a.out[7]: segfault at 0 ip 0 sp 0 error 4 in I/O error, dev sda, sector 1[5600+1000]", None),
        (
            "process '/tmp/EXT4-fs (sda1): Remounting filesystem read-only' started with executable stack",
            None,
        ),
        ("I/O error, dev invoked oom-killer: gfp_mask=0x140dca, order=0, oom_score_adj=0", None),
        ("python: nvme nvme0: Removing after probe failure status: -19", None),
    ],
)
def test_lines(text: str, found: tuple[str, str] | None) -> None:
    """The kernel's words for broken disks, and for what is none."""
    assert block_errors.parse(text) == found


@pytest.mark.parametrize(
    ("below", "outcome"), [(["sda"], Outcome.FAIL), (["loop3"], Outcome.OK), (["sda", "loop3"], Outcome.OK)]
)
def test_a_mapped_device_counts_as_far_as_it_lies_on_drives(
    node: Any, below: list[str], outcome: Outcome
) -> None:
    """An encrypted image of a user's is a device-mapper device over a loop device."""
    block_tree.device(node.root, "sda", "pci0000:00/ata1/host0/block/sda")
    block_tree.device(node.root, "loop3", "virtual/block/loop3")
    block_tree.device(node.root, "dm-0", "virtual/block/dm-0", below)
    node.log("Linux version 5.15", priority=5)
    node.log("I/O error, dev dm-0, sector 1 op 0x0:(READ)", priority=3)
    node.log("Buffer I/O error on dev dm-0, logical block 0, async page read", priority=3)
    node.log("XFS (dm-0): log I/O error -5", priority=3)
    finding = node.check("block_errors")
    assert (finding.outcome, finding.device) == (outcome, "dm-0" if outcome is Outcome.FAIL else None)


def test_one_warns_two_fail_until_cleared(node: Any) -> None:
    """A single I/O error warns, a second fails at every look, and clearing ends it."""
    node.log("Linux version 5.15", priority=5)
    assert node.check("block_errors").outcome is Outcome.OK
    node.log("I/O error, dev nvme0n1, sector 1", priority=3)
    assert node.check("block_errors").outcome is Outcome.WARN
    node.log("I/O error, dev nvme0n1, sector 2", priority=3)
    assert node.check("block_errors").outcome is Outcome.FAIL
    assert node.check("block_errors").device == "nvme0n1"
    node.later(60)
    node.memory["block_errors"] = memory.cleared(node.memory["block_errors"])
    assert node.check("block_errors").outcome is Outcome.OK


def test_an_old_error_is_forgotten(node: Any) -> None:
    """A bad read of yesterday no longer counts towards today's; a lost controller does until reboot or clearing."""
    node.log("I/O error, dev nvme0n1, sector 1", priority=3)
    node.check("block_errors")
    node.later(90000)
    node.log("I/O error, dev nvme0n1, sector 2", priority=3)
    assert node.check("block_errors").outcome is Outcome.WARN
    node.log("nvme nvme1: Removing after probe failure status: -19", priority=3)
    node.later(90000)
    assert node.check("block_errors").device == "nvme1"


def test_sticks_and_virtual_cds(node: Any) -> None:
    """Errors of removable disks are nobody's data loss."""
    node.put("sys/block/sdb/removable", "1")
    for _ in range(5):
        node.log("I/O error, dev sdb, sector 1", priority=3)
        node.log("Buffer I/O error on dev sdb1, logical block 0", priority=3)
    assert node.check("block_errors").outcome is Outcome.OK


def test_a_shutdown_fails_at_once(node: Any) -> None:
    """A filesystem that turned read-only after errors needs no second line."""
    node.log("EXT4-fs (sda1): Remounting filesystem read-only", priority=2)
    assert node.check("block_errors").outcome is Outcome.FAIL


def test_a_forged_line(node: Any) -> None:
    """A user's line in the log is not believed."""
    node.log("EXT4-fs (sda1): Remounting filesystem read-only", priority=13)
    assert node.check("block_errors").outcome is Outcome.OK


def test_no_log(node: Any) -> None:
    """Without a kernel log there is nothing to judge."""
    assert node.check("block_errors").outcome is Outcome.ABSENT
