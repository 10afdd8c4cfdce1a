"""Waits for the one peer that proves to belong to a round, among whoever else can reach the port and says nothing, or something else."""

from __future__ import annotations

import hmac
import selectors
import socket
import time
from collections.abc import Callable

MOST_UNPROVEN = 64
"""Connections that have not proved anything yet; beyond so many the oldest goes."""
_LOOK_S = 0.2


def accept(
    listener: socket.socket, proof: bytes, wait_s: float, given_up: Callable[[], bool]
) -> socket.socket | None:
    """The link whose first bytes are `proof`; None where none comes in time, or it is given up."""
    until_s = time.monotonic() + wait_s
    listener.setblocking(False)
    with selectors.DefaultSelector() as ready:
        ready.register(listener, selectors.EVENT_READ)
        strangers = _Unproven(ready, proof)
        try:
            while time.monotonic() < until_s and not given_up():
                for key, _ in ready.select(_LOOK_S):
                    if key.fileobj is listener:
                        strangers.take(listener)
                    elif isinstance(key.fileobj, socket.socket) and strangers.hear(key.fileobj):
                        return key.fileobj
        finally:
            strangers.close()
    return None


class _Unproven:
    """The links that were taken and have not said enough yet."""

    def __init__(self, ready: selectors.BaseSelector, proof: bytes) -> None:
        self._ready = ready
        self._proof = proof
        self._received: dict[socket.socket, bytes] = {}

    def take(self, listener: socket.socket) -> None:
        try:
            link, _ = listener.accept()
        except OSError:  # gone before it was taken
            return
        link.setblocking(False)
        self._ready.register(link, selectors.EVENT_READ)
        self._received[link] = b""
        if len(self._received) > MOST_UNPROVEN:
            self._drop(next(iter(self._received)))

    def hear(self, link: socket.socket) -> bool:
        """Whether the link has proved itself now; then it is the caller's."""
        if link not in self._received:  # dropped a moment ago
            return False
        try:
            more = link.recv(len(self._proof) - len(self._received[link]))
        except BlockingIOError:
            return False
        except OSError:
            more = b""
        self._received[link] += more
        if more and len(self._received[link]) < len(self._proof):
            return False
        proved = hmac.compare_digest(self._received[link], self._proof)
        if proved:
            self._ready.unregister(link)
            del self._received[link]
        else:
            self._drop(link)
        return proved

    def close(self) -> None:
        for link in list(self._received):
            self._drop(link)

    def _drop(self, link: socket.socket) -> None:
        self._ready.unregister(link)
        del self._received[link]
        link.close()
