"""Filesystems that should be writable are, and a file can really be made where the site asks for it."""

from __future__ import annotations

import errno
import os
import secrets
from dataclasses import dataclass

from probing_cluster.core import records
from probing_cluster.healthchecks import findings, mounts, nodeview, registry


@dataclass(frozen=True, kw_only=True)
class Reading:
    """The mount table, the mounts that fstab wants read-only, and what writing a file gave (path to error, "" = fine)."""

    mounted: tuple[mounts.Mount, ...]
    meant_read_only: frozenset[str]
    tried: dict[str, str]


def read(node: nodeview.NodeView) -> Reading:
    mounted = mounts.table(node)
    tried = {path: attempt(node.path(path)) for path in node.limits["probe"] if node.exists(path)}
    missing = {path: "ENOENT" for path in node.limits["probe"] if path not in tried}
    return Reading(
        mounted=tuple(mounted),
        meant_read_only=parse_fstab_ro(node.text("/etc/fstab") or ""),
        tried=tried | missing,
    )


def parse_fstab_ro(text: str) -> frozenset[str]:
    """Paths that fstab mounts read-only."""
    rows = [line.split() for line in text.splitlines() if not line.lstrip().startswith("#")]
    return frozenset(row[1] for row in rows if len(row) >= 4 and "ro" in row[3].split(","))


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


def judge(seen: Reading, limits: registry.Limits) -> findings.Finding:
    parts = [findings.ok("")]
    for mount in mounts.worth_asking(list(seen.mounted)):
        wanted = mount.path in limits["paths"]
        meant = mount.path in seen.meant_read_only | set(limits["read_only"]) or (
            mount.network and not wanted
        )
        if mount.read_only and not meant:
            make = findings.fail if wanted or mount.type != "tmpfs" else findings.warn
            parts.append(make(f"{mount.path} is mounted read-only", device=mount.path))
    for path, error in seen.tried.items():
        if error == "EACCES":
            parts.append(findings.unseen(f"{path} may not be written by the agent", device=path))
        elif error:
            parts.append(findings.fail(f"no file can be made in {path}: {error}", device=path))
    return findings.merge(
        parts, healthy=f"writable where asked ({', '.join(seen.tried) or 'by mount options'})"
    )


CHECK = registry.Check(
    name="mount_writable",
    proves="No filesystem has turned read-only, and a file can be made where jobs make theirs.",
    component="filesystem",
    domain=records.Domain.SYSTEM_SOFTWARE,
    severity=records.Severity.LOW,
    lane="mounts",
    can_hang=True,
    fails="a local filesystem (or one of `paths`) is mounted read-only and neither fstab nor the site file means it so; "
    "or a file cannot be made in a probe directory",
    warns="a tmpfs is read-only",
    needs="a mount table",
    next_step="ext4 and xfs turn read-only after I/O errors: look at block_errors and the drive before remounting.",
    read=read,
    judge=judge,
    thresholds=(
        registry.Threshold(
            key="paths",
            default=[],
            kind=list,
            unit="",
            meaning="network mounts that must be writable",
            source="site; NHC check_fs_mount_rw",
        ),
        registry.Threshold(
            key="read_only",
            default=[],
            kind=list,
            unit="",
            meaning="mounts that are meant to be read-only",
            source="site; NHC check_fs_mount_ro",
        ),
        registry.Threshold(
            key="probe",
            default=["/tmp", "/dev/shm"],  # noqa: S108  (looked at, not used)
            kind=list,
            unit="",
            meaning="directories in which a small file is made and removed",
            source="ours: local by default, so that a thousand nodes do not write to one server",
        ),
    ),
)
