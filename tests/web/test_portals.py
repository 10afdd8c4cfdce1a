"""docs/web.md's ways in through a portal, followed literally: its app beside a real door, its Apache before a real server."""

from __future__ import annotations

import base64
import contextlib
import dataclasses
import os
import pwd
import re
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from wsgiref import util, validate

import httpx2
import pytest
import test_pages_in_browser
import web_world
import yaml
from web_world import OWNER, World

from probing_cluster.control_plane.door import report_door
from probing_cluster.core import errors
from probing_cluster.db import store as db_store
from probing_cluster.reports import cli
from probing_cluster.sandbox.machine import ports
from probing_cluster.web.access import viewers

PAGE = (Path(__file__).parents[2] / "docs/web.md").read_text("utf-8")
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
APACHE = "/usr/sbin/apache2"
MODULES = (
    "mpm_event", "authn_core", "authn_file", "authz_core", "authz_user", "auth_basic", "headers", "proxy", "proxy_http",
)  # fmt: skip
SECRET, PASSWORD = "of the proxy alone", "pw"


def block(language: str, word: str) -> str:
    """The one block of the page in a language with a word in it."""
    (found,) = [text for kind, text in BLOCKS if kind == language and word in text]
    return found


def portal_app(monkeypatch: pytest.MonkeyPatch) -> tuple[str, dict[str, str], str]:
    """Status, headers and body of the documented Passenger app, judged by wsgiref's validator."""
    made: dict[str, Any] = {}
    exec(block("python", "environ"), made)
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    started: list[Any] = []
    environ: dict[str, Any] = {"QUERY_STRING": ""}
    util.setup_testing_defaults(environ)

    def start(status: str, headers: list[tuple[str, str]], exc_info: Any = None) -> Any:
        del exc_info
        started.extend((status, dict(headers)))
        return lambda _data: None

    answer = validate.validator(made["application"])(environ, start)
    body = b"".join(answer)
    answer.close()
    return started[0], started[1], body.decode()


def test_the_portals_app_leads_its_user_in(
    world: World, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The link that the service made for whoever runs the app, and by `probing-report --web` to a job's page; without a service a sentence, and no link."""
    assert set(yaml.safe_load(block("yaml", "category"))) == {"name", "category", "icon", "new_window"}
    socket = tmp_path / "report.sock"
    toml = tmp_path / "probing.toml"
    toml.write_text(f'[cluster]\nname = "c"\n[service]\nsocket = "{socket}"\n')
    monkeypatch.setenv("PROBING_CONFIG", str(toml))
    status, headers, body = portal_app(monkeypatch)
    assert status.startswith("503")
    assert "Location" not in headers
    assert body.startswith("probing-ctl: ")
    service = world.site.service
    config = dataclasses.replace(
        service.config,
        service=dataclasses.replace(service.config.service, socket=str(socket)),
        web=dataclasses.replace(service.config.web, url="https://probing.example"),
    )
    with report_door.serving(dataclasses.replace(service, config=config)):
        status, headers, _ = portal_app(monkeypatch)
        assert cli.main(["7", "--web"]) == 0
    link, _, key = capsys.readouterr().out.strip().partition("#")
    assert link == "https://probing.example/login?next=%2Fjobs%2F7"
    assert world.site.keys.redeem(key) is not None
    assert status.startswith("303")
    login, _, key = headers["Location"].partition("#")
    assert login == "https://probing.example/login"
    found = world.site.keys.redeem(key)
    assert found is not None
    assert found.user == pwd.getpwuid(os.geteuid()).pw_name


@contextlib.contextmanager
def apache(home: Path, upstream: str) -> Iterator[str]:
    """The documented virtual host, with passwords in place of the portal's login and without TLS; its address."""
    if not Path(APACHE).exists():
        pytest.skip("needs Debian's apache2-bin")
    port = ports.choose(1)[0]
    hashed = subprocess.run(
        ["openssl", "passwd", "-apr1", PASSWORD], capture_output=True, text=True, check=True
    ).stdout.strip()
    (home / "users").write_text("".join(f"{user}:{hashed}\n" for user in (OWNER, "root", "ann")))
    (home / "proxy.conf").write_text(f'RequestHeader set X-Probing-Secret "{SECRET}"\n')
    site = block("apache", "ServerName")
    for written, here in (
        ("*:443", f"*:{port}"),
        ("    SSLEngine on\n    SSLProxyEngine on\n", ""),
        ("AuthType openid-connect", f"AuthType Basic\nAuthName portal\nAuthUserFile {home}/users"),
        ("/etc/probing/proxy.conf", f"{home}/proxy.conf"),
        ("https://probing.internal:8780", upstream),
    ):
        assert written in site
        site = site.replace(written, here)
    modules = "".join(
        f"LoadModule {name}_module /usr/lib/apache2/modules/mod_{name}.so\n" for name in MODULES
    )
    (home / "apache.conf").write_text(
        f"ServerRoot {home}\nDefaultRuntimeDir {home}\nPidFile {home}/pid\nErrorLog {home}/log\nUser nobody\nGroup nogroup\n"
        f"Listen 127.0.0.1:{port}\nStartServers 1\nServerName portal\n{modules}{site}"
    )
    for path in (home, home / "users"):
        path.chmod(0o755)
    server = subprocess.Popen([APACHE, "-f", str(home / "apache.conf"), "-D", "FOREGROUND"])
    try:
        url = f"http://127.0.0.1:{port}"
        while True:
            try:
                httpx2.get(url, timeout=30)
                break
            except httpx2.ConnectError:
                assert server.poll() is None, (home / "log").read_text("utf-8")
                time.sleep(0.05)
        yield url
    finally:
        server.terminate()
        server.wait(60)


@pytest.fixture
def home() -> Iterator[Path]:
    """A directory that Apache's account can enter; those of pytest are root's alone."""
    with tempfile.TemporaryDirectory(prefix="probing-portal-") as made:
        Path(made).chmod(0o755)
        yield Path(made)


def test_a_portals_apache_names_its_user(store: db_store.Store, world: World, home: Path) -> None:
    """Its login, header and secret let its user in, the live stream comes through, and nobody beside it speaks for anybody."""
    if os.geteuid() != 0 or shutil.which("openssl") is None:
        pytest.skip("needs root and openssl")
    secret = home / "secret"
    secret.write_text(SECRET)
    secret.chmod(0o600)
    port = ports.choose(1)[0]
    documented = tomllib.loads(block("toml", "proxy_networks"))["web"]
    assert {"listen", "tls_certificate", "tls_key"} < documented.keys()
    given = {
        "url": documented["url"],
        "listen": f"127.0.0.1:{port}",
        "proxy_networks": ("127.0.0.1",),
        "proxy_secret_file": str(secret),
    }
    made = web_world.world_on(store, **given)
    host = {"host": "probing.portal.example"}

    def basic(user: str) -> dict[str, str]:
        return host | {"authorization": "Basic " + base64.b64encode(f"{user}:{PASSWORD}".encode()).decode()}

    with test_pages_in_browser.served(made, port) as direct, apache(home, direct) as portal:
        assert httpx2.get(f"{portal}/api/v1/me", headers=host, timeout=60).status_code == 401
        me = httpx2.get(f"{portal}/api/v1/me", headers=basic(OWNER), timeout=60)
        assert me.status_code == 200, me.text
        assert me.json()["user"] == OWNER
        # What a client sends of itself is not what arrives.
        forged = basic(OWNER) | {
            "x-remote-user": "backup",
            "x-probing-secret": "x",
            "x-forwarded-for": "10.9.9.9",
        }
        assert httpx2.get(f"{portal}/api/v1/me", headers=forged, timeout=60).json()["user"] == OWNER
        # The portal knows people who are nobody here, and root never comes over the network.
        for user in ("ann", "root"):
            assert httpx2.get(f"{portal}/api/v1/me", headers=basic(user), timeout=60).status_code == 403, user
        page = httpx2.get(f"{portal}/jobs", headers=basic(OWNER) | {"accept": "text/html"}, timeout=60)
        assert page.status_code == 200
        assert "llama" in page.text
        with httpx2.stream("GET", f"{portal}/api/v1/stream", headers=basic(OWNER), timeout=60) as stream:
            assert next(line for line in stream.iter_lines() if line.startswith("event: now"))
        # A question is a form with the page's token, sent from the page; without either it is refused.
        token = re.search(r'name="csrf" value="(\w+)"', page.text)
        assert token is not None
        own = basic(OWNER) | {"origin": documented["url"], "sec-fetch-site": "same-origin"}
        question = {"sql": "select job_id from attempt_verdicts", "csrf": token[1]}
        calls = httpx2.post(f"{portal}/sql", data=question, headers=own, timeout=60)
        assert calls.status_code == 200
        assert ">7<" in calls.text
        for headers, data in (
            (own | {"origin": "https://portal.example"}, question),
            (own, {"sql": "select 1"}),
        ):
            assert httpx2.post(f"{portal}/sql", data=data, headers=headers, timeout=60).status_code == 403
        # Another program on the proxy's host has its address, but not its secret.
        for sent in ({}, {"x-probing-secret": ""}, {"x-probing-secret": "guessed"}):
            beside = httpx2.get(
                f"{direct}/api/v1/me", headers=host | {"x-remote-user": OWNER} | sent, timeout=60
            )
            assert beside.status_code == 403, sent
    made.site.reader.close()


def test_a_secret_is_told_once_from_a_named_address(
    store: db_store.Store, world: World, tmp_path: Path
) -> None:
    """Right and once, or nobody is named by it; from elsewhere not even with it; a file that others read is none."""
    secret = tmp_path / "secret"
    secret.write_text("s3")
    secret.chmod(0o600)
    made = web_world.world_on(store, proxy_networks=("10.0.0.0/24",), proxy_secret_file=str(secret))
    identify = viewers.Viewers(made.site).identify
    named = ("x-remote-user", OWNER)
    assert identify([named, (viewers.PROXY_HEADER, "s3")], "10.0.0.9").user == OWNER
    for headers, address in (
        ([named], "10.0.0.9"),
        ([named, (viewers.PROXY_HEADER, "s4")], "10.0.0.9"),
        ([named, (viewers.PROXY_HEADER, "s3"), (viewers.PROXY_HEADER, "s3")], "10.0.0.9"),
        ([named, (viewers.PROXY_HEADER, "é")], "10.0.0.9"),
        ([named, (viewers.PROXY_HEADER, "s3")], "10.0.1.9"),
    ):
        with pytest.raises(errors.NotPermitted):
            identify(headers, address)
    secret.chmod(0o644)
    with pytest.raises(errors.SettingsError):
        viewers.Viewers(made.site)
    made.site.reader.close()
