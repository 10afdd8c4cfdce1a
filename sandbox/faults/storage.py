"""Faults of file systems and disks."""

from __future__ import annotations

import re

from probing_cluster.core import errors
from probing_cluster.sandbox.faults import registry
from probing_cluster.sandbox.machine import hanging_mount
from probing_cluster.sandbox.nodetree import identity, kmsg, writing

_MOUNT_TABLES = ("proc/mounts", "proc/self/mounts")


@registry.fault("mount-gone")
def mount_gone(target: registry.Target, path: str) -> None:
    """A file system is no longer mounted."""
    _change_mount(target, path, None)


@registry.fault("mount-readonly")
def mount_readonly(target: registry.Target, path: str) -> None:
    """A file system became read-only, as ext4 does after an error."""
    _change_mount(target, path, "ro")
    if path == "/":
        target.kernel(
            "EXT4-fs error (device nvme0n1p2): ext4_journal_check_start:83: comm systemd-journal: Detected aborted journal",
            "EXT4-fs (nvme0n1p2): Remounting filesystem read-only",
            level=kmsg.ERROR,
        )


@registry.fault("mount-hang")
def mount_hang(target: registry.Target, path: str) -> None:
    """Every access to a file system hangs, unkillably: a real mount whose server never answers."""
    row = _find_mount(target, path)
    hanging_mount.start(target.layout, target.env, target.node, path)
    if row.split()[2] == "nfs4":
        target.kernel(f"nfs: server {row.split(':')[0]} not responding, still trying", level=kmsg.INFO)


@registry.fault("directory-hang")
def directory_hang(target: registry.Target, path: str) -> None:
    """Every access to a directory that is none of the node's mounts hangs: only its users notice."""
    hanging_mount.start(target.layout, target.env, target.node, path)


@registry.fault("directory-free")
def directory_free(target: registry.Target) -> None:
    """Ends every hang of the node; a process that waited gets an error."""
    hanging_mount.stop(target.layout, target.node)


@registry.fault("nvme-gone")
def nvme_gone(target: registry.Target) -> None:
    """The NVMe disk stops answering and its controller is given up."""
    writing.put(target.root, "sys/class/nvme/nvme0/state", "dead")
    target.kernel(
        "nvme nvme0: I/O 412 QID 7 timeout, aborting",
        "nvme nvme0: controller is down; will reset: CSTS=0xffffffff, PCI_STATUS=0xffff",
        f"nvme nvme0: Removing after probe failure status: -19 ({identity.NVME_PCI})",
        "blk_update_request: I/O error, dev nvme0n1, sector 2048 op 0x1:(WRITE) flags 0x0 phys_seg 1 prio class 0",
        level=kmsg.ERROR,
    )


def _find_mount(target: registry.Target, path: str) -> str:
    rows = (target.root / _MOUNT_TABLES[0]).read_text().splitlines()
    found = next((row for row in rows if row.split()[1] == path), None)
    if found is None:
        msg = f"{path} is not mounted on {target.node}; mounted are {' '.join(r.split()[1] for r in rows)}"
        raise errors.NotFound(msg)
    return found


def _change_mount(target: registry.Target, path: str, option: str | None) -> None:
    """Removes the row of `path`, or replaces its rw by `option`."""
    _find_mount(target, path)
    for table in _MOUNT_TABLES:
        rows = []
        for row in (target.root / table).read_text().splitlines():
            fields = row.split()
            if fields[1] == path and option is None:
                continue
            if fields[1] == path:
                fields[3] = re.sub(r"^rw\b", option or "", fields[3])
            rows.append(" ".join(fields))
        writing.put(target.root, table, "\n".join(rows))
