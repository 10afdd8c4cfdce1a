"""The service's doors for users' `probing-report`: a Unix socket, and TLS on a port where the settings say so.

One JSON line each way, then close. Who asks is `callers`' business. Both doors are bounded: so many at
once, so many of one uid or address, so long for a request.
"""

from __future__ import annotations

import contextlib
import json
import logging
import socket
import socketserver
import ssl
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from probing_cluster.control_plane import context
from probing_cluster.control_plane.door import callers, kept_socket, places, web_keys
from probing_cluster.control_plane.gangs import gang_board, questions
from probing_cluster.control_plane.owners import handover, waiting
from probing_cluster.core import errors, network_address, peer, secret_file, settings
from probing_cluster.db import engines
from probing_cluster.reports import job_ref, query
from probing_cluster.reports.asking import door
from probing_cluster.slurm_plugins import commands

LOG = logging.getLogger("probing.door")
REQUEST_S = 5.0
"""For the request line, however it comes in; for the TLS handshake as much again."""
_REPLY_S = 15.0
QUESTIONS_OF_ONE = 40
QUESTIONS = 240
"""About tables of running jobs, a minute."""


@dataclass(kw_only=True)
class CallersRequests:
    """What callers have had nodes do lately; times by the monotonic clock, in seconds."""

    tables: list[tuple[float, str]] = field(default_factory=list)
    """When and by whom running jobs were asked for tables in the last minute."""
    stacks: dict[int, float] = field(default_factory=dict)
    """Per job when its nodes were last asked for stacks."""


def answer(
    service: context.Context, known: callers.Callers, caller: callers.Caller, request: Mapping[str, Any]
) -> dict[str, Any]:
    """The reply to one request."""
    try:
        if not _meant_for(service, request):
            return {"v": door.VERSION, "ok": False, "error": door.OTHER_DATABASE, "message": ""}
        return {"v": door.VERSION, "ok": True, **_answered(service, known, caller, request)}
    except errors.ProbingError as exc:
        return _refusal(exc)


def _refusal(exc: errors.ProbingError) -> dict[str, Any]:
    message = str(exc.args[0]) if exc.args else ""
    return {"v": door.VERSION, "ok": False, "error": door.error_word(exc), "message": message}


def _meant_for(service: context.Context, request: Mapping[str, Any]) -> bool:
    config = service.config
    return request.get("database") in (None, door.database_id(config)) and request.get("cluster") in (
        None,
        config.cluster.name,
    )


def _answered(
    service: context.Context, known: callers.Callers, caller: callers.Caller, request: Mapping[str, Any]
) -> dict[str, Any]:
    op = request.get("op")
    if request.get("v") == door.VERSION and op == door.ALIVE:
        return {"rows": {}}
    if request.get("v") == door.VERSION and op == "mail":
        return _handed_over(service, caller, request)
    if request.get("v") == door.VERSION and op in door.WEB_OPS:
        return {"rows": web_keys.answer(service, known, caller, request)}
    if request.get("v") != door.VERSION or op not in ("report", *gang_board.DOCUMENTS, *questions.OPS):
        raise errors.UsageError(f"unknown request {str(op)[:40]!r}")
    ref = job_ref.parse(str(request.get("job", "")))
    if op in questions.OPS:
        return {"rows": _question(service, known, caller, ref, request)}
    if op in gang_board.DOCUMENTS:
        return {"rows": _gang(service, known, caller, ref, op=op, fresh=request.get("fresh") is True)}
    try:
        rows = _rows(service, ref)
    except errors.NotFound:
        try:
            queued = _queued(service, known, caller, ref)
        except commands.SlurmAway as exc:
            _require_started(service, known, caller, ref)
            raise waiting.unknown_job(service, ref) from exc
        if queued is None or not queued.waits:
            _require_started(service, known, caller, ref)
        if queued is not None:
            raise errors.NotFound(queued.words) from None
        waiting.require_read(service, ref)
        raise
    if not known.may_read(caller, rows["attempts"]):
        raise errors.NotPermitted(f"job {ref} is another user's")
    return {"rows": waiting.beside(service, rows)}


def _rows(service: context.Context, ref: job_ref.JobRef) -> Mapping[str, Any]:
    with _database(service) as connection:
        return query.fetch(connection, service.config.cluster.name, ref)


@contextlib.contextmanager
def _database(service: context.Context) -> Iterator[query.Connection]:
    with engines.translated(), service.store.engine.connect() as connection:
        raw = connection.connection.driver_connection
        assert raw is not None
        raw.execute("set local timezone = 'UTC'")
        yield raw


def _queued(
    service: context.Context, known: callers.Callers, caller: callers.Caller, ref: job_ref.JobRef
) -> waiting.QueuedJob | None:
    """What the controller has of a job that the caller may read; None for others. Raises SlurmAway where Slurm does not say."""
    found = waiting.of(service, ref)
    if found is None or not known.may_read(caller, [{"user": found.user, "account": found.account}]):
        return None
    return found


def _require_started(
    service: context.Context, known: callers.Callers, caller: callers.Caller, ref: job_ref.JobRef
) -> None:
    """Raises NotFound with what became of a job of the caller's that ended before it began, or with the tasks that their array has instead."""
    cluster = service.config.cluster.name
    with _database(service) as connection:
        found = query.never_started(connection, cluster, ref) or query.no_such_task(connection, cluster, ref)
    if found is not None and known.may_read(caller, [{"user": found.user, "account": found.account}]):
        raise errors.NotFound(found.words)


def _handed_over(
    service: context.Context, caller: callers.Caller, request: Mapping[str, Any]
) -> dict[str, Any]:
    """A mail of Slurm's MailProg, kept; refused, it is the site's own program that sends it."""
    if not callers.is_slurm(caller, service.config.slurm):
        msg = f"only Slurm may hand over mail ([slurm] user = {service.config.slurm.user!r})"
        raise errors.NotPermitted(msg)
    if not service.config.mail.host:
        raise errors.UsageError("there is no [mail] host")
    now = service.clock.now()
    owed = handover.read(request, service.config.cluster.name, now)
    return {"kept": owed.key} if handover.put(service.config, owed) else {}


def _gang(
    service: context.Context,
    known: callers.Callers,
    caller: callers.Caller,
    ref: job_ref.JobRef,
    *,
    op: str,
    fresh: bool,
) -> dict[str, Any]:
    now = service.clock.now()
    gang = gang_board.find(service.store, service.config.cluster.name, ref, now)
    if not known.may_read(caller, gang.owners):
        raise errors.NotPermitted(f"job {ref} is another user's")
    if fresh:
        _ask_nodes(service, gang)
    return gang_board.DOCUMENTS[op](service.store, gang, now)


def _question(
    service: context.Context,
    known: callers.Callers,
    caller: callers.Caller,
    ref: job_ref.JobRef,
    request: Mapping[str, Any],
) -> Mapping[str, Any]:
    """Tables of a running job, by its nodes' agents: for its owner and operators. A coordinator reads no process's environment."""
    given = request.get("given")
    given = given if isinstance(given, dict) else {}
    by = f"uid {caller.uid}"
    if request["op"] == "answers":
        return questions.take(service.store, given, by)
    gang = gang_board.find(service.store, service.config.cluster.name, ref, service.clock.now())
    if not (known.reads_all(caller) or (caller.name and {o["user"] for o in gang.owners} == {caller.name})):
        raise errors.NotPermitted(f"job {ref} is another user's: its tables are for its owner and operators")
    if request["op"] == "job_nodes":
        return questions.nodes(service.store, gang)
    _require_share(service, by)
    return questions.post(service.store, gang, given, by)


def _require_share(service: context.Context, by: str) -> None:
    """Raises NotPermitted for an asker (or all of them together) that asks too often: each question is a row and an answer a node."""
    requests, now_s = service.memory(CallersRequests), service.clock.monotonic_s()
    requests.tables = [(s, asker) for s, asker in requests.tables if now_s - s < 60.0]
    mine = sum(asker == by for _, asker in requests.tables)
    if mine >= QUESTIONS_OF_ONE or len(requests.tables) >= QUESTIONS:
        msg = f"too many questions in a minute (of one asker at most {QUESTIONS_OF_ONE}): wait a little, or ask as the job's owner by a step"
        raise errors.NotPermitted(msg)
    requests.tables.append((now_s, by))


def _ask_nodes(service: context.Context, gang: gang_board.BoardGang) -> None:
    """Has the job's nodes take stacks, unless they have just been asked: any user may come again and again."""
    requests, now_s = service.memory(CallersRequests), service.clock.monotonic_s()
    requests.stacks = {j: s for j, s in requests.stacks.items() if now_s - s < gang_board.ASK_TTL_S}
    if gang.job_id not in requests.stacks:
        requests.stacks[gang.job_id] = now_s
        gang_board.ask(service.store, gang)


class _Handler(socketserver.BaseRequestHandler):
    server: _Server

    def handle(self) -> None:
        request = _request(self.request)
        if request is None:
            return
        self.server.request_read()
        try:
            caller = self.server.known.identify(self.request, request)
        except errors.NotPermitted as exc:
            LOG.info("a caller was refused", extra={"fields": {"why": str(exc)}})
            reply = _refusal(exc) | {"message": str(exc)}  # whose fault: the credential's, or munged's
        else:
            reply = answer(self.server.service, self.server.known, caller, request)
            if "kept" in reply and peer.has_gone(self.request):
                handover.take_back(self.server.service.config, reply["kept"], self.server.service.clock.now())
                return
        self.request.settimeout(_REPLY_S)
        self.request.sendall(json.dumps(reply).encode() + b"\n")


def _request(connection: socket.socket) -> dict[str, Any] | None:
    """The one line a caller sends; None for what is no request. A caller cannot stretch it: the deadline is for all."""
    end_s = time.monotonic() + REQUEST_S
    line = b""
    while b"\n" not in line and len(line) <= door.MAX_REQUEST_BYTES:
        connection.settimeout(max(0.001, end_s - time.monotonic()))
        piece = connection.recv(door.MAX_REQUEST_BYTES + 1)
        if not piece:
            break
        line += piece
    if not line or len(line) > door.MAX_REQUEST_BYTES:  # nothing: somebody only looked whether we listen
        return None
    request = json.loads(line)
    return request if isinstance(request, dict) else None


class _Server(socketserver.ThreadingMixIn, socketserver.TCPServer):
    daemon_threads = True
    allow_reuse_address = True
    request_queue_size = 256
    """A mail program that finds the queue full gives up."""

    def __init__(self, service: context.Context, known: callers.Callers, at: Any) -> None:
        self.service, self.known = service, known
        self._places = places.DoorPlaces(callers.slurm_uids(service.config.slurm))
        self._taken: dict[int, places.DoorPlace] = {}
        self._mine = threading.local()
        super().__init__(at, _Handler)

    def source(self, request: socket.socket) -> object:
        """What one caller's share is counted by."""
        raise NotImplementedError

    def verify_request(self, request: Any, client_address: Any) -> bool:
        del client_address
        try:
            place = self._places.take(request, self.source(request))
        except OSError:  # gone already; raised here it would end the server
            return False
        if place is not None:
            self._taken[id(request)] = place  # a descriptor's number is reused before its thread has ended
        return place is not None

    def request_read(self) -> None:
        """The request of this thread's connection is here whole."""
        self._places.request_read(self._mine.place)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        place = self._mine.place = self._taken.pop(id(request))
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._places.leave(place)

    def handle_error(self, request: Any, client_address: Any) -> None:
        del request, client_address
        LOG.info("a request was dropped", exc_info=LOG.isEnabledFor(logging.DEBUG))


class _UnixServer(_Server):
    address_family = socket.AF_UNIX

    def source(self, request: socket.socket) -> object:
        return peer.uid_of(request)


class _TlsServer(_Server):
    def __init__(self, service: context.Context, known: callers.Callers, tls: ssl.SSLContext) -> None:
        self._tls = tls
        at = network_address.parse(service.config.service.listen, "[service] listen")
        self.address_family = socket.AF_INET6 if ":" in at[0] else socket.AF_INET
        super().__init__(service, known, at)

    def source(self, request: socket.socket) -> object:
        return request.getpeername()[0]

    def finish_request(self, request: Any, client_address: Any) -> None:
        # Here and not in get_request: the handshake is the caller's pace and must cost its own thread only.
        request.settimeout(REQUEST_S)
        with self._tls.wrap_socket(request, server_side=True) as wrapped:
            super().finish_request(wrapped, client_address)


@contextlib.contextmanager
def serving(service: context.Context) -> Iterator[None]:
    """The doors, open while the block runs; without one that cannot be opened (logged)."""
    known = callers.Callers(service)
    path = Path(service.config.service.socket)

    def unix() -> contextlib.AbstractContextManager[None]:
        return _served(_UnixServer(service, known, str(path)), "report-door")

    with kept_socket.kept(path, unix), _tls_door(service, known):
        yield


@contextlib.contextmanager
def _tls_door(service: context.Context, known: callers.Callers) -> Iterator[None]:
    if not service.config.service.listen:
        yield
        return
    try:
        server = _TlsServer(service, known, tls_context(service.config.service))
    except (OSError, errors.SettingsError) as exc:  # ssl.SSLError is an OSError
        fields = {"listen": service.config.service.listen, "why": str(exc)}
        LOG.warning("no report door on the network", extra={"fields": fields})
        yield
        return
    with _served(server, "report-door-tls"):
        yield


@contextlib.contextmanager
def _served(server: _Server, name: str) -> Iterator[None]:
    thread = threading.Thread(
        target=server.serve_forever, kwargs={"poll_interval": 0.2}, name=name, daemon=True
    )
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()


def tls_context(service: settings.ServiceSettings) -> ssl.SSLContext:
    """The server's side of TLS; raises SettingsError for a key that others can read, OSError for a bad pair."""
    secret_file.require_private(Path(service.tls_key))
    context_ = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context_.minimum_version = ssl.TLSVersion.TLSv1_2
    context_.load_cert_chain(service.tls_certificate, service.tls_key)
    return context_
