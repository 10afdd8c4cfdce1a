"""Keys to the web: one-time login links, browsers' sessions, machines' tokens.

A key is 32 random bytes. The database keeps the hash of the key's proof, and the proof is itself the key's hash: neither the
rows nor what a transaction carries for the row policies (db/rights.sql) opens a door to anyone.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import sqlalchemy as sa

from probing_cluster.control_plane import context
from probing_cluster.control_plane.door import callers
from probing_cluster.core import clock, errors, network_address, records, sanitize, settings
from probing_cluster.db import engines, tables

LINK_S = 120.0
"""A link is opened at once or never."""
MOST_TOKEN_DAYS = 366.0
MOST_TOKENS = 50
"""Tokens that one user may have."""


@records.record
class Viewer:
    """A person at the web, and what they may see and do there."""

    user: str = records.doc("account name")
    operator: bool = records.doc("whether they read every job and node", default=False)
    accounts: frozenset[str] = records.doc("accounts whose jobs they read", default=frozenset())
    acts: bool = records.doc("whether they may drain, resume, note and judge", default=False)
    kind: str = records.doc("session, token or link: what they came with", default="session")
    proof: str = records.doc("what the row policies know them by", default="")


def viewer_of(service: context.Context, known: callers.Callers, caller: callers.Caller) -> Viewer:
    """What a caller may see and do on the web; raises NotPermitted for a uid without an account."""
    if not caller.name:
        raise errors.NotPermitted(f"uid {caller.uid} has no account name here")
    web = service.config.web
    acts = caller.uid == 0 or caller.name in web.actors or web.actor_group in caller.groups - {""}
    operator = known.reads_all(caller)
    return Viewer(
        user=caller.name, operator=operator, accounts=known.coordinated(caller), acts=acts and operator
    )


def proof_of(key: str) -> str:
    """What a key proves to the database."""
    return hashlib.sha256(key.encode()).hexdigest()


def hash_of(key: str) -> str:
    """What the database keeps of a key."""
    return _hash(proof_of(key))


def _hash(proof: str) -> str:
    return hashlib.sha256(proof.encode()).hexdigest()


class Keys:
    """The rows of `probing.web_key`; raises DatabaseUnavailable."""

    def __init__(self, engine: sa.Engine) -> None:
        self._engine = engine

    def issue(self, viewer: Viewer, kind: str, lasts_s: float, *, label: str = "", acts: bool = True) -> str:
        """A new key for a viewer; of itself it lets nobody act who may not."""
        key = secrets.token_urlsafe(32)
        row = {
            "key_hash": hash_of(key),
            "kind": kind,
            "user_name": viewer.user,
            "operator": viewer.operator,
            "accounts": sorted(viewer.accounts),
            "acts": acts,
            "label": label,
            "expires_at": clock.SYSTEM.now() + timedelta(seconds=lasts_s),
        }
        with engines.translated(), self._engine.begin() as connection:
            connection.execute(sa.delete(tables.web_key).where(tables.web_key.c.expires_at < sa.func.now()))
            connection.execute(sa.insert(tables.web_key), row)
        return key

    def redeem(self, link: str) -> Viewer | None:
        """The owner of a link, which is spent by this; None for one that is spent, too old or unknown."""
        k = tables.web_key.c
        good = sa.and_(k.key_hash == hash_of(link), k.kind == "link", k.expires_at > sa.func.now())
        query = sa.delete(tables.web_key).where(good).returning(k.user_name, k.operator, k.accounts)
        with engines.translated(), self._engine.begin() as connection:
            row = connection.execute(query).first()
        if row is None:
            return None
        return Viewer(
            user=row.user_name, operator=row.operator, accounts=frozenset(row.accounts), kind="link"
        )

    def has_link(self, proof: str) -> bool:
        """Whether the link that this proves would log somebody in here; it is not spent."""
        k = tables.web_key.c
        query = sa.select(k.kind).where(
            k.key_hash == _hash(proof), k.kind == "link", k.expires_at > sa.func.now()
        )
        with engines.translated(), self._engine.connect() as connection:
            return connection.execute(query).first() is not None

    def links(self) -> frozenset[str]:
        """The hashes of all links that would log somebody in now: those of two minutes."""
        k = tables.web_key.c
        query = sa.select(k.key_hash).where(k.kind == "link", k.expires_at > sa.func.now())
        with engines.translated(), self._engine.connect() as connection:
            return frozenset(connection.scalars(query))

    def find(self, proof: str) -> Viewer | None:
        """The owner of the session or token that this proves; None where it is not valid."""
        k = tables.web_key.c
        query = sa.select(k.user_name, k.operator, k.accounts, k.kind, k.acts).where(
            k.key_hash == _hash(proof), k.kind.in_(("session", "token")), k.expires_at > sa.func.now()
        )
        with engines.translated(), self._engine.connect() as connection:
            row = connection.execute(query).first()
        if row is None:
            return None
        return Viewer(
            user=row.user_name, operator=row.operator, accounts=frozenset(row.accounts), acts=row.acts,
            kind=row.kind, proof=proof,
        )  # fmt: skip

    def set_role(self, viewer: Viewer) -> None:
        """Bring what a key gives up to what its owner may see now."""
        new = {"operator": viewer.operator, "accounts": sorted(viewer.accounts)}
        query = sa.update(tables.web_key).where(tables.web_key.c.key_hash == _hash(viewer.proof)).values(new)
        with engines.translated(), self._engine.begin() as connection:
            connection.execute(query)

    def end(self, proof: str) -> None:
        """Take one key away."""
        query = sa.delete(tables.web_key).where(tables.web_key.c.key_hash == _hash(proof))
        with engines.translated(), self._engine.begin() as connection:
            connection.execute(query)

    def tokens(self, user: str | None) -> list[dict[str, Any]]:
        """A user's tokens (None: everybody's), without their secrets."""
        k = tables.web_key.c
        query = sa.select(k.user_name, k.label, k.acts, k.made_at, k.expires_at)
        query = query.where(k.kind == "token", k.expires_at > sa.func.now()).order_by(k.user_name, k.made_at)
        query = query if user is None else query.where(k.user_name == user)
        with engines.translated(), self._engine.connect() as connection:
            return [
                {
                    "user": r.user_name,
                    "label": r.label,
                    "may": "act" if r.acts else "read",
                    "made_at": clock.iso_z(r.made_at),
                    "expires_at": clock.iso_z(r.expires_at),
                }
                for r in connection.execute(query)
            ]

    def revoke(self, user: str, label: str) -> int:
        """Take a user's tokens of a label away (label empty: all of their keys); how many."""
        k = tables.web_key.c
        query = sa.delete(tables.web_key).where(k.user_name == user)
        query = query.where(k.kind == "token", k.label == label) if label else query
        with engines.translated(), self._engine.begin() as connection:
            return connection.execute(query).rowcount


def answer(
    service: context.Context, known: callers.Callers, caller: callers.Caller, request: Mapping[str, Any]
) -> dict[str, Any]:
    """What the service's door does about a caller's own keys; root may name another user to revoke."""
    viewer = viewer_of(service, known, caller)
    keys = Keys(service.store.engine)
    op = request["op"]
    if op == "web_login":
        link = keys.issue(viewer, "link", LINK_S)
        return {"url": f"{base_url(service.config)}/login#{link}", "user": viewer.user, "lasts_s": LINK_S}
    if op == "web_token":
        return _token(keys, viewer, request)
    everyone = caller.uid == 0
    if op == "web_tokens":
        return {"tokens": keys.tokens(None if everyone else viewer.user)}
    user = str(request.get("user") or viewer.user)
    if user != viewer.user and not everyone:
        raise errors.NotPermitted(
            f"the keys of {sanitize.clean(user, 64)} are theirs and root's to take away"
        )
    return {"revoked": keys.revoke(user, str(request.get("label") or "")), "user": user}


def _token(keys: Keys, viewer: Viewer, request: Mapping[str, Any]) -> dict[str, Any]:
    label = sanitize.clean(str(request.get("label") or ""), 64).strip()
    days = request.get("days")
    if not label:
        raise errors.UsageError("a token needs a label, by which it is found and revoked")
    if not isinstance(days, int | float) or not 0 < days <= MOST_TOKEN_DAYS:
        raise errors.UsageError(f"a token lasts up to {MOST_TOKEN_DAYS:.0f} days, not {days!r}")
    acts = request.get("act") is True
    if acts and not viewer.acts:
        raise errors.NotPermitted(f"{viewer.user} may not act over the web; [web] actors says who may")
    if len(keys.tokens(viewer.user)) >= MOST_TOKENS:
        raise errors.NotPermitted(f"{viewer.user} has {MOST_TOKENS} tokens already; revoke one")
    return {"token": keys.issue(viewer, "token", days * 86400, label=label, acts=acts), "label": label}


def base_url(config: settings.Settings) -> str:
    """The URL at which browsers reach the web, without a slash at the end."""
    if config.web.url:
        return config.web.url.rstrip("/")
    host, port = network_address.parse(config.web.listen, "[web] listen")
    scheme = "https" if config.web.tls_certificate else "http"
    shown = f"[{host}]" if ":" in host else host
    return f"{scheme}://{shown}:{port}"
