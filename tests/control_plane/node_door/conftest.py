"""A door before a real database: an authority, its nodes' certificates, and `probing-ctl door serve` as a process."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import signal
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from probing_cluster.core import clock, records
from probing_cluster.db import door_delivery, roles
from probing_cluster.db.server import embedded
from probing_cluster.sandbox.machine import ports
from tests.control_plane import certificates

DOOR = "t_node_door"
NODES = ("n1", "n2", "n3")


@dataclasses.dataclass
class Site:
    """A database with roles for three nodes, and a door that can be started and killed."""

    url: str
    directory: Path
    port: int
    process: subprocess.Popen[bytes] | None = None

    def certificate(self, name: str, authority: str = "ca") -> tuple[Path, Path]:
        """(certificate, key) for `name`, signed by an authority of ours; made once."""
        crt, key = self.directory / f"{name}-{authority}.crt", self.directory / f"{name}-{authority}.key"
        ca = self.directory / f"{authority}.crt"
        if not ca.exists():
            certificates.self_signed(self.directory, authority)
        if not crt.exists():
            csr, ext = crt.with_suffix(".csr"), crt.with_suffix(".ext")
            curve = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")
            certificates.openssl("req", *curve, "-keyout", key, "-out", csr, "-subj", f"/CN={name}")
            ext.write_text("subjectAltName=DNS:localhost\nextendedKeyUsage=serverAuth,clientAuth\n")
            signer = (
                "-CA",
                ca,
                "-CAkey",
                ca.with_suffix(".key"),
                "-set_serial",
                str(uuid.uuid4().int),
                "-days",
                "30",
            )
            certificates.openssl("x509", "-req", "-in", csr, *signer, "-extfile", ext, "-out", crt)
            key.chmod(0o600)
        return crt, key

    def agent(
        self, node: str, *, door: str = "", call_timeout_s: float = 20.0, direct: bool = False
    ) -> door_delivery.DoorDelivery:
        """A node's way through the door; `direct`: with a database behind that it could reach itself."""
        role = roles.agent_role_name("c", node)
        crt, key = self.certificate(role)
        tls = f"sslcert={crt}&sslkey={key}&sslrootcert={self.directory}/ca.crt"
        base = (
            self.url.replace(f"{embedded.OWNER}@", f"{role}@")
            if direct
            else "postgresql://nobody@/none?host=/nowhere"
        )
        return door_delivery.DoorDelivery(
            door or f"localhost:{self.port}", f"{base}&{tls}", "c", node, call_timeout_s=call_timeout_s
        )

    def start(self, **settings: object) -> None:
        """Start the door and wait until it listens."""
        crt, key = self.certificate("door")
        lines = {
            "listen": f"127.0.0.1:{self.port}",
            "tls_certificate": str(crt),
            "tls_key": str(key),
            "tls_ca": str(self.directory / "ca.crt"),
            "database_url": self.url.replace(f"{embedded.OWNER}@", f"{DOOR}@"),
            "gather_s": 0.02,
            **settings,
        }
        config = self.directory / "door.toml"
        config.write_text("[door]\n" + "".join(f"{k} = {_toml(v)}\n" for k, v in lines.items()))
        config.chmod(0o600)
        argv = [
            sys.executable,
            "-m",
            "probing_cluster.control_plane.cli.main",
            "door",
            "serve",
            "--config",
            str(config),
        ]
        with (self.directory / "log").open("ab") as log:
            self.process = subprocess.Popen(argv, stderr=log)
        end = time.monotonic() + 120
        while time.monotonic() < end:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", self.port)) == 0:
                    return
            if self.process.poll() is not None:
                break
            time.sleep(0.02)
        raise AssertionError((self.directory / "log").read_text())

    def stop(self, number: int = signal.SIGTERM) -> None:
        """End the door."""
        if self.process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.process.pid, number)
            self.process.wait(timeout=120)
            self.process = None

    def rows(self, query: str) -> list[tuple[object, ...]]:
        """What the database holds."""
        with psycopg.connect(self.url) as connection:
            return connection.execute(query).fetchall()


def _toml(value: object) -> str:
    return f'"{value}"' if isinstance(value, str) else str(value)


@pytest.fixture
def site(postgres_url: str, tmp_path: Path) -> Iterator[Site]:
    """The site; its door is not started yet."""
    made = [roles.add_agent(postgres_url, "c", node) for node in NODES]
    roles.add_login(postgres_url, DOOR, "probing_door")
    # Below the ports of outgoing connections: while the door is away none of its callers may take it.
    found = Site(url=postgres_url, directory=tmp_path, port=ports.choose(1)[0])
    try:
        yield found
    finally:
        found.stop(signal.SIGKILL)
        for name in (*made, DOOR):
            roles.remove(postgres_url, name)


@pytest.fixture
def make_event() -> Callable[..., records.HealthEvent]:
    """Builds an event that nobody has delivered."""

    def make(node: str, **fields: Any) -> records.HealthEvent:
        now = clock.SYSTEM.now()
        values = {
            "event_id": uuid.uuid4(), "cluster": "c", "node": node, "at": now, "observed_at": now, "kind": "xid", "code": "31",
            "severity": records.Severity.INFO, "source": "kernel", "message": node,
        }  # fmt: skip
        return records.HealthEvent(**(values | fields))

    return make
