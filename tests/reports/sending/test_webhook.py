from __future__ import annotations

import hashlib
import hmac
import http.server
import threading
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest

from probing_cluster.core import errors
from probing_cluster.reports.sending import webhook

AT = datetime(2026, 11, 21, 6, tzinfo=UTC)


class Receiver(http.server.ThreadingHTTPServer):
    """Keeps posts; answers with `status`."""

    status = 204

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.posts: list[tuple[dict[str, str], bytes]] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/hook"


class Handler(http.server.BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        server = self.server
        assert isinstance(server, Receiver)
        body = self.rfile.read(int(self.headers["Content-Length"]))
        server.posts.append((dict(self.headers), body))
        self.send_response(server.status)
        if server.status == 302:
            self.send_header("Location", server.url + "/elsewhere")
        self.end_headers()

    do_GET = do_POST  # noqa: N815 - the base class's name

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with Receiver() as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def post(url: str) -> webhook.smtp.SendOutcome:
    return webhook.post(url, "s3cret", "lemon.c.2026-11-20", b'{"day": 1}', AT, 20.0)


def test_the_receiver_can_check_who_sent_it(receiver: Receiver) -> None:
    """The signature is HMAC-SHA256 of timestamp and body, written here a second time as a receiver would."""
    assert post(receiver.url).sent == (receiver.url,)
    ((headers, body),) = receiver.posts
    assert (headers["Content-Type"], headers["X-Probing-Delivery"]) == (
        "application/json",
        "lemon.c.2026-11-20",
    )
    stamp = headers["X-Probing-Timestamp"]
    assert stamp == str(int(AT.timestamp()))
    expected = hmac.new(b"s3cret", stamp.encode() + b"." + body, hashlib.sha256).hexdigest()
    assert headers["X-Probing-Signature"] == f"v1={expected}"
    assert webhook.sign("other", int(stamp), body) != headers["X-Probing-Signature"]


@pytest.mark.parametrize(
    ("status", "final"), [(500, False), (503, False), (429, False), (408, False), (400, True), (404, True)]
)
def test_what_is_tried_again(receiver: Receiver, status: int, final: bool) -> None:
    """A server's trouble is for later; a refusal is for good."""
    receiver.status = status
    outcome = post(receiver.url)
    assert str(status) in (outcome.never if final else outcome.later)[receiver.url]
    assert outcome.sent == ()


def test_a_redirect_is_not_followed(receiver: Receiver) -> None:
    """Signature and report go to the address in the settings or nowhere."""
    receiver.status = 302
    assert "302" in post(receiver.url).never[receiver.url]
    assert len(receiver.posts) == 1


def test_nobody_there_is_for_later(receiver: Receiver) -> None:
    """No connection: it waits."""
    url = receiver.url
    receiver.server_close()
    assert set(post(url).later) == {url}


@pytest.mark.parametrize("url", ["http://example.org/x", "file:///etc/passwd", "ftp://x", "https://", "x"])
def test_only_https_leaves_the_machine(url: str) -> None:
    """Anything else is a mistake in the settings."""
    with pytest.raises(errors.SettingsError, match="must be https"):
        post(url)
