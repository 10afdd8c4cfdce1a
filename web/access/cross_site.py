"""Requests that another site's page makes a browser send, and addresses a login may lead on to."""

from __future__ import annotations

import hashlib
import re
import urllib.parse
from collections.abc import Mapping

FIELD, HEADER = "csrf", "x-probing-csrf"
_OWN_PATH = re.compile(r"/(?![/\\])[A-Za-z0-9._~/?&=+%:,@\[\]-]*")


def token(proof: str) -> str:
    """What pages of one login carry and no other site can know."""
    return hashlib.sha256(f"csrf:{proof}".encode()).hexdigest()


def why_foreign(headers: Mapping[str, str], origin: str) -> str:
    """Why a request that changes something does not come from a page of ours; empty when it may.

    `same-site` is a neighbour under the same domain, and `null` a sandboxed frame: neither is us.
    """
    site, sent_from = headers.get("sec-fetch-site"), headers.get("origin")
    if site is not None and site != "same-origin":
        return f"it comes from another site ({site[:40]})"
    if sent_from is not None and sent_from.lower() != origin:
        return f"its Origin is {sent_from[:100]}, not {origin}"
    return ""


def own_path(text: str) -> str:
    """`text` where it is a path on this site; else `/`. No host, no scheme, no backslash, however it is encoded."""
    found = text
    for _ in range(4):
        if not _OWN_PATH.fullmatch(found):
            return "/"
        decoded = urllib.parse.unquote(found)
        if decoded == found:
            return text
        found = decoded
    return "/"
