"""One agent's connection at the door: TLS, its certificate's name, one frame after the other. Never blocks, bounded in time and bytes."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable

from probing_cluster.db import door_wire

HANDSHAKE_S = 10.0
FRAME_S = 30.0
"""From a frame's first byte to its last, and for an answer to be taken."""
IDLE_S = 120.0
"""An agent speaks every few seconds."""
LIFE_S = 3600.0
"""Then it must show its certificate again."""


class AgentConnection:
    """A connection in one of the states handshake, reading, waiting (for the database), writing, closed."""

    def __init__(
        self,
        made: ssl.SSLSocket,
        *,
        now_s: float,
        on_known: Callable[[AgentConnection], None],
        on_delivery: Callable[[AgentConnection, bytes], None],
        on_close: Callable[[AgentConnection], None],
    ) -> None:
        """`made`: a non-blocking TLS socket whose handshake has not begun."""
        self._tls = made
        self._fd = made.fileno()
        self._loop = asyncio.get_running_loop()
        self._on_known = on_known
        self._on_delivery = on_delivery
        self._on_close = on_close
        self._began_s = now_s
        self._buffer = bytearray()
        self._out = memoryview(b"")
        self._writes = False
        self.role: str | None = None
        """The CN of its certificate; None until the handshake is done."""
        self.state = "handshake"
        self.deadline_s = now_s + HANDSHAKE_S
        self._loop.add_reader(self._fd, self._step)

    @property
    def bytes_held(self) -> int:
        """The bytes held of a frame that is not complete."""
        return len(self._buffer)

    def answer(self, body: bytes) -> None:
        """Send an answer and read the next delivery; without effect when the agent has gone."""
        if self.state == "waiting":
            self.state = "writing"
            self.deadline_s = self._loop.time() + FRAME_S
            self._out = memoryview(door_wire.frame(body))
            self._loop.add_reader(self._fd, self._step)
            # Not at once: an agent that is answered as fast as it sends would call itself ever deeper, and hold up the others.
            self._loop.call_soon(self._step)

    def is_over(self, now_s: float) -> bool:
        """Whether its time is up; what waits for the database has its own bound there."""
        if self.state == "waiting":
            return False
        old = now_s - self._began_s > LIFE_S and self.state == "reading" and not self._buffer
        return old or now_s > self.deadline_s

    def close(self) -> None:
        """End it; a delivery under way is stored all the same, and its answer goes nowhere."""
        if self.state == "closed":
            return
        self.state = "closed"
        self._loop.remove_reader(self._fd)
        self._watch_writes(False)
        self._tls.close()
        self._buffer.clear()
        self._on_close(self)

    def _step(self) -> None:
        try:
            self._watch_writes(False)
            if self.state == "handshake":
                self._tls.do_handshake()
                self._shake_hands()
            if self.state == "writing":
                self._write()
            if self.state == "reading":
                self._read()
        except ssl.SSLWantReadError:
            return
        except ssl.SSLWantWriteError:
            self._watch_writes(True)
        except (
            OSError
        ):  # TLS's own errors among them: no certificate, another authority's, a peer that is gone
            self.close()

    def _shake_hands(self) -> None:
        self.role = common_name(self._tls.getpeercert())
        if self.role is None:
            self.close()
            return
        self.state = "reading"
        self.deadline_s = self._loop.time() + IDLE_S
        self._on_known(self)

    def _write(self) -> None:
        while self._out:
            self._out = self._out[self._tls.send(self._out) :]
        self.state = "reading"
        self.deadline_s = self._loop.time() + IDLE_S

    def _read(self) -> None:
        while True:
            piece = self._tls.recv(65536)
            if not piece:
                self.close()
                return
            if not self._buffer:
                self.deadline_s = self._loop.time() + FRAME_S
            self._buffer += piece
            if len(self._buffer) < door_wire.HEADER.size:
                continue
            (length,) = door_wire.HEADER.unpack_from(self._buffer)
            whole = door_wire.HEADER.size + length
            if length > door_wire.MAX_BYTES or len(self._buffer) > whole:
                self.close()  # too long, or a second frame before the first was answered: no agent of ours
                return
            if len(self._buffer) == whole:
                load = bytes(memoryview(self._buffer)[door_wire.HEADER.size :])
                self._buffer = bytearray()
                self.state = "waiting"
                self._loop.remove_reader(self._fd)  # what comes before the answer is not looked at
                self._on_delivery(self, load)
                return

    def _watch_writes(self, wanted: bool) -> None:
        if wanted and not self._writes:
            self._loop.add_writer(self._fd, self._step)
        elif self._writes and not wanted:
            self._loop.remove_writer(self._fd)
        self._writes = wanted


def common_name(certificate: object) -> str | None:
    """The one CN of a peer's certificate, as `ssl` shows it; None for one without, or with several."""
    subject = certificate.get("subject", ()) if isinstance(certificate, dict) else ()
    names = [value for part in subject for key, value in part if key == "commonName"]
    return names[0] if len(names) == 1 and names[0] else None


def plain_socket(accepted: socket.socket) -> socket.socket:
    """An accepted socket as the door wants it: never blocking, answers at once, peers that vanish noticed."""
    accepted.setblocking(False)
    accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    accepted.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    return accepted
