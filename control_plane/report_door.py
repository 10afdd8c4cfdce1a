"""The service's Unix socket: a user's `probing-report` asks here, and is known by peer credentials.

Answers for the job's owner, for root and our own account, and for the operators of the
settings. The seam for MUNGE is `identify`: a request that came over TLS carries `credential`,
a MUNGE token whose payload must equal `door.binding(request)` and which is accepted once.
"""

from __future__ import annotations

import contextlib
import grp
import json
import logging
import os
import pwd
import socket
import socketserver
import struct
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from probing_cluster.control_plane import context
from probing_cluster.core import errors, records, settings
from probing_cluster.db import engines
from probing_cluster.reports import door, job_ref, query

LOG = logging.getLogger("probing.door")
_REQUEST_S = 5.0


@records.record
class Caller:
    """Who asks."""

    uid: int = records.doc("user id, as the kernel or MUNGE vouches for it")
    name: str = records.doc("user name, empty when the uid has none")
    groups: frozenset[str] = records.doc("names of the groups it is in", default=frozenset())


def identify(connection: socket.socket, request: Mapping[str, Any]) -> Caller:
    """The caller behind a connection, by the kernel's word; raises NotPermitted."""
    if request.get("credential") is not None:
        msg = "this socket knows callers by their uid and takes no credential"
        raise errors.NotPermitted(msg)
    raw = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    _, uid, _ = struct.unpack("3i", raw)
    return caller_of(uid)


def caller_of(uid: int) -> Caller:
    """The account with this uid."""
    try:
        account = pwd.getpwuid(uid)
    except KeyError:
        return Caller(uid=uid, name="")
    ids = os.getgrouplist(account.pw_name, account.pw_gid)
    return Caller(uid=uid, name=account.pw_name, groups=frozenset(_group_names(ids)))


def _group_names(ids: list[int]) -> Iterator[str]:
    for gid in ids:
        with contextlib.suppress(KeyError):
            yield grp.getgrgid(gid).gr_name


def may_read(caller: Caller, owners: frozenset[str], service: settings.ServiceSettings) -> bool:
    """Whether `caller` may see a job of `owners`."""
    if caller.uid in {0, os.geteuid()}:
        return True
    if not caller.name:
        return False
    operator = caller.name in service.operators or service.operator_group in caller.groups - {""}
    return operator or owners == frozenset({caller.name})


def answer(service: context.Context, caller: Caller, request: Mapping[str, Any]) -> dict[str, Any]:
    """The reply to one request."""
    try:
        if request.get("database") not in (None, door.database_id(service.config)):
            return {"v": door.VERSION, "ok": False, "error": door.OTHER_DATABASE, "message": ""}
        return {"v": door.VERSION, "ok": True, **_answered(service, caller, request)}
    except errors.ProbingError as exc:
        message = str(exc.args[0]) if exc.args else ""
        return {"v": door.VERSION, "ok": False, "error": door.error_word(exc), "message": message}


def _answered(service: context.Context, caller: Caller, request: Mapping[str, Any]) -> dict[str, Any]:
    if request.get("v") != door.VERSION or request.get("op") != "report":
        msg = f"unknown request {str(request.get('op'))[:40]!r}"
        raise errors.UsageError(msg)
    ref = job_ref.parse(str(request.get("job", "")))
    with engines.translated(), service.store.engine.connect() as connection:
        raw = connection.connection.driver_connection
        assert raw is not None
        raw.execute("set local timezone = 'UTC'")
        rows = query.fetch(raw, service.config.cluster.name, ref)
    owners = frozenset(str(a["user"]) for a in rows["attempts"])
    if not may_read(caller, owners, service.config.service):
        msg = f"job {ref} is another user's"
        raise errors.NotPermitted(msg)
    return {"rows": rows}


class _Handler(socketserver.StreamRequestHandler):
    timeout = _REQUEST_S
    server: _Server

    def handle(self) -> None:
        try:
            line = self.rfile.readline(door.MAX_REQUEST_BYTES + 1)
            request = json.loads(line) if len(line) <= door.MAX_REQUEST_BYTES else None
            if not isinstance(request, dict):
                return
            caller = identify(self.connection, request)
            reply = answer(self.server.service, caller, request)
            self.wfile.write(json.dumps(reply).encode() + b"\n")
        except (OSError, ValueError, errors.NotPermitted) as exc:
            LOG.info("a request was dropped", extra={"fields": {"why": str(exc)}})


class _Server(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    daemon_threads = True
    request_queue_size = 64

    def __init__(self, path: str, service: context.Context) -> None:
        self.service = service
        super().__init__(path, _Handler)


@contextlib.contextmanager
def serving(service: context.Context) -> Iterator[None]:
    """The door, open while the block runs; without it when the socket cannot be made (logged)."""
    path = Path(service.config.service.socket)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        server = _Server(str(path), service)
        path.chmod(0o666)  # everybody may knock; who may read is decided per request
    except OSError as exc:
        LOG.warning("no report socket", extra={"fields": {"path": str(path), "why": str(exc)}})
        yield
        return
    thread = threading.Thread(
        target=server.serve_forever, kwargs={"poll_interval": 0.2}, name="report-door", daemon=True
    )
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
        path.unlink(missing_ok=True)
