"""The one way in: every request passes here, and nothing behind it is open."""

from __future__ import annotations

import asyncio
import hmac
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any
from urllib.parse import parse_qs, quote

from starlette.concurrency import run_in_threadpool
from starlette.responses import RedirectResponse, Response

from probing_cluster.control_plane.door import web_keys
from probing_cluster.core import errors
from probing_cluster.web import problems
from probing_cluster.web import site as web_site
from probing_cluster.web.access import cross_site, login_tries, pending_logins, rates, viewers

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

PUBLIC = ("/login", "/oidc/", "/static/")
LINK_HEADER = "x-probing-link"
"""By it `probing-ctl web login` asks whether its link leads anywhere here; the link's proof opens nothing."""
MOST_BODY_BYTES = 1 << 16
BODY_S = 10.0
"""For the whole of a body, however it comes in."""
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    # Not no-referrer: with it a browser sends `Origin: null` with our own forms, and no form of ours could be told from another's.
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
}
_CHANGING = frozenset({"POST", "PUT", "PATCH", "DELETE"})


class Gate:
    """An ASGI application around another: host, who asks, how often, from where."""

    def __init__(
        self, app: App, site: web_site.Site, problem_page: Callable[[Scope, errors.ProbingError], Response]
    ) -> None:
        """`problem_page` shows a browser an error that came before anybody knew who asks, such as of a database that is away."""
        self._app = app
        self._problem_page = problem_page
        self._site = site
        self._viewers = viewers.Viewers(site)
        self._rates = rates.Rates(site.service.config.web.requests_per_s)
        self._tries = login_tries.LoginTries(site.keys, self._rates)
        config = site.service.config
        self._pending = pending_logins.PendingLogins(config) if config.web.oidc_issuer else None
        self._answered = rates.Rates(1.0 / pending_logins.LASTS_S)
        """A bucket of one for each pending login."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":  # there are no WebSockets here
            await send({"type": "websocket.close", "code": 1008})
            return
        send = self._dressed(scope, send)
        answer = await self._refusal(scope)
        if answer is None:
            receive, answer = await self._body(scope, receive)
        await (answer or self._app)(scope, receive, send)

    async def _refusal(self, scope: Scope) -> Response | None:
        """What is answered at the door; None for a request that goes in, with `viewer` and `site` in its state."""
        headers = [(k.decode("latin-1").lower(), v.decode("latin-1")) for k, v in scope["headers"]]
        by_name = dict(headers)
        if by_name.get("host", "").lower() not in self._site.hosts:
            return problems.response(400, "the request names another host", "use the address of [web] url")
        self._strip_prefix(scope)
        address = scope["client"][0] if scope.get("client") else ""
        try:
            viewer = await run_in_threadpool(self._viewers.identify, headers, address)
        except errors.ProbingError as exc:
            refused = await self._limited(f"address {address}")
            return refused or self._unknown(scope, by_name, exc)
        public = any(scope["path"] == p or (p.endswith("/") and scope["path"].startswith(p)) for p in PUBLIC)
        refused = await self._charged(scope, viewer, address, headers)
        if refused is not None:
            return refused
        scope.setdefault("state", {}).update(viewer=viewer, site=self._site, viewers=self._viewers)
        if viewer is None and not public:
            return self._stranger(scope, by_name)
        return self._foreign(scope, by_name, viewer)

    async def _charged(
        self, scope: Scope, viewer: web_keys.Viewer | None, address: str, headers: viewers.Headers
    ) -> Response | None:
        """Counts the request against its user; a stranger's against the address, but for what whoever shares it needs to log in."""
        link = any(name == LINK_HEADER for name, _ in headers)
        if viewer is not None:
            tries = scope["path"] == "/login" and (link or scope["method"] in _CHANGING)
            return await self._limited(f"user {viewer.user}", login_tries.COST if tries else 1.0)
        if scope["path"] == "/login" and link:
            return await self._limited(f"link {address}", login_tries.COST)
        if scope["path"] == "/login" or scope["path"].startswith("/static/"):
            return None  # a page that reads nothing; a try is counted once its key is known (`_body`)
        if scope["path"] == "/oidc/login":
            return await self._limited(f"oidc {address}")
        if scope["path"] == "/oidc/back" and self._ends_login(headers):
            return None
        return await self._limited(f"address {address}")

    def _ends_login(self, headers: viewers.Headers) -> bool:
        """True once for each login that was begun at the provider: each asks the provider, which no stranger may do without end."""
        cookie = viewers.cookie_of(headers, pending_logins.COOKIE)
        login = self._pending.opened(cookie) if self._pending and cookie else None
        return login is not None and not self._answered.wait_s(login["id"])

    async def _limited(self, name: str, cost: float = 1.0) -> Response | None:
        return self._to_wait(self._rates.wait_s(name, cost))

    @staticmethod
    def _to_wait(wait_s: float) -> Response | None:
        if not wait_s:
            return None
        made = problems.response(429, "too many requests", f"wait {wait_s:.1f} s")
        made.headers["retry-after"] = str(int(wait_s) + 1)
        return made

    def _foreign(
        self, scope: Scope, headers: Mapping[str, str], viewer: web_keys.Viewer | None
    ) -> Response | None:
        if scope["method"] not in _CHANGING or (viewer is not None and viewer.kind == "token"):
            return None  # a token is never sent by a browser of itself
        why = cross_site.why_foreign(headers, self._site.origin)
        if viewer is None and not why and not {"sec-fetch-site", "origin"} & headers.keys():
            why = "a browser's login says where it comes from"
        return problems.response(403, "the request is refused", why) if why else None

    async def _body(self, scope: Scope, receive: Receive) -> tuple[Receive, Response | None]:
        """The whole body, bounded, and the page's token in it or beside it where the request changes something."""
        if scope["method"] not in _CHANGING:
            return receive, None
        try:
            async with asyncio.timeout(BODY_S):
                body = await _whole(receive)
        except TimeoutError:
            return receive, problems.response(408, "the request did not come to its end", f"{BODY_S:g} s")
        if body is None:
            return receive, problems.response(400, "the request broke off")
        if len(body) > MOST_BODY_BYTES:
            return receive, problems.response(413, "the request is too long", f"{MOST_BODY_BYTES} bytes")
        replay = _Replay(body, receive)
        viewer: web_keys.Viewer | None = scope["state"]["viewer"]
        if viewer is None and scope["path"] == "/login":
            key = next(iter(parse_qs(body.decode("utf-8", "replace")).get("key", ())), "").strip()
            address = scope["client"][0] if scope.get("client") else ""
            return replay, self._to_wait(await run_in_threadpool(self._tries.wait_s, address, key))
        if viewer is None or viewer.kind == "token" or self._carries_token(scope, body, viewer):
            return replay, None
        return replay, problems.response(403, "the request is refused", "it does not carry its page's token")

    def _carries_token(self, scope: Scope, body: bytes, viewer: web_keys.Viewer) -> bool:
        headers = {k.decode("latin-1").lower(): v.decode("latin-1") for k, v in scope["headers"]}
        given = headers.get(cross_site.HEADER)
        if given is None and headers.get("content-type", "").startswith("application/x-www-form-urlencoded"):
            given = next(iter(parse_qs(body.decode("utf-8", "replace")).get(cross_site.FIELD, ())), None)
        return given is not None and hmac.compare_digest(
            given.encode(), cross_site.token(viewer.proof).encode()
        )

    def _strip_prefix(self, scope: Scope) -> None:
        """Behind a proxy the path may still begin with ours; a proxy that took it off is as welcome."""
        prefix, path = self._site.prefix, scope["path"]
        if prefix and (path == prefix or path.startswith(f"{prefix}/")):
            scope["path"] = path[len(prefix) :] or "/"
            scope["raw_path"] = scope["path"].encode("utf-8")

    def _unknown(self, scope: Scope, headers: Mapping[str, str], exc: errors.ProbingError) -> Response | None:
        """What somebody gets of whom nobody can say who it is: the files that make a page of it, and the page or document that says why."""
        scope.setdefault("state", {}).update(viewer=None, site=self._site)
        if scope["path"].startswith("/static/"):
            return None
        return self._problem_page(scope, exc) if _wants_page(scope, headers) else problems.of(exc)

    def _stranger(self, scope: Scope, headers: Mapping[str, str]) -> Response:
        if _wants_page(scope, headers) and scope["method"] == "GET":
            query = scope.get("query_string", b"").decode("latin-1")
            target = quote(scope["path"] + (f"?{query}" if query else ""), safe="")
            return RedirectResponse(f"{self._site.prefix}/login?next={target}", 303)
        made = problems.response(401, "nobody is logged in", "send a token, or log in: probing-ctl web login")
        made.headers["www-authenticate"] = 'Bearer realm="probing"'
        return made

    def _dressed(self, scope: Scope, send: Send) -> Send:
        """Every answer's headers; what is not a static file is kept by nobody else."""

        async def dressed(message: Message) -> None:
            if message["type"] == "http.response.start":
                present = {k.lower() for k, _ in message["headers"]}
                added = dict(HEADERS)
                if not scope["path"].startswith("/static/"):
                    added |= {"cache-control": "private, no-cache", "vary": "Cookie, Authorization"}
                if self._site.origin.startswith("https:"):
                    added["strict-transport-security"] = "max-age=31536000"
                message["headers"] = [
                    *message["headers"],
                    *((k.encode(), v.encode()) for k, v in added.items() if k.encode() not in present),
                ]
            await send(message)

        return dressed


def _wants_page(scope: Scope, headers: Mapping[str, str]) -> bool:
    """Whether a browser asks, and not a program."""
    return "text/html" in headers.get("accept", "") and not scope["path"].startswith("/api/")


async def _whole(receive: Receive) -> bytes | None:
    """A body up to its end or beyond its bound; None where the peer has left."""
    body = b""
    while len(body) <= MOST_BODY_BYTES:
        message = await receive()
        if message["type"] == "http.disconnect":
            return None
        body += message.get("body", b"")
        if not message.get("more_body"):
            break
    return body


class _Replay:
    """A body that was read, given once more."""

    def __init__(self, body: bytes, receive: Receive) -> None:
        self._body: bytes | None = body
        self._receive = receive

    async def __call__(self) -> Message:
        if self._body is None:
            return await self._receive()
        body, self._body = self._body, None
        return {"type": "http.request", "body": body, "more_body": False}
