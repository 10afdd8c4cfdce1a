"""The end of every login: the session's cookie, and on to the page that was wanted."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from probing_cluster.web import site as web_site
from probing_cluster.web.access import viewers


def let_in(request: Request, key: str, target: str) -> Response:
    """Redirects to `target`, a path of ours, with the session's cookie."""
    site: web_site.Site = request.state.site
    made = RedirectResponse(site.prefix + target, 303)
    lasts_s = int(site.service.config.web.session_s)
    made.set_cookie(
        viewers.COOKIE, key, max_age=lasts_s, path="/", secure=True, httponly=True, samesite="lax"
    )
    return made


def let_out(request: Request) -> Response:
    """Redirects to the login page without the cookie."""
    site: web_site.Site = request.state.site
    made = RedirectResponse(f"{site.prefix}/login", 303)
    made.delete_cookie(viewers.COOKIE, path="/", secure=True, httponly=True, samesite="lax")
    return made
