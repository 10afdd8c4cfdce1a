"""The spool's directory: one agent's at a time, and nobody else's."""

from __future__ import annotations

import errno
import fcntl
import os
from pathlib import Path

from probing_cluster.core import errors

_NOT_WRITABLE = (errno.EROFS, errno.ENOSPC, errno.EDQUOT, errno.EIO)
_FILES = ("lock", "spool.", "lost+found")
"""How the names of a spool directory's files begin."""


class UnsafeDirectory(errors.SettingsError):
    """Others can put files into the spool's directory."""


def lock(directory: Path) -> int:
    """A descriptor that holds the spool's single-instance lock.

    Raises BlockingIOError when another agent has it, OSError where the directory is not there and cannot be made, and
    UnsafeDirectory where others could have put files there.
    """
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    _make_private(directory)
    fd = _open_lock(directory)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(fd)
        raise
    return fd


def _make_private(directory: Path) -> None:
    """Close to others what only they can read; where they can write, nobody knows whose the files are."""
    found = directory.stat()
    if found.st_uid != os.geteuid() or found.st_mode & 0o022:
        raise UnsafeDirectory(
            f"{directory} belongs to uid {found.st_uid} and has mode {found.st_mode & 0o7777:04o}: others can put files there. "
            f"Name a directory of the agent's own, or look at what it holds, then chown {os.geteuid()} and chmod 0700"
        )
    if not found.st_mode & 0o077:
        return
    if not all(path.name.startswith(_FILES) for path in directory.iterdir()):
        raise UnsafeDirectory(
            f"{directory} has mode {found.st_mode & 0o7777:04o} and holds other files: name a directory of the agent's own"
        )
    try:
        directory.chmod(0o700)
    except OSError as exc:
        if exc.errno not in _NOT_WRITABLE:
            raise


def _open_lock(directory: Path) -> int:
    try:
        return os.open(directory / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as exc:
        if exc.errno not in _NOT_WRITABLE:
            raise
    # A disk that broke is what the agent is there to report: it runs, and what it sees stays in memory.
    try:
        return os.open(directory / "lock", os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
