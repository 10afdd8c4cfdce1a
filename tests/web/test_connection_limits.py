"""Peers that hold connections and never ask, never end their question or never read keep nobody else out."""

from __future__ import annotations

import contextlib
import http.client
import socket
import time
from collections.abc import Iterator

import pytest
import test_pages_in_browser
from web_world import OWNER, World

from probing_cluster.sandbox.machine import ports
from probing_cluster.web import connection_limits, serve
from probing_cluster.web.access import gate, viewers


@pytest.fixture
def port(world: World, monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """The site on a real port; it looks at its connections five times a second and has ten places."""
    monkeypatch.setattr(connection_limits, "LOOK_S", 0.2)
    monkeypatch.setattr(serve, "_MOST_CONNECTIONS", 10)
    monkeypatch.setattr(gate, "BODY_S", 0.5)
    free = ports.choose(1)[0]
    world.site.__dict__["hosts"] = frozenset({f"127.0.0.1:{free}"})
    with test_pages_in_browser.served(world, free):
        yield free


def status(port: int, path: str = "/login", **headers: str) -> int:
    """That of one plain request."""
    link = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    with contextlib.closing(link):
        link.request("GET", path, headers=headers)
        answer = link.getresponse()
        answer.read()
        return answer.status


def answers(port: int) -> bool:
    """Whether it does, once the server has noticed who has left."""
    for _ in range(600):
        with contextlib.suppress(ConnectionError):
            return status(port) == 200
        time.sleep(0.1)
    return False


def ended(peer: socket.socket) -> bool:
    """Whether the server ends the connection."""
    peer.settimeout(10)
    with peer, contextlib.suppress(ConnectionResetError):
        while peer.recv(1 << 16):
            pass
    return True


def test_who_never_asks_keeps_nobody_out(port: int) -> None:
    """Silent, half a head, a second head that does not end: all of them are gone, and the page is there for others."""
    starts = [
        b"",
        b"GET / HT",
        b"GET /login HTTP/1.1\r\nHo",
        f"GET /login HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\nGET /l".encode(),
    ]
    found = 0
    for _ in range(50):  # on a busy machine the first are gone before the last have come
        peers = [socket.create_connection(("127.0.0.1", port)) for _ in range(12)]
        for n, peer in enumerate(peers):
            with contextlib.suppress(ConnectionError):
                peer.sendall(starts[n % 4])
        found = status(port)
        assert all(ended(peer) for peer in peers)
        if found == 503:
            break
    assert found == 503  # no place was left
    assert status(port) == 200


def test_a_body_that_drips_is_not_waited_for(port: int) -> None:
    """A byte at a time is no way to hold a place."""
    lines = [
        "POST /login HTTP/1.1",
        f"Host: 127.0.0.1:{port}",
        "Sec-Fetch-Site: same-origin",
        "Content-Length: 60000",
    ]
    with socket.create_connection(("127.0.0.1", port), timeout=10) as peer:
        peer.sendall("\r\n".join([*lines, "", "key=a"]).encode())
        assert peer.recv(1 << 16).startswith(b"HTTP/1.1 408")


def test_a_body_where_none_is_wanted_is_not_read(world: World, port: int) -> None:
    """A question that only reads has no use for one, bounded or not: it is answered before the body's end, and holds none of it."""
    cookie = f"{viewers.COOKIE}={world.key(OWNER)}"
    head = f"GET /api/v1/me HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nCookie: {cookie}\r\nTransfer-Encoding: chunked\r\n\r\n"
    with socket.create_connection(("127.0.0.1", port), timeout=10) as link:
        link.sendall(head.encode() + b"10000\r\n" + b"x" * (1 << 16) + b"\r\n")
        assert link.recv(1 << 16).startswith(b"HTTP/1.1 200")


def test_who_reads_an_open_stream_is_left_alone(world: World, port: int) -> None:
    """A page that stands open for many looks goes on to hear."""
    cookie = f"{viewers.COOKIE}={world.key(OWNER)}"
    head = f"GET /api/v1/stream HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nCookie: {cookie}\r\n\r\n"
    with socket.create_connection(("127.0.0.1", port), timeout=20) as link:
        link.sendall(head.encode())
        received = b""
        while b"event: beat" not in received:  # five seconds, 25 looks
            piece = link.recv(1 << 16)
            assert piece
            received += piece


def test_one_address_has_not_all_places(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond its share an address is let go at once, unless a proxy of ours speaks there for many."""
    monkeypatch.setattr(connection_limits, "MOST_OF_ONE", 2)
    monkeypatch.setattr(connection_limits.PatientProtocol, "_is_proxy", lambda self: False)
    free = ports.choose(1)[0]
    world.site.__dict__["hosts"] = frozenset({f"127.0.0.1:{free}"})
    with test_pages_in_browser.served(world, free):
        held = [socket.create_connection(("127.0.0.1", free)) for _ in range(2)]
        assert ended(socket.create_connection(("127.0.0.1", free)))
        held.pop().close()
        assert answers(free)
        held.pop().close()


def test_proxies_are_known_by_their_networks() -> None:
    """Loopback always; others where the settings name them."""
    kind = connection_limits.of(["10.1.0.0/16"])
    for address, proxy in (("127.0.0.1", True), ("10.1.2.3", True), ("10.2.0.1", False), ("", False)):
        one = kind.__new__(kind)
        one._address = address
        assert one._is_proxy() is proxy, address
