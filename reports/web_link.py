"""A one-time link into the web, from the service that knows who asks."""

from __future__ import annotations

import urllib.parse

from probing_cluster.core import errors, records, settings
from probing_cluster.reports.asking import door


@records.record
class Link:
    """A link that logs one person in, once."""

    url: str = records.doc("the link; its key stands in the fragment, which no server sees")
    user: str = records.doc("whom it logs in")
    lasts_s: float = records.doc("how long it is good, seconds")


def ask(config: settings.Settings, page: str = "/") -> Link:
    """A link for whoever asks, leading on to `page`; raises what the service says."""
    if not page.startswith("/") or page.startswith("//"):
        raise errors.UsageError(f"{page!r} is no path of ours; write /jobs/4242")
    found = door.web(config, "web_login")
    login, _, key = str(found["url"]).partition("#")
    query = "" if page == "/" else f"?next={urllib.parse.quote(page, safe='')}"
    return Link(url=f"{login}{query}#{key}", user=str(found["user"]), lasts_s=float(found["lasts_s"]))
