"""What a database URL must be: TLS wherever it leaves the host's sockets, no password where others can read it."""

from __future__ import annotations

import re
import urllib.parse
from collections.abc import Iterator

from probing_cluster.core import errors

SAFE_MODES = ("require", "verify-ca", "verify-full")
_PASSWORD = re.compile(r"://[^/@:]*:[^/@]+@|[?&]password=[^&]")


def has_password(url: str) -> bool:
    """Whether the URL itself carries a password."""
    return bool(_PASSWORD.search(url))


def require_tls(url: str, key: str) -> None:
    """Raises SettingsError, naming `key`, when `url` would go over the network without TLS.

    libpq's own default (`prefer`) falls back to clear text. A URL with `service=` is left to
    the service file.
    """
    found = parameters(url)
    plain = [host for host in _hosts(url, found) if host and not host.startswith(("/", "@", "%2F", "%2f"))]
    if not plain or "service" in found or found.get("sslmode") in SAFE_MODES:
        return
    given = f"sslmode={found['sslmode']}" if "sslmode" in found else "no sslmode"
    msg = f"{key} reaches {plain[0]} over the network with {given}; add sslmode=verify-full (and sslrootcert)"
    raise errors.SettingsError(msg)


def parameters(url: str) -> dict[str, str]:
    """The parameters behind the `?`, as libpq reads them."""
    pairs = (part.partition("=") for part in url.partition("?")[2].split("&") if part)
    return {name: urllib.parse.unquote(value) for name, _, value in pairs}


def _hosts(url: str, found: dict[str, str]) -> Iterator[str]:
    """Every host the URL may go to; an empty one is libpq's default socket."""
    if found.get("hostaddr"):
        yield from found["hostaddr"].split(",")
        return
    if found.get("host"):
        yield from found["host"].split(",")
        return
    authority = re.split(r"[/?]", url.partition("://")[2], maxsplit=1)[0].rpartition("@")[2]
    for place in authority.split(","):
        yield place if place.startswith("[") else place.partition(":")[0]
