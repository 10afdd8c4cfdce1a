"""Logins that a provider has yet to answer: the browser keeps each, signed, and the server keeps none.

So nobody's beginnings take the place of another's, and every web server with the same client secret can end what one began.
"""

from __future__ import annotations

import functools
import hashlib
import secrets
import time
from pathlib import Path
from typing import Any

from joserfc import errors as jose_errors
from joserfc import jwk, jwt

from probing_cluster.core import secret_file, settings

COOKIE = "__Host-probing-oidc"
LASTS_S = 600
MOST_CHARS = 3800
"""Browsers keep cookies of 4096 bytes, with their names and attributes."""
_ALGORITHM = "HS256"
_SALT = b"probing_cluster: pending logins by OpenID Connect"
_OF_PROCESS = secrets.token_bytes(32)
"""Signs where the client has no secret: such a login ends at the process that began it."""


class PendingLogins:
    """Writes and reads the cookie of a login that was begun."""

    def __init__(self, config: settings.Settings) -> None:
        secret = secret_file.read(Path(config.web.oidc_secret_file)) if config.web.oidc_secret_file else ""
        self._key = jwk.OctKey.import_key(_key_of(secret))

    def sealed(self, login: dict[str, Any]) -> str:
        """The cookie's text for a login, good for ten minutes; a page too long for a cookie is not remembered."""
        numbered = {"id": secrets.token_urlsafe(12)} | login
        claims = {"login": numbered, "exp": int(time.time()) + LASTS_S}
        text = jwt.encode({"alg": _ALGORITHM}, claims, self._key)
        if len(text) > MOST_CHARS and login.get("next") != "/":
            return self.sealed(login | {"next": "/"})
        return text

    def opened(self, cookie: str) -> dict[str, Any] | None:
        """The login that a cookie holds, with an `id` of its own; None where it is not ours, or too old."""
        if not cookie or len(cookie) > MOST_CHARS:
            return None
        try:
            claims = jwt.decode(cookie, self._key, algorithms=[_ALGORITHM]).claims
            jwt.JWTClaimsRegistry(exp={"essential": True}, leeway=0).validate(claims)
        except (jose_errors.JoseError, ValueError, TypeError):
            return None
        login = claims.get("login")
        return login if isinstance(login, dict) else None


@functools.cache
def _key_of(secret: str) -> bytes:
    """The signing key. Slow to derive, so that a cookie betrays no client secret, however short."""
    return hashlib.scrypt(secret.encode(), salt=_SALT, n=1 << 14, r=8, p=1) if secret else _OF_PROCESS
