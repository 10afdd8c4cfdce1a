"""What the doctor finds of socket, MUNGE and the door on the network, each kept and broken."""

from __future__ import annotations

import dataclasses
import socket
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path

import certificates
import pytest

from probing_cluster.control_plane.doctor import site_doors
from probing_cluster.core import settings
from probing_cluster.reports.asking import door as asking
from probing_cluster.sandbox.machine import layout
from probing_cluster.slurm_plugins import doctor


def config(**service: str) -> settings.Settings:
    return dataclasses.replace(settings.Settings(), service=settings.ServiceSettings(**service))


def one(found: Iterator[doctor.DoctorFinding]) -> tuple[str, str]:
    (finding,) = found
    assert finding.level == "ok" or (finding.why and finding.fix)
    return finding.name, finding.level


def test_munge_vouches_for_us(munged: layout.Layout, tmp_path: Path) -> None:
    """The site's munged is asked; where there is none it is a failure once users of other hosts are to be answered."""
    assert one(site_doors.munged(config(munge_socket=str(munged.munge_socket)))) == ("munge", "ok")
    nobody = f"{tmp_path}/munge"
    assert one(site_doors.munged(config(munge_socket=nobody))) == ("munge", "note")
    assert one(site_doors.munged(config(munge_socket=nobody, listen=":7443"))) == ("munge", "fail")


@pytest.fixture
def door(tmp_path: Path) -> Iterator[tuple[int, str]]:
    """A TLS server for localhost: its port and its certificate."""
    crt, key = certificates.self_signed(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(crt, key)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.settimeout(30)

        def answer() -> None:
            try:
                with listening.accept()[0] as plain, context.wrap_socket(plain, server_side=True) as door:
                    door.recv(1)
            except OSError:
                return  # the client did not like it, or none came

        thread = threading.Thread(target=answer)
        thread.start()
        yield listening.getsockname()[1], str(crt)
        listening.close()
        thread.join()


def test_the_door_shows_a_certificate_that_login_nodes_believe(door: tuple[int, str]) -> None:
    """With the authority it is in order, and says until when."""
    port, crt = door
    assert one(site_doors.network_door(config(address=f"localhost:{port}", tls_ca=crt))) == (
        "network_door",
        "ok",
    )


def test_a_door_that_is_not_believed(door: tuple[int, str]) -> None:
    """Signed by nobody we know: a failure with its fix."""
    assert one(site_doors.network_door(config(address=f"localhost:{door[0]}"))) == ("network_door", "fail")


def test_no_door_and_one_without_an_address(tmp_path: Path) -> None:
    """Nothing asked for, nothing said; an address where nobody listens fails; one unknown here is worth a note."""
    assert list(site_doors.network_door(config())) == []
    assert one(site_doors.network_door(config(listen=":7443"))) == ("network_door", "note")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    assert one(site_doors.network_door(config(address=f"localhost:{port}"))) == ("network_door", "fail")


def test_each_door_of_the_agents_is_tried(door: tuple[int, str]) -> None:
    """One that answers and one that does not; none named, none tried."""
    port, crt = door
    with socket.create_server(("127.0.0.1", 0)) as taken:
        nobody = taken.getsockname()[1]
    agent = settings.AgentSettings(
        door=f"localhost:{port},localhost:{nobody}",
        database_url=f"postgresql://r@h/d?sslmode=verify-full&sslrootcert={crt}",
    )
    found = list(site_doors.node_door(dataclasses.replace(settings.Settings(), agent=agent)))
    assert [(f.name, f.level) for f in found] == [("node_door", "ok"), ("node_door", "fail")]
    assert list(site_doors.node_door(settings.Settings())) == []


def test_the_services_own_socket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody answers there, or the finding says how to start the service; a plain file is no socket."""
    path = tmp_path / "s"
    path.touch()
    assert one(site_doors.own_socket(config(socket=str(path)))) == ("report_socket", "warn")
    path.unlink()
    monkeypatch.setattr(asking, "ALIVE_S", 0.2)
    for answers, level in ((b"", "ok"), (b'{"ok": false, "error": "usage"}\n', "ok"), (None, "fail")):
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(str(path))
            made.listen()
            answered = threading.Thread(target=answer, args=(made, answers))
            answered.start()
            assert one(site_doors.own_socket(config(socket=str(path)))) == ("report_socket", level)
            answered.join()
        # Whoever listened has died.
        assert one(site_doors.own_socket(config(socket=str(path)))) == ("report_socket", "fail")
        path.unlink()


def answer(listening: socket.socket, answers: bytes | None) -> None:
    """A service that answers so; b"": it has too much to do, None: it is frozen, and the kernel takes the caller."""
    if answers is not None:
        with listening.accept()[0] as caller:
            caller.recv(4096)
            caller.sendall(answers)
