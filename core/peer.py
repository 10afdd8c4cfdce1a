"""The other end of a Unix socket, as the kernel vouches for it."""

from __future__ import annotations

import socket
import struct

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
