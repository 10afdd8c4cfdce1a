"""A place for a sandbox that is thrown away: short, open to other accounts, and in memory where there is room."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

_MEMORY = Path("/dev/shm")  # noqa: S108  # a tmpfs; the directory in it is made by mkdtemp
_ROOM_BYTES = 4 * 2**30
"""A sandbox of four nodes takes about a quarter of a GiB, most of it the two databases."""


@contextlib.contextmanager
def directory(prefix: str = "probing-") -> Iterator[Path]:
    """A new empty directory, removed afterwards.

    A sandbox is thousands of small files and two databases that sync: in memory both cost nothing.
    """
    path = Path(tempfile.mkdtemp(prefix=prefix, dir=_MEMORY if _has_room() else None))
    path.chmod(0o755)
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


def _has_room() -> bool:
    try:
        return shutil.disk_usage(_MEMORY).free >= _ROOM_BYTES
    except OSError:
        return False
