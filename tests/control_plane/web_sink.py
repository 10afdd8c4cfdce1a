"""A real HTTP(S) server on a thread that keeps what is posted to it; `statuses` are answered in order, then 200."""

from __future__ import annotations

import contextlib
import http.server
import json
import ssl
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any


class Sink:
    def __init__(self) -> None:
        self.posts: list[dict[str, Any]] = []
        self.at_s: list[float] = []
        """When each was posted, by time.time()."""
        self.statuses: list[int] = []
        self.port = 0

    @property
    def titles(self) -> list[str]:
        return [p["title"] for p in self.posts]


@contextlib.contextmanager
def running(sink: Sink, cert: tuple[Path, Path] | None = None) -> Iterator[int]:
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            status = sink.statuses.pop(0) if sink.statuses else 200
            if status == 200:
                sink.at_s.append(time.time())
                sink.posts.append(json.loads(body))
            self.send_response(status)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    if cert is not None:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(*cert)
        server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    sink.port = server.server_address[1]
    try:
        yield sink.port
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
