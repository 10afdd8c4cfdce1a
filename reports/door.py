"""Asking the service for a report over its Unix socket: one JSON line each way, then close.

The service knows the caller by the socket's peer credentials and answers for the job's
owner and for operators. A request that travels further (TLS) will carry a MUNGE credential
bound to `binding(request)` in `credential`; see control_plane/report_door.py.
"""

from __future__ import annotations

import hashlib
import json
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from probing_cluster.core import errors, settings
from probing_cluster.reports import job_ref

VERSION = 1
MAX_REQUEST_BYTES = 4096
MAX_REPLY_BYTES = 64 * 2**20
_DEADLINE_S = 15.0
_ERRORS: dict[str, type[errors.ProbingError]] = {
    "not_found": errors.NotFound,
    "not_permitted": errors.NotPermitted,
    "database_unavailable": errors.DatabaseUnavailable,
    "usage": errors.UsageError,
}
OTHER_DATABASE = "other_database"
"""The service's word for: my settings name another database than yours; ask that one yourself."""


class OtherDatabase(errors.DatabaseUnavailable):
    """The service answers for another database."""


def request_for(ref: job_ref.JobRef, database: str | None = None) -> dict[str, Any]:
    """The request for one job's rows; with `database`, only if the service reads that very one."""
    request = {"v": VERSION, "op": "report", "job": str(ref)}
    return request if database is None else request | {"database": database}


def database_id(config: settings.Settings) -> str:
    """What tells two configured databases apart, without telling either's password."""
    where = config.database.url or f"directory:{Path(config.database.directory).resolve()}"
    return hashlib.blake2b(where.encode(), digest_size=16, person=b"probing-db-v1").hexdigest()


def binding(request: Mapping[str, Any]) -> str:
    """What a credential must be bound to, so that it cannot be used for another request."""
    plain = {k: v for k, v in request.items() if k != "credential"}
    text = json.dumps(plain, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.blake2b(text.encode(), digest_size=16, person=b"probing-door-v1").hexdigest()


def error_word(error: errors.ProbingError) -> str:
    """The word by which an error crosses the socket."""
    return next((word for word, cls in _ERRORS.items() if isinstance(error, cls)), "internal")


def ask(
    path: Path, ref: job_ref.JobRef, database: str | None = None, deadline_s: float = _DEADLINE_S
) -> Mapping[str, Any]:
    """The job's rows as the service sees fit to show us; raises what the service says."""
    reply = _exchange(path, json.dumps(request_for(ref, database)).encode() + b"\n", deadline_s)
    if reply.get("ok"):
        rows: Mapping[str, Any] = reply["rows"]
        return rows
    if reply.get("error") == OTHER_DATABASE:
        raise OtherDatabase(str(path))
    raise _ERRORS.get(str(reply.get("error")), errors.ProbingError)(str(reply.get("message") or ""))


def _exchange(path: Path, line: bytes, deadline_s: float) -> Mapping[str, Any]:
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
            sock.settimeout(deadline_s)
            sock.connect(str(path))
            sock.sendall(line)
            sock.shutdown(socket.SHUT_WR)
            raw = _read_all(sock)
        reply = json.loads(raw)
    except (OSError, ValueError) as exc:
        msg = f"the service does not answer on {path} ({exc}); is probing-ctl serve running?"
        raise errors.DatabaseUnavailable(msg) from exc
    if not isinstance(reply, dict):
        msg = f"{path} does not speak our language"
        raise errors.DatabaseUnavailable(msg)
    return reply


def _read_all(sock: socket.socket) -> bytes:
    parts: list[bytes] = []
    size = 0
    while chunk := sock.recv(1 << 16):
        size += len(chunk)
        if size > MAX_REPLY_BYTES:
            msg = f"reply of more than {MAX_REPLY_BYTES} bytes"
            raise ValueError(msg)
        parts.append(chunk)
    return b"".join(parts)
