"""Removes trees that users made, of any depth, names and modes, also while they write; follows no link and does not recurse.

A tree is moved into a flat directory of root's and taken apart there: each directory's files are unlinked and its
subdirectories become its neighbours. So its depth costs neither stack nor descriptors, and the name it had is free at
once. What could not be removed in time stays there, out of its user's reach by path, for the next call.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import stat
import time

FLAT = ".removing"
"""The directory, beside the jobs' own, in which trees are taken apart."""
DEADLINE_S = 10.0
"""Longest time of one call: a user who keeps writing could otherwise keep it busy for ever."""

_log = logging.getLogger(__name__)
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def prepare(parent: int) -> None:
    """Make the flat directory below the descriptor `parent`, before users can fill the file system."""
    with contextlib.suppress(FileExistsError):
        os.mkdir(FLAT, 0o700, dir_fd=parent)


def remove(parent: int, name: str, *, deadline_s: float = DEADLINE_S) -> bool:
    """Remove `name` below the descriptor `parent`, and what earlier calls left; True when all of it is gone.

    The name is free when this returns. Raises FileNotFoundError, and OSError where even moving it is refused.
    """
    return not set_aside(parent, name) or finish(parent, deadline_s=deadline_s)


def set_aside(parent: int, name: str) -> bool:
    """Free `name` below the descriptor `parent` at once; True where `finish` has to take apart what it was.

    Raises FileNotFoundError, and OSError where moving it is refused.
    """
    if not stat.S_ISDIR(os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode):
        os.unlink(name, dir_fd=parent)
        return False
    prepare(parent)
    flat = os.open(FLAT, _DIRECTORY, dir_fd=parent)
    try:
        _move(parent, name, flat)
    finally:
        os.close(flat)
    return True


def finish(parent: int, *, deadline_s: float = DEADLINE_S) -> bool:
    """Go on with what earlier calls left; True when nothing is left."""
    try:
        flat = os.open(FLAT, _DIRECTORY, dir_fd=parent)
    except FileNotFoundError:
        return True
    try:
        return _empty(flat, deadline_s)
    finally:
        os.close(flat)


def _move(source: int, name: str, flat: int) -> None:
    """Move `name` into the flat directory under a random name, since its own may be in use there."""
    while True:
        try:
            os.rename(name, os.urandom(12).hex(), src_dir_fd=source, dst_dir_fd=flat)
        except OSError as exc:
            if exc.errno not in (errno.EEXIST, errno.ENOTEMPTY):
                raise
        else:
            return


def _empty(flat: int, deadline_s: float) -> bool:
    """Take apart what lies in the flat directory until nothing does or the time has passed."""
    until_s = time.monotonic() + deadline_s
    while True:
        names = names_in(flat)
        if not names:
            return True
        moved = False
        for name in names:
            if time.monotonic() > until_s:
                return False
            try:
                moved |= _take_apart(flat, name, until_s)
            except OSError as exc:
                _log.warning("%s in %s: %s", name, FLAT, exc)
        if not moved:
            return False


def names_in(directory: int, most: int = 1000) -> list[str]:
    """Some of the names in the directory of that descriptor; none when it is empty."""
    with os.scandir(directory) as entries:
        return [entry.name for entry, _ in zip(entries, range(most), strict=False)]


def _take_apart(flat: int, name: str, until_s: float) -> bool:
    """Remove one directory of the flat one: unlink its files and move its subdirectories beside it. Returns whether anything changed.

    Where somebody wrote into it meanwhile it stays for the next round.
    """
    try:
        directory = os.open(name, _DIRECTORY, dir_fd=flat)
    except NotADirectoryError:
        os.unlink(name, dir_fd=flat)
        return True
    except FileNotFoundError:
        return True  # another call was quicker
    moved = False
    try:
        # From here on its owner has no path to it. Who has it open may go on until it is removed.
        os.fchmod(directory, 0o700)
        os.fchown(directory, os.geteuid(), os.getegid())
        while (names := names_in(directory)) and time.monotonic() <= until_s:
            for inner in names:
                _take_out(directory, inner, flat)
                moved = True
    finally:
        os.close(directory)
    try:
        os.rmdir(name, dir_fd=flat)
    except FileNotFoundError:
        return True
    except OSError as exc:
        if exc.errno != errno.ENOTEMPTY:
            raise
        return moved
    return True


def _take_out(directory: int, name: str, flat: int) -> None:
    with contextlib.suppress(FileNotFoundError):
        try:
            os.unlink(name, dir_fd=directory)
        except (IsADirectoryError, PermissionError):
            _move(directory, name, flat)
