"""Whoever runs `probing-ctl doctor` hears of a certificate before it ends: ours, the database's, the agents'."""

from __future__ import annotations

import socket
import ssl
import threading
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import certificates
import fakes
import pytest

from probing_cluster.control_plane import context
from probing_cluster.control_plane.doctor import site_certificates, site_checks, site_database
from probing_cluster.control_plane.service import metrics
from probing_cluster.core import errors, records, settings
from probing_cluster.db import delivery
from probing_cluster.slurm_plugins import doctor
from tests.db.conftest import debian_server

__all__ = ["debian_server"]


def levels(found: list[doctor.DoctorFinding]) -> list[tuple[str, str]]:
    """Name and level of each; what is not in order says why and what to do."""
    assert all(f.level == "ok" or (f.why and f.fix) for f in found)
    return [(f.name, f.level) for f in found]


def config(directory: Path, *, own: str = "own", authority: str = "ca") -> settings.Settings:
    tls = f"sslmode=verify-full&sslrootcert={directory}/{authority}.crt&sslcert={directory}/{own}.crt"
    return settings.parse(f'[database]\nurl = "postgresql://probing@db/probing?{tls}"\n')


@pytest.mark.parametrize(
    ("own_days", "authority_days", "wanted"),
    [(90, 400, ["ok", "ok"]), (29, 400, ["warn", "ok"]), (90, 179, ["ok", "warn"]), (1, 1, ["warn", "warn"])],
)
def test_files_near_their_end(tmp_path: Path, own_days: int, authority_days: int, wanted: list[str]) -> None:
    """A month before its end, an authority's half a year before."""
    certificates.self_signed(tmp_path, "own", own_days)
    certificates.self_signed(tmp_path, "ca", authority_days)
    found = list(site_certificates.files(config(tmp_path)))
    assert levels(found) == [("certificates", level) for level in wanted]
    assert found[0].found == f"{tmp_path}/own.crt ends in {own_days} days"


def test_files_that_have_ended_or_are_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both are failures: nobody gets in with them."""
    crt, _ = certificates.self_signed(tmp_path, "own", 3)
    later = (certificates.end_of(crt) + timedelta(days=2)).timestamp()
    monkeypatch.setattr(time, "time", lambda: later)
    ended, missing = site_certificates.files(config(tmp_path))
    assert levels([ended, missing]) == [("certificates", "fail")] * 2
    assert ended.found.endswith("own.crt ended 2 days ago")
    assert "No such file" in missing.found


def test_a_compute_node_is_told_by_doctor_node(tmp_path: Path) -> None:
    """`doctor --node` reads what the agent's settings name, without database or service."""
    crt, _ = certificates.self_signed(tmp_path, "agent", 5)
    certificates.self_signed(tmp_path, "ca", 400)
    url = f"postgresql://a@db/probing?sslmode=verify-full&sslrootcert={tmp_path}/ca.crt&sslcert={crt}"
    found = site_checks.examine_node(settings.parse(f'[agent]\ndatabase_url = "{url}"\n'), fakes.Sacct())
    assert ("certificates", "warn") in [(f.name, f.level) for f in found]


@pytest.fixture
def postgres_door(tmp_path: Path) -> Iterator[int]:
    """The port of something that greets like Postgres and shows a certificate of five days."""
    crt, key = certificates.self_signed(tmp_path, "server", 5)
    shown = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    shown.load_cert_chain(crt, key)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.settimeout(60)

        def answer() -> None:
            try:
                with listening.accept()[0] as plain:
                    assert plain.recv(8) == b"\x00\x00\x00\x08\x04\xd2\x16\x2f"
                    plain.sendall(b"S")
                    with shown.wrap_socket(plain, server_side=True) as door:
                        door.recv(1)
            except OSError:
                return

        thread = threading.Thread(target=answer)
        thread.start()
        yield listening.getsockname()[1]
        listening.close()
        thread.join()


def test_the_databases_certificate_over_the_network(postgres_door: int) -> None:
    """What its port shows is read, whoever signed it; a port that shows none is a note, no server at all quiet."""
    url = "postgresql://probing@localhost:{}/probing?sslmode=require"
    made = settings.parse(f'[database]\nurl = "{url.format(postgres_door)}"\n')
    (finding,) = site_certificates.database(made)
    assert levels([finding]) == [("database_certificate", "warn")]
    assert finding.found == f"the certificate of localhost:{postgres_door} ends in 5 days"
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    made = settings.parse(f'[database]\nurl = "{url.format(port)}"\n')
    assert levels(list(site_certificates.database(made))) == [("database_certificate", "note")]


def test_the_databases_certificate_beside_its_socket(debian_server: Any) -> None:
    """Where the service comes by the socket, others come by TLS: a real Postgres with a certificate of two days."""
    made = settings.Settings(database=settings.DatabaseSettings(url=debian_server.owner_url))
    (finding,) = site_certificates.database(made)
    assert levels([finding]) == [("database_certificate", "warn")]
    assert f"localhost:{debian_server.port} ends in 2 days" in finding.found


def test_a_server_without_tls_has_none(store: Any) -> None:
    """The embedded server speaks no TLS: nothing to say."""
    made = settings.Settings(database=settings.DatabaseSettings(url=store.connection_uri()))
    assert list(site_certificates.database(made)) == []


def test_agents_whose_own_check_warns_are_named(service: context.Context) -> None:
    """From the agents' deliveries to the doctor and the metric; well again, both are quiet."""
    url = service.store.connection_uri()

    def away(*_: str) -> bytes:
        raise errors.SlurmUnavailable("not asked here")

    def deliver_outcome(node: str, outcome: records.Outcome) -> None:
        check = records.CheckResult(
            cluster="c", node=node, name=site_certificates.AGENTS_CHECK, outcome=outcome, at=fakes.NOW,
            severity=records.Severity.LOW, message="agent.crt ends on 2026-12-01", measured=3.0,
        )  # fmt: skip
        beat = records.AgentHeartbeat(cluster="c", node=node, at=fakes.NOW)
        delivery.Delivery(url, "c", node).deliver(checks=[check], heartbeat=beat)

    def findings() -> list[doctor.DoctorFinding]:
        where = settings.DatabaseSettings(url=url)
        made = settings.Settings(cluster=settings.ClusterSettings(name="c"), database=where)
        return [f for f in site_database.agents(made, away) if f.name == "agent_certificates"]

    def ending() -> float:
        found = {m.name: m for m in metrics.store_metrics(service)}["probing_agent_certificates_ending"]
        return float(found.samples[0].value)

    assert findings() == []
    for node, outcome in (("n1", records.Outcome.WARN), ("n2", records.Outcome.OK)):
        deliver_outcome(node, outcome)
    (finding,) = findings()
    assert finding.level == "warn"
    assert finding.found == "1 of 2 end soon: n1; n1: agent.crt ends on 2026-12-01"
    assert ending() == 1
    deliver_outcome("n1", records.Outcome.OK)
    assert levels(findings()) == [("agent_certificates", "ok")]
    assert ending() == 0


def test_the_services_own_are_exported(tmp_path: Path, service: context.Context) -> None:
    """By file, as Unix time; 0 where it cannot be read, which is long ago and rings."""
    crt, _ = certificates.self_signed(tmp_path, "own", 9)
    service.config = config(tmp_path)
    found = {s.labels["file"]: s.value for s in metrics.certificate_metric(service).samples}
    assert found == {str(crt): certificates.end_of(crt).timestamp(), f"{tmp_path}/ca.crt": 0.0}
