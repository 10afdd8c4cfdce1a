"""The other end of a Unix socket, as the kernel vouches for it, and what is at a socket's path."""

from __future__ import annotations

import errno
import os
import socket
import struct
from pathlib import Path

_UCRED = struct.Struct("iII")
"""struct ucred: pid is signed; uid and gid are not, so 4294967294 (nobody of NFS) stays what it is."""


def uid_of(connection: socket.socket) -> int:
    """The user who connected, or who listens, at the other end."""
    _pid, uid, _gid = _UCRED.unpack(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size))
    return int(uid)


def has_gone(connection: socket.socket) -> bool:
    """Whether the other side of a Unix socket, of which nothing more is awaited, has closed it."""
    if connection.family != socket.AF_UNIX:
        return False
    timeout_s = connection.gettimeout()
    connection.setblocking(False)  # with a timeout, Python would wait for it
    try:
        return connection.recv(1, socket.MSG_PEEK) == b""
    except BlockingIOError:
        return False
    except OSError:
        return True
    finally:
        connection.settimeout(timeout_s)


def identity(path: Path) -> tuple[int, int] | None:
    """Device and inode of what is at the path; None if there is nothing. No other socket has those of one that is bound."""
    try:
        found = os.lstat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def is_listened_at(path: Path) -> bool:
    """Whether a process listens at the path, even if it is too busy to answer; raises OSError for a path that no socket can have."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK) as link:
        return link.connect_ex(str(path)) in {0, errno.EAGAIN}
