"""Inodes on local filesystems."""

from __future__ import annotations

from typing import Any

from probing_cluster.core.records import Outcome


def test_inodes(node: Any) -> None:
    """Used inodes warn, then fail."""
    node.mount("/", "ext4")
    assert node.check("disk_inodes").outcome is Outcome.OK
    node.mount("/tmp", "ext4", inodes_free=50)
    assert node.check("disk_inodes").outcome is Outcome.WARN
    node.mount("/var", "ext4", inodes_free=1)
    assert node.check("disk_inodes").device == "/var"


def test_not_counted(node: Any) -> None:
    """A filesystem without inode counts (btrfs) is not full."""
    node.mount("/", "btrfs", inodes=0, inodes_free=0)
    assert node.check("disk_inodes").outcome is Outcome.ABSENT


def test_unseen(node: Any) -> None:
    """One that did not answer is an error."""
    node.mount("/", "ext4", error_name="EIO")
    assert node.check("disk_inodes").outcome is Outcome.ERROR
