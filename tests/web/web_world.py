"""A site on a real database: owner, stranger, coordinator and operator, each with a session of their own."""

from __future__ import annotations

import dataclasses
from datetime import timedelta
from typing import Any

import anyio
import fakes
import httpx2

from probing_cluster.control_plane import context
from probing_cluster.control_plane.door import web_keys
from probing_cluster.core import records, settings
from probing_cluster.db import store as db_store
from probing_cluster.web import app, scoped_rows
from probing_cluster.web import site as web_site
from probing_cluster.web.access import cross_site, viewers

OWNER, STRANGER, COORDINATOR, OPERATOR, ACTOR = "nobody", "daemon", "games", "backup", "root"
"""Accounts that every Debian has; job 7 is OWNER's on account lab, which COORDINATOR coordinates."""
ADDRESS = "http://127.0.0.1:8780"


def attempt(job_id: int, **changes: Any) -> records.JobAttempt:
    """A job that failed a quarter of an hour ago, on n1 and n2."""
    values: dict[str, Any] = {
        "cluster": "c", "job_id": job_id, "submit_at": fakes.NOW - timedelta(hours=1),
        "start_at": fakes.NOW - timedelta(minutes=50), "end_at": fakes.NOW - timedelta(minutes=15), "state": "FAILED",
        "nodes": ("n1", "n2"), "n_gpus": 16, "user": OWNER, "account": "lab", "partition": "gpu", "name": "llama",
        "run_key": str(job_id),
    }  # fmt: skip
    return records.JobAttempt(**values | changes)


def verdict(of: records.JobAttempt, **changes: Any) -> records.Verdict:
    """Its GPU was lost."""
    values: dict[str, Any] = {
        "cluster": of.cluster, "job_id": of.job_id, "submit_at": of.submit_at, "cause": "gpu_lost",
        "domain": records.Domain.HARDWARE, "component": "gpu", "node": "n2", "device": "gpu3",
        "confidence": records.Confidence.CERTAIN, "summary": "GPU 3 of n2 fell off the bus.",
        "next_step": "Resubmit; n2 is drained.", "rules_version": "1", "made_at": fakes.NOW,
    }  # fmt: skip
    return records.Verdict(**values | changes)


@dataclasses.dataclass
class World:
    """The site, its application, and browsers of its people."""

    site: web_site.Site
    app: Any
    hands: fakes.Hands
    store: db_store.Store

    def key(self, user: str, kind: str = "session", *, acts: bool = True) -> str:
        """A key of somebody's."""
        found = viewers.Viewers(self.site)._may(user)
        assert found is not None
        return self.site.keys.issue(found, kind, 600.0, acts=acts, label="t" if kind == "token" else "")

    def as_user(self, user: str | None, **headers: str) -> Browser:
        """A browser in which somebody is logged in; nobody is where `user` is None."""
        return Browser(self, self.key(user) if user else None, headers)

    def machine(self, user: str, *, acts: bool = False) -> Browser:
        """A program with a token."""
        made = Browser(self, None, {"authorization": f"Bearer {self.key(user, 'token', acts=acts)}"})
        made.headers.pop("sec-fetch-site")
        return made


class Browser:
    """Sends what a browser sends from one of our own pages."""

    def __init__(self, world: World, key: str | None, headers: dict[str, str]) -> None:
        self.world = world
        self.headers = {"host": "127.0.0.1:8780", "sec-fetch-site": "same-origin"} | headers
        if key:
            self.headers["cookie"] = f"{viewers.COOKIE}={key}"
            self.headers[cross_site.HEADER] = cross_site.token(web_keys.proof_of(key))

    def __call__(
        self, method: str, path: str, *, address: str = "127.0.0.1", **options: Any
    ) -> httpx2.Response:
        """One exchange, in process."""
        headers = self.headers | options.pop("headers", {})
        headers = {name: value for name, value in headers.items() if value is not None}

        async def send() -> httpx2.Response:
            transport = httpx2.ASGITransport(
                self.world.app, client=(address, 1234), raise_app_exceptions=False
            )
            async with httpx2.AsyncClient(transport=transport, base_url=ADDRESS) as client:
                return await client.request(method, path, headers=headers, follow_redirects=False, **options)

        return anyio.run(send)

    def get(self, path: str, **options: Any) -> httpx2.Response:
        return self("GET", path, **options)

    def post(self, path: str, **options: Any) -> httpx2.Response:
        return self("POST", path, **options)


def service_on(store: db_store.Store, hands: Any, **web: Any) -> context.Context:
    """A service for the web on a store."""
    sacct = fakes.Sacct()
    sacct.users, sacct.accounts = f"{OPERATOR}|Operator\n{STRANGER}|None\n", f"lab|{COORDINATOR}\nsecret|\n"
    config = settings.Settings(
        cluster=settings.ClusterSettings(name="c"),
        web=settings.WebSettings(**{"requests_per_s": 1e6} | web),
    )
    return context.Context(config=config, store=store, run_slurm=sacct, hands=hands, clock=fakes.Clock())


def world_on(store: db_store.Store, **web: Any) -> World:
    """A site on a store."""
    hands = fakes.Hands()
    url = store.url.replace("probing_owner", scoped_rows.LOGIN, 1)
    scoped_rows.made_login(store.url, url)
    site = app.make_site(service_on(store, hands, **web), url)
    return World(site, app.make(site), hands, store)
