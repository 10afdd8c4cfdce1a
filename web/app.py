"""The application: pages and API behind the one gate."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import AsyncIterator

import anyio.to_thread
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from probing_cluster.control_plane import context
from probing_cluster.control_plane.door import callers, web_keys
from probing_cluster.web import problems, scoped_rows
from probing_cluster.web import site as web_site
from probing_cluster.web.access import gate, oidc
from probing_cluster.web.api import endpoints, openapi, register
from probing_cluster.web.live import broadcast
from probing_cluster.web.pages import render, routes

LOG = logging.getLogger("probing.web")
_WAY_OUT = {
    404: f"the address may be mistyped: {openapi.BASE}/openapi.json has every operation",
    405: f"this address takes other methods: {openapi.BASE}/openapi.json says which",
}
"""By status what helps a program that asked for what there is not."""
_THREADS = 24
"""Requests that wait for the database at once; the others wait for these."""


def make_site(service: context.Context, reader_url: str) -> web_site.Site:
    """What requests need, of a service and the URL of the web's own login."""
    return web_site.Site(
        service=service,
        known=callers.Callers(service),
        keys=web_keys.Keys(service.store.engine),
        reader=scoped_rows.Reader(reader_url),
    )


def make(site: web_site.Site) -> gate.App:
    """The ASGI application."""

    @contextlib.asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        anyio.to_thread.current_default_thread_limiter().total_tokens = _THREADS
        yield
        site.reader.close()

    inner = Starlette(
        routes=[*endpoints.routes(register.OPERATIONS), *oidc.routes(site), *routes.routes()],
        lifespan=lifespan,
        exception_handlers={HTTPException: _http_error, Exception: _broken},
    )
    inner.router.redirect_slashes = False
    inner.state.broadcast = broadcast.Broadcast(site)
    return gate.Gate(inner, site, lambda scope, exc: routes.problem(Request(scope), exc))


async def _http_error(request: Request, exc: Exception) -> Response:
    assert isinstance(exc, HTTPException)
    if "/api/" in request.scope["path"] or "text/html" not in request.headers.get("accept", ""):
        made = problems.response(exc.status_code, exc.detail, _WAY_OUT.get(exc.status_code, ""))
    else:
        problem = problems.document(exc.status_code, exc.detail, "The address may be mistyped.")
        made = render.html(
            request, "problem.html.j2", status=exc.status_code, problem=problem, title=exc.detail
        )
    for name, value in (exc.headers or {}).items():
        made.headers[name] = value
    return made


async def _broken(request: Request, exc: Exception) -> Response:
    """An error of ours: logged whole, answered without its details."""
    LOG.error("a request broke", exc_info=exc, extra={"fields": {"path": request.scope["path"][:200]}})
    return problems.response(500, "the server broke on this request", "its log says where")
