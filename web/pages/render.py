"""Templates of the web, beside those of the reports, which they include: nothing is drawn twice."""

from __future__ import annotations

import functools
import hashlib
import urllib.parse
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import jinja2
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from probing_cluster.attribution.verdict import taxonomy
from probing_cluster.control_plane.terminal import sql_values
from probing_cluster.reports import page, phrase
from probing_cluster.reports.lemon import lemon_view
from probing_cluster.web import site as web_site
from probing_cluster.web.access import cross_site
from probing_cluster.web.api import endpoints
from probing_cluster.web.live import now

HERE = Path(__file__).parent
REPORTS = Path(page.__file__).parent / "templates"
STATIC = {
    "web.js": HERE / "static/web.js",
    "login.js": HERE / "static/login.js",
    "heat.js": HERE / "static/heat.js",
    "web.css": HERE / "static/web.css",
    "icon.svg": HERE / "static/icon.svg",
    "base.css": REPORTS / "base.css",
    "fleet.css": REPORTS / "fleet.css",
}
NAV = (
    ("/", "Now", False),
    ("/jobs", "Jobs", False),
    ("/nodes", "Nodes", True),
    ("/repairs", "Repairs", True),
    ("/fleet", "Fleet", True),
    ("/lemons", "Lemons", True),
    ("/sql", "SQL", False),
)
"""Path, name, and whether it is for operators."""


@functools.cache
def environment() -> jinja2.Environment:
    """Escapes everything; names that do not exist are errors."""
    loader = jinja2.FileSystemLoader([HERE / "templates", REPORTS])
    made = page.environment().overlay(loader=loader)
    made.filters["age"] = age
    made.filters["cause_name"] = taxonomy.name
    made.filters["chance"] = lemon_view.chance
    made.filters["on_one_line"] = sql_values.on_one_line
    return made


def age(at: datetime, now: datetime) -> str:
    """`4 min ago`."""
    seconds = (now - at.astimezone(UTC)).total_seconds()
    return "just now" if seconds < 1 else f"{phrase.span(seconds)} ago"


@functools.cache
def version(name: str) -> str:
    """A word that changes with a static file."""
    return hashlib.blake2b(STATIC[name].read_bytes(), digest_size=6).hexdigest()


def html(request: Request, template: str, *, status: int = 200, **given: Any) -> Response:
    """A page, with a tag of its content."""
    body = text(request, template, **given).encode()
    if status != 200:
        return HTMLResponse(body, status)
    return endpoints.with_etag(request, body, "text/html; charset=utf-8")


def text(request: Request, template: str, **given: Any) -> str:
    """The page's markup."""
    site: web_site.Site = request.state.site
    viewer = request.state.viewer
    of_cluster = str(request.query_params.get("cluster", ""))
    of_cluster = "" if of_cluster == site.service.cluster else of_cluster
    return (
        environment()
        .get_template(template)
        .render(
            **{
                "prefix": site.prefix,
                "static": lambda name: f"{site.prefix}/static/{name}?{version(name)}",
                "cluster": site.service.config.cluster.name,
                "of_cluster": of_cluster,
                # What a link to a node or a job ends with, so that it leads to that of the same cluster.
                "of": f"?{urllib.parse.urlencode({'cluster': of_cluster})}" if of_cluster else "",
                "clusters": lambda: site.clusters(),
                "viewer": viewer,
                "csrf": cross_site.token(viewer.proof) if viewer else "",
                "nav": [(path, name) for path, name, ops in NAV if viewer and (viewer.operator or not ops)],
                "path": request.scope["path"],
                "now": site.service.clock.now().replace(microsecond=0),
                # Asked where a page shows it: what says that the database is away does not ask it.
                "why_stale": lambda: now.health(site).why,
            }
            | given
        )
    )
