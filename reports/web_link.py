"""A one-time link into the web, from the service, which knows the caller's identity."""

from __future__ import annotations

import urllib.parse

from probing_cluster.core import errors, records, settings
from probing_cluster.reports.asking import door


@records.record
class Link:
    """A link that logs one person in, once."""

    url: str = records.doc("the link; its key is in the fragment, which is sent to no server")
    user: str = records.doc("the user that it logs in")
    lasts_s: float = records.doc("its lifetime, seconds")


def ask(config: settings.Settings, page: str = "/") -> Link:
    """A link for the caller that leads to `page`; raises the service's error."""
    if not page.startswith("/") or page.startswith("//"):
        raise errors.UsageError(f"{page!r} is not a page; write a path such as /jobs/4242")
    found = door.web(config, "web_login")
    login, _, key = str(found["url"]).partition("#")
    query = "" if page == "/" else f"?next={urllib.parse.quote(page, safe='')}"
    return Link(url=f"{login}{query}#{key}", user=str(found["user"]), lasts_s=float(found["lasts_s"]))
