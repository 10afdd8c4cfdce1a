"""The directory that each job gets for its probe's pages. Root makes and removes it, and trusts nothing in it.

All directories of a node share one small file system, which one job may fill. Directories with pages in them are therefore
prepared beforehand. A job gets one of those, renamed and given to its user, which needs no room.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator
from pathlib import Path

from probing_cluster.probe_agent.inject.site._probing_probe import layout
from probing_cluster.probe_agent.jobs import removal

POOL = ".ready"
"""Name of the directory with the prepared ones."""
POOL_SIZE = 16
"""Prepared directories: so many jobs can begin while the file system is full."""
_HALF = ".new"
_POOL_SHARE = 8
"""The prepared directories take at most 1/_POOL_SHARE of the file system."""

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class PageDirectories:
    """`<base>/<job id>`, owned by the job's user, mode 0700: where the probe of a job writes its pages.

    Everything is done relative to a descriptor of the base, and links are never followed: the job's
    user owns what is inside and may put anything there.
    """

    def __init__(self, base: Path) -> None:
        self._base = base

    def path(self, job_id: int) -> Path:
        return self._base / str(int(job_id))

    def bound_bytes(self) -> int | None:
        """The size of the file system made for these directories; None where they have none of their own and are not bounded."""
        self._base.mkdir(mode=0o711, parents=True, exist_ok=True)
        if not self._base.is_mount():
            return None
        filesystem = os.statvfs(self._base)
        return filesystem.f_blocks * filesystem.f_frsize

    def make(self, job_id: int, uid: int, gid: int) -> Path:
        """Make the job's directory and return its path; one that already belongs to this user is kept. Raises OSError."""
        self._base.mkdir(mode=0o711, parents=True, exist_ok=True)
        name = str(int(job_id))
        with self._parent() as parent:
            if not _is_directory_of(parent, name, uid):
                with contextlib.suppress(FileNotFoundError):
                    removal.remove(parent, name, deadline_s=0.5)
                if not _take_ready(parent, name, uid, gid):
                    os.mkdir(name, 0o700, dir_fd=parent)
            made = os.open(name, _DIRECTORY, dir_fd=parent)
            try:
                if (os.fstat(made).st_uid, os.fstat(made).st_gid) != (uid, gid):
                    os.fchown(made, uid, gid)
                os.fchmod(made, 0o700)
            finally:
                os.close(made)
        return self._base / name

    def remove(self, job_id: int) -> bool:
        """Remove the job's directory with everything in it. True when it is gone or never was; False when `tidy` must go on."""
        try:
            with self._parent() as parent:
                try:
                    return removal.remove(parent, str(int(job_id)))
                except FileNotFoundError:
                    return True
        except FileNotFoundError:
            return True

    def set_aside(self, job_id: int) -> bool:
        """Free the job's name at once, for `finish` to remove what was there; False where there was nothing. Raises OSError."""
        try:
            with self._parent() as parent:
                removal.set_aside(parent, str(int(job_id)))
        except FileNotFoundError:
            return False
        return True

    def finish(self) -> bool:
        """Go on removing what is left of removed directories; False while something is left. Raises OSError."""
        with self._parent() as parent:
            return removal.finish(parent)

    def tidy(self) -> bool:
        """Go on removing what is left of removed directories, and prepare new ones; False while something is left."""
        bound = self.bound_bytes()
        with self._parent() as parent:
            removal.prepare(parent)
            gone = removal.finish(parent)
            if bound is not None:
                _refill(parent, min(POOL_SIZE, bound // _POOL_SHARE // _READY_BYTES))
        return gone

    @contextlib.contextmanager
    def _parent(self) -> Iterator[int]:
        parent = os.open(self._base, _DIRECTORY)
        try:
            yield parent
        finally:
            os.close(parent)


_READY_BYTES = layout.SPARES * layout.SIZE_BYTES


def _is_directory_of(parent: int, name: str, uid: int) -> bool:
    try:
        file_stat = os.stat(name, dir_fd=parent, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return stat.S_ISDIR(file_stat.st_mode) and file_stat.st_uid == uid


def _take_ready(parent: int, name: str, uid: int, gid: int) -> bool:
    """Rename a prepared directory to the job's name and give its pages to the user; False where none is prepared."""
    try:
        pool = os.open(POOL, _DIRECTORY, dir_fd=parent)
    except FileNotFoundError:
        return False
    try:
        for ready in removal.names_in(pool):
            if ready.endswith(_HALF):
                continue  # still being prepared
            directory = os.open(ready, _DIRECTORY, dir_fd=pool)
            try:
                for spare in removal.names_in(directory):
                    os.chown(spare, uid, gid, dir_fd=directory, follow_symlinks=False)
            finally:
                os.close(directory)
            os.rename(ready, name, src_dir_fd=pool, dst_dir_fd=parent)
            return True
        return False
    finally:
        os.close(pool)


def _refill(parent: int, wanted: int) -> None:
    """Prepare directories until there are `wanted`. On a full file system the next call goes on."""
    with contextlib.suppress(FileExistsError):
        os.mkdir(POOL, 0o700, dir_fd=parent)
    pool = os.open(POOL, _DIRECTORY, dir_fd=parent)
    try:
        lying = set(removal.names_in(pool))
        for name in (str(n) for n in range(wanted)):
            if name not in lying:
                _prepare(pool, name)
    except OSError:
        return
    finally:
        os.close(pool)


def _prepare(pool: int, name: str) -> None:
    half = name + _HALF
    with contextlib.suppress(FileExistsError):
        os.mkdir(half, 0o700, dir_fd=pool)
    directory = os.open(half, _DIRECTORY, dir_fd=pool)
    try:
        for spare in layout.spare_names():
            flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
            fd = os.open(spare, flags, 0o600, dir_fd=directory)
            try:
                os.posix_fallocate(fd, 0, layout.SIZE_BYTES)
            finally:
                os.close(fd)
    finally:
        os.close(directory)
    os.rename(half, name, src_dir_fd=pool, dst_dir_fd=pool)
