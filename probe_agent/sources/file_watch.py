"""Waiting for a regular file to grow: inotify on its directory, where the system has it."""

from __future__ import annotations

import contextlib
import ctypes
import os
from pathlib import Path

_IN_MODIFY, _IN_MOVED_TO, _IN_CREATE, _IN_DELETE = 0x2, 0x80, 0x100, 0x200


def open_watch(directory: Path) -> int | None:
    """A descriptor that becomes readable when something in `directory` changes; None where that cannot be had."""
    libc = ctypes.CDLL(None, use_errno=True)
    try:
        fd = libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        wanted = _IN_MODIFY | _IN_MOVED_TO | _IN_CREATE | _IN_DELETE
        if fd >= 0 and libc.inotify_add_watch(fd, os.fsencode(directory), wanted) >= 0:
            return int(fd)
    except AttributeError:
        return None  # a C library without inotify: the file is looked at now and then
    if fd >= 0:
        os.close(fd)
    return None


def drain(fd: int) -> None:
    """Forget what has been announced: whoever drains looks at the file itself."""
    with contextlib.suppress(BlockingIOError):
        while os.read(fd, 65536):
            continue
