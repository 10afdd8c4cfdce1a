"""`probing-ctl web login` on the host of the pages: a link that leads nowhere says so."""

from __future__ import annotations

import socket

from probing_cluster.web import web_commands


def test_a_link_to_pages_that_nobody_serves_says_what_serves_them() -> None:
    """Only of this host's own loopback can that be told; elsewhere the pages may well be served."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{listening.getsockname()[1]}/login#key"
        assert "probing-ctl web serve" in web_commands._unserved(url)
        listening.listen()
        assert web_commands._unserved(url) == ""
    assert web_commands._unserved("https://probing.example.org/login#key") == ""
