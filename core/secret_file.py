"""Files that hold a secret: read only where nobody else can."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from probing_cluster.core import errors


def require_private(path: Path) -> None:
    """Raises SettingsError unless `path` is a file of root's or ours that others cannot read.

    Like libpq with its keys: mode 0600, or 0640 where root owns it and a group was given it on purpose.
    """
    try:
        with path.open("rb") as opened:
            _judge(path, os.fstat(opened.fileno()))
    except OSError as exc:
        raise _unreadable(path, exc) from exc


def read(path: Path) -> str:
    """The secret on the first line of a private file, without its line end; raises SettingsError."""
    text = read_all(path).split("\n", 1)[0].rstrip("\r")
    if not text or len(text) > 4096:
        raise errors.SettingsError(f"{path} must hold one secret of 1 to 4096 characters on its first line")
    return text


def read_all(path: Path) -> str:
    """The text of a private file, at most 64 KiB of it; raises SettingsError."""
    try:
        with path.open("rb") as opened:
            _judge(path, os.fstat(opened.fileno()))
            return opened.read(65536).decode("utf-8", "replace")
    except OSError as exc:
        raise _unreadable(path, exc) from exc


def _judge(path: Path, found: os.stat_result) -> None:
    # Of the opened file, not of its name: what is judged is what is read.
    if not stat.S_ISREG(found.st_mode):
        raise errors.SettingsError(f"{path} holds a secret and must be a plain file")
    if found.st_uid not in {0, os.geteuid()}:
        msg = f"{path} holds a secret but belongs to uid {found.st_uid}; give the service a copy of its own"
        raise errors.SettingsError(msg)
    forbidden = 0o037 if found.st_uid == 0 else 0o077
    if found.st_mode & forbidden:
        msg = f"{path} holds a secret and is mode {stat.S_IMODE(found.st_mode):04o}; 0600 is needed, or 0640 of root"
        raise errors.SettingsError(msg)


def _unreadable(path: Path, exc: OSError) -> errors.SettingsError:
    return errors.SettingsError(f"{path} cannot be read: {exc.strerror}")
