"""Mounts that must be there."""

from __future__ import annotations

from typing import Any

from probing_cluster.core.records import Outcome, Severity


def test_there(node: Any) -> None:
    """Mounts of the site file that are mounted are ok."""
    node.mount("/scratch", "lustre")
    assert node.check("mount_present", paths=["/scratch", "/scratch=lustre"]).outcome is Outcome.OK


def test_missing_or_of_another_type(node: Any) -> None:
    """One that is not mounted, or of another type, fails high."""
    node.mount("/home", "nfs4")
    finding = node.check("mount_present", paths=["/scratch"])
    assert (finding.outcome, finding.device, finding.severity) == (Outcome.FAIL, "/scratch", None)
    assert node.check("mount_present", paths=["/home=lustre"]).outcome is Outcome.FAIL


def test_fstab(node: Any) -> None:
    """What only fstab wants fails low; noauto, nofail, swap and automounts are not wanted."""
    node.mount("/", "ext4")
    node.put(
        "etc/fstab",
        "# comment\nsrv:/data /data nfs4 rw 0 0\nswap none swap sw 0 0\nsrv:/a /a nfs4 noauto 0 0\n"
        "srv:/b /b nfs4 nofail 0 0\nsrv:/c /c nfs4 x-systemd.automount 0 0\n/dev/x / ext4 defaults 0 1\n",
    )
    finding = node.check("mount_present")
    assert (finding.outcome, finding.device, finding.severity) == (Outcome.FAIL, "/data", Severity.LOW)
    assert len(finding.detail["findings"]) == 1
    assert node.check("mount_present", fstab=False).outcome is Outcome.ABSENT


def test_links_of_an_image(node: Any) -> None:
    """Where /home is a link to /var/home, that is where it is mounted; nothing is mounted where the link leads nowhere."""
    node.mount("/", "ext4")
    node.mount("/var/home", "nfs4")
    node.link("home", "var/home")
    node.link("mnt", "var/mnt")
    node.put("etc/fstab", "srv:/home /home nfs4 rw 0 0")
    assert node.check("mount_present", paths=["/home=nfs4"]).outcome is Outcome.OK
    assert node.check("mount_present").outcome is Outcome.OK
    assert node.check("mount_present", paths=["/mnt"]).outcome is Outcome.FAIL
    node.put("proc/self/mounts", "dev / ext4 rw 0 0")
    assert node.check("mount_present").outcome is Outcome.FAIL


def test_on_demand(node: Any) -> None:
    """A path held by the automounter is there when it is needed."""
    node.mount("/home", "autofs")
    assert node.check("mount_present", paths=["/home=nfs4"]).outcome is Outcome.OK


def test_spaces_in_paths(node: Any) -> None:
    """The kernel's escapes in mount points are understood."""
    node.put("proc/self/mounts", "dev /my\\040data ext4 rw 0 0")
    assert node.check("mount_present", paths=["/my data"]).outcome is Outcome.OK


def test_users_mounts_are_neither_wanted_nor_in_the_way(node: Any) -> None:
    """What fstab lets users mount is theirs to mount; a user's mount over the site's changes no type. The site's word goes first."""
    node.mount("/lab", "nfs4")
    node.mount("/lab", "fuse.sshfs", "rw,user_id=1000,group_id=100")
    node.mount("/bucket", "fuse.rclone", "rw,user_id=998,group_id=998,allow_other")
    node.put("etc/fstab", "nas:/own /own nfs4 rw,user 0 0\nnas:/all /all nfs4 users 0 0")
    finding = node.check("mount_present", paths=["/lab=nfs4", "/bucket=fuse.rclone"])
    assert (finding.outcome, finding.message) == (Outcome.OK, "2 mounts in place")
    assert node.check("mount_present").outcome is Outcome.ABSENT
