"""The pages in a Chromium that has no network but loopback: they work, and nothing of them tries to leave the host."""

from __future__ import annotations

import contextlib
import ctypes
import os
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from concurrent import futures
from pathlib import Path

import pytest
import test_pages_in_browser
import uvicorn
import web_world
from playwright import sync_api
from web_world import OPERATOR, World

from probing_cluster.db import store as db_store
from probing_cluster.web import serve

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(os.geteuid() != 0, reason="only root makes a network namespace"),
    pytest.mark.skipif(not Path(test_pages_in_browser.CHROMIUM).exists(), reason="needs chromium"),
]
CLONE_NEWNET = 0x40000000


class Alone:
    """A network namespace with nothing but loopback, a socket that listens in it, and what was tried to send out of it."""

    def __init__(self) -> None:
        self._thread = futures.ThreadPoolExecutor(1)
        """Its one thread lives in the namespace; all others stay where they were."""
        self.socket, self.path = self._thread.submit(self._made).result()

    def _made(self) -> tuple[socket.socket, str]:
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.unshare(CLONE_NEWNET) != 0:
            pytest.skip(f"this machine gives no network namespace: {os.strerror(ctypes.get_errno())}")
        subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
        made = socket.socket()
        made.bind(("127.0.0.1", 0))
        return made, f"/proc/{os.getpid()}/task/{threading.get_native_id()}/ns/net"

    def n_without_route(self) -> int:
        """Packets that had nowhere to go: what left, or would have."""
        return self._thread.submit(_no_routes).result()

    def close(self) -> None:
        """Ends the namespace."""
        self.socket.close()
        self._thread.shutdown()


def _no_routes() -> int:
    """As the namespace of the calling thread counts them."""
    lines = Path("/proc/thread-self/net/snmp").read_text().splitlines()
    names, values = (line.split() for line in lines if line.startswith("Ip:"))
    return int(values[names.index("OutNoRoutes")])


@pytest.fixture
def alone() -> Iterator[Alone]:
    """Such a namespace."""
    made = Alone()
    yield made
    made.close()


@contextlib.contextmanager
def served_in(alone: Alone, made: World) -> Iterator[str]:
    """The application, reached from inside alone."""
    port = alone.socket.getsockname()[1]
    server = uvicorn.Server(serve.options(made.site.service.config.web, made.app, "127.0.0.1", port))
    thread = threading.Thread(target=lambda: server.run(sockets=[alone.socket]), daemon=True)
    thread.start()
    while not server.started:
        assert thread.is_alive()
        time.sleep(0.02)
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        server.should_exit = True
        thread.join(20)


def test_every_page_works_with_loopback_alone(
    store: db_store.Store, world: World, alone: Alone, tmp_path: Path
) -> None:
    """No proxy stands between: what a page, its worker or its stream wanted elsewhere would find no route, and is counted."""
    made = web_world.world_on(store, listen=f"127.0.0.1:{alone.socket.getsockname()[1]}")
    web_world.stuck(made)
    inside = tmp_path / "chromium"
    inside.write_text(f'#!/bin/sh\nexec nsenter --net={alone.path} {test_pages_in_browser.CHROMIUM} "$@"\n')
    inside.chmod(0o755)
    with served_in(alone, made) as url, sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=str(inside), args=[*test_pages_in_browser.FLAGS, "--no-proxy-server"]
        )
        try:
            page = test_pages_in_browser.logged_in(browser, made, OPERATOR).new_page()
            before = alone.n_without_route()
            for path in test_pages_in_browser.PAGES:
                page.goto(url + path)
                assert page.evaluate("getComputedStyle(document.body).fontSize") == "16px", path
            page.goto(url)
            page.wait_for_selector("[data-live][data-state]")
            assert alone.n_without_route() == before
            with contextlib.suppress(sync_api.Error):
                page.goto("http://192.0.2.1/")
            assert alone.n_without_route() > before, "what a page sends elsewhere is counted"
        finally:
            browser.close()
