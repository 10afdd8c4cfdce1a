"""Asking the service for a report: one JSON line each way, then close.

Over its Unix socket the service knows the caller by the socket's peer credentials. Over TLS the
request carries a MUNGE credential bound to `binding(request)` in `credential`. Either way it
answers for the job's owner, coordinators of its account and operators; see control_plane/door/callers.py.
"""

from __future__ import annotations

import hashlib
import json
import socket
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from probing_cluster.core import errors, network_address, settings
from probing_cluster.reports import job_ref

VERSION = 1
MAX_REQUEST_BYTES = 4096
MAX_REPLY_BYTES = 64 * 2**20
_DEADLINE_S = 15.0
ALIVE, ALIVE_S = "alive", 2.0
"""The question that waits for nothing, and how long its answer may take."""
_ERRORS: dict[str, type[errors.ProbingError]] = {
    "not_found": errors.NotFound,
    "not_permitted": errors.NotPermitted,
    "database_unavailable": errors.DatabaseUnavailable,
    "usage": errors.UsageError,
}
WEB_OPS = ("web_login", "web_token", "web_tokens", "web_revoke")
"""Operations on the caller's own keys to the web; see control_plane/door/web_keys.py."""
OTHER_DATABASE = "other_database"
"""The service's reply if the caller's settings name another database; the caller reads that one itself."""


class OtherDatabase(errors.DatabaseUnavailable):
    """The service answers for another database."""


class NotInTime(errors.DatabaseUnavailable):
    """The service listens, and has not answered in time."""


def request_for(
    ref: job_ref.JobRef,
    database: str | None = None,
    cluster: str | None = None,
    *,
    op: str = "report",
    fresh: bool = False,
    given: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """The request about one job. If `database` or `cluster` is given, only a service of that database and cluster answers it.

    `op`: report, ranks or stacks. `fresh`: the job's nodes take new stacks first. `given`: the question about the job's
    tables (control_plane.gangs.questions).
    """
    meant_for = {"database": database, "cluster": cluster, "fresh": fresh or None, "given": given}
    return {"v": VERSION, "op": op, "job": str(ref)} | {k: v for k, v in meant_for.items() if v is not None}


def database_id(config: settings.Settings) -> str:
    """A digest that distinguishes configured databases and does not show their passwords."""
    where = config.database.url or f"directory:{Path(config.database.directory).resolve()}"
    return hashlib.blake2b(where.encode(), digest_size=16, person=b"probing-db-v1").hexdigest()


def binding(request: Mapping[str, Any]) -> str:
    """The digest that a credential must carry, so that it cannot be used for another request."""
    plain = {k: v for k, v in request.items() if k != "credential"}
    text = json.dumps(plain, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.blake2b(text.encode(), digest_size=16, person=b"probing-door-v1").hexdigest()


def error_word(error: errors.ProbingError) -> str:
    """The word that stands for an error in a reply."""
    return next((word for word, cls in _ERRORS.items() if isinstance(error, cls)), "internal")


def ask(
    path: Path,
    ref: job_ref.JobRef,
    database: str | None = None,
    deadline_s: float = _DEADLINE_S,
    *,
    op: str = "report",
    fresh: bool = False,
    given: Mapping[str, Any] | None = None,
) -> Mapping[str, Any]:
    """The job's rows, ranks or stacks from the service; raises the service's error."""
    return _over_unix(path, request_for(ref, database, op=op, fresh=fresh, given=given), deadline_s)


def _over_unix(path: Path, request: Mapping[str, Any], deadline_s: float) -> Mapping[str, Any]:
    def connect() -> socket.socket:
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        sock.settimeout(deadline_s)
        try:
            sock.connect(str(path))
        except BaseException:
            sock.close()
            raise
        return sock

    return _rows(_exchange(connect, request, str(path)), str(path))


def serves(config: settings.Settings) -> bool | None:
    """Whether the service answers on its socket here, whatever the database and Slurm do; None where there is none, or another database's."""
    path = Path(config.service.socket)
    request = {"v": VERSION, "op": ALIVE, "database": database_id(config), "cluster": config.cluster.name}
    try:
        if not path.is_socket():
            return None
        _over_unix(path, request, ALIVE_S)
    except OtherDatabase:
        return None
    except errors.DatabaseUnavailable as exc:
        # One that is asked by too many at once closes without a word; one whose directory is closed to us is not known.
        return False if isinstance(exc.__cause__, TimeoutError | ConnectionRefusedError) else None
    except (errors.ProbingError, OSError) as exc:
        # A service of an older version refuses the question that it does not know.
        return True if isinstance(exc, errors.UsageError) else None
    return True


def web(config: settings.Settings, op: str, **given: Any) -> Mapping[str, Any]:
    """The service's reply to one of WEB_OPS: over its socket on its own host, over TLS from elsewhere."""
    request = {"v": VERSION, "op": op, "cluster": config.cluster.name} | given
    path = Path(config.service.socket)
    if path.exists():
        return _over_unix(path, request, _DEADLINE_S)
    if config.service.address:
        return _over_tls(config, request, _DEADLINE_S)
    msg = f"there is no service on {path}, and [service] address names none; is probing-ctl serve running?"
    raise errors.DatabaseUnavailable(msg)


def ask_over_tls(
    config: settings.Settings,
    ref: job_ref.JobRef,
    database: str | None = None,
    deadline_s: float = _DEADLINE_S,
    *,
    op: str = "report",
    fresh: bool = False,
    given: Mapping[str, Any] | None = None,
) -> Mapping[str, Any]:
    """The same from [service] address: the service shows its certificate, we a MUNGE credential."""
    request = request_for(ref, database, config.cluster.name, op=op, fresh=fresh, given=given)
    return _over_tls(config, request, deadline_s)


def _over_tls(config: settings.Settings, request: dict[str, Any], deadline_s: float) -> Mapping[str, Any]:
    import ssl  # a third of the command's start-up; only needed here

    from probing_cluster.reports.asking import munge

    service = config.service
    host, port = network_address.parse(service.address, "[service] address")
    request["credential"] = munge.encode(binding(request).encode(), service.munge_socket)

    def connect() -> socket.socket:
        tls = ssl.create_default_context(cafile=service.tls_ca or None)
        tls.minimum_version = ssl.TLSVersion.TLSv1_2
        sock = socket.create_connection((host, port), timeout=deadline_s)
        try:
            return tls.wrap_socket(sock, server_hostname=host)
        except BaseException:
            sock.close()
            raise

    return _rows(_exchange(connect, request, service.address), service.address)


def _rows(reply: Mapping[str, Any], where: str) -> Mapping[str, Any]:
    if reply.get("ok"):
        rows: Mapping[str, Any] = reply["rows"]
        return rows
    if reply.get("error") == OTHER_DATABASE:
        raise OtherDatabase(f"the service on {where} answers for another database")
    raise _ERRORS.get(str(reply.get("error")), errors.ProbingError)(str(reply.get("message") or ""))


def _exchange(
    connect: Callable[[], socket.socket], request: Mapping[str, Any], where: str
) -> Mapping[str, Any]:
    listens = False
    try:
        with connect() as sock:
            listens = True
            # The request is a line, so the stream stays open: closing one side of TLS would close both.
            sock.sendall(json.dumps(request).encode() + b"\n")
            raw = _read_all(sock)
        reply = json.loads(raw)
    except (OSError, ValueError) as exc:
        if listens and isinstance(exc, TimeoutError):
            msg = f"the service has not answered on {where} in time: it may wait for Slurm or the database; ask again."
            raise NotInTime(msg) from exc
        msg = f"the service does not answer on {where} ({exc}); is probing-ctl serve running?"
        raise errors.DatabaseUnavailable(msg) from exc
    if not isinstance(reply, dict):
        raise errors.DatabaseUnavailable(f"{where} is not our service: its reply is no JSON object")
    return reply


def _read_all(sock: socket.socket) -> bytes:
    parts: list[bytes] = []
    size = 0
    while chunk := sock.recv(1 << 16):
        size += len(chunk)
        if size > MAX_REPLY_BYTES:
            raise ValueError(f"reply of more than {MAX_REPLY_BYTES} bytes")
        parts.append(chunk)
    return b"".join(parts)
