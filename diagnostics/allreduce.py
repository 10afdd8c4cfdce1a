"""An all-reduce over plain sockets with a result that is known: the Python of a node needs nothing else for it.

Blocks are vectors of 64-bit numbers; adding two of them as one large integer is exact and runs in C. The ring of n
members takes 2 (n - 1) steps, as NCCL's does. A pair is a ring of two.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import socket
import threading
import time
from collections.abc import Sequence
from concurrent import futures
from typing import Self

from probing_cluster.diagnostics import machine, proven_link, registry
from probing_cluster.healthchecks import findings

_LANE = 8
_WARM_UP = 1


def block(rank: int, size: int) -> bytes:
    """What `rank` brings: lanes below 2**32, different in every place and for every rank."""
    seed = hashlib.sha256(f"probing {rank}".encode()).digest()
    lanes = b"".join(seed[i : i + 4] + bytes(4) for i in range(0, 32, 4))
    return (lanes * (size // len(lanes) + 1))[:size]


def added(left: bytes, right: bytes) -> bytes:
    """The sum lane by lane; no lane overflows below 2**32 members."""
    total = int.from_bytes(left, "little") + int.from_bytes(right, "little")
    return total.to_bytes(len(left), "little")


def test(node: machine.Machine) -> Sequence[findings.Finding]:
    """This member's part of the group's all-reduce, some times over; the quicker ones count."""
    group = node.group
    if group is None or len(group.members) < 2 or node.node not in group.members:
        raise findings.Absent("there is no other node to test with")
    with contextlib.ExitStack() as stack:
        try:
            ring = stack.enter_context(AllreduceRing(node, group))
        except OSError as exc:
            words = f"{exc.strerror or exc}: {group.addresses[node.node]}"
            return [findings.unseen(words, detail={registry.UNTESTED: words})]
        try:
            ring.join()
            taken = ring.timed()
        except (OSError, EOFError) as exc:
            return [findings.fail(f"{ring.partners()}: {exc or type(exc).__name__}", detail=ring.detail)]
    if taken is None:
        return [findings.fail(f"the sum with {ring.partners()} is wrong", detail=ring.detail)]
    return [
        findings.ok(
            f"{len(group.members)} nodes add {ring.size >> 10} KiB in {taken * 1e3:.3g} ms",
            measured=taken,
            unit="s",
            detail=ring.detail,
        )
    ]


class AllreduceRing:
    """One member's two links: to the next, and from the one before."""

    def __init__(self, node: machine.Machine, group: machine.Group) -> None:
        self._node = node
        self._group = group
        n = len(group.members)
        self._rank = group.members.index(node.node)
        self._next = group.members[(self._rank + 1) % n]
        self._before = group.members[(self._rank - 1) % n]
        lanes = max(node.options.bytes_moved // _LANE // n, 4)
        self._chunk = lanes * _LANE
        self.size = self._chunk * n
        self.detail = {"engine": f"tcp ring n={n} bytes={self.size}"}
        self._links: list[socket.socket] = []
        self._given_up = False

    def __enter__(self) -> Self:
        # Raised here is our own trouble (a port that is taken), and nobody's fault.
        self._listener = socket.create_server(self._group.addresses[self._node.node], reuse_port=False)
        return self

    def __exit__(self, *_: object) -> None:
        for link in (*self._links, self._listener):
            link.close()

    def partners(self) -> str:
        """The members that this member talks with."""
        return " and ".join(dict.fromkeys((self._before, self._next)))

    def join(self) -> None:
        """Both links, each end proving that it knows the round; raises OSError."""
        if not self._node.answers():
            raise TimeoutError("this node's links are dead")
        # Accepted from the first moment on: whoever can reach the port could else fill the queue in front of it.
        with futures.ThreadPoolExecutor(1) as beside:
            accepted = beside.submit(self._accepted)
            try:
                self._out = self._connected()
                self._links.append(self._out)
                self._in = accepted.result()
                self._links.append(self._in)
            finally:
                self._given_up = True

    def _connected(self) -> socket.socket:
        until = time.monotonic() + self._node.options.connect_s
        while True:
            try:
                link = socket.create_connection(self._group.addresses[self._next], timeout=2.0)
                break
            except OSError as exc:
                if time.monotonic() > until:
                    raise TimeoutError(f"{self._next} does not answer ({exc.strerror or exc})") from exc
                time.sleep(0.1)
        link.settimeout(self._node.options.connect_s * 2)
        link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        link.sendall(self._proof(self._node.node))
        return link

    def _accepted(self) -> socket.socket:
        # Its own way to us may take as long as ours to the next.
        wait_s = self._node.options.connect_s * 2
        link = proven_link.accept(self._listener, self._proof(self._before), wait_s, lambda: self._given_up)
        if link is None:
            raise TimeoutError(f"{self._before} does not connect")
        link.settimeout(self._node.options.connect_s * 2)
        return link

    def _proof(self, node: str) -> bytes:
        return hmac.new(self._group.token, node.encode(), "sha256").digest()

    def timed(self) -> float | None:
        """The time of one all-reduce in seconds that a quarter of them stay below: neither the luckiest nor what neighbours lengthened.

        None when a sum was wrong. Raises OSError, EOFError.
        """
        n = len(self._group.members)
        expected = block(0, self._chunk)
        for rank in range(1, n):
            expected = added(expected, block(rank, self._chunk))
        taken: list[float] = []
        for _ in range(_WARM_UP + self._node.options.repeats):
            chunks = [block(self._rank, self._chunk)] * n
            began = self._node.wall_s()
            self._reduce(chunks)
            taken.append(self._node.wall_s() - began)
            if any(chunk != expected for chunk in chunks):
                return None
        taken = sorted(taken[_WARM_UP:])
        return taken[len(taken) // 4]

    def _reduce(self, chunks: list[bytes]) -> None:
        n = len(chunks)
        for step in range(n - 1):
            send, take = (self._rank - step) % n, (self._rank - step - 1) % n
            chunks[take] = added(chunks[take], self._exchange(chunks[send]))
        for step in range(n - 1):
            send, take = (self._rank + 1 - step) % n, (self._rank - step) % n
            chunks[take] = self._exchange(chunks[send])

    def _exchange(self, data: bytes) -> bytes:
        trouble: list[OSError] = []

        def write() -> None:
            try:
                self._node.send(self._next, self._out, data)
            except OSError as exc:
                trouble.append(exc)

        writer = threading.Thread(target=write, daemon=True)
        writer.start()
        got = receive(self._in, len(data))
        writer.join()
        if trouble:
            raise trouble[0]
        return got


def receive(link: socket.socket, size: int) -> bytes:
    """Exactly `size` bytes; raises EOFError when the other end is gone."""
    data = bytearray()
    while len(data) < size:
        piece = link.recv(min(size - len(data), 1 << 20))
        if not piece:
            raise EOFError("the other end is gone")
        data += piece
    return bytes(data)


def swap(node: machine.Machine, peer: str, link: socket.socket, data: bytes, size: int) -> bytes:
    """Sends and receives at once over one link."""
    writer = threading.Thread(target=node.send, args=(peer, link, data), daemon=True)
    writer.start()
    got = receive(link, size)
    writer.join()
    return got
