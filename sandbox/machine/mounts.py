"""Mounts inside a sandbox's directory, and their removal."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path

_NOSUID, _NODEV, _NOEXEC = 2, 4, 8
_DETACH = 2
_PAGES_BYTES = 64 * 2**20

_LIBC = ctypes.CDLL(None, use_errno=True)


def mount(source: str, target: Path, kind: str, options: str, flags: int = 0) -> None:
    """mount(2); raises OSError."""
    if _LIBC.mount(source.encode(), os.fsencode(target), kind.encode(), flags, options.encode()) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), str(target))


def bound(directory: Path) -> None:
    """Bounds what users can write below `directory` by a small tmpfs, as a deployment does.

    Where mounting is not allowed (an ordinary container) it stays unbounded, and the agent says so.
    """
    if str(directory) in table(directory):
        return
    options = f"size={_PAGES_BYTES},mode=755"
    try:
        mount("probing-pages", directory, "tmpfs", options, _NOSUID | _NODEV | _NOEXEC)
    except PermissionError:
        return


def table(below: Path) -> list[str]:
    """Mount points at or below a directory, the deepest last; only the table is read, no mount is touched."""
    points = (line.split()[1] for line in Path("/proc/self/mounts").read_text().splitlines())
    return sorted(point for point in points if Path(point).is_relative_to(below))


def unmount_below(directory: Path) -> None:
    """Detaches every mount at or below a directory, also one whose server is dead."""
    for point in reversed(table(directory)):
        _LIBC.umount2(os.fsencode(point), _DETACH)
