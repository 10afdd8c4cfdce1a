"""Room on local filesystems."""

from __future__ import annotations

from typing import Any

from probing_cluster.core.records import Outcome


def test_room(node: Any) -> None:
    """Filesystems with room are ok."""
    node.mount("/", "ext4")
    assert node.check("disk_space").outcome is Outcome.OK


def test_filling_up(node: Any) -> None:
    """Above the limits it warns, then fails, as df would show it."""
    node.mount("/", "ext4", free_bytes=80)
    finding = node.check("disk_space")
    assert (finding.outcome, finding.measured, finding.unit) == (Outcome.WARN, 0.92, "frac")
    node.mount("/var", "xfs", free_bytes=10)
    assert (node.check("disk_space").outcome, node.check("disk_space").device) == (Outcome.FAIL, "/var")
    assert node.check("disk_space", ignore=["/", "/var"]).outcome is Outcome.ABSENT


def test_the_file_server_is_not_this_node(node: Any) -> None:
    """A full network filesystem is judged only when asked for."""
    node.mount("/home", "nfs4", free_bytes=0)
    assert node.check("disk_space").outcome is Outcome.ABSENT
    assert node.check("disk_space", network=True).outcome is Outcome.FAIL


def test_unseen(node: Any) -> None:
    """A filesystem that did not answer is an error, not empty and not full."""
    node.mount("/", "ext4", error="no answer in 5 s", timed_out=True)
    finding = node.check("disk_space")
    assert (finding.outcome, finding.timed_out) == (Outcome.ERROR, True)


def test_read_only_images_are_always_full(node: Any) -> None:
    """A read-only image at 100 % is as it should be."""
    node.mount("/image", "ext4", "ro", free_bytes=0)
    assert node.check("disk_space").outcome is Outcome.ABSENT


def test_a_tmpfs_belongs_to_the_jobs(node: Any) -> None:
    """A full /dev/shm is a running job's right: it warns and never fails."""
    node.mount("/dev/shm", "tmpfs", free_bytes=0)
    assert node.check("disk_space").outcome is Outcome.WARN
