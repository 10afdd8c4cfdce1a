"""Writing a simulated node's files."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class TreeLink:
    """A symbolic link, relative to the directory it is in."""

    target: str


@dataclass(frozen=True)
class TreeDevice:
    """A character device; without the right to make one, a link to /dev/null, which is one as well."""

    major: int
    minor: int


Tree = dict[str, str | TreeLink | TreeDevice | None]
"""Path below the node's root to content (a newline is added), link, device, or None for an empty directory."""


def under(prefix: str, tree: Mapping[str, str | TreeLink | TreeDevice | None]) -> Tree:
    """The same entries below `prefix`."""
    return {f"{prefix}/{name}": entry for name, entry in tree.items()}


def write(root: Path, tree: Mapping[str, str | TreeLink | TreeDevice | None]) -> None:
    """Writes the entries; what exists is replaced."""
    made: set[Path] = set()
    for name, entry in tree.items():
        path = root / name
        folder = path if entry is None else path.parent
        if folder not in made:
            folder.mkdir(parents=True, exist_ok=True)
            made.add(folder)
        if isinstance(entry, str) and path.exists():
            put(root, name, entry)
        elif isinstance(entry, str):
            path.write_text(f"{entry}\n")
        elif entry is not None:
            path.unlink(missing_ok=True)
            _special(path, entry)


def put(root: Path, name: str, value: str) -> None:
    """Replaces one file's content at once: the kernel never shows half a value either."""
    path = root / name
    fresh = path.with_name(f".{path.name}.new")
    fresh.write_text(f"{value}\n")
    fresh.replace(path)


def _special(path: Path, entry: TreeLink | TreeDevice) -> None:
    if isinstance(entry, TreeLink):
        path.symlink_to(entry.target)
        return
    with contextlib.suppress(PermissionError):
        os.mknod(path, stat.S_IFCHR | 0o666, os.makedev(entry.major, entry.minor))
        path.chmod(0o666)
        return
    path.symlink_to("/dev/null")
