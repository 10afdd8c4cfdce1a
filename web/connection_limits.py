"""How long the web server waits for its peers: a connection that never asks, or never reads, must not keep another out."""

from __future__ import annotations

import asyncio
import ipaddress
from collections import Counter
from collections.abc import Iterable
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

LOOK_S = 10.0
"""A peer has this long, at most twice, to send the head of a request, and to read something of its answer."""
MOST_OF_ONE = 200
"""Connections of one address."""


class PatientProtocol(H11Protocol):
    """One connection."""

    _at_once: Counter[str]
    """Connections by address, of one server."""
    _networks: tuple[ipaddress.IPv4Network | ipaddress.IPv6Network, ...]
    """Where proxies are, each of which speaks for many."""

    def connection_made(self, transport: Any) -> None:
        """Taken, or ended where its address has enough."""
        super().connection_made(transport)
        self._address = self.client[0] if self.client else ""
        self._at_once[self._address] += 1
        self._idle_since: tuple[object] | None = None
        self._unread = 0
        self._look: asyncio.TimerHandle = self.loop.call_later(LOOK_S, self._look_again)
        if self._at_once[self._address] > MOST_OF_ONE and not self._is_proxy():
            transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """Its place is free."""
        self._look.cancel()
        self._at_once[self._address] -= 1
        if not self._at_once[self._address]:
            del self._at_once[self._address]
        super().connection_lost(exc)

    def resume_writing(self) -> None:
        """It reads, however slowly."""
        self._unread = 0
        super().resume_writing()

    def _is_proxy(self) -> bool:
        try:
            address = ipaddress.ip_address(self._address)
        except ValueError:
            return False
        return address.is_loopback or any(address in network for network in self._networks)

    def _look_again(self) -> None:
        """End it if nothing has come of it since the last look: no request, or no byte of an answer taken."""
        idle = self.cycle is None or self.cycle.response_complete
        unread = self.transport.get_write_buffer_size()
        if (idle and self._idle_since == (self.cycle,)) or (not idle and 0 < self._unread <= unread):
            self.transport.abort()
            return
        self._idle_since = (self.cycle,) if idle else None
        self._unread = unread
        self._look = self.loop.call_later(LOOK_S, self._look_again)


def of(proxy_networks: Iterable[str]) -> type[PatientProtocol]:
    """The protocol of one server; of its proxies any number of connections is taken."""

    networks = tuple(ipaddress.ip_network(text, strict=False) for text in proxy_networks)
    return type("PatientOfServer", (PatientProtocol,), {"_at_once": Counter(), "_networks": networks})
