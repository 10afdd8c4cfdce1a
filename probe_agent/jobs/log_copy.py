"""A copy of a job's output beside it: under its name only when it is whole, whatever ends the copying.

Until then it is `NAME.part`. A child that is killed at its deadline, as on a slow file server, leaves that file; the next
request replaces it.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from pathlib import Path

from probing_cluster.probe_agent.jobs import log_parts

_NO_LINKS = (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK, errno.EXDEV, errno.EACCES)
"""Errors of making a hard link where the file system has none, or /proc cannot be used for it."""
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


class Changed(Exception):
    """The log was truncated or replaced while it was copied."""


def make(source: int, copy: Path, most_bytes: int) -> None:
    """Copy the last `most_bytes` of the open file `source` to `copy`, unless that is there already.

    Raises OSError where it cannot be written, and Changed where the job's next start truncated the log meanwhile.
    """
    directory = os.open(copy.parent, _DIRECTORY)
    try:
        if os.path.lexists(copy):
            _require_own(directory, copy.name)
            _remove_second_name(directory, copy.name)
        else:
            _make(source, directory, copy.name, most_bytes)
    finally:
        os.close(directory)


def _require_own(directory: int, name: str) -> None:
    """Raises FileExistsError where the name is taken by what is no plain file of this user: in a shared directory anybody may make one."""
    found = os.stat(name, dir_fd=directory, follow_symlinks=False)
    if not stat.S_ISREG(found.st_mode) or found.st_uid != os.geteuid():
        raise FileExistsError(
            errno.EEXIST, "another user's file, or no plain file, has the copy's name", name
        )


def _remove_second_name(directory: int, name: str) -> None:
    """Remove the `.part` of a child that was killed after it had named its copy."""
    with contextlib.suppress(OSError):
        copy = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=directory)
        try:
            if _is_same(copy, directory, f"{name}.part"):
                os.unlink(f"{name}.part", dir_fd=directory)
        finally:
            os.close(copy)


def _make(source: int, directory: int, name: str, most_bytes: int) -> None:
    opened = os.fstat(source)
    mark = log_parts.mark(source, opened.st_size)
    part = f"{name}.part"
    # One that is there is what a killed child left, or another node's: that one then cannot complete its own.
    with contextlib.suppress(FileNotFoundError):
        os.unlink(part, dir_fd=directory)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    target = os.open(part, flags, opened.st_mode & 0o666, dir_fd=directory)
    try:
        start = max(0, opened.st_size - most_bytes)
        _copy(source, target, start, opened.st_size - start)
        os.fsync(target)
        if log_parts.mark(source, opened.st_size) != mark:
            raise Changed("the job's next start truncated it meanwhile")
        _name(target, directory, part, name)
    finally:
        if _is_same(target, directory, part):
            os.unlink(part, dir_fd=directory)
        os.close(target)


def _copy(source: int, target: int, start: int, n_bytes: int) -> None:
    left = n_bytes
    while left > 0:
        chunk = os.pread(source, min(1 << 20, left), start)
        if not chunk:
            raise Changed("it became shorter while it was copied")
        written = os.write(target, chunk)  # less than all of it where the disk is full: the next one raises
        start, left = start + written, left - written


def _name(target: int, directory: int, part: str, name: str) -> None:
    """Give the finished copy its name. By its descriptor: `part` may by now be another's."""
    try:
        # With a descriptor of the directory Python calls linkat, which follows the link in /proc.
        os.link(f"/proc/self/fd/{target}", name, src_dir_fd=directory, dst_dir_fd=directory)
    except FileExistsError:
        return  # another node was quicker
    except OSError as exc:
        if exc.errno not in _NO_LINKS or not _is_same(target, directory, part):
            raise
        os.rename(part, name, src_dir_fd=directory, dst_dir_fd=directory)


def _is_same(target: int, directory: int, part: str) -> bool:
    """Whether `part` is still the name of the file that is open as `target`."""
    try:
        return os.path.samestat(os.fstat(target), os.stat(part, dir_fd=directory, follow_symlinks=False))
    except OSError:
        return False
