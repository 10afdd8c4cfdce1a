"""Login by a provider that lives in the test: a good word lets in, every false one does not."""

from __future__ import annotations

import time
import urllib.parse
from collections.abc import Iterator
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
from probing_cluster.web.access import oidc, viewers

ISSUER = "https://idp.example"


class Provider:
    """What a provider answers; a test bends it."""

    def __init__(self) -> None:
        self.key = jwk.RSAKey.generate_key(2048, parameters={"kid": "1"})
        self.nonce = ""
        self.claims: dict[str, Any] = {}
        self.signed_by = self.key
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

    async def token(self, _: Request) -> JSONResponse:
        now = int(time.time())
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
def world(store: db_store.Store, provider: Provider, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    """A site that knows the provider."""
    transport = httpx2.ASGITransport(provider.app)
    real = oidc.routes
    monkeypatch.setattr(app.oidc, "routes", lambda site: real(site, transport=transport))
    made = web_world.world_on(store, oidc_issuer=ISSUER, oidc_client_id="probing")
    yield made
    made.site.reader.close()


def come_back(
    world: World, provider: Provider, *, state: str | None = None, cookie: str | None = None
) -> httpx2.Response:
    """A whole login, as a browser goes through it."""
    begun = world.as_user(None).get("/oidc/login?next=%2Fjobs%2F7")
    assert begun.status_code in (302, 303)
    calls = dict(urllib.parse.parse_qsl(urllib.parse.urlsplit(begun.headers["location"]).query))
    assert calls["code_challenge_method"] == "S256"
    provider.nonce = calls["nonce"]
    pending = begun.headers["set-cookie"].split(";")[0] if cookie is None else cookie
    query = {"code": "c", "state": calls["state"] if state is None else state}
    return world.as_user(None, cookie=pending).get("/oidc/back", params=query)


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
