"""Opens files of a job's owner: plain files that are theirs, by no link, without waiting."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

from probing_cluster.probe_agent.jobs import log_parts


class Refused(Exception):
    """The file cannot be read, or is not a plain file of the job's owner."""


def read_own(path: str, uid: int, most: int) -> tuple[bytes, os.stat_result]:
    """(first bytes, status of the file) of a regular file of one link that `uid` owns; raises Refused.

    The last part of the path is never followed if it is a link; opening never waits (not even on a FIFO);
    reading is by position, so a file that shrinks meanwhile gives less, never a signal.
    """
    fd = open_own(Path(path), uid)
    try:
        return log_parts.pread(fd, 0, most), os.fstat(fd)
    finally:
        os.close(fd)


def open_own(where: Path, uid: int) -> int:
    """A descriptor of the regular file of one link that `uid` owns; raises Refused."""
    try:
        directory = os.open(where.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as exc:
        raise Refused(word(exc)) from exc
    try:
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
        fd = os.open(where.name, flags, dir_fd=directory)
    except OSError as exc:
        raise Refused(word(exc)) from exc
    finally:
        os.close(directory)
    try:
        _require(os.fstat(fd), uid)
    except BaseException:
        os.close(fd)
        raise
    return fd


def _require(file_stat: os.stat_result, uid: int) -> None:
    if not stat.S_ISREG(file_stat.st_mode):
        raise Refused("not a regular file")
    if file_stat.st_uid != uid:
        raise Refused("not owned by the job's user")
    if file_stat.st_nlink != 1:
        raise Refused("has more than one link")


def word(exc: OSError) -> str:
    """The error's symbol (ENOENT), else its text."""
    return errno.errorcode.get(exc.errno or 0, str(exc))
