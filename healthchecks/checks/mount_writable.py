"""Filesystems that should be writable are, and a file can really be made where the site asks for it."""

from __future__ import annotations

import errno
import os
import secrets
from dataclasses import dataclass

from probing_cluster.core import records
from probing_cluster.healthchecks import findings, nodeview, registry
from probing_cluster.healthchecks.readers import mounts

NOT_FOR_US = "read-only for this process only (ReadWritePaths= of probing-agent.service)"

NO_FAULT = {"EACCES", "EPERM", "ENOENT", NOT_FOR_US, "ENOSPC", "EDQUOT", "ENOMEM", "ENFILE", "EMFILE"}
"""Errors that are about us or the site file, or that any job can cause: disk_space and disk_inodes judge the room."""


@dataclass(frozen=True, kw_only=True)
class Reading:
    """The mount table, what must be writable, and what writing a file gave (path to error, "" = fine)."""

    mounted: tuple[mounts.Mount, ...]
    meant_writable: frozenset[str]
    """Local mounts that fstab mounts read-write, or that were so earlier in this boot."""
    tried: dict[str, str]


def read(node: nodeview.NodeView) -> Reading:
    mounted = [
        m
        for m in mounts.worth_asking(mounts.table(node, node.limits["paths"]))
        if not m.network or m.path in node.limits["paths"]
    ]
    writable = set(node.memory.get("seen_writable", [])) | {m.path for m in mounted if not m.read_only}
    node.memory["seen_writable"] = sorted(writable)[: mounts.MAX_MOUNTS]
    fstab = node.text(mounts.FSTAB) or ""
    # fstab speaks of the file system that it mounts: not of an image that lies over it (a root of type overlay).
    named = parse_fstab_rw(fstab) - {m.path for m in mounted if m.type == "overlay"}
    meant = (writable | named | set(node.limits["paths"])) - set(node.limits["read_only"])
    tried = {p: _try(node, p) for p in node.limits["probe"]}
    return Reading(mounted=tuple(mounted), meant_writable=frozenset(meant), tried=tried)


def _try(node: nodeview.NodeView, path: str) -> str:
    if not node.exists(path):
        return "ENOENT"
    error = attempt(node.path(path))
    return NOT_FOR_US if error == "EROFS" and mounts.only_here_read_only(node, path) else error


def parse_fstab_rw(text: str) -> set[str]:
    """Paths that fstab mounts read-write."""
    return {row.path for row in mounts.fstab_rows(text) if "ro" not in row.options}


def attempt(directory: str) -> str:
    """Make, fill and remove a file in `directory`; the error's name, or an empty string."""
    path = f"{directory}/.probing-check-{os.getpid()}-{secrets.token_hex(4)}"
    try:
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except OSError as exc:
        return errno.errorcode.get(exc.errno or 0, str(exc))
    try:
        os.write(fd, b"probing-check\n")
        os.fsync(fd)
    except OSError as exc:
        return errno.errorcode.get(exc.errno or 0, str(exc))
    finally:
        os.close(fd)
        os.unlink(path)  # noqa: PTH108
    return ""


def judge(reading: Reading, _: registry.Limits) -> findings.Finding:
    parts = [
        findings.fail(f"{m.path} is mounted read-only", device=m.path)
        for m in reading.mounted
        if m.read_only and m.path in reading.meant_writable
    ]
    for path, error in reading.tried.items():
        if error in NO_FAULT:
            parts.append(findings.unseen(f"{path} cannot be tried: {error}", device=path))
        elif error:
            parts.append(findings.fail(f"no file can be made in {path}: {error}", device=path))
    healthy = (
        f"files can be made in {', '.join(reading.tried)}"
        if reading.tried
        else "no mount has turned read-only"
    )
    return findings.merge(parts or [findings.ok("")], healthy=healthy)


CHECK = registry.Check(
    proves="No filesystem has turned read-only, and a file can be made where jobs make theirs.",
    component="filesystem",
    domain=records.Domain.SYSTEM_SOFTWARE,
    severity=records.Severity.LOW,
    lane="mounts",
    fails="a filesystem that fstab or the site file wants writable, or that was writable earlier in this boot, is "
    "mounted read-only; or no file can be made in a probe directory for another reason than lack of room",
    warns="never",
    needs="a mount table",
    next_step="ext4 and xfs turn read-only after I/O errors: look at block_errors and the drive before remounting.",
    read=read,
    judge=judge,
    thresholds=(
        registry.Threshold(
            "paths", [], "", "network mounts that must be writable", "site; NHC check_fs_mount_rw"
        ),
        registry.Threshold(
            "read_only", [], "", "mounts that are meant to be read-only", "site; NHC check_fs_mount_ro"
        ),
        registry.Threshold(
            "probe",
            ["/tmp", "/dev/shm"],  # noqa: S108 (directories of the node, looked at)
            "",
            "directories in which a small file is made and removed",
            "ours: local by default, so that a thousand nodes do not write to one server",
        ),
    ),
)
