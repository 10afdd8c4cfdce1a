"""The mount table and asking filesystems."""

from __future__ import annotations

import dataclasses
import os
import types
from collections.abc import Callable
from typing import Any

import pytest

from probing_cluster.core import records
from probing_cluster.healthchecks import checkresults, lanes, nodeview, runner
from probing_cluster.healthchecks.readers import mounts


def test_table() -> None:
    """Escapes are undone, mounts over mounts count once, short lines are passed over."""
    text = "dev / ext4 rw 0 0\nsrv:/a /my\\040data nfs4 rw,hard 0 0\nauto /x autofs rw 0 0\nsrv:/x /x nfs ro 0 0\nshort line\n"
    found = mounts.parse(text)
    assert [(m.path, m.type, m.read_only) for m in found] == [
        ("/", "ext4", False),
        ("/my data", "nfs4", False),
        ("/x", "nfs", True),
    ]


FSTAB = (
    "# users\n//nas/own /own cifs noauto,user 0 0\nstick:/x /x nfs users 0 0\n/dev/sdb1 /usb vfat owner 0 0\n"
    "bucket /bucket fuse.sshfs rw 0 0\nnas:/lab /lab/ nfs4 rw 0 0\nnas:/y /y\\040y nfs4 rw,group 0 0\n"
)
OF_USERS = (
    "a@b: /home/u/m fuse.sshfs rw,user_id=1000,group_id=100",
    "a@b: /home/u/n fuse.glusterfs rw,user_id=1000,group_id=100,allow_other",
    "//nas/own /own cifs rw,uid=1000",
    "stick:/x /x nfs rw",
    "/dev/sdb1 /usb vfat rw",
    "nas:/y /y\\040y nfs4 rw",
    "pc:/e /net/pc/e nfs rw",
)
OF_NODE = (
    "weka /weka fuse.weka rw,user_id=0,group_id=0,allow_other",
    "nas:/n /network nfs4 rw",
    "-hosts /net autofs rw,indirect",
    "bucket /bucket fuse.sshfs rw,user_id=998,group_id=998",
    "//nas/all /all cifs rw,uid=1000,username=svc",
    "dev / ext4 rw",
)


def test_what_users_mount_is_not_the_nodes() -> None:
    """By fusermount, by fstab's leave, or by looking below the map of all hosts; what fstab names is the site's, whoever mounted it."""
    table = "\n".join(f"{row} 0 0" for row in (*OF_NODE, *OF_USERS))
    found = mounts.parse(table, FSTAB)
    assert [m.path for m in found] == [row.split()[1] for row in (*OF_NODE[:3], *OF_NODE[4:], OF_NODE[3])]
    assert not any(m.covered for m in found)
    named = {row.split()[1] for row in OF_USERS[:3]}
    assert {m.path for m in mounts.parse(table, FSTAB, named)} == {m.path for m in found} | named


def test_what_lies_below_a_users_mount_is_not_asked() -> None:
    """The owner of a mount's top may mount over it; a later mount of root's at the same path lies on top again."""
    site, user = (
        "nas:/lab /lab nfs4 rw 0 0\nnas:/d /lab/d nfs4 rw 0 0\nnas:/l /labor nfs4 rw 0 0",
        OF_USERS[0],
    )
    over = f"{user.replace('/home/u/m', '/lab')} 0 0"
    found = {m.path: (m.type, m.covered) for m in mounts.parse(f"{site}\n{over}", FSTAB)}
    assert found == {"/lab": ("nfs4", True), "/lab/d": ("nfs4", True), "/labor": ("nfs4", False)}
    assert [m.path for m in mounts.worth_asking(mounts.parse(f"{site}\n{over}", FSTAB))] == ["/labor"]
    again = mounts.parse(f"{site}\n{over}\nnas:/lab /lab nfs4 rw 0 0", FSTAB)
    assert {m.path: m.covered for m in again} == {"/lab/d": False, "/labor": False, "/lab": False}


def test_local_mounts_are_asked_first() -> None:
    """Network mounts come last, so that a dead server hides no local disk; kernel filesystems are not asked."""
    text = "a /n nfs4 rw 0 0\nb / ext4 rw 0 0\nproc /proc proc rw 0 0\no /var/lib/x overlay rw 0 0\n"
    assert [m.path for m in mounts.worth_asking(mounts.parse(text))] == ["/", "/n"]


def test_used_like_df() -> None:
    """Shares are of the whole size, free for ordinary users; without a size there is none."""
    mount = mounts.parse("d / ext4 rw 0 0")[0]
    assert mounts.Usage(mount=mount, size_bytes=100, free_bytes=25).used_frac == 0.75
    assert mounts.Usage(mount=mount, size_bytes=0, free_bytes=0).used_frac is None
    assert mounts.Usage(mount=mount).inodes_used_frac is None


def test_blocks_kept_for_root_are_neither_used_nor_free(node: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 100 blocks 40 are used and 20 are withheld: df says half, and an operator compares with df."""
    blocks = {"f_blocks": 100, "f_bfree": 60, "f_bavail": 40, "f_frsize": 4096, "f_files": 10, "f_favail": 5}
    monkeypatch.setattr(mounts, "_statvfs", lambda _: types.SimpleNamespace(**blocks))
    node.mount("/data", "ext4")
    found = mounts.table(nodeview.NodeView(node.spec))[0]
    answer = mounts.ask(node.spec, found)
    usage = mounts.Usage(mount=found, size_bytes=answer["size_bytes"], free_bytes=answer["free_bytes"])
    assert usage.used_frac == 0.5


def test_asking(node: Any) -> None:
    """A directory answers with its filesystem's figures, a missing one with the error's name."""
    node.mount("/data", "nfs4")
    found = mounts.table(nodeview.NodeView(node.spec))[0]
    assert mounts.ask(node.spec, found)["size_bytes"] > 0
    gone = dataclasses.replace(found, path="/gone")
    assert mounts.ask(node.spec, gone) == {"error_name": "ENOENT"}


def test_a_hanging_mount_in_a_real_sweep(
    node: Any, sweep_on: Callable[..., runner.CheckRunner], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A mount whose server is dead fails mount_responsive and nothing else; local disks are still judged."""
    monkeypatch.setattr(mounts, "MOUNT_DEADLINE_S", 0.3)
    node.mount("/", "ext4")
    node.mount("/home", "nfs4")
    (node.root / "home").rmdir()
    os.mkfifo(node.root / "home")
    found = checkresults.by_name(
        sweep_on().run(["mount_responsive", "mount_present", "disk_space", "disk_inodes"]).results
    )
    responsive = found["mount_responsive"]
    assert (responsive.outcome, responsive.device, responsive.timed_out) == (
        records.Outcome.FAIL,
        "/home",
        True,
    )
    assert found["disk_space"].outcome is records.Outcome.OK
    assert found["disk_inodes"].outcome in (records.Outcome.OK, records.Outcome.ABSENT)


def test_network_mounts_share_one_family(node: Any) -> None:
    """At most one child may be stuck on network mounts; each local mount stands for itself."""
    node.mount("/", "ext4")
    node.mount("/a", "nfs4")
    node.mount("/b", "lustre")
    steps: list[lanes.Step] = mounts.steps(node.spec)
    assert [(s.key, s.family) for s in steps] == [
        ("mount /", "mount /"),
        ("mount /a", "mounts"),
        ("mount /b", "mounts"),
    ]


def test_no_table(node: Any) -> None:
    """A node without a mount table has no steps."""
    assert mounts.steps(node.spec) == []
