"""Filesystems as the mount checks see them: the mount table, and one statvfs per mount in a child.

A dead server makes statvfs sleep in the kernel. So each mount is its own step with its own
deadline, local ones first, and after one that cannot be killed no other network mount is tried.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any

from probing_cluster.healthchecks import lanes, nodeview

NETWORK = frozenset({
    "nfs", "nfs4", "lustre", "gpfs", "beegfs", "ceph", "cifs", "smb3", "glusterfs", "wekafs", "9p", "afs", "pvfs2",
    "orangefs", "fuse.sshfs", "fuse.glusterfs", "fuse.ceph", "fuse.weka", "panfs", "vastnfs", "bgfs", "cvfs",
})  # fmt: skip
"""Filesystem types served by another machine."""

REAL_LOCAL = frozenset(
    {"ext2", "ext3", "ext4", "xfs", "btrfs", "zfs", "f2fs", "tmpfs", "overlay", "vfat", "ntfs3", "jfs"}
)
"""Local types that hold files of users or of the system."""

OWN_TABLE = "/proc/self/mounts"
TABLES = ("/proc/1/mounts", OWN_TABLE, "/proc/mounts")
"""Process 1's first: our own may be narrowed by the service manager (ProtectSystem=strict shows all as read-only)."""

FSTAB = "/etc/fstab"

USERS_MAY = frozenset({"user", "users", "owner", "group"})
"""Options of fstab that let ordinary users mount and unmount a filesystem."""
_HOSTS_MAP = "-hosts"
"""The automounter's built-in map: whoever looks below it names the server (`/net/SERVER`)."""

REFUSALS = frozenset({"EACCES", "EPERM", "ENOKEY", "EKEYEXPIRED", "EKEYREVOKED", "EKEYREJECTED"})
"""Errors that are answers: root is nobody on a root-squashed export, has no ticket, or may not see into another's FUSE mount."""

MOUNT_DEADLINE_S = 5.0

MAX_MOUNTS = 256


@dataclass(frozen=True, kw_only=True)
class Mount:
    """One line of the mount table."""

    device: str
    path: str
    type: str
    options: tuple[str, ...]
    covered: bool = False
    """A user's mount lies over it: whoever asks there asks the user's program."""

    @property
    def network(self) -> bool:
        return self.type in NETWORK

    @property
    def read_only(self) -> bool:
        return "ro" in self.options

    @property
    def of_user(self) -> bool:
        """Whether an ordinary user made it by fusermount, which is set-uid; anyone may give such a mount the type of a network filesystem."""
        return self.type.startswith("fuse") and any(
            key == "user_id" and value != "0" for key, _, value in (o.partition("=") for o in self.options)
        )


@dataclass(frozen=True, kw_only=True)
class FstabRow:
    """One line of fstab."""

    path: str
    type: str
    options: frozenset[str]

    @property
    def for_users(self) -> bool:
        """Whether ordinary users mount it."""
        return not USERS_MAY.isdisjoint(self.options)


@dataclass(frozen=True, kw_only=True)
class Usage:
    """What statvfs said about a mount, or why it said nothing."""

    mount: Mount
    size_bytes: int | None = None
    """Used and free: what ordinary users can fill."""
    free_bytes: int | None = None
    """Free for ordinary users."""
    inodes: int | None = None
    inodes_free: int | None = None
    error: str | None = None
    """ESTALE, ENOTCONN … when the call itself failed."""
    timed_out: bool = False
    answer_s: float | None = None

    @property
    def used_frac(self) -> float | None:
        """The used share as df shows it; None for a filesystem without a size."""
        return (
            None if not self.size_bytes or self.free_bytes is None else 1 - self.free_bytes / self.size_bytes
        )

    @property
    def inodes_used_frac(self) -> float | None:
        """None for a filesystem that does not count inodes."""
        return None if not self.inodes or self.inodes_free is None else 1 - self.inodes_free / self.inodes


def parse(text: str, fstab: str = "", named: Collection[str] = ()) -> list[Mount]:
    """The node's own mounts of a /proc/mounts text in order; a path mounted over counts once, the last one.

    What users mount is left out: it comes, goes and fails at their will. A user's is a FUSE mount that another than root
    made, one that fstab lets users make, and one below the automounter's map of all hosts. Alone at a path that the
    site's settings (`named`) or fstab name, it is the site's all the same: a service of the site may run as a user.
    """
    rows = fstab_rows(fstab)
    for_users = {row.path for row in rows if row.for_users}
    of_site = {*named, *(row.path for row in rows if not row.for_users)}
    by_path: dict[str, Mount] = {}
    of_users: dict[str, Mount] = {}
    hosts: list[str] = []
    for line in text.splitlines():
        fields = line.split(" ")
        if len(fields) < 4:
            continue
        path = _unescape(fields[1])
        mount = Mount(
            device=_unescape(fields[0]), path=path, type=fields[2], options=tuple(fields[3].split(","))
        )
        if mount.type == "autofs" and mount.device == _HOSTS_MAP:
            hosts.append(path)
        any_host = mount.type != "autofs" and any(_is_below(path, top) for top in hosts)
        by_users = mount.of_user or path in for_users or any_host
        of_users.pop(path, None)
        if by_users:
            of_users[path] = mount
        else:
            by_path.pop(path, None)
            by_path[path] = mount
    for path in [p for p in of_users if p in of_site and p not in by_path]:
        by_path[path] = of_users.pop(path)
    return [
        replace(m, covered=True) if any(_is_below(m.path, top) for top in of_users) else m
        for m in by_path.values()
    ]


def _is_below(path: str, top: str) -> bool:
    return path == top or path.startswith(f"{top.rstrip('/')}/")


def fstab_rows(text: str) -> list[FstabRow]:
    """The lines of fstab that mount something at a path."""
    rows = [line.split() for line in text.splitlines() if not line.lstrip().startswith("#")]
    return [
        FstabRow(path=_unescape(r[1]).rstrip("/") or "/", type=r[2], options=frozenset(r[3].split(",")))
        for r in rows
        if len(r) >= 4 and r[1].startswith("/") and r[2] != "swap"
    ]


def _unescape(word: str) -> str:
    for code, ch in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\043", "#"), ("\\134", "\\")):
        word = word.replace(code, ch)
    return word


def table(node: nodeview.NodeView, named: Collection[str] = ()) -> list[Mount]:
    """The node's mount table without what users mount; `named`: paths that the site's settings name."""
    found, fstab = node.shared("mounts.table", lambda: _texts(node))
    return parse(found, fstab, named)


def _texts(node: nodeview.NodeView) -> tuple[str, str]:
    for path in TABLES:
        with contextlib.suppress(PermissionError):  # process 1's is root's to read
            if text := node.text(path):
                return text, node.text(FSTAB) or ""
    raise OSError("the node has no mount table")


def only_here_read_only(node: nodeview.NodeView, path: str) -> bool:
    """True when `path` is read-only for us and writable for the rest of the node: our unit's sandbox, no fault."""
    ours, theirs = holding(parse(node.text(OWN_TABLE) or ""), path), holding(table(node), path)
    return ours is not None and theirs is not None and ours.read_only and not theirs.read_only


def holding(found: list[Mount], path: str) -> Mount | None:
    """The mount that `path` lies on, by name; None where the table has no root."""
    on_it = [m for m in found if _is_below(path, m.path)]
    return max(on_it, key=lambda m: len(m.path), default=None)


def worth_asking(found: list[Mount]) -> list[Mount]:
    """The mounts that hold files, local ones first; kernel filesystems and automount triggers have none."""
    real = [
        m
        for m in found
        if not m.covered and (m.network or (m.type in REAL_LOCAL and (m.type != "overlay" or m.path == "/")))
    ]
    return sorted(real, key=lambda m: m.network)[:MAX_MOUNTS]


def steps(spec: nodeview.NodeSpec) -> list[lanes.Step]:
    """One step per mount; its value is what `usages` reads back."""
    try:
        found = worth_asking(table(nodeview.NodeView(spec)))
    except OSError:
        return []  # every mount check reads the table itself and says so
    return [_step(spec, mount) for mount in found]


def _step(spec: nodeview.NodeSpec, mount: Mount) -> lanes.Step:
    def work(_: lanes.Facts) -> Mapping[str, Any]:
        return ask(spec, mount)

    family = "mounts" if mount.network else f"mount {mount.path}"
    return lanes.Step(
        key=f"mount {mount.path}", work=work, deadline_s=MOUNT_DEADLINE_S, family=family, fact=True
    )


def ask(spec: nodeview.NodeSpec, mount: Mount) -> dict[str, Any]:
    """Ask the filesystem itself; may never return, so only ever in a child."""
    began = spec.clock.monotonic_s()
    path = nodeview.NodeView(spec).path(mount.path)
    try:
        stat = _statvfs(path)
    except OSError as exc:
        return {"error_name": errno.errorcode.get(exc.errno or 0, str(exc))}
    return {
        # As df counts: without the blocks that are kept for root, or that a quota withholds.
        "size_bytes": (stat.f_blocks - stat.f_bfree + stat.f_bavail) * stat.f_frsize,
        "free_bytes": stat.f_bavail * stat.f_frsize,
        "inodes": stat.f_files,
        "inodes_free": stat.f_favail,
        "answer_s": spec.clock.monotonic_s() - began,
    }


def _statvfs(path: str) -> os.statvfs_result:
    # Through an open directory: a stale handle shows at open, even where statfs is answered from a cache.
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except PermissionError:  # root is nobody on a root-squashed export
        return os.statvfs(path)
    try:
        return os.fstatvfs(fd)
    finally:
        os.close(fd)


def usages(node: nodeview.NodeView) -> list[Usage]:
    """What every mount answered in this sweep."""
    found: list[Usage] = []
    for mount in worth_asking(table(node)):
        fact = node.facts.get(f"mount {mount.path}")
        if fact is None:
            continue
        if "error" in fact:
            found.append(Usage(mount=mount, error=fact["error"], timed_out=bool(fact["timed_out"])))
        elif "error_name" in fact:
            found.append(Usage(mount=mount, error=fact["error_name"]))
        else:
            found.append(Usage(mount=mount, **fact))
    return found
