"""Fixes for files and directories that the wrong people can change: none of them may harm what else lies there.

A directory is never changed: it may be `/tmp`, `/`, somebody's home, or a file system that others use. What is
ours moves out of it instead. A file is changed only where it is a plain one, of root's, with one name.
"""

from __future__ import annotations

import os
import shlex
import stat
from collections.abc import Iterable
from pathlib import Path

HOME = "/etc/probing-cluster"
"""A directory of ours, which only root can change."""
RUN = "/run/probing-cluster"


def for_program(path: Path, bad: Iterable[Path], key: str) -> str:
    """How a program or settings file comes to lie where only root can change it; `bad` are the parts that others can."""
    wrong = list(bad)
    if wrong and all(part == path for part in wrong) and _plain_root_file(path):
        return f"chmod go-w {shlex.quote(str(path))}"
    return f"copy it, after a look at it, to a directory that only root can change, such as {HOME}, and name the copy: {key}"


def for_secret(path: Path, key: str) -> str:
    """How a secret comes to be read by its service only."""
    if path.parent == Path(HOME) and _plain_root_file(path):
        return f"chmod o-rwx,g-wx {shlex.quote(str(path))}"
    return (
        f"put a copy for this service alone into {HOME}, mode 0600 and of the service's account"
        f" (or 0640 of root with its group), and name it: {key}"
    )


def for_socket(key: str) -> str:
    """How a daemon's socket comes to lie where nobody can stand in for it."""
    return (
        f"{key} in a directory of root's own, such as {RUN}; then restart the daemon, which makes its socket"
    )


def _plain_root_file(path: Path) -> bool:
    """Whether changing its mode touches this one file and nobody else's."""
    try:
        found = os.lstat(path)
    except OSError:
        return False
    return stat.S_ISREG(found.st_mode) and found.st_uid == 0 and found.st_nlink == 1
