"""The pages in a real Chromium: accessible, by themselves, in any time zone, and asking nobody else."""

from __future__ import annotations

import contextlib
import os
import socketserver
import threading
import time
from collections.abc import Iterator

import fakes
import pytest
import test_tasks
import uvicorn
import web_world
from axe_playwright_python import sync_playwright as axe
from playwright import sync_api
from web_world import OPERATOR, World

from probing_cluster.core import errors
from probing_cluster.db import store as db_store
from probing_cluster.sandbox.machine import ports
from probing_cluster.web import serve
from probing_cluster.web.access import viewers

CHROMIUM = "/usr/bin/chromium"
FLAGS = [
    "--no-sandbox",
    "--disable-dev-shm-usage",
    "--gaia-url=http://127.0.0.1:1/",
    "--component-updater=url-source=http://127.0.0.1:1/",
    "--autofill-server-url=http://127.0.0.1:1/",
]
PAGES = (
    "/", "/jobs", "/jobs/7", "/jobs/12", "/nodes", "/nodes/n1", "/repairs", "/fleet", "/lemons", "/search?q=zz", "/sql",
)  # fmt: skip
PATIENCE_MS = 120_000
"""For whatever a page is to come to."""
BUSY = 3
"""A machine that others use may take so many times as long."""
PHONE = {"width": 390, "height": 844}
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sync_api is None, reason="needs playwright"),
]


class Recorder(socketserver.ThreadingTCPServer):
    """A proxy that forwards nothing and remembers everything: what arrives here has left the host."""

    daemon_threads = True
    allow_reuse_address = True

    def __init__(self) -> None:
        self.requests: list[bytes] = []
        super().__init__(("127.0.0.1", 0), _Record)


class _Record(socketserver.StreamRequestHandler):
    server: Recorder

    def handle(self) -> None:
        self.server.requests.append(self.rfile.readline(500))


@contextlib.contextmanager
def served(made: World, port: int) -> Iterator[str]:
    """The application on a real port, as `web serve` runs it."""
    config = serve.options(made.site.service.config.web, made.app, "127.0.0.1", port)
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        assert thread.is_alive()
        time.sleep(0.02)
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        server.should_exit = True
        thread.join(20)
        assert not thread.is_alive(), "a stream kept the server from ending"


@contextlib.contextmanager
def browsing() -> Iterator[tuple[sync_api.Browser, Recorder]]:
    """Chromium behind the recorder."""
    if not __import__("os").path.exists(CHROMIUM):
        pytest.skip("needs chromium")
    recorder = Recorder()
    threading.Thread(target=recorder.serve_forever, daemon=True).start()
    with sync_api.sync_playwright() as playwright:
        proxy = {"server": f"http://127.0.0.1:{recorder.server_address[1]}", "bypass": "127.0.0.1"}
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS, proxy=proxy)
        try:
            yield browser, recorder
        finally:
            browser.close()
            recorder.shutdown()
            recorder.server_close()


def logged_in(
    browser: sync_api.Browser, made: World, user: str, **options: object
) -> sync_api.BrowserContext:
    """A browser's window in which somebody is logged in."""
    context = browser.new_context(**options)
    context.set_default_timeout(PATIENCE_MS)
    cookie = {
        "name": viewers.COOKIE,
        "value": made.key(user),
        "domain": "127.0.0.1",
        "path": "/",
        "secure": True,
    }
    context.add_cookies([cookie])
    return context


def _by_keyboard(page: sync_api.Page, url: str) -> None:
    """The content, a search and every figure of the ranks without a mouse."""
    page.goto(f"{url}/jobs/12")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the content"
    page.keyboard.press("Enter")
    page.wait_for_function("document.activeElement.id === 'main'")
    for _ in range(20):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.dataset.layer") == "behind":
            break
    page.keyboard.press("Enter")
    page.wait_for_selector("[data-layer=behind][aria-pressed=true]")
    page.wait_for_selector("[data-heat-words]:has-text('steps')")
    page.goto(url)
    page.focus("#find")
    page.keyboard.type("n1")
    page.keyboard.press("Enter")
    page.wait_for_url(f"{url}/nodes/n1")


def _without_a_picture(page: sync_api.Page, url: str) -> None:
    """An answer that is another page, such as the login's, is not drawn as ranks."""
    page.route(
        "**/heat?*", lambda route: route.fulfill(status=200, content_type="text/html", body="<h1>Log in</h1>")
    )
    page.goto(f"{url}/jobs/12")
    page.wait_for_selector("[data-heat-words]:has-text('load the page again')")
    page.unroute("**/heat?*")


def test_pages_in_a_browser(store: db_store.Store, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Login by a link; no accessibility fault, no script error, no request elsewhere; the live page follows; a server that ends."""
    port = ports.choose(1)[0]
    made = web_world.world_on(store, listen=f"127.0.0.1:{port}")
    web_world.stuck(made)
    with served(made, port) as url, browsing() as (browser, recorder):
        wrong: list[str] = []
        context = browser.new_context(timezone_id="Pacific/Auckland", color_scheme="dark")
        context.set_default_timeout(PATIENCE_MS)
        page = context.new_page()
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on("console", lambda message: wrong.append(message.text) if message.type == "error" else None)
        may = viewers.Viewers(made.site)._may(OPERATOR)
        # The door itself, as whoever has no key finds it.
        page.goto(f"{url}/login")
        assert [v["id"] for v in axe.Axe().run(page).response["violations"]] == []
        page.goto(f"{url}/login?next=%2Fjobs%2F7#{made.site.keys.issue(may, 'link', 60.0)}")
        page.get_by_role("button", name="Log in").click()
        page.wait_for_url(f"{url}/jobs/7")
        assert "GPU 3 of n2 fell off the bus" in page.inner_text("main")
        for path in PAGES:
            page.goto(url + path)
            for scheme in ("light", "dark"):
                page.emulate_media(color_scheme=scheme)
                faults = [v["id"] for v in axe.Axe().run(page).response["violations"]]
                assert faults == [], (path, scheme, faults)
            for size in ({"width": 1280, "height": 800}, PHONE):
                page.set_viewport_size(size)
                assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), (path, size)
        page.set_viewport_size({"width": 1280, "height": 800})
        _by_keyboard(page, url)
        _without_a_picture(page, url)
        # Times are UTC, whatever zone the browser lives in.
        page.goto(f"{url}/jobs")
        times = page.eval_on_selector_all("td time", "all => all.map(t => [t.dateTime, t.textContent])")
        assert times
        assert all(iso[:19].replace("T", " ") + "Z" == text for iso, text in times)
        # The live page shows what comes after it, without being loaded again.
        page.goto(url)
        page.wait_for_selector("[data-live][data-state]")
        fresh = web_world.attempt(99, name="a fresh death")
        store.upsert_attempts([fresh])
        store.save_verdicts([web_world.verdict(fresh, summary="Its GPU has just been lost.")])
        page.wait_for_selector("text=Its GPU has just been lost.")
        # Without the source it stops looking alive, and so does the page of a job that runs.
        job = context.new_page()
        job.goto(f"{url}/jobs/12")
        assert wrong == []

        def away(*_: object) -> None:
            raise errors.DatabaseUnavailable("the database is gone")

        monkeypatch.setattr(type(made.site), "all_rows", away)
        page.wait_for_selector(".live[data-state=stale]:has-text('not live: the database is gone')")
        job.wait_for_selector(".live[data-state=stale]:has-text('not live since')")
        context.close()
        assert recorder.requests == []


def test_the_evidence_is_read_on_a_phone(store: db_store.Store, world: World) -> None:
    """Its text is within the screen, not beyond its edge beside a row of the height of its many characters."""
    event = test_tasks.xid(message="NVRM: Xid (PCI:0000:5e:00): 79, GPU has fallen off the bus. " * 8)
    fakes.deliver(store, "n2", event)
    seven = web_world.attempt(7)
    store.save_verdicts([web_world.verdict(seven, evidence=(event.event_id,))])
    port = ports.choose(1)[0]
    made = web_world.world_on(store, listen=f"127.0.0.1:{port}")
    with served(made, port) as url, browsing() as (browser, _):
        context = logged_in(browser, made, OPERATOR, viewport={"width": 360, "height": 800})
        page = context.new_page()
        page.goto(f"{url}/jobs/7")
        boxes = page.eval_on_selector_all(
            "tr[id^=event-] td", "all => all.map(td => td.getBoundingClientRect().toJSON())"
        )
        assert len(boxes) == 6
        assert [box for box in boxes if box["right"] > 360] == []
        if shot := os.environ.get("SHOT"):
            page.screenshot(path=shot, full_page=True)
        context.close()


@pytest.mark.soak
def test_sixteen_thousand_ranks_are_drawn_in_a_second(store: db_store.Store, world: World) -> None:
    """2,000 nodes with eight ranks each and ten minutes behind them: from navigation to picture, server and all."""
    port = ports.choose(1)[0]
    made = web_world.world_on(store, listen=f"127.0.0.1:{port}")
    web_world.many_ranks(made)
    with served(made, port) as url, browsing() as (browser, _):
        context = logged_in(browser, made, OPERATOR)
        context.add_init_script(
            "new MutationObserver(() => { const box = document.querySelector('[data-drawn]');"
            " if (box && !window.drawnAt) window.drawnAt = performance.now(); })"
            ".observe(document, {subtree: true, attributes: true, attributeFilter: ['data-drawn']});"
        )
        page = context.new_page()
        took_ms = []
        for _ in range(5):
            page.goto(f"{url}/jobs/12")
            page.wait_for_selector("[data-drawn]")
            took_ms.append(page.evaluate("window.drawnAt"))
            time.sleep(2.5)  # what was read for the page before is old by then
        assert page.get_attribute("[data-heat]", "data-drawn") == "16000x120"
        print("navigation to picture, ms:", [round(t) for t in took_ms])
        assert min(took_ms) < 1000 * BUSY
