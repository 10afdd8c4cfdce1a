"""Users are known by MUNGE, and every way round it is closed: real munged, real sockets, real TLS."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import pwd
import shutil
import socket
import ssl
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import fakes
import pytest

from probing_cluster.control_plane import context
from probing_cluster.control_plane.door import callers, places, report_door
from probing_cluster.control_plane.service.tasks.jobs import accounting
from probing_cluster.core import errors, settings
from probing_cluster.reports import cli, job_ref
from probing_cluster.reports.asking import door, munge
from probing_cluster.sandbox.machine import daemons, layout, ports, processes

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become other users")
OWNER, OTHER, COORDINATOR, OPERATOR = "nobody", "daemon", "games", "backup"
"""Accounts that every Debian has; job 7 is OWNER's."""
REF = job_ref.parse("7")
Start = Callable[[], layout.Layout]


@dataclasses.dataclass
class Site:
    """A service with both doors open, and what one needs to knock."""

    service: context.Context
    munged: layout.Layout
    directory: Path

    @property
    def config(self) -> settings.Settings:
        """What both sides have in their settings."""
        return self.service.config

    def credential(
        self, user: str, payload: str, *, ttl_s: int = munge.TTL_S, lay: layout.Layout | None = None
    ) -> str:
        """What `munge` gives to that user."""
        account = pwd.getpwnam(user)
        at = (lay or self.munged).munge_socket
        done = subprocess.run(
            ["munge", "-S", str(at), "-s", payload, "-t", str(ttl_s)],
            capture_output=True, text=True, check=True, user=account.pw_uid, group=account.pw_gid, extra_groups=[],
        )  # fmt: skip
        return done.stdout.strip()

    def request(self, user: str, job: str = "7", **options: Any) -> dict[str, Any]:
        """A request as `user`'s probing-report makes it."""
        plain = door.request_for(job_ref.parse(job), None, "c")
        return plain | {"credential": self.credential(user, door.binding(plain), **options)}

    def knock(self, request: Mapping[str, Any] | bytes, *, at: str = "tls") -> dict[str, Any]:
        """The reply of one door to a request sent as it is; empty when the door says nothing."""
        raw = request if isinstance(request, bytes) else json.dumps(request).encode() + b"\n"
        with contextlib.ExitStack() as stack:
            if at == "unix":
                sock = stack.enter_context(socket.socket(socket.AF_UNIX))
                sock.connect(self.config.service.socket)
            else:
                sock = stack.enter_context(self.tls())
            sock.settimeout(30)
            with contextlib.suppress(ConnectionError):  # let go while still speaking
                sock.sendall(raw)
            reply = b""
            with contextlib.suppress(ConnectionError, ssl.SSLError):
                while piece := sock.recv(1 << 16):
                    reply += piece
        return json.loads(reply) if reply else {}

    def tls(self) -> socket.socket:
        """A TLS connection to the door."""
        made = ssl.create_default_context(cafile=self.config.service.tls_ca)
        host, _, port = self.config.service.address.rpartition(":")
        return made.wrap_socket(socket.create_connection((host, int(port)), timeout=30), server_hostname=host)


@pytest.fixture(scope="module")
def pki() -> Iterator[Path]:
    """A CA and the door's certificate for localhost, made by openssl."""
    if shutil.which("openssl") is None:
        pytest.skip("needs openssl")
    with tempfile.TemporaryDirectory(prefix="probing-pki-") as text:
        directory = Path(text)
        directory.chmod(0o755)
        key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
        for name in ("ca", "other"):
            files = ["-keyout", f"{text}/{name}.key", "-out", f"{text}/{name}.crt"]
            openssl("req", "-x509", *key, *files, "-subj", f"/CN={name}", "-days", "2")
        openssl("req", *key, "-keyout", f"{text}/door.key", "-out", f"{text}/door.csr", "-subj", "/CN=door")
        (directory / "san").write_text("subjectAltName=DNS:localhost\n")
        ca = [
            "-CA",
            f"{text}/ca.crt",
            "-CAkey",
            f"{text}/ca.key",
            "-CAcreateserial",
            "-extfile",
            f"{text}/san",
        ]
        openssl("x509", "-req", "-in", f"{text}/door.csr", *ca, "-days", "2", "-out", f"{text}/door.crt")
        (directory / "door.key").chmod(0o600)
        yield directory


def openssl(*arguments: str) -> None:
    subprocess.run(["openssl", *arguments], check=True, capture_output=True)


@pytest.fixture
def site(service: context.Context, munged: layout.Layout, pki: Path) -> Iterator[Site]:
    """OWNER's job 7 of account lab, another's job 8, and both doors open."""
    sacct = service.run_slurm
    assert isinstance(sacct, fakes.Sacct)
    sacct.rows = [fakes.row(7, User=OWNER), fakes.row(8, User="root", Account="secret")]
    sacct.users, sacct.accounts = f"{OPERATOR}|Operator\n{OTHER}|None\n", f"lab|{COORDINATOR}\nsecret|\n"
    accounting.run(service)
    port = ports.choose(1)[0]
    with tempfile.TemporaryDirectory(prefix="probing-door-") as text:
        Path(text).chmod(0o755)
        doors = settings.ServiceSettings(
            socket=f"{text}/report.sock",
            munge_socket=str(munged.munge_socket),
            listen=f"127.0.0.1:{port}",
            address=f"localhost:{port}",
            tls_certificate=str(pki / "door.crt"),
            tls_key=str(pki / "door.key"),
            tls_ca=str(pki / "ca.crt"),
        )
        service.config = dataclasses.replace(service.config, service=doors)
        with report_door.serving(service):
            yield Site(service=service, munged=munged, directory=Path(text))


@pytest.mark.parametrize("at", ["tls", "unix"])
@pytest.mark.parametrize(
    ("user", "job", "may"),
    [
        (OWNER, "7", True),
        (OTHER, "7", False),
        (COORDINATOR, "7", True),
        (OPERATOR, "7", True),
        ("root", "7", True),
        (OWNER, "8", False),
        (COORDINATOR, "8", False),
        (OPERATOR, "8", True),
    ],
)
def test_owner_coordinator_and_operator_are_answered_and_nobody_else(
    site: Site, user: str, job: str, may: bool, at: str
) -> None:
    """Through either door MUNGE's word decides; who may not, gets no row."""
    reply = site.knock(site.request(user, job), at=at)
    if may:
        assert [a["job_id"] for a in reply["rows"]["attempts"]] == [int(job)]
    else:
        assert (reply["ok"], reply["error"], "rows" in reply) == (False, "not_permitted", False)


def test_probing_reports_own_client_over_tls(site: Site) -> None:
    """What the command does on a login node: certificate checked, credential made, rows brought home."""
    assert door.ask_over_tls(site.config, REF)["attempts"][0]["user"] == OWNER
    with pytest.raises(errors.NotFound):
        door.ask_over_tls(site.config, job_ref.parse("99"))


def refused(site: Site, request: Mapping[str, Any], why: str, at: str = "tls") -> None:
    """The door refuses `request` for that reason and shows nothing."""
    reply = site.knock(request, at=at)
    assert (reply.get("ok"), reply.get("error")) == (False, "not_permitted")
    assert why in reply["message"], reply
    assert "rows" not in reply


def test_a_replayed_credential_is_refused(site: Site) -> None:
    """The same line again, by whoever overheard it, gets nothing."""
    request = site.request(OWNER)
    assert site.knock(request)["ok"]
    refused(site, request, "eplayed")
    refused(site, request, "eplayed", at="unix")


def test_a_replay_after_munged_forgot_is_refused(site: Site, make_munged: Start) -> None:
    """munged loses its memory when it restarts; the service's own holds."""
    lay = make_munged()
    doors = dataclasses.replace(site.config.service, munge_socket=str(lay.munge_socket))
    site.service.config = dataclasses.replace(site.config, service=doors)
    request = site.request(OWNER, lay=lay)
    assert site.knock(request)["ok"]
    processes.end(lay.directory, ["munged"])
    daemons.start_munge(
        lay, {**os.environ, "PATH": "/usr/sbin:/usr/bin:/bin", processes.MARK: str(lay.directory)}
    )
    refused(site, request, "used before")


def test_a_credential_is_for_one_request_only(site: Site) -> None:
    """Whatever of the request is changed, the credential no longer fits."""
    mine = site.request(OPERATOR)
    for change in ({"job": "8"}, {"database": "x"}, {"op": "other"}, {"extra": 1}, {"cluster": "d"}):
        refused(site, site.request(OPERATOR) | change, "another request")
    refused(site, {k: v for k, v in mine.items() if k != "cluster"}, "another request")


def test_a_credential_for_another_cluster_is_refused(site: Site) -> None:
    """Two clusters with one MUNGE key: what was sent to the other's service is of no use at ours."""
    plain = door.request_for(REF, None, "d")
    for request in (plain, door.request_for(REF)):
        made = site.credential(OWNER, door.binding(request))
        refused(site, request | {"credential": made}, "another cluster")


def test_an_expired_credential_is_refused(site: Site) -> None:
    """By its own time to live."""
    request = site.request(OWNER, ttl_s=1)
    time.sleep(3.1)
    refused(site, request, "xpired")


def test_a_long_lived_credential_is_no_longer_lived_here(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody who makes one for an hour has a minute too."""
    request = site.request(OWNER, ttl_s=3600)
    monkeypatch.setattr(munge, "TTL_S", 0)
    time.sleep(1.1)
    refused(site, request, "allowed")


def test_a_credential_of_another_realm_is_refused(site: Site, make_munged: Start) -> None:
    """Root of a cluster with another key is nobody here."""
    refused(site, site.request("root", lay=make_munged()), "nvalid")


@pytest.mark.parametrize("credential", ["", "MUNGE:x:", 7, ["MUNGE"], "é", "\0", True])
def test_what_is_no_credential_is_refused(site: Site, credential: object) -> None:
    """Even on the socket, where the kernel knows root: a credential that is there must hold."""
    for at in ("tls", "unix"):
        refused(site, door.request_for(REF, None, "c") | {"credential": credential}, "", at=at)


def test_over_the_network_nobody_comes_without_a_credential(site: Site) -> None:
    """The socket's peer credentials have no say there."""
    refused(site, door.request_for(REF, None, "c"), "needs a MUNGE credential")
    refused(
        site,
        door.request_for(REF, None, "c") | {"credential": None, "uid": 0, "user": OWNER},
        "needs a MUNGE",
    )


def test_a_service_without_munged_refuses(site: Site) -> None:
    """No munged, no answer: it fails closed."""
    request = site.request(OWNER)
    doors = dataclasses.replace(site.config.service, munge_socket="/nonexistent/munge")
    site.service.config = dataclasses.replace(site.config, service=doors)
    refused(site, request, "")


def test_slurm_away_leaves_owners_and_nobody_more(site: Site) -> None:
    """Coordinators and operators of Slurm wait until sacctmgr answers; owners do not."""
    assert isinstance(site.service.run_slurm, fakes.Sacct)
    site.service.run_slurm.down = True
    assert site.knock(site.request(OWNER))["ok"]
    refused(site, site.request(OPERATOR), "another user's")


def test_a_user_without_a_name_has_no_standing(site: Site) -> None:
    """A uid that no passwd entry has matches no owner, not even one written as an empty name."""
    known = callers.Callers(site.service)
    stranger = callers.caller_of(3_999_999_999)
    assert stranger.name == ""
    assert not known.may_read(stranger, [{"user": "", "account": ""}])


def test_the_client_wants_the_right_certificate(site: Site, pki: Path) -> None:
    """Neither another CA nor another name is spoken to, so no credential reaches an impostor."""
    port = site.config.service.address.rpartition(":")[2]
    for change in ({"tls_ca": str(pki / "other.crt")}, {"address": f"127.0.0.1:{port}"}):
        wrong = dataclasses.replace(site.config, service=dataclasses.replace(site.config.service, **change))
        with pytest.raises(errors.DatabaseUnavailable, match=r"certificate|IP address|verify"):
            door.ask_over_tls(wrong, REF)


def test_a_key_that_others_can_read_opens_no_door(site: Site, pki: Path) -> None:
    """The service says so instead of serving with a key that is no secret."""
    loose = pki / "loose.key"
    shutil.copy(pki / "door.key", loose)
    loose.chmod(0o644)
    with pytest.raises(errors.SettingsError, match="0600 is needed"):
        report_door.tls_context(dataclasses.replace(site.config.service, tls_key=str(loose)))


def test_clear_text_gets_nothing(site: Site) -> None:
    """The port speaks TLS only, and a stranger's rubbish does not hurt it."""
    port = int(site.config.service.address.rpartition(":")[2])
    with socket.create_connection(("127.0.0.1", port), timeout=30) as sock:
        sock.sendall(json.dumps(site.request("root")).encode() + b"\n")
        answered = b""
        with contextlib.suppress(ConnectionError):
            answered = sock.recv(1000)
    assert b"rows" not in answered
    assert site.knock(site.request(OWNER))["ok"]


@pytest.mark.parametrize(
    "raw", [b"\xff\xfe\n", b"[]\n", b"{" * 5000, b"[" * 4000 + b"\n", b"{}" + b" " * 9000 + b"\n"]
)
def test_rubbish_over_tls(site: Site, raw: bytes) -> None:
    """Bad bytes, deep nesting and endless lines end in silence; the next caller is served."""
    assert "rows" not in site.knock(raw)
    assert site.knock(site.request(OWNER))["ok"]


def test_one_source_cannot_take_every_place(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """Connections that say nothing are bounded per source."""
    monkeypatch.setattr(report_door, "REQUEST_S", 60.0)
    monkeypatch.setattr(places, "MOST_OF_ONE", 3)
    held = [site.tls() for _ in range(3)]
    with pytest.raises(OSError):
        site.tls()
    for sock in held:
        sock.close()


def test_many_sources_that_say_nothing_keep_nobody_out(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """A user with a job of four nodes has four addresses, and all places; who comes with a question gets one of them."""
    monkeypatch.setattr(report_door, "REQUEST_S", 60.0)
    host, _, port = site.config.service.address.rpartition(":")
    with contextlib.ExitStack() as held:
        for n in range(2, 6):
            for _ in range(places.MOST_OF_ONE):
                link = socket.create_connection(
                    (host, int(port)), timeout=30, source_address=(f"127.0.0.{n}", 0)
                )
                held.enter_context(link)
        assert site.knock(site.request(OWNER))["ok"]
        assert site.knock(site.request(OWNER))["ok"]


def test_who_asks_nothing_is_let_go(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """After some seconds; a slow drip does not prolong them."""
    monkeypatch.setattr(report_door, "REQUEST_S", 3.0)
    held = [site.tls() for _ in range(3)]
    dripping = threading.Event()

    def drip() -> None:
        with contextlib.suppress(OSError):
            while not dripping.wait(0.2):
                held[0].sendall(b" ")

    thread = threading.Thread(target=drip)
    thread.start()
    try:
        for sock in held:
            sock.settimeout(60)
            with contextlib.suppress(OSError):
                assert sock.recv(10) == b""
    finally:
        dripping.set()
        thread.join()
        for sock in held:
            sock.close()
    assert site.knock(site.request(OWNER))["ok"]


def test_probing_report_on_a_login_node(
    site: Site, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The command where there is neither database nor socket: it finds the door in the settings and prints."""
    doors = site.config.service
    path = tmp_path / "probing.toml"
    path.write_text(
        f'[cluster]\nname = "c"\n[database]\ndirectory = "{tmp_path}/none"\n'
        f'[service]\nsocket = "{tmp_path}/none"\naddress = "{doors.address}"\ntls_ca = "{doors.tls_ca}"\n'
        f'munge_socket = "{doors.munge_socket}"\n'
    )
    assert cli.main(["7", "--config", str(path)]) == 0
    assert "Job 7" in capsys.readouterr().out
    assert cli.main(["99", "--config", str(path)]) == 3
