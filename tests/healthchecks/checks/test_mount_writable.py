"""Filesystems that turned read-only."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from probing_cluster.core.records import Outcome
from probing_cluster.healthchecks.checks import mount_writable

NONE: dict[str, Any] = {"probe": []}


def test_writable(node: Any) -> None:
    """A file is made and removed again in each probe directory."""
    node.mount("/", "ext4")
    node.put("tmp/x", "")
    assert node.check("mount_writable", probe=["/tmp"]).outcome is Outcome.OK
    assert [p.name for p in (node.root / "tmp").iterdir()] == ["x"]


def test_turned_read_only(node: Any) -> None:
    """A mount that was writable in this boot, or that fstab wants writable, fails when it is read-only."""
    node.mount("/data", "ext4")
    assert node.check("mount_writable", **NONE).outcome is Outcome.OK
    node.put("proc/self/mounts", "dev /data ext4 ro 0 0")
    finding = node.check("mount_writable", **NONE)
    assert (finding.outcome, finding.device) == (Outcome.FAIL, "/data")


def test_meant_read_only(node: Any) -> None:
    """A mount that was read-only from the start, and that nobody wants otherwise, is fine."""
    node.mount("/image", "ext4", "ro")
    assert node.check("mount_writable", **NONE).outcome is Outcome.OK
    node.put("etc/fstab", "dev /image ext4 rw 0 0")
    assert node.check("mount_writable", **NONE).outcome is Outcome.FAIL
    assert node.check("mount_writable", read_only=["/image"], **NONE).outcome is Outcome.OK


def test_image_as_root(node: Any) -> None:
    """The root of an image-based system is read-only by design, whatever fstab says of the disk below it."""
    node.mount("/", "overlay", "ro", device="composefs")
    node.put("etc/fstab", "dev / xfs defaults 0 0")
    assert node.check("mount_writable", **NONE).outcome is Outcome.OK
    node.put("proc/self/mounts", "dev / xfs ro 0 0")
    assert node.check("mount_writable", **NONE).outcome is Outcome.FAIL


def test_network_mounts_only_when_asked(node: Any) -> None:
    """A read-only network mount fails only where the site wants it writable."""
    node.mount("/sw", "nfs4", "ro")
    assert node.check("mount_writable", **NONE).outcome is Outcome.OK
    assert node.check("mount_writable", paths=["/sw"], **NONE).outcome is Outcome.FAIL


def test_no_file_can_be_made(node: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A broken disk fails; a directory that is missing or closed to us says nothing about the disk."""
    node.mount("/", "ext4")
    node.put("tmp/x", "")
    monkeypatch.setattr(mount_writable, "attempt", lambda _: "EIO")
    assert node.check("mount_writable", probe=["/tmp"]).outcome is Outcome.FAIL
    monkeypatch.setattr(mount_writable, "attempt", lambda _: "EACCES")
    assert node.check("mount_writable", probe=["/tmp"]).outcome is Outcome.ERROR
    assert node.check("mount_writable", probe=["/nowhere"]).outcome is Outcome.ERROR


@pytest.mark.skipif(os.geteuid() != 0, reason="mounts a tmpfs")
def test_a_directory_that_a_job_filled_is_no_fault(tmp_path: Path) -> None:
    """What users can fill fails no check that drains; disk_space shows that there is no room."""
    code = (
        "import sys; from probing_cluster.healthchecks.checks import mount_writable as m;"
        "tried = m.attempt(sys.argv[1]);"
        "print(tried, m.judge(m.Reading(mounted=(), meant_writable=frozenset(), tried={'/dev/shm': tried}), {}).outcome)"
    )
    fill = f"mount -t tmpfs -o size=64k none {tmp_path} && head -c 200000 /dev/zero > {tmp_path}/a"
    shell = f"({fill}); exec {sys.executable} -c {shlex.quote(code)} {tmp_path}"
    done = subprocess.run(["unshare", "-m", "sh", "-c", shell], stdout=subprocess.PIPE, text=True, check=True)
    assert done.stdout.split() == ["ENOSPC", "error"]


def test_our_own_sandbox_is_no_fault_of_the_disk(node: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Under ProtectSystem=strict all is read-only to the agent alone: the node's own table decides, then nothing is said."""
    node.put("tmp/x", "")
    monkeypatch.setattr(mount_writable, "attempt", lambda _: "EROFS")
    node.put("proc/self/mounts", "dev / ext4 ro 0 0\ndev /usr ext4 ro 0 0")
    node.put("proc/1/mounts", "dev / ext4 rw 0 0")
    assert node.check("mount_writable", **NONE).outcome is Outcome.OK
    ours = node.check("mount_writable", probe=["/tmp"])
    assert (ours.outcome, "ReadWritePaths" in ours.message) == (Outcome.ERROR, True)
    node.put("proc/self/mounts", "dev / ext4 rw 0 0")
    assert node.check("mount_writable", probe=["/tmp"]).outcome is Outcome.FAIL
