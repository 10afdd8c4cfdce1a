"""Posts every night's result, signed, to one address of the site, such as a ticket system or chat.

    POST <webhook_url>
    Content-Type: application/json
    X-Probing-Delivery: lemon.<cluster>.<day>
    X-Probing-Timestamp: <seconds since 1970>
    X-Probing-Signature: v1=<hex of HMAC-SHA256(secret, "<timestamp>." + body)>

The receiver computes the same over the raw body, compares in constant time, and refuses old timestamps.
"""

from __future__ import annotations

import hashlib
import hmac
import http.client
import urllib.error
import urllib.parse
import urllib.request
from datetime import datetime
from typing import Any

from probing_cluster.core import errors, sanitize
from probing_cluster.reports.sending import smtp

_FINAL = frozenset(range(400, 500)) - {408, 425, 429}
"""Status codes after which a retry is useless."""


def sign(secret: str, timestamp: int, body: bytes) -> str:
    """The value of X-Probing-Signature."""
    digest = hmac.new(secret.encode(), f"{timestamp}.".encode() + body, hashlib.sha256)
    return f"v1={digest.hexdigest()}"


def post(
    url: str, secret: str, delivery: str, body: bytes, at: datetime, deadline_s: float
) -> smtp.SendOutcome:
    """One attempt; the outcome's recipient is the address. Raises SettingsError for an address that is not https."""
    check(url)
    timestamp = int(at.timestamp())
    headers = {
        "Content-Type": "application/json",
        "User-Agent": "probing-cluster",
        "X-Probing-Delivery": delivery,
        "X-Probing-Timestamp": str(timestamp),
        "X-Probing-Signature": sign(secret, timestamp, body),
    }
    request = urllib.request.Request(url, data=body, headers=headers, method="POST")  # noqa: S310 - checked above
    try:
        with _OPENER.open(request, timeout=deadline_s):
            return smtp.SendOutcome(sent=(url,))
    except urllib.error.HTTPError as exc:
        why = f"{exc.code} {sanitize.clean(exc.reason or '', 200)}"
        exc.close()
        final = exc.code in _FINAL or 300 <= exc.code < 400
        return smtp.SendOutcome(never={url: why}) if final else smtp.SendOutcome(later={url: why})
    except (OSError, http.client.HTTPException) as exc:
        return smtp.SendOutcome(later={url: sanitize.clean(str(exc) or type(exc).__name__, 300)})


def check(url: str) -> None:
    """Raises SettingsError unless it is https, or http to this very machine."""
    parts = urllib.parse.urlsplit(url)
    if parts.scheme == "https" and parts.hostname:
        return
    if parts.scheme == "http" and parts.hostname in smtp.LOOPBACK:
        return
    raise errors.SettingsError(f"[lemon] webhook_url must be https://…, not {url!r}")


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Refuses redirects: one would carry the post and its signature to another server."""

    def redirect_request(self, *_: Any, **__: Any) -> None:
        return None


_OPENER = urllib.request.build_opener(_NoRedirect)
