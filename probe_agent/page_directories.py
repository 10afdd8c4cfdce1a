"""The directory each job gets for the pages of its probe, made and removed by root without ever trusting what is in it."""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
from pathlib import Path


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
        """The size of the file system made for these directories; None when they lie in a bigger one and nothing bounds them."""
        self._base.mkdir(mode=0o711, parents=True, exist_ok=True)
        if not self._base.is_mount():
            return None
        told = os.statvfs(self._base)
        return told.f_blocks * told.f_frsize

    def make(self, job_id: int, uid: int, gid: int) -> Path:
        """The job's directory, made afresh unless it is already this user's; raises OSError."""
        self._base.mkdir(mode=0o711, parents=True, exist_ok=True)
        parent = os.open(self._base, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        name = str(int(job_id))
        try:
            if not self._is_ours(parent, name, uid):
                with contextlib.suppress(FileNotFoundError):
                    _remove(parent, name)
                os.mkdir(name, 0o700, dir_fd=parent)
            made = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=parent)
            try:
                if (os.fstat(made).st_uid, os.fstat(made).st_gid) != (uid, gid):
                    os.fchown(made, uid, gid)
                os.fchmod(made, 0o700)
            finally:
                os.close(made)
        finally:
            os.close(parent)
        return self._base / name

    def remove(self, job_id: int) -> None:
        """The job's directory and everything in it, gone; no directory is no error."""
        try:
            parent = os.open(self._base, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except FileNotFoundError:
            return
        try:
            with contextlib.suppress(FileNotFoundError):
                _remove(parent, str(int(job_id)))
        finally:
            os.close(parent)

    @staticmethod
    def _is_ours(parent: int, name: str, uid: int) -> bool:
        try:
            told = os.stat(name, dir_fd=parent, follow_symlinks=False)
        except FileNotFoundError:
            return False
        return stat.S_ISDIR(told.st_mode) and told.st_uid == uid


def _remove(parent: int, name: str) -> None:
    if stat.S_ISDIR(os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode):
        shutil.rmtree(name, dir_fd=parent)
    else:
        os.unlink(name, dir_fd=parent)
