"""A Unix socket of the agent: one JSON line in, one out, bounded in size, time and number.

The hooks' socket never waits for a source; only root and the agent's own user may speak: the file's mode says so and the
peer's credentials are checked again. The owners' socket (`everyone`) takes any user, and tells the answering function which.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import socket
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

from probing_cluster.core import errors, peer

MAX_REQUEST_BYTES = 65536
MAX_REPLY_BYTES = 8 << 20
"""A longer answer is refused: whoever asked need not read it, and it would stay in the agent's memory."""
MAX_CONNECTIONS = 256
MAX_PER_USER = 16
LOOK_S = 5.0
"""Between two looks at whether the socket is still at its path."""
REQUEST_S = 2.0
"""A peer that has not finished its line by then is let go."""

Answer = Callable[[Mapping[str, Any]], Awaitable[dict[str, Any]]]

_log = logging.getLogger(__name__)


class HookSocket:
    """Serves one answering function on one socket path."""

    def __init__(
        self, path: Path, answer: Answer, *, allowed: frozenset[int] | None = None, everyone: bool = False
    ) -> None:
        self._path = path
        self._answer = answer
        self._allowed = allowed if allowed is not None else frozenset({0, os.geteuid()})
        self._server: asyncio.Server | None = None
        self._bound: tuple[int, int] | None = None
        """Device and inode of the socket that is listened on."""
        self._everyone = everyone
        self._peers: dict[asyncio.StreamWriter, int] = {}
        self.refused_total = 0
        """Peers turned away: not allowed, malformed, too slow or too many."""

    async def start(self) -> None:
        """Listen; a socket left by an agent that died is replaced."""
        await self._listen()

    async def stay(self, every_s: float = LOOK_S) -> None:
        """Listen anew whenever the socket is no longer at its path and nobody else listens there: no hook would come in."""
        while True:
            await asyncio.sleep(every_s)
            if (
                self._server is None
                or peer.identity(self._path) == self._bound
                or peer.is_listened_at(self._path)
            ):
                continue
            _log.warning("the agent's socket %s was removed; it is made anew", self._path)
            self._server.close()
            try:
                await self._listen()
            except OSError as exc:
                _log.warning("the agent's socket %s cannot be made anew: %s", self._path, exc.strerror)

    async def _listen(self) -> None:
        address = _short(self._path)
        self._path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        self._path.unlink(missing_ok=True)
        listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
        old = os.umask(0o111 if self._everyone else 0o177)
        try:
            listening.bind(address)
        except OSError:
            listening.close()
            raise
        finally:
            os.umask(old)
        self._bound = peer.identity(self._path)
        self._server = await asyncio.start_unix_server(
            self._serve, sock=listening, limit=MAX_REQUEST_BYTES, backlog=MAX_CONNECTIONS
        )

    async def stop(self) -> None:
        """Stop listening and take the socket away, if it is still this one."""
        if self._server is not None:
            self._server.close()
            if peer.identity(self._path) == self._bound:
                self._path.unlink(missing_ok=True)
            for writer in self._peers:
                writer.transport.abort()
            await asyncio.sleep(0)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        uid = self._peers[writer] = peer.uid_of(writer.get_extra_info("socket"))
        try:
            self._check_peer(uid)
            async with asyncio.timeout(REQUEST_S):
                line = await reader.readline()
            reply = await self._answer({**_request(line), "peer_uid": uid})
        except (errors.ProbingError, ValueError, TimeoutError, OSError) as exc:
            self.refused_total += 1
            reply = {"v": 1, "ok": False, "error": str(exc) or type(exc).__name__}
        except Exception as exc:  # noqa: BLE001 - one bad request must not end the agent
            _log.exception("a hook's request could not be answered")
            reply = {"v": 1, "ok": False, "error": f"internal error: {type(exc).__name__}"}
        await _reply(writer, reply)
        self._peers.pop(writer, None)

    def _check_peer(self, uid: int) -> None:
        if len(self._peers) > MAX_CONNECTIONS:
            raise errors.NotPermitted("too many connections")
        if self._everyone:
            # One user's connections must not be all there are.
            if sum(u == uid for u in self._peers.values()) > MAX_PER_USER:
                raise errors.NotPermitted(f"more than {MAX_PER_USER} connections of uid {uid}")
        elif uid not in self._allowed:
            raise errors.NotPermitted(f"uid {uid} is neither root nor the agent's own user")


def _request(line: bytes) -> Mapping[str, Any]:
    if not line.endswith(b"\n"):
        raise errors.MalformedInput("the request has no end of line")
    try:
        request = json.loads(line)
    except (ValueError, RecursionError) as exc:
        raise errors.MalformedInput(f"the request is no JSON: {exc}") from exc
    if not isinstance(request, dict) or request.get("v") != 1:
        raise errors.MalformedInput("the request is not version 1 of this protocol")
    return request


async def _reply(writer: asyncio.StreamWriter, reply: Mapping[str, Any]) -> None:
    answer = json.dumps(reply, separators=(",", ":")).encode()
    if len(answer) > MAX_REPLY_BYTES:
        refusal = {
            "v": 1,
            "ok": False,
            "error": f"the answer has {len(answer)} bytes, more than {MAX_REPLY_BYTES}: ask about fewer",
        }
        answer = json.dumps(refusal, separators=(",", ":")).encode()
    try:
        async with asyncio.timeout(REQUEST_S):
            writer.write(answer + b"\n")
            await writer.drain()
            writer.close()
            await writer.wait_closed()
    except (OSError, TimeoutError):
        writer.transport.abort()


def _short(path: Path) -> str:
    """The address to bind; raises UsageError where a Unix socket address cannot hold it."""
    text = str(path)
    if len(text.encode()) > 107:
        raise errors.UsageError(f"the socket path is longer than 107 bytes: {text}")
    return text
