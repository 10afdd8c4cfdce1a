"""Translates HTTP to a handler's call and back: parameters, ETags, idempotency, problem documents."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Coroutine, Iterable
from typing import Any

import msgspec
import sqlalchemy as sa
from sqlalchemy.dialects import postgresql as pg
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from probing_cluster.control_plane.door import web_keys
from probing_cluster.core import errors
from probing_cluster.db import engines, plain, tables
from probing_cluster.web import problems
from probing_cluster.web import site as web_site
from probing_cluster.web.api import openapi, operation

_KEY = re.compile(r"[A-Za-z0-9_-]{8,128}")
_KEPT = "interval '1 day'"

Handler = Callable[[Request], Coroutine[Any, Any, Response]]


def routes(operations: Iterable[operation.Operation]) -> list[Route]:
    """A route for every operation, and the document of all of them."""
    known = list(operations)
    by_path: dict[str, dict[str, operation.Operation]] = {}
    for op in known:
        by_path.setdefault(op.path, {})[op.method] = op
    made = [
        Route(f"{openapi.BASE}{path}", _endpoint(ops), methods=list(ops)) for path, ops in by_path.items()
    ]
    body = msgspec.json.encode(openapi.document(known))

    async def described(request: Request) -> Response:
        return with_etag(request, body, "application/json")

    return [*made, Route(f"{openapi.BASE}/openapi.json", described)]


def _endpoint(ops: dict[str, operation.Operation]) -> Handler:
    async def endpoint(request: Request) -> Response:
        op = ops["GET" if request.method == "HEAD" else request.method]
        # Unread where it means nothing: the gate bounds the bodies of what changes something, and no other.
        body = await request.body() if op.body is not None else b""
        return await run_in_threadpool(_answer, request, op, body)

    return endpoint


def _answer(request: Request, op: operation.Operation, body: bytes) -> Response:
    try:
        ask = read(request, op, body)
        if op.acts:
            return _once(request, op, ask, body)
        found = op.handle(ask)
    except errors.ProbingError as exc:
        return problems.of(exc)
    if isinstance(found, operation.Raw):
        return with_etag(request, found.body, found.media_type, dict(found.headers))
    encoded = msgspec.json.encode(found, enc_hook=_encode)
    return with_etag(request, encoded, "application/json")


def read(request: Request, op: operation.Operation, body: bytes) -> operation.Ask:
    """The request as the handler gets it; raises UsageError and NotPermitted."""
    viewer: web_keys.Viewer = request.state.viewer
    require(op, viewer)
    if len(request.query_params.multi_items()) != len(request.query_params):
        raise errors.UsageError("a parameter is given twice")
    try:
        query = msgspec.convert(dict(request.query_params), op.query, strict=False)
        given = None if op.body is None else msgspec.json.decode(body or b"{}", type=op.body)
    except (msgspec.ValidationError, msgspec.DecodeError, UnicodeDecodeError) as exc:
        raise errors.UsageError(operation.refusal(exc)) from exc
    site: web_site.Site = request.state.site
    return operation.Ask(site=site, viewer=viewer, path=request.path_params, query=query, body=given)


def require(op: operation.Operation, viewer: web_keys.Viewer) -> None:
    """Raises NotPermitted unless the viewer may ask for this at all."""
    if op.operators and not viewer.operator:
        raise errors.NotPermitted("this is for operators; your own jobs are under /jobs")
    if op.acts and not viewer.acts and viewer.kind == "token":
        raise errors.NotPermitted(
            "this token may not act: make one with probing-ctl web token --act, which [web] actors may"
        )
    if op.acts and not viewer.acts:
        raise errors.NotPermitted(f"{viewer.user} may not act over the web; [web] actors says who may")


def with_etag(
    request: Request, body: bytes, media_type: str, headers: dict[str, str] | None = None
) -> Response:
    """The answer with a tag of its content; nothing but the tag where the asker has it already."""
    tag = f'"{hashlib.blake2b(body, digest_size=16).hexdigest()}"'
    named = {"etag": tag} | (headers or {})
    if_none_match = request.headers.get("if-none-match", "")
    if request.method in ("GET", "HEAD") and tag in [
        t.strip().removeprefix("W/") for t in if_none_match.split(",")
    ]:
        return Response(status_code=304, headers=named)
    return Response(body, media_type=media_type, headers=named)


def _once(request: Request, op: operation.Operation, ask: operation.Ask, body: bytes) -> Response:
    key = require_key(request.headers.get("idempotency-key", ""))
    what = hashlib.sha256(b"\0".join((op.name.encode(), request.url.path.encode(), body))).hexdigest()
    status, answer = once(ask, key, what, lambda: op.handle(ask))
    media_type = "application/json" if status == 200 else problems.MEDIA_TYPE
    return Response(json.dumps(answer), status, media_type=media_type)


def require_key(key: str) -> str:
    """The key by which an action is done once; raises UsageError for none, or one that is no key."""
    if not _KEY.fullmatch(key):
        raise errors.UsageError(
            "an action needs a header Idempotency-Key of 8 to 128 letters, digits, _ and -"
        )
    return key


def became_of(ask: operation.Ask, key: str) -> str:
    """What became of the viewer's own action of that key, in words; empty for none."""
    r = tables.web_request
    query = sa.select(r.c.status, r.c.answer).where(
        r.c.user_name == ask.viewer.user, r.c.idempotency_key == key, r.c.status.is_not(None)
    )
    with engines.translated(), ask.site.service.store.engine.connect() as connection:
        row = connection.execute(query).first() if _KEY.fullmatch(key) else None
    if row is None:
        return ""
    answer = row.answer
    words = answer["outcome"] if row.status == 200 else f"not done: {answer.get('detail') or answer['title']}"
    return str(words)[:300]


def once(ask: operation.Ask, key: str, what: str, act: Callable[[], Any]) -> tuple[int, Any]:
    """Status and answer of an action, done now or given before under the same key; an error is an answer too."""
    engine = ask.site.service.store.engine
    row = _begin(engine, ask.viewer.user, key, what)
    if row is not None:
        return row
    status, answer = 500, plain.plain(msgspec.to_builtins(problems.document(500, "it broke off")))
    try:
        status, answer = 200, plain.plain(msgspec.to_builtins(act()))
    except errors.ProbingError as exc:
        code, title = problems.status_of(exc)
        status, answer = code, plain.plain(msgspec.to_builtins(problems.document(code, title, str(exc))))
    finally:
        r = tables.web_request
        mine = (r.c.user_name == ask.viewer.user) & (r.c.idempotency_key == key)
        with engines.translated(), engine.begin() as connection:
            connection.execute(sa.update(r).where(mine).values(status=status, answer=answer))
    return status, answer


def _begin(engine: sa.Engine, user: str, key: str, what: str) -> tuple[int, Any] | None:
    """None where this request is the first of its key; else what is answered instead of acting."""
    r = tables.web_request
    row = {"user_name": user, "idempotency_key": key, "request_hash": what}
    with engines.translated(), engine.begin() as connection:
        connection.execute(sa.delete(r).where(r.c.made_at < sa.func.now() - sa.text(_KEPT)))
        query = pg.insert(r).values(row).on_conflict_do_nothing().returning(r.c.user_name)
        if connection.execute(query).first() is not None:
            return None
        found = connection.execute(
            sa.select(r).where(r.c.user_name == user, r.c.idempotency_key == key)
        ).one()
    if found.request_hash != what:
        words = "take a new key for a new request"
        return 422, msgspec.to_builtins(problems.document(422, "the idempotency key was used before", words))
    if found.status is None:
        words = "ask again in a while"
        return 409, msgspec.to_builtins(problems.document(409, "the same request is being done", words))
    return found.status, found.answer


def _encode(value: Any) -> Any:
    """What Postgres gives and JSON has not."""
    return str(value)
