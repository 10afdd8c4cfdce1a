"""An agent's way to the database through a door (`probing-ctl door serve`): the same rows, one TLS connection kept, no backend of its own.

The door is reached with the certificate that `[agent] database_url` names. Where no door answers, deliveries go to the
database itself for a while: it is the same function behind both, so a delivery repeated the other way is still stored once.
"""

from __future__ import annotations

import contextlib
import json
import logging
import random
import socket
import ssl
import time
from typing import Any

import psycopg

from probing_cluster.core import database_url, errors, network_address
from probing_cluster.db import delivery, door_wire
from probing_cluster.db.load import Ack, DatabaseLoad

FAILURES_BEFORE_DIRECT = 3
"""After this many deliveries in a row that reached no door the next goes to the database itself."""
DIRECT_S = (60.0, 300.0)
"""How long they go there before the doors are tried again, drawn between these: agents must not return in the same second."""

_log = logging.getLogger(__name__)


class DoorDelivery(delivery.Delivery):
    """`delivery.Delivery` by way of a door."""

    def __init__(
        self,
        doors: str,
        url: str,
        cluster: str,
        node: str,
        *,
        connect_timeout_s: int = 5,
        call_timeout_s: float = 60.0,
    ) -> None:
        """`doors`: host:port, several separated by commas; `url`: the database, whose TLS files serve for the door, too."""
        super().__init__(
            url, cluster, node, connect_timeout_s=connect_timeout_s, call_timeout_s=call_timeout_s
        )
        self._doors = [network_address.parse(d.strip(), "[agent] door") for d in doors.split(",")]
        # Each agent begins with another one, so that several doors share the load.
        random.shuffle(self._doors)
        self._files = database_url.parameters(url)
        self._tls: ssl.SSLSocket | None = None
        self._failures = 0
        self._direct_until_s = 0.0

    def close(self) -> None:
        """Give every connection back; the next delivery opens what it needs."""
        self._leave()
        super().close()

    def _rest(self) -> None:
        # A backend is dear and is given back; a connection to the door is what the door is for.
        super().close()

    def _leave(self) -> None:
        tls, self._tls = self._tls, None
        if tls is not None:
            with contextlib.suppress(OSError):
                tls.close()

    def _call(self, load: DatabaseLoad) -> Ack:
        if time.monotonic() < self._direct_until_s:
            return self._direct(load)
        body = door_wire.encoded(load)
        frame = door_wire.frame(body)
        try:
            answer = self._answer_to(frame)
        except OSError as exc:  # TLS's own errors and timeouts among them
            self._leave()
            self._failures += 1
            if self._failures >= FAILURES_BEFORE_DIRECT:
                _log.warning("no door answers (%s): delivering to the database itself", exc)
                self._failures, self._direct_until_s = 0, time.monotonic() + random.uniform(*DIRECT_S)
            raise errors.DatabaseUnavailable(f"no door answers: {exc}") from exc
        self._failures = 0
        return _ack(answer)

    def _direct(self, load: DatabaseLoad) -> Ack:
        try:
            return super()._call(load)
        except delivery.ROW_FAULT:
            raise
        except Exception:
            self._direct_until_s = 0.0  # this way is no better: a door may be back
            raise

    def _answer_to(self, frame: bytes) -> Any:
        """The answer to one frame. A kept connection that the door has closed meanwhile is no failure of the door's."""
        if self._tls is not None:
            try:
                return self._exchange(self._tls, frame)
            except (ConnectionError, ssl.SSLError):
                self._leave()
        self._tls = self._connected()
        return self._exchange(self._tls, frame)

    def _connected(self) -> ssl.SSLSocket:
        failed: OSError | None = None
        for _ in self._doors:
            host, port = self._doors[0]
            try:
                context = ssl.create_default_context(cafile=self._files.get("sslrootcert"))
                context.load_cert_chain(self._files.get("sslcert", ""), self._files.get("sslkey"))
                with contextlib.ExitStack() as undone:
                    plain = socket.create_connection((host, port), timeout=self._connect_timeout_s)
                    undone.callback(plain.close)  # a handshake that fails leaves it open
                    made = context.wrap_socket(plain, server_hostname=host)
                    undone.pop_all()
                    return made
            except OSError as exc:
                failed = exc
                self._doors.append(self._doors.pop(0))
        assert failed is not None
        raise failed

    def _exchange(self, tls: ssl.SSLSocket, frame: bytes) -> Any:
        end_s = time.monotonic() + self._call_timeout_s
        tls.settimeout(self._call_timeout_s)
        tls.sendall(frame)
        (length,) = door_wire.HEADER.unpack(_received(tls, door_wire.HEADER.size, end_s))
        if length > door_wire.MAX_BYTES:
            raise ConnectionError(f"the door announces {length} bytes")
        body = _received(tls, length, end_s)
        try:
            return json.loads(body)
        except ValueError as exc:
            raise ConnectionError("the door's answer cannot be read") from exc


def _received(tls: ssl.SSLSocket, n: int, end_s: float) -> bytes:
    parts: list[bytes] = []
    while n:
        tls.settimeout(max(0.001, end_s - time.monotonic()))
        part = tls.recv(min(n, 1 << 18))
        if not part:
            raise ConnectionResetError("the door has closed the connection")
        parts.append(part)
        n -= len(part)
    return b"".join(parts)


def _ack(answer: Any) -> Ack:
    """An answer as `delivery.Delivery` reads it; a failure is raised as the database's own error of that SQLSTATE."""
    if isinstance(answer, dict) and "sqlstate" in answer:
        text = str(answer.get("error"))
        try:
            raise psycopg.errors.lookup(str(answer["sqlstate"]))(text)
        except KeyError:
            raise psycopg.OperationalError(text) from None
    return delivery.ack(answer)
