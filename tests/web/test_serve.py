"""The process that serves pages and API says where it does."""

from __future__ import annotations

import logging
import threading
from typing import Any

import pytest

from probing_cluster.core import settings
from probing_cluster.sandbox.machine import ports
from probing_cluster.web import serve


async def application(scope: Any, receive: Any, send: Any) -> None:
    """The least that can be served: it starts and ends."""
    assert scope["type"] == "lifespan"
    await receive()
    await send({"type": "lifespan.startup.complete"})
    await receive()
    await send({"type": "lifespan.shutdown.complete"})


def test_where_it_serves_is_logged_once_it_listens(caplog: pytest.LogCaptureFixture) -> None:
    """Somebody who types `web serve` needs the address and the way to log in."""
    caplog.set_level(logging.INFO, logger="probing.web")
    port = ports.choose(1)[0]
    made = serve.options(settings.WebSettings(), application, "127.0.0.1", port)
    server = serve.Server(made, f"http://127.0.0.1:{port}")
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        assert thread.is_alive()
        thread.join(0.02)
    server.should_exit = True
    thread.join(20)
    (record,) = caplog.records
    assert record.fields == {"url": f"http://127.0.0.1:{port}", "log_in": "probing-ctl web login"}  # type: ignore[attr-defined]
