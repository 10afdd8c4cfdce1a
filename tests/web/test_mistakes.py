"""Twelve mistakes that pages of this kind have made elsewhere, each tried here. (The first has its own file: api/test_register.py.)"""

from __future__ import annotations

import asyncio
import dataclasses
import re
import urllib.parse
from collections import Counter
from datetime import UTC, datetime, timedelta

import fakes
import psycopg
import pytest
import test_openapi_fuzz
import web_world
from web_world import ACTOR, COORDINATOR, OPERATOR, OWNER, STRANGER, World

from probing_cluster.control_plane.door import web_keys
from probing_cluster.core import errors
from probing_cluster.web.access import cross_site, viewers
from probing_cluster.web.api import openapi, register
from probing_cluster.web.live import broadcast
from probing_cluster.web.pages import routes

EVERY_PAGE = (
    "/", "/jobs", "/jobs/7", "/nodes", "/nodes/n1", "/repairs", "/fleet", "/lemons", "/sql", "/search?q=zz",
)  # fmt: skip
PROXY = {"proxy_networks": ("10.0.0.0/24",)}


def test_1_a_list_holds_what_its_reader_may_see(world: World) -> None:
    """Jobs, search and SQL: the owner, the coordinator and the operator see theirs, a stranger nothing, by application and policies."""
    visible = {OWNER: {7}, COORDINATOR: {7}, STRANGER: set(), OPERATOR: {7, 8}}
    for user, ids in visible.items():
        browser = world.as_user(user)
        assert {j["job_id"] for j in browser.get("/api/v1/jobs").json()["items"]} == ids, user
        rows = browser.post("/api/v1/sql", json={"sql": "select job_id from attempt_verdicts"}).json()["rows"]
        assert {row[0] for row in rows} == ids, user
        found = browser.get("/api/v1/search", params={"q": "8"}).json()
        assert [f["path"] for f in found if f["kind"] == "job"] == (["/jobs/8"] if 8 in ids else []), user
        assert ("/jobs/8" in browser.get("/").text) == (8 in ids), user


def test_1b_the_policies_hold_without_the_application(world: World) -> None:
    """The web's login sees nothing by itself, nothing with a wrong proof, and cannot read the keys."""
    reader = world.site.reader
    key = world.key(OWNER)
    everything = "select job_id from probing.job_attempt"
    assert reader.rows("", everything, {}) == []
    assert reader.rows("0" * 64, everything, {}) == []
    assert [r["job_id"] for r in reader.rows(web_keys.proof_of(key), everything, {})] == [7]
    for query in (
        "select * from probing.web_key",
        "select * from probing.web_request",
        "select * from probing.state",
    ):
        with pytest.raises((errors.NotPermitted, psycopg.errors.InsufficientPrivilege)):
            reader.rows(web_keys.proof_of(key), query, {})
    world.site.keys.end(web_keys.proof_of(key))
    assert reader.rows(web_keys.proof_of(key), everything, {}) == []


WRITES = (
    "delete from probing.job_attempt",
    "select 1; select 2",
    "select set_config('transaction_read_only', 'off', true)",
    "select * from probing.web_key",
    "select pg_read_file('/etc/passwd')",
    "copy (select 1) to '/tmp/x'",
    "",
    "\0",
)


def test_1c_the_console_only_asks(world: World) -> None:
    """Whatever is written there: no write, no second statement, no file, no key; and never a 500."""
    browser = world.as_user(OPERATOR)
    for sql in WRITES:
        found = browser.post("/api/v1/sql", json={"sql": sql})
        assert found.status_code in (400, 403), (sql, found.text)


def test_2_a_header_is_believed_from_named_addresses_only(store, world: World) -> None:
    """One header from the proxy's own socket; not two, not from elsewhere, not behind a false X-Forwarded-For, never root."""
    made = web_world.world_on(store, **PROXY)
    stranger = made.as_user(None)

    def status(address: str, **headers: str) -> int:
        return stranger.get("/api/v1/me", address=address, headers=headers).status_code

    assert status("10.0.0.9", **{"x-remote-user": OWNER}) == 200
    assert status("10.0.1.9", **{"x-remote-user": OWNER}) == 403
    assert status("192.0.2.1", **{"x-remote-user": OWNER, "x-forwarded-for": "10.0.0.9"}) == 403
    assert status("10.0.0.9", **{"x-remote-user": ""}) == 403
    assert status("10.0.0.9", **{"x-remote-user": "root"}) == 403
    assert status("10.0.0.9", **{"x-remote-user": "nobody-of-that-name"}) == 403
    assert status("10.0.0.9") == 401
    identify = viewers.Viewers(made.site).identify
    with pytest.raises(errors.NotPermitted):
        identify([("x-remote-user", OWNER), ("x-remote-user", OPERATOR)], "10.0.0.9")
    # Without named networks nobody's header is even looked at.
    assert world.as_user(None).get("/api/v1/me", headers={"x-remote-user": OWNER}).status_code == 401
    made.site.reader.close()


def test_3_looking_at_a_link_spends_nothing(world: World) -> None:
    """GET twice, then POST: in. POST again: out, and so is one that is old."""
    may = viewers.Viewers(world.site)._may(OWNER)
    link = world.site.keys.issue(may, "link", 60.0)
    browser = world.as_user(None)
    assert [browser.get("/login").status_code for _ in range(2)] == [200, 200]
    came_in = browser.post("/login", data={"key": link, "next": "/jobs/7"})
    assert (came_in.status_code, came_in.headers["location"]) == (303, "/jobs/7")
    cookie = came_in.headers["set-cookie"]
    assert all(word in cookie for word in (viewers.COOKIE, "Secure", "HttpOnly", "SameSite=lax", "Path=/"))
    session = cookie.split("=", 1)[1].split(";")[0]
    assert (
        browser.get("/api/v1/me", headers={"cookie": f"{viewers.COOKIE}={session}"}).json()["user"] == OWNER
    )
    assert browser.post("/login", data={"key": link}).status_code == 403
    old = world.site.keys.issue(may, "link", -1.0)
    assert browser.post("/login", data={"key": old}).status_code == 403
    # A link is no session, and a session no link.
    fresh = world.site.keys.issue(may, "link", 60.0)
    assert browser.get("/api/v1/me", headers={"cookie": f"{viewers.COOKIE}={fresh}"}).status_code == 401
    assert browser.post("/login", data={"key": session}).status_code == 403


FOREIGN = (
    {"sec-fetch-site": "same-site"},
    {"sec-fetch-site": "cross-site"},
    {"sec-fetch-site": "none"},
    {"origin": "null"},
    {"origin": "https://evil.example"},
    {"origin": "http://127.0.0.1:8781"},
    {cross_site.HEADER: "0" * 64},
    {cross_site.HEADER: None},
)


def test_4_another_sites_page_changes_nothing(world: World) -> None:
    """A neighbour, a sandboxed frame, a foreign Origin, a missing or foreign token: refused, and nothing is done."""
    browser = world.as_user(ACTOR)
    for headers in FOREIGN:
        options = {"json": {"reason": "x"}, "headers": {"idempotency-key": "k" * 16} | headers}
        assert browser.post("/api/v1/nodes/n1/drain", **options).status_code == 403, headers
        login = world.as_user(None).post("/login", data={"key": "x" * 40}, headers=headers)
        assert login.status_code == 403, headers
    assert world.slurm.acts == []
    good = browser.post("/api/v1/nodes/n1/drain", json={"reason": "x"}, headers={"idempotency-key": "k" * 16})
    assert good.status_code == 200


def test_an_action_without_a_body_is_one_with_an_empty_object(world: World) -> None:
    """What an action must be given is named where it lacks."""
    browser = world.as_user(ACTOR)
    bare, empty = (
        browser.post("/api/v1/nodes/n1/resume", headers={"idempotency-key": key * 16}, **body)
        for key, body in (("a", {}), ("b", {"json": {}}))
    )
    assert (bare.status_code, "truncated" in bare.text) == (empty.status_code, False)
    lacks = browser.post("/api/v1/nodes/n1/drain", headers={"idempotency-key": "c" * 16})
    assert (lacks.status_code, "reason" in lacks.text) == (400, True)


def test_5_names_are_never_markup(world: World) -> None:
    """A job's name, a node's, a reason and a search are text, on every page and in the stream."""
    evil = '<img src=x onerror="alert(1)"><a href="javascript:alert(1)">'
    bad = web_world.attempt(9, name=evil, partition=evil[:20])
    world.store.upsert_attempts([bad])
    world.store.save_verdicts([web_world.verdict(bad, summary=evil, next_step=evil, device=evil)])
    browser = world.as_user(OPERATOR)
    for path in ("/", "/jobs", "/jobs/9", "/search?q=9", f"/search?q={evil}", "/nodes/n1"):
        text = browser.get(path, headers={"accept": "text/html"}).text
        assert "<img src=x" not in text, path
        assert '<a href="javascript:' not in text, path
    live = broadcast.Broadcast(world.site).now()
    assert b"<img src=x" not in routes.markup_of(world.site, live, viewers.Viewers(world.site)._may(OPERATOR))


ELSEWHERE = (
    "//evil.example", "/\\evil.example", "/%5cevil.example", "/%2f%2fevil.example", "https://evil.example", "/%255cevil",
     "\\\\evil", "javascript:alert(1)", "/\t/evil.example", "/%09/evil.example", "", "///evil", "/jobs\r\nset-cookie: a=b",
)  # fmt: skip


def test_6_a_login_leads_to_our_own_pages_only(world: World) -> None:
    """However the address is written, one of another site becomes the first page."""
    for target in ELSEWHERE:
        assert cross_site.own_path(target) == "/", target
        link = world.site.keys.issue(viewers.Viewers(world.site)._may(OWNER), "link", 60.0)
        found = world.as_user(None).post("/login", data={"key": link, "next": target})
        assert found.headers["location"] == "/", target
    assert cross_site.own_path("/jobs?user=ann&cause=gpu_lost") == "/jobs?user=ann&cause=gpu_lost"


def test_7_lists_are_paged_and_bounded(world: World) -> None:
    """A thousand attempts: a page holds what was asked for, its bytes are bounded, and following it gives each row once."""
    many = [
        web_world.attempt(
            100 + n,
            nodes=tuple(f"gpu{i:04}" for i in range(2000)) if n == 0 else ("n1",),
            start_at=fakes.NOW - timedelta(days=n % 300, hours=2),
            submit_at=fakes.NOW - timedelta(days=300, hours=3),
        )
        for n in range(1000)
    ]
    world.store.upsert_attempts(many)
    browser = world.as_user(OPERATOR)
    ids, cursor, pages = [], None, 0
    while pages == 0 or cursor:
        query = {"limit": 200} | ({"cursor": cursor} if cursor else {})
        page = browser.get("/api/v1/jobs", params=query)
        assert len(page.content) < 300_000
        ids += [j["job_id"] for j in page.json()["items"]]
        cursor, pages = page.json()["next"], pages + 1
    assert len(ids) == len(set(ids)) == 1002
    assert len(browser.get("/jobs").content) < 150_000
    assert browser.get("/api/v1/jobs", params={"limit": 201}).status_code == 400
    for cursor in ("x", "bm9uZQ", "W10", "WzEsIDIsIDNd"):
        assert browser.get("/api/v1/jobs", params={"cursor": cursor}).status_code == 400


N_PAGES = 200


def test_8_many_who_look_are_one_question(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two hundred open pages: the picture is gathered once a look, not once a page, and rendered once an audience."""
    calls: list[str] = []
    whole = world.site.all_rows
    monkeypatch.setattr(
        type(world.site), "all_rows", lambda self, name, given=None: calls.append(name) or whole(name, given)
    )
    rendered: list[str] = []

    def render(site, part, viewer) -> bytes:
        rendered.append(viewer.user)
        return b"{}"

    async def look() -> int:
        live = broadcast.Broadcast(world.site)
        operator, owner = (viewers.Viewers(world.site)._may(name) for name in (OPERATOR, OWNER))
        # One user may hold sixteen streams: these are of a dozen operators and one user.
        many = [
            live.stream(
                dataclasses.replace(operator, user=f"op{n // broadcast.MOST_OF_ONE}"), render, lambda: True
            )
            for n in range(N_PAGES - 1)
        ]
        many.append(live.stream(owner, render, lambda: True))
        n_received = 0
        for one in many:
            await anext(one)
        for one in many:
            n_received += b"event: now" in await asyncio.wait_for(anext(one), 10)
        for one in many:
            await one.aclose()
        return n_received

    assert asyncio.run(look()) == N_PAGES
    assert max(Counter(calls).values()) == 1, "no question was asked twice"
    assert "now_jobs" in calls
    assert len(rendered) == 2, "once for all operators, once for the user"
    assert OWNER in rendered


def test_9_times_are_utc_and_say_so(world: World) -> None:
    """Instants of the API end in Z; pages print UTC whatever zone browser, server or database live in."""
    job = world.as_user(OWNER).get("/api/v1/jobs").json()["items"][0]
    assert job["start_at"].endswith("Z")
    shown = re.findall(r'<time datetime="([^"]+)">([^<]+)</time>', world.as_user(OWNER).get("/jobs").text)
    assert shown
    assert all(iso[:19].replace("T", " ") + "Z" == text for iso, text in shown)


def test_10_every_page_works_under_a_path(store) -> None:
    """Behind https://portal/probing each link, form, script and redirect keeps the path, stripped by the proxy or not."""
    made = web_world.world_on(store, url="https://portal.example/probing")
    store.upsert_attempts([web_world.attempt(7)])
    browser = made.as_user(OPERATOR)
    browser.headers["host"] = "portal.example"
    for path in EVERY_PAGE:
        for prefix in ("/probing", ""):
            found = browser.get(prefix + path, headers={"accept": "text/html"})
            assert found.status_code == 200, (prefix, path)
            links = re.findall(r'(?:href|src|action|data-live|data-heat)="(/[^"]*)"', found.text)
            assert links
            assert [link for link in links if not link.startswith("/probing/")] == [], path
    outside = made.as_user(None)
    outside.headers["host"] = "portal.example"
    found = outside.get("/probing/jobs?user=a", headers={"accept": "text/html"})
    assert found.headers["location"] == "/probing/login?next=%2Fjobs%3Fuser%3Da"
    assert outside.get("/probing/static/web.js").status_code == 200
    made.site.reader.close()


def test_11_an_empty_database_is_no_500(store) -> None:
    """Before the first job, agent and night, Slurm away too: every page renders, every route answers."""
    made = web_world.world_on(store)
    made.slurm.down = True
    browser = made.as_user(OPERATOR)
    for path in EVERY_PAGE:
        found = browser.get(path, headers={"accept": "text/html"})
        assert found.status_code in ((404,) if path.endswith(("/7", "/n1")) else (200,)), (
            path,
            found.text[-500:],
        )
    assert 500 not in {status for _, status in test_openapi_fuzz.fuzz(made, 2)}
    made.site.reader.close()


def test_11b_a_database_that_is_away_is_503(world: World, postgres_url: str) -> None:
    """It lets nobody in any more: a sentence on every page, a problem document from every route, and all is well once it is back."""
    browser, machine = world.as_user(ACTOR), world.machine(ACTOR, acts=True)
    name = urllib.parse.urlsplit(postgres_url).path[1:]
    elsewhere = postgres_url.replace(f"/{name}", "/postgres")
    with psycopg.connect(elsewhere, autocommit=True) as server:
        server.execute(f"ALTER DATABASE {name} ALLOW_CONNECTIONS false")
        server.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", [name])
        try:
            for path in EVERY_PAGE:
                found = browser.get(path, headers={"accept": "text/html"})
                assert found.status_code == 503, path
                assert "the database does not answer" in found.text, path
                assert found.headers["content-type"].startswith("text/html"), path
                assert "probing-ctl doctor" in found.text, path
                assert browser.get(path, headers={"accept": "*/*"}).json()["status"] == 503, path
            assert browser.get("/static/web.css").status_code == 200, (
                "else the sentence has no page around it"
            )
            for op in register.OPERATIONS:
                path = openapi.BASE + op.path.translate({ord("{"): None, ord("}"): None})
                given = {} if op.body is None else {"json": {}, "headers": {"idempotency-key": "k" * 16}}
                found = machine(op.method, path, **given)
                assert (found.status_code, found.headers["content-type"]) == (
                    503,
                    "application/problem+json",
                ), op.name
        finally:
            server.execute(f"ALTER DATABASE {name} ALLOW_CONNECTIONS true")
    assert browser.get("/jobs").status_code == 200


def test_11c_what_is_missing_is_no_500(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Database away between two questions: 503 with a sentence; Slurm away: what does not need it still answers."""
    browser = world.as_user(OPERATOR)
    world.slurm.down = True
    for path in ("/", "/nodes", "/fleet", "/lemons", "/api/v1/nodes"):
        assert browser.get(path).status_code == 200, path

    def away(*_: object, **__: object) -> None:
        raise errors.DatabaseUnavailable("the database cannot be reached")

    monkeypatch.setattr(world.site.reader, "rows", away)
    monkeypatch.setattr(type(world.site), "all_rows", away)
    for path in ("/", "/jobs", "/nodes", "/api/v1/jobs", "/api/v1/health"):
        found = browser.get(path, headers={"accept": "text/html"})
        assert found.status_code == 503, path
        assert "cannot be reached" in found.text, path
    monkeypatch.setattr(world.site.keys, "find", away)
    assert browser.get("/api/v1/jobs").status_code == 503


def test_12_old_data_does_not_look_live(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Accounting not read, or no agent heard: the page says so; the stream says when the source is away."""
    browser = world.as_user(OPERATOR)
    for path in EVERY_PAGE:
        text = browser.get(path).text
        assert "This is not the present" in text, path
        assert "no agent was ever heard" in text, path
        assert re.search(r"as of <time[^>]*>[^<]+Z</time>", text), path
    fakes.deliver(world.store, "n1")
    world.store.remember("accounting.until c", datetime.now(UTC).isoformat())
    for path in EVERY_PAGE[1:]:  # Now's picture is five seconds old at most
        assert "This is not the present" not in browser.get(path).text, path
    world.store.remember("accounting.until c", (fakes.NOW - timedelta(hours=1)).isoformat())
    health = browser.get("/api/v1/health").json()
    assert not health["ok"]
    assert "accounting was last read" in health["why"]

    async def look() -> bytes:
        live = broadcast.Broadcast(world.site)
        monkeypatch.setattr(live, "now", lambda: (_ for _ in ()).throw(errors.DatabaseUnavailable("gone")))
        stream = live.stream(viewers.Viewers(world.site)._may(OPERATOR), routes.markup_of, lambda: True)
        await anext(stream)
        message = await asyncio.wait_for(anext(stream), 10)
        await stream.aclose()
        return message

    assert asyncio.run(look()).startswith(b"event: stale")
