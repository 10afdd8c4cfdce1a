"""Addresses of the pages, the login, the static files and the live stream."""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine
from typing import Any

import msgspec
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from probing_cluster.control_plane.door import web_keys
from probing_cluster.core import errors
from probing_cluster.web import forms, problems
from probing_cluster.web import site as web_site
from probing_cluster.web.access import cross_site, gate, sessions, viewers
from probing_cluster.web.live import broadcast, now
from probing_cluster.web.pages import render, views

LOG = logging.getLogger("probing.web")
Handler = Callable[[Request], Coroutine[Any, Any, Response]]
_TYPES = {"js": "text/javascript; charset=utf-8", "css": "text/css; charset=utf-8", "svg": "image/svg+xml"}


def routes() -> list[Route]:
    """All of them."""
    pages: list[tuple[str, Callable[[Request], Response], bool]] = [
        ("/", views.now_page, False), ("/jobs", views.jobs_page, False), ("/jobs/{job}", views.job_page, False),
        ("/jobs/{job}/tables", views.tables_page, False),
        ("/nodes", views.nodes_page, True), ("/nodes/{node}", views.node_page, True), ("/repairs", views.repairs_page, True), ("/fleet", views.fleet, True),
        ("/lemons", views.lemons, True), ("/search", views.search, False),
    ]  # fmt: skip
    return [
        *(Route(path, _shown(view, operators=operators)) for path, view, operators in pages),
        Route("/sql", _form(views.sql), methods=["GET", "POST"]),
        Route("/act/{act}/{subject}", _form(_acted), methods=["POST"]),
        Route("/live", live),
        Route("/api/v1/stream", live),
        Route("/login", login, methods=["GET", "POST"]),
        Route("/logout", logout, methods=["POST"]),
        Route("/static/{name}", static),
    ]


def _shown(view: Callable[[Request], Response], *, operators: bool) -> Handler:
    async def shown(request: Request) -> Response:
        def made() -> Response:
            try:
                if operators and not request.state.viewer.operator:
                    raise errors.NotPermitted("this page is for operators; your own jobs are under Jobs")
                return view(request)
            except errors.ProbingError as exc:
                return problem(request, exc)

        return await run_in_threadpool(made)

    return shown


def _form(view: Callable[[Request, Any], Response]) -> Handler:
    async def shown(request: Request) -> Response:
        form = await forms.read(request) if request.method == "POST" else None

        def made() -> Response:
            try:
                return view(request, form)
            except errors.ProbingError as exc:
                return problem(request, exc)

        return await run_in_threadpool(made)

    return shown


def _acted(request: Request, form: Any) -> Response:
    return views.act(request, form)


def problem(request: Request, exc: errors.ProbingError) -> Response:
    """An error as a page."""
    status, title = problems.status_of(exc)
    if status == 503:
        problems.log_unanswered(exc)
    document = problems.document(status, title, str(exc))
    away = isinstance(exc, errors.DatabaseUnavailable)
    return render.html(
        request, "problem.html.j2", status=status, problem=document, title=title, database_away=away
    )


async def static(request: Request) -> Response:
    """A file of ours, known by its version for as long as a browser likes."""
    name = request.path_params["name"]
    if name not in render.STATIC:
        return problems.response(404, "there is no such thing")
    kept = {"cache-control": "public, max-age=31536000, immutable"}
    kind = _TYPES[name.rpartition(".")[2]]
    return Response(render.STATIC[name].read_bytes(), media_type=kind, headers=kept)


async def login(request: Request) -> Response:
    """The door: looking at it consumes nothing, its button spends the link."""
    if request.method != "POST":
        target = cross_site.own_path(request.query_params.get("next", "/"))
        return await run_in_threadpool(_looked_at, request, target)
    form = await forms.read(request)
    target = cross_site.own_path(str(form.get("next", "/")))
    return await run_in_threadpool(_redeemed, request, str(form.get("key", "")), target)


def _looked_at(request: Request, target: str) -> Response:
    made, proof = _door(request, target, "", 200), request.headers.get(gate.LINK_HEADER)
    if proof:
        try:
            known = request.state.site.keys.has_link(proof)
        except errors.ProbingError as exc:
            return problem(request, exc)
        made.headers[gate.LINK_HEADER] = "known" if known else "unknown"
    return made


def _door(request: Request, target: str, why: str, status: int) -> Response:
    oidc = request.state.site.service.config.web.oidc_issuer
    return render.html(
        request, "login.html.j2", status=status, next=target, why=why, title="Log in", oidc=oidc
    )


def _redeemed(request: Request, key: str, target: str) -> Response:
    site = request.state.site
    try:
        viewer = site.keys.redeem(key.strip())
        if viewer is None:
            why = "This link was used before, or is older than two minutes. Print a new one."
            return _door(request, target, why, 403)
        key = site.keys.issue(viewer, "session", site.service.config.web.session_s)
    except errors.ProbingError as exc:
        return problem(request, exc)
    LOG.info("logged in", extra={"fields": {"user": viewer.user}})
    return sessions.let_in(request, key, target)


async def logout(request: Request) -> Response:
    """The session's end, at the server and in the browser."""
    site, viewer = request.state.site, request.state.viewer
    await run_in_threadpool(site.keys.end, viewer.proof)
    return sessions.let_out(request)


async def live(request: Request) -> Response:
    """What changes, as server-sent events: `now` with a page's markup, or for the API the document; `beat`; `stale`."""
    viewer = request.state.viewer
    stream: broadcast.Broadcast = request.app.state.broadcast
    made = document_of if request.scope["path"].startswith("/api/") else markup_of
    known: viewers.Viewers = request.state.viewers
    try:
        messages = stream.stream(viewer, made, lambda: _still(known, viewer))
    except errors.ProbingError as exc:
        return problems.of(exc)
    headers = {"x-accel-buffering": "no", "cache-control": "no-store"}
    return StreamingResponse(messages, media_type="text/event-stream", headers=headers)


def _still(known: viewers.Viewers, viewer: web_keys.Viewer) -> bool:
    """Whether a viewer still may see what they saw when their stream began."""
    try:
        return known.current(viewer.proof) == viewer
    except errors.ProbingError:
        return True  # the stream itself says that the database is away


def document_of(site: web_site.Site, part: now.Now, viewer: web_keys.Viewer) -> bytes:
    """The picture for programs."""
    del site, viewer
    return msgspec.json.encode(part)


def markup_of(site: web_site.Site, part: now.Now, viewer: web_keys.Viewer) -> bytes:
    """The picture as the page shows it."""
    template = render.environment().get_template("now_body.html.j2")
    html = template.render(picture=part, prefix=site.prefix, viewer=viewer)
    return msgspec.json.encode({"at": part.at, "fresh": part.fresh, "why": part.why_stale, "html": html})
