"""Login by a provider that lives in the test: a good word lets in, every false one does not."""

from __future__ import annotations

import base64
import json
import secrets
import time
import urllib.parse
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
import web_world
from joserfc import jwk, jwt
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route
from web_world import OWNER, World

from probing_cluster.db import store as db_store
from probing_cluster.web import app
from probing_cluster.web.access import oidc, pending_logins, viewers

ISSUER = "https://idp.example"


class Provider:
    """What a provider answers; a test bends it."""

    def __init__(self) -> None:
        self.key = jwk.RSAKey.generate_key(2048, parameters={"kid": "1"})
        self.nonce = ""
        self.claims: dict[str, Any] = {}
        self.signed_by = self.key
        self.codes: set[str] = set()
        """Codes that were given a token: each is good once."""
        self.app = Starlette(
            routes=[
                Route("/.well-known/openid-configuration", self.metadata),
                Route("/jwks", self.jwks),
                Route("/token", self.token, methods=["POST"]),
            ]
        )

    async def metadata(self, _: Request) -> JSONResponse:
        ends = {name: f"{ISSUER}/{name}" for name in ("authorize", "token", "jwks")}
        return JSONResponse(
            {
                "issuer": ISSUER, "authorization_endpoint": ends["authorize"], "token_endpoint": ends["token"],
                "jwks_uri": ends["jwks"], "id_token_signing_alg_values_supported": ["RS256"],
            }
        )  # fmt: skip

    async def jwks(self, _: Request) -> JSONResponse:
        return JSONResponse({"keys": [self.key.as_dict(private=False)]})

    async def token(self, request: Request) -> JSONResponse:
        now = int(time.time())
        code = urllib.parse.parse_qs((await request.body()).decode())["code"][0]
        if code in self.codes:
            return JSONResponse({"error": "invalid_grant"}, 400)
        self.codes.add(code)
        claims = {
            "iss": ISSUER, "aud": "probing", "sub": "1", "iat": now, "exp": now + 300, "nonce": self.nonce,
            "preferred_username": OWNER,
        }  # fmt: skip
        word = jwt.encode({"alg": "RS256", "kid": "1"}, claims | self.claims, self.signed_by)
        return JSONResponse({"access_token": "x", "token_type": "Bearer", "id_token": word})


@pytest.fixture
def provider() -> Provider:
    return Provider()


@pytest.fixture
def server(
    store: db_store.Store, provider: Provider, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[..., World]]:
    """Starts web servers that know the provider, each as a process of its own."""
    transport = httpx2.ASGITransport(provider.app)
    real = oidc.routes
    monkeypatch.setattr(app.oidc, "routes", lambda site: real(site, transport=transport))
    worlds = []

    def started(**web: Any) -> World:
        monkeypatch.setattr(pending_logins, "_OF_PROCESS", secrets.token_bytes(32))
        pending_logins._key_of.cache_clear()
        worlds.append(web_world.world_on(store, oidc_issuer=ISSUER, oidc_client_id="probing", **web))
        return worlds[-1]

    yield started
    for made in worlds:
        made.site.reader.close()


@pytest.fixture
def world(server: Callable[..., World]) -> World:
    """A site that knows the provider."""
    return server()


def begin(world: World, provider: Provider, path: str = "/jobs/7", **options: Any) -> tuple[str, str]:
    """The state and the cookie of a login that a browser begins."""
    begun = world.as_user(None).get(f"/oidc/login?next={urllib.parse.quote(path, safe='')}", **options)
    assert begun.status_code in (302, 303)
    calls = dict(urllib.parse.parse_qsl(urllib.parse.urlsplit(begun.headers["location"]).query))
    assert calls["code_challenge_method"] == "S256"
    provider.nonce = calls["nonce"]
    return calls["state"], begun.headers["set-cookie"].split(";")[0]


def end(world: World, state: str, cookie: str, code: str = "c", **options: Any) -> httpx2.Response:
    """The answer to the browser that comes back from the provider."""
    query = {"code": code, "state": state}
    return world.as_user(None, cookie=cookie).get("/oidc/back", params=query, **options)


def come_back(
    world: World, provider: Provider, *, state: str | None = None, cookie: str | None = None
) -> httpx2.Response:
    """A whole login, as a browser goes through it."""
    begun, pending = begin(world, provider)
    return end(world, begun if state is None else state, pending if cookie is None else cookie)


def test_a_good_word_lets_in(world: World, provider: Provider) -> None:
    """To the page that was wanted, as the user that the claim names."""
    found = come_back(world, provider)
    assert (found.status_code, found.headers["location"]) == (303, "/jobs/7"), found.text
    session = found.headers["set-cookie"].split(";")[0]
    assert session.startswith(viewers.COOKIE)
    assert world.as_user(None, cookie=session).get("/api/v1/me").json()["user"] == OWNER


@pytest.mark.parametrize(
    "claims",
    [
        {"nonce": "another"}, {"iss": "https://evil.example"}, {"aud": "another"}, {"exp": 1000},
        {"preferred_username": "root"}, {"preferred_username": "no-such-account"}, {"preferred_username": None},
    ],
)  # fmt: skip
def test_a_false_word_does_not(world: World, provider: Provider, claims: dict[str, Any]) -> None:
    """Wrong nonce, issuer, audience, time, or a name that may not come in: 403 and no cookie."""
    provider.claims = claims
    found = come_back(world, provider)
    assert found.status_code == 403, found.text
    assert viewers.COOKIE + "=" not in found.headers.get("set-cookie", "")


def test_nor_a_forged_key_state_or_beginning(world: World, provider: Provider) -> None:
    """Signed by another, of another state, or begun in another browser."""
    assert come_back(world, provider, state="another").status_code == 403
    assert come_back(world, provider, cookie="").status_code == 403
    provider.signed_by = jwk.RSAKey.generate_key(2048, parameters={"kid": "1"})
    assert come_back(world, provider).status_code == 403


def test_the_browser_keeps_the_login_that_it_began(
    server: Callable[..., World], provider: Provider, tmp_path: Path
) -> None:
    """Another server with the same client secret ends it, whatever others begin meanwhile. It was forgotten after a thousand other beginnings."""
    secret = tmp_path / "secret"
    secret.write_text("s" * 32)
    secret.chmod(0o600)
    state, cookie = begin(server(oidc_secret_file=str(secret)), provider)
    found = end(server(oidc_secret_file=str(secret)), state, cookie)
    assert (found.status_code, found.headers["location"]) == (303, "/jobs/7"), found.text
    secret.write_text("t" * 32)
    state, cookie = begin(server(oidc_secret_file=str(secret)), provider)
    assert end(server(), state, cookie).status_code == 403


def test_its_cookie_is_for_us_alone(world: World) -> None:
    """No script reads it, no other site's form sends it, no neighbour sets it, and it ends."""
    given = world.as_user(None).get("/oidc/login").headers["set-cookie"].lower()
    assert given.startswith("__host-")
    assert {"httponly", "secure", "samesite=lax", "path=/", "max-age=600"} <= {
        p.strip() for p in given.split(";")
    }


def test_a_cookie_that_somebody_wrote_is_none(
    world: World, provider: Provider, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Changed, unsigned, signed by another, of another sort, or ten minutes old."""
    state, cookie = begin(world, provider)
    name, _, text = cookie.partition("=")
    header, claims, signature = text.split(".")

    def part(value: Any) -> str:
        return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")

    login = json.loads(base64.urlsafe_b64decode(claims + "=="))
    moved = part(login | {"exp": login["exp"] + 1})
    other = jwt.encode({"alg": "HS256"}, login, jwk.OctKey.import_key(b"x" * 32))
    forged = [
        f"{header}.{moved}.{signature}", f"{part({'alg': 'none'})}.{claims}.", other, "", "x", "a.b.c", part([[[]]]) + ".e30.x", "." * 9000
    ]  # fmt: skip
    for value in forged:
        assert end(world, state, f"{name}={value}").status_code == 403, value
    assert pending_logins.PendingLogins(world.site.service.config).opened("é.é.é") is None
    assert provider.codes == set()
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + pending_logins.LASTS_S + 1)
    assert end(world, state, cookie).status_code == 403
    monkeypatch.undo()


def test_the_same_answer_again_lets_nobody_in(world: World, provider: Provider) -> None:
    """A code is good once, and the browser forgets the login that has ended."""
    state, cookie = begin(world, provider)
    found = end(world, state, cookie)
    assert any(
        c.startswith(f"{pending_logins.COOKIE}=") and "Max-Age=0" in c
        for c in found.headers.get_list("set-cookie")
    )
    again = end(world, state, cookie)
    assert again.status_code == 403
    assert "set-cookie" not in again.headers


def test_a_page_too_long_for_a_cookie_is_not_remembered(world: World, provider: Provider) -> None:
    """The browser would drop the cookie, and nobody could log in on the way there."""
    state, cookie = begin(world, provider, "/jobs?" + "a" * 5000)
    assert len(cookie) < 4000
    found = end(world, state, cookie)
    assert (found.status_code, found.headers["location"]) == (303, "/"), found.text


def test_strangers_behind_the_same_address_keep_nobody_from_logging_in(
    server: Callable[..., World], provider: Provider
) -> None:
    """Neither their requests nor their beginnings count against one who comes back; an end is free once for each beginning."""
    world = server(requests_per_s=0.2)
    shared = {"address": "192.0.2.7"}
    stranger = world.as_user(None)

    def until_refused(path: str) -> int:
        return next(n for n in range(50) if stranger.get(path, **shared).status_code == 429)

    until_refused("/api/v1/me")
    state, cookie = begin(world, provider, **shared)
    until_refused("/oidc/login")
    found = end(world, state, cookie, **shared)
    assert (found.status_code, found.headers["location"]) == (303, "/jobs/7"), found.text
    assert end(world, state, cookie, "d", **shared).status_code == 429
    assert end(world, state, "", **shared).status_code == 429
