"""The server's own TLS: what is answered there, and to whom it is not."""

from __future__ import annotations

import http.client
import shutil
import ssl
import subprocess
from pathlib import Path

import pytest
import test_pages_in_browser
import web_world
from web_world import OWNER

from probing_cluster.core import errors
from probing_cluster.db import store as db_store
from probing_cluster.sandbox.machine import ports
from probing_cluster.web import serve
from probing_cluster.web.access import viewers


def test_pages_come_over_tls_and_only_so(store: db_store.Store, tmp_path: Path) -> None:
    """A session's page with the word that browsers keep to TLS; plain HTTP gets no answer; a key that others read is refused."""
    if shutil.which("openssl") is None:
        pytest.skip("needs openssl")
    key, certificate = tmp_path / "web.key", tmp_path / "web.pem"
    made_by = [
        "openssl",
        "req",
        "-x509",
        "-newkey",
        "rsa:2048",
        "-nodes",
        "-days",
        "2",
        "-subj",
        "/CN=localhost",
    ]
    names = ["-addext", "subjectAltName=DNS:localhost", "-keyout", str(key), "-out", str(certificate)]
    subprocess.run([*made_by, *names], check=True, capture_output=True)
    key.chmod(0o600)
    port = ports.choose(1)[0]
    tls = {"tls_certificate": str(certificate), "tls_key": str(key), "listen": f"127.0.0.1:{port}"}
    made = web_world.world_on(store, url=f"https://localhost:{port}", **tls)
    with test_pages_in_browser.served(made, port):
        trusting = ssl.create_default_context(cafile=str(certificate))
        link = http.client.HTTPSConnection("localhost", port, context=trusting, timeout=60)
        link.request("GET", "/jobs", headers={"cookie": f"{viewers.COOKIE}={made.key(OWNER)}"})
        answer = link.getresponse()
        assert answer.status == 200
        assert b"No such job of yours" in answer.read()
        assert answer.headers["strict-transport-security"] == "max-age=31536000"
        link.close()
        plain = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        plain.request("GET", "/login")
        with pytest.raises((http.client.HTTPException, ConnectionError)):
            plain.getresponse()
        plain.close()
    key.chmod(0o644)
    with pytest.raises(errors.SettingsError):
        serve.options(made.site.service.config.web, made.app, "127.0.0.1", port)
    made.site.reader.close()
