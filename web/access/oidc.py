"""Login by an OpenID Connect provider; authlib does the protocol, with state, nonce and PKCE."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import httpx2
from authlib.common import errors as authlib_errors
from authlib.integrations import starlette_client
from joserfc import errors as jose_errors
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from probing_cluster.core import errors, secret_file
from probing_cluster.web import problems
from probing_cluster.web import site as web_site
from probing_cluster.web.access import cross_site, pending_logins, sessions

LOG = logging.getLogger("probing.web")


class Login:
    """The two addresses of one provider."""

    def __init__(self, site: web_site.Site, **client: Any) -> None:
        web = site.service.config.web
        self._site = site
        self._pending = pending_logins.PendingLogins(site.service.config)
        registry = starlette_client.OAuth()
        registry.register(
            "provider",
            client_id=web.oidc_client_id,
            client_secret=secret_file.read(Path(web.oidc_secret_file)) if web.oidc_secret_file else None,
            server_metadata_url=f"{web.oidc_issuer.rstrip('/')}/.well-known/openid-configuration",
            client_kwargs={"scope": "openid profile", "code_challenge_method": "S256"} | client,
        )
        self._provider = registry.provider

    async def begin(self, request: Request) -> Response:
        """Redirects to the provider; the browser remembers with what, and where the visitor wanted to go."""
        session: dict[str, Any] = {}
        request.scope["session"] = session
        try:
            made: Response = await self._provider.authorize_redirect(request, f"{self._site.base}/oidc/back")
        except (httpx2.HTTPError, authlib_errors.AuthlibBaseError, ValueError, KeyError) as exc:
            return _refused("the provider does not answer", exc)
        for state in session.values():
            state["data"].pop("url", None)  # long, and the browser has it
        target = cross_site.own_path(request.query_params.get("next", "/"))
        sealed = self._pending.sealed({"next": target, "session": session})
        made.set_cookie(
            pending_logins.COOKIE, sealed, max_age=pending_logins.LASTS_S, path="/", secure=True, httponly=True,
            samesite="lax",
        )  # fmt: skip
        return made

    async def back(self, request: Request) -> Response:
        """The user whom the provider names when the browser comes back, if its token is valid."""
        login = self._pending.opened(request.cookies.get(pending_logins.COOKIE, ""))
        if login is None:
            return problems.response(403, "this login was not begun here", "begin again at /login")
        request.scope["session"] = login["session"]
        try:
            token = await self._provider.authorize_access_token(request)
            user = str(token["userinfo"][self._site.service.config.web.oidc_claim])
        except (
            httpx2.HTTPError,
            authlib_errors.AuthlibBaseError,
            jose_errors.JoseError,
            ValueError,
            KeyError,
            TypeError,
        ) as exc:
            return _refused("the provider's word does not hold", exc)
        try:
            key = await run_in_threadpool(request.state.viewers.log_in, user)
        except errors.ProbingError as exc:
            return problems.of(exc)
        LOG.info("logged in", extra={"fields": {"user": user, "by": "oidc"}})
        made = sessions.let_in(request, key, cross_site.own_path(login["next"]))
        made.delete_cookie(pending_logins.COOKIE, path="/", secure=True, httponly=True, samesite="lax")
        return made


def _refused(title: str, exc: Exception) -> Response:
    LOG.warning("a login by OpenID Connect failed", extra={"fields": {"why": repr(exc)[:300]}})
    return problems.response(403, title, "begin again at /login; the server's log says more")


def routes(site: web_site.Site, **client: Any) -> list[Route]:
    """Its two addresses; none without a provider."""
    if not site.service.config.web.oidc_issuer:
        return []
    login = Login(site, **client)
    return [Route("/oidc/login", login.begin), Route("/oidc/back", login.back)]
