"""Identifies the viewer: by a machine's token, a browser's session, or a trusted proxy's header."""

from __future__ import annotations

import dataclasses
import hmac
import ipaddress
import os
import pwd
import threading
import time
from collections.abc import Sequence
from pathlib import Path

from probing_cluster.control_plane.door import callers, web_keys
from probing_cluster.core import errors, secret_file
from probing_cluster.web import site as web_site

COOKIE = "__Host-probing"
PROXY_HEADER = "x-probing-secret"
KNOWN_FOR_S = 15.0
"""How long what a user may see stands before it is asked for again."""
PROXIED_S = 3600.0
"""How long a proxied user's key in the database lasts."""

Headers = Sequence[tuple[str, str]]
"""As they came: lower-case name and value, repeated where the request repeated them."""


class Viewers:
    """Identifies requests; raises NotPermitted for a claim that does not hold, gives None for none."""

    def __init__(self, site: web_site.Site) -> None:
        self._site = site
        self._lock = threading.Lock()
        self._viewers: dict[str, tuple[float, web_keys.Viewer | None]] = {}
        self._proxied: dict[str, tuple[float, str]] = {}
        web = site.service.config.web
        self._networks = [ipaddress.ip_network(text, strict=False) for text in web.proxy_networks]
        self._header = web.proxy_header.lower()
        self._secret = secret_file.read(Path(web.proxy_secret_file)) if web.proxy_secret_file else ""

    def identify(self, headers: Headers, address: str) -> web_keys.Viewer | None:
        """The viewer behind one request that came from `address`."""
        named = [value for name, value in headers if name == self._header]
        if named and self._networks:
            self._require_proxy(headers, address)
            return self.current(web_keys.proof_of(self._proxy_key(named)))
        bearer = [value for name, value in headers if name == "authorization"]
        if bearer:
            word, _, key = bearer[0].partition(" ")
            found = self.current(web_keys.proof_of(key.strip())) if word.lower() == "bearer" else None
            if found is None or found.kind != "token":
                raise errors.NotPermitted("the token is not known, or no longer good")
            return found
        key = cookie_of(headers, COOKIE)
        found = self.current(web_keys.proof_of(key)) if key else None
        return found if found is not None and found.kind == "session" else None

    def current(self, proof: str) -> web_keys.Viewer | None:
        """The viewer of a key with what its owner may see now; None where the key is none, or no longer."""
        found = self._site.keys.find(proof)
        if found is None:
            return None
        may = self._may(found.user)
        if may is None:
            return None
        now = dataclasses.replace(
            found, operator=may.operator, accounts=may.accounts, acts=found.acts and may.acts
        )
        if (now.operator, now.accounts) != (found.operator, found.accounts):
            self._site.keys.set_role(now)
        return now

    def log_in(self, user: str) -> str:
        """A session's key for somebody whom another has identified over the network; never root. Raises NotPermitted."""
        may = self._may(user)
        if may is None:
            raise errors.NotPermitted(f"{user[:64]!r} is no account here")
        if pwd.getpwnam(user).pw_uid in {0, os.geteuid()}:
            raise errors.NotPermitted(f"{user} does not come in over the network; use probing-ctl web login")
        return self._site.keys.issue(may, "session", self._site.service.config.web.session_s)

    def _require_proxy(self, headers: Headers, address: str) -> None:
        """Raises NotPermitted unless a proxy of ours speaks: by its socket's address, and by its secret where there is one."""
        if not _within(address, self._networks):
            raise errors.NotPermitted(
                f"{address} may not say who asks; [web] proxy_networks does not name it"
            )
        sent = [value for name, value in headers if name == PROXY_HEADER]
        # As bytes: what is compared may be no ASCII.
        if self._secret and not (
            len(sent) == 1 and hmac.compare_digest(sent[0].encode(), self._secret.encode())
        ):
            raise errors.NotPermitted(f"{address} may not say who asks; it does not send the proxy's secret")

    def _proxy_key(self, named: Sequence[str]) -> str:
        if len(named) != 1 or not named[0].strip():
            raise errors.NotPermitted(f"{self._header} must name one user, once")
        user = named[0].strip()
        with self._lock:
            until_s, key = self._proxied.get(user, (0.0, ""))
        if time.monotonic() < until_s and self._site.keys.find(web_keys.proof_of(key)) is not None:
            return key
        key = self.log_in(user)
        with self._lock:
            self._proxied[user] = (time.monotonic() + PROXIED_S, key)
        return key

    def _may(self, user: str) -> web_keys.Viewer | None:
        """What a user may see, as of a few seconds ago at most; None for no account."""
        now_s = time.monotonic()
        with self._lock:
            at_s, known = self._viewers.get(user, (float("-inf"), None))
            if now_s - at_s < KNOWN_FOR_S:
                return known
        try:
            caller = callers.caller_of(pwd.getpwnam(user).pw_uid)
        except (KeyError, ValueError):  # ValueError: a NUL in the name
            found = None
        else:
            found = web_keys.viewer_of(self._site.service, self._site.known, caller)
        with self._lock:
            if len(self._viewers) > 10_000:
                self._viewers.clear()
            self._viewers[user] = (now_s, found)
        return found


def _within(address: str, networks: Sequence[ipaddress.IPv4Network | ipaddress.IPv6Network]) -> bool:
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        return False
    return any(found in network for network in networks)


def cookie_of(headers: Headers, cookie: str) -> str:
    """The value of a request's cookie; empty where it has none."""
    for name, value in headers:
        if name == "cookie":
            for pair in value.split(";"):
                key, _, text = pair.strip().partition("=")
                if key == cookie:
                    return text
    return ""
