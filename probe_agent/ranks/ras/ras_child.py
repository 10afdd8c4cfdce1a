"""Asks NCCL RAS of a job's own processes for their status, as the job's user; a process of its own.

One JSON request on standard input (`uid`, `gid`, `port`), one JSON answer: `{"text": …}` or `{"refused": why}`.
Only a listener of that very user on the loopback is asked: anyone may open a port, and nobody is to be asked for
another. Whoever listens is the user's program: the answer is bounded in size and time, and is only text.
"""

from __future__ import annotations

import socket
import sys
import time
from pathlib import Path
from typing import Any

from probing_cluster.probe_agent.jobs import collect_child

PORT = 28028
MAX_BYTES = 256 * 1024
"""The summary of a healthy job is a few hundred bytes; outliers are listed ten a group."""
DEADLINE_S = 14.0
"""RAS gives up on its peers after 10 s (client_support.cc: 5 s a leg, 5 s more)."""
_LOOPBACK = {"0100007F": "127.0.0.1", "00000000": "127.0.0.1"}
_LOOPBACK_6 = {"0" * 24 + "01000000": "::1", "0" * 32: "::1", "0" * 16 + "FFFF00000100007F": "127.0.0.1"}
_LISTEN = "0A"


def listener(port: int, uid: int, net: Path = Path("/proc/net")) -> str | None:
    """The loopback address on which this user, and nobody else, listens on `port`; None otherwise."""
    found = [
        (_address(row, known), int(row[7]))
        for name, known in (("tcp", _LOOPBACK), ("tcp6", _LOOPBACK_6))
        for row in _rows(net / name, port)
    ]
    if not found or any(owner != uid for _, owner in found):
        return None
    return next((address for address, _ in found if address is not None), None)


def _rows(path: Path, port: int) -> list[list[str]]:
    try:
        lines = path.read_text("ascii").splitlines()[1:]
    except (OSError, UnicodeDecodeError):
        return []
    rows = [line.split() for line in lines]
    return [r for r in rows if len(r) > 7 and r[3] == _LISTEN and int(r[1].rpartition(":")[2], 16) == port]


def _address(row: list[str], known: dict[str, str]) -> str | None:
    return known.get(row[1].rpartition(":")[0].upper())


def status(address: str, port: int, deadline_s: float = DEADLINE_S) -> str:
    """RAS's status text; raises OSError, or Refused when what answers is not RAS."""
    end_s = time.monotonic() + deadline_s
    # Not create_connection: it would load a codec, and the user may not read our Python.
    with socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET) as link:
        link.settimeout(2.0)
        link.connect((address, port))
        link.sendall(b"CLIENT PROTOCOL 2\n")
        greeting = _read(link, end_s, until=b"\n", most=256)
        if not greeting.upper().startswith(b"SERVER PROTOCOL "):
            raise collect_child.Refused("what answers on the port is not NCCL RAS")
        link.sendall(b"STATUS\n")
        return _read(link, end_s, until=None, most=MAX_BYTES).decode("utf-8", "replace")


def _read(link: socket.socket, end_s: float, *, until: bytes | None, most: int) -> bytes:
    """What arrives until `until`, the other side's end, `most` bytes or the deadline."""
    kept = b""
    while len(kept) < most and (until is None or not kept.endswith(until)):
        left_s = end_s - time.monotonic()
        if left_s <= 0:
            break
        link.settimeout(left_s)
        try:
            piece = link.recv(min(65536, most - len(kept)))
        except TimeoutError:
            break
        if not piece:
            break
        kept += piece
    return kept


def answer(request: dict[str, Any]) -> dict[str, Any]:
    """The answer to one request, made with the user's rights."""
    uid, port = int(request["uid"]), int(request.get("port") or PORT)
    collect_child.become(uid, int(request["gid"]))
    collect_child.limit()
    address = listener(port, uid)
    return {} if address is None else {"text": status(address, port)}


if __name__ == "__main__":
    sys.exit(collect_child.serve(answer))
