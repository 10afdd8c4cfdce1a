"""Mounts that do not answer."""

from __future__ import annotations

from typing import Any

from probing_cluster.core.records import Outcome, Severity


def test_all_answer(node: Any) -> None:
    """Filesystems that answer at once are ok."""
    node.mount("/", "ext4")
    node.mount("/home", "nfs4")
    assert node.check("mount_responsive").message == "2 filesystems answer"


def test_a_hanging_mount_fails_low(node: Any) -> None:
    """A mount that does not answer in time is the fault itself, and timed out."""
    node.mount("/home", "nfs4", error="no answer in 5 s", timed_out=True)
    finding = node.check("mount_responsive")
    assert (finding.outcome, finding.device, finding.severity, finding.timed_out) == (
        Outcome.FAIL,
        "/home",
        Severity.LOW,
        True,
    )


def test_a_stale_handle_fails_high(node: Any) -> None:
    """A stale handle is a mount that is gone, whatever the table says."""
    node.mount("/home", "nfs4", error_name="ESTALE")
    finding = node.check("mount_responsive")
    assert (finding.outcome, finding.severity) == (Outcome.FAIL, None)


def test_a_refusal_is_an_answer(node: Any) -> None:
    """Root is nobody on the server, or has no ticket for it."""
    for n, word in enumerate(("EACCES", "EPERM", "EKEYEXPIRED")):
        node.mount(f"/home{n}", "nfs4", error_name=word)
    assert node.check("mount_responsive").outcome is Outcome.OK


def test_a_users_dead_mount_is_not_asked(node: Any) -> None:
    """Its own program has ended; that of the node's own file system is a fault."""
    node.mount("/home/u/m", "fuse.sshfs", "rw,user_id=1000,group_id=100,allow_other", error_name="ENOTCONN")
    assert node.check("mount_responsive").message == "0 filesystems answer"
    node.mount("/weka", "fuse.weka", "rw,user_id=0,group_id=0,allow_other", error_name="ENOTCONN")
    assert node.check("mount_responsive").device == "/weka"


def test_not_ours_to_ask(node: Any) -> None:
    """A path that we cannot open says nothing about the filesystem."""
    node.mount("/home", "nfs4", error_name="ENOENT")
    assert node.check("mount_responsive").outcome is Outcome.ERROR


def test_slow(node: Any) -> None:
    """A slow answer warns with its time."""
    node.mount("/home", "nfs4", answer_s=3.2)
    finding = node.check("mount_responsive")
    assert (finding.outcome, finding.measured) == (Outcome.WARN, 3.2)


def test_kernel_filesystems_hold_no_files(node: Any) -> None:
    """proc, sysfs and automount triggers are not asked."""
    node.mount("/proc", "proc")
    node.mount("/net", "autofs")
    assert node.check("mount_responsive").outcome is Outcome.ABSENT
