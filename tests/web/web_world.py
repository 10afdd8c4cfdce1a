"""A site on a real database: owner, stranger, coordinator and operator, each with a session of their own."""

from __future__ import annotations

import contextlib
import dataclasses
import types
import urllib.error
import urllib.request
from collections.abc import Iterator
from datetime import timedelta
from email.message import Message
from typing import Any

import anyio
import fakes
import gang_rows
import httpx2
from sqlalchemy.dialects import postgresql as pg

from probing_cluster.control_plane import context
from probing_cluster.control_plane.door import web_keys
from probing_cluster.control_plane.gangs import gang_board
from probing_cluster.core import records, settings
from probing_cluster.db import rows, tables
from probing_cluster.db import store as db_store
from probing_cluster.reports import job_ref
from probing_cluster.web import app, scoped_rows
from probing_cluster.web import site as web_site
from probing_cluster.web.access import cross_site, viewers
from probing_cluster.web.api import openapi, register
from probing_cluster.web.live import rank_history
from tests.set_clock import SetClock

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
    slurm: fakes.FakeSlurm
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

    def client(self, user: str, *, acts: bool = False) -> Any:
        """The client that `probing-ctl web client` prints, with a token of somebody's."""
        made: dict[str, Any] = {}
        exec(openapi.client(register.OPERATIONS), made)
        browser = self.machine(user, acts=acts)
        return made["Client"](
            ADDRESS, browser.headers["authorization"].partition(" ")[2], open=browser.opened
        )


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

    @contextlib.contextmanager
    def opened(self, request: urllib.request.Request) -> Iterator[Any]:
        """As urllib opens it."""
        headers = {name.lower(): value for name, value in request.header_items()}
        content = request.data if isinstance(request.data, bytes) else None
        found = self(request.get_method(), request.full_url, headers=headers, content=content)
        if found.status_code >= 400:
            raise urllib.error.HTTPError(request.full_url, found.status_code, found.text, Message(), None)
        yield types.SimpleNamespace(
            read=lambda: found.content, headers={"Content-Type": found.headers["content-type"]}
        )

    def get(self, path: str, **options: Any) -> httpx2.Response:
        return self("GET", path, **options)

    def post(self, path: str, **options: Any) -> httpx2.Response:
        return self("POST", path, **options)


def service_on(store: db_store.Store, slurm: Any, **web: Any) -> context.Context:
    """A service for the web on a store."""
    sacct = fakes.Sacct()
    sacct.users, sacct.accounts = f"{OPERATOR}|Operator\n{STRANGER}|None\n", f"lab|{COORDINATOR}\nsecret|\n"
    config = settings.Settings(
        cluster=settings.ClusterSettings(name="c"),
        web=settings.WebSettings(**{"requests_per_s": 1e6, "sql_timeout_s": 120.0} | web),
    )
    return context.Context(
        config=config, store=store, run_slurm=sacct, slurm=slurm, clock=SetClock(fakes.NOW)
    )


def world_on(store: db_store.Store, **web: Any) -> World:
    """A site on a store."""
    slurm = fakes.FakeSlurm()
    url = store.url.replace("probing_owner", scoped_rows.LOGIN, 1)
    scoped_rows.made_login(store.url, url)
    site = app.make_site(service_on(store, slurm, **web), url)
    return World(site, app.make(site), slurm, store)


def stuck(world: World, job_id: int = 12) -> None:
    """OWNER's job on n1 and n2: rank 2 loops, the others wait for it, everybody has told."""
    store = world.store
    store.upsert_attempts([gang_rows.attempt(job_id, "n1", "n2", user=OWNER)])
    row = {
        r: gang_rows.row(
            r, stalled=True, steps=40 - r, inside="" if r == 2 else "all_reduce 0#41", world_size=4
        )
        for r in range(4)
    }
    gang_rows.beat(store, job_id, row)
    for node, ranks in (("n1", (0, 1)), ("n2", (2, 3))):
        entries: list[dict[str, Any]] = []
        for r in ranks:
            made = gang_rows.entry(r, gang_rows.LOOP if r == 2 else gang_rows.REDUCE)
            pair = {
                "group": f"{r // 2 + 1}",
                "role": "tp",
                "seq": 7,
                "op": "all_gather",
                "numel": 4,
                "group_size": 2,
                "left": True,
            }
            made["calls"].insert(0, pair)
            entries.append(made)
        gang_rows.snapshot(store, job_id, node, entries)


def many_ranks(world: World, n_nodes: int = 2000, job_id: int = 12) -> None:
    """Eight ranks on each node of one job, in their heartbeats and in ten minutes of looks."""
    nodes = [f"gpu{n:04}" for n in range(n_nodes)]
    world.store.upsert_attempts([gang_rows.attempt(job_id, *nodes, user=OWNER)])
    row = gang_rows.gang(10, ranks=8 * n_nodes)
    beats = [
        records.AgentHeartbeat(
            cluster="c", node=node, at=fakes.NOW, jobs=(job_id,),
            ranks={f"{job_id}:{r}": row[r] for r in range(8 * n, 8 * n + 8)},
        )
        for n, node in enumerate(nodes)
    ]  # fmt: skip
    with world.store.engine.begin() as connection:
        connection.execute(pg.insert(tables.agent_heartbeat), [rows.to_row(beat) for beat in beats])
    service = world.site.service
    gang = gang_board.find(world.store, "c", job_ref.parse(str(job_id)), service.clock.now())
    history = rank_history.HISTORIES.of(service, gang)
    for _ in range(rank_history.LOOKS - 1):
        history.looks.append(history.looks[0])
