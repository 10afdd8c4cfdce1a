"""`probing-ctl web login` on the host of the pages: a link that leads nowhere says so."""

from __future__ import annotations

import contextlib
import http.server
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import web_world

from probing_cluster.control_plane.cli import main
from probing_cluster.control_plane.door import web_keys
from probing_cluster.core import errors
from probing_cluster.reports import web_link
from probing_cluster.web import web_commands
from probing_cluster.web.access import gate


def test_a_link_to_pages_that_nobody_serves_says_what_serves_them() -> None:
    """Only of this host's own loopback can that be told; elsewhere the pages may well be served."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{listening.getsockname()[1]}/login#key"
        assert "probing-ctl web serve" in web_commands._unserved(url)
        listening.listen()
        assert web_commands._unserved(url) == ""
    assert web_commands._unserved("https://probing.example.org/login#key") == ""


@contextlib.contextmanager
def answering(known: str, status: int = 200) -> Iterator[str]:
    """A server at whose login page a link is known, unknown, or nothing that is heard of; its link."""

    class Page(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            if known and self.headers[gate.LINK_HEADER] == web_keys.proof_of("key"):
                self.send_header(gate.LINK_HEADER, known)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Nothing."""

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Page) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}/login#key"
        server.shutdown()


def test_a_link_to_pages_of_another_database_is_not_printed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever answers at the port must know the link; what does not is named."""
    monkeypatch.setattr(web_commands, "_PATIENCE_S", 60.0)
    with answering("known") as url:
        web_commands._require_known(url)
    for other in ("unknown", ""):
        with (
            answering(other) as url,
            pytest.raises(errors.NotFound, match="serves another cluster's database"),
        ):
            web_commands._require_known(url)
    with answering("", status=429) as url:
        web_commands._require_known(url)  # too many of this host ask: that says nothing about the link
    web_commands._require_known("https://probing.example.org/login#key")


def test_the_login_page_knows_its_own_links_and_spends_none(world: web_world.World) -> None:
    """Asked by the link's proof, which logs nobody in."""
    key, browser = world.key(web_world.OWNER, "link"), world.as_user(None)

    def known(proof: str) -> str:
        return browser.get("/login", headers={gate.LINK_HEADER: proof}).headers[gate.LINK_HEADER]

    assert [known(web_keys.proof_of(key)) for _ in range(2)] == ["known", "known"]
    assert known(web_keys.proof_of("another")) == "unknown"
    assert known(web_keys.proof_of(world.key(web_world.OWNER))) == "unknown", "a session is no link"
    assert gate.LINK_HEADER not in browser.get("/login").headers
    assert world.site.keys.redeem(key) is not None


def test_a_link_that_leads_nowhere_ends_with_1(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """A script that opens it hears that nothing listens there."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{bound.getsockname()[1]}/login#key"
        found = web_link.Link(url=url, user="alice", lasts_s=120.0)
        monkeypatch.setattr(web_link, "ask", lambda config, page: found)
        (tmp_path / "probing.toml").write_text('[cluster]\nname = "c"\n')
        assert main.main(["web", "login", "--url-only", "--config", str(tmp_path / "probing.toml")]) == 1
    captured = capsys.readouterr()
    assert captured.out == f"{url}\n"
    assert "nothing listens at" in captured.err
