"""Rows to store, and a second server: Debian's Postgres, which has TLS, beside the embedded one.

Debian's server runs once per session where its package is installed; tests that need it skip elsewhere.
"""

from __future__ import annotations

import dataclasses
import os
import pwd
import shutil
import socket
import subprocess
import tempfile
import time
import typing
import uuid
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from pathlib import Path
from typing import Any

import psycopg
import pytest

from probing_cluster.core import records
from probing_cluster.db import migrate, tables
from probing_cluster.sandbox.machine import ports

NOW = datetime.now(UTC).replace(microsecond=123456)


@pytest.fixture
def make_event() -> Callable[..., records.HealthEvent]:
    """Builds an event of node n1 that nobody has delivered."""

    def make(**fields: Any) -> records.HealthEvent:
        values: dict[str, Any] = {
            "event_id": uuid.uuid4(),
            "cluster": "c",
            "node": "n1",
            "at": NOW,
            "observed_at": NOW,
            "kind": "xid",
            "code": "79",
            "severity": records.Severity.HIGH,
            "source": "kernel",
            "message": "GPU has fallen off the bus",
        }
        return records.HealthEvent(**(values | fields))

    return make


@pytest.fixture
def make_attempt() -> Callable[..., records.JobAttempt]:
    """Builds an attempt that failed a minute ago on n1 and n2."""

    def make(**fields: Any) -> records.JobAttempt:
        values: dict[str, Any] = {
            "cluster": "c",
            "job_id": 1,
            "submit_at": NOW - timedelta(hours=2),
            "start_at": NOW - timedelta(hours=1),
            "end_at": NOW - timedelta(minutes=1),
            "state": "FAILED",
            "exit_code": 1,
            "nodes": ("n1", "n2"),
            "n_gpus": 16,
            "user": "alice",
            "account": "nlp",
            "run_key": "1",
        }
        return records.JobAttempt(**(values | fields))

    return make


@pytest.fixture
def make_verdict() -> Callable[..., records.Verdict]:
    """Builds a verdict of the rules on an attempt."""

    def make(attempt: records.JobAttempt, **fields: Any) -> records.Verdict:
        values: dict[str, Any] = {
            "cluster": attempt.cluster,
            "job_id": attempt.job_id,
            "submit_at": attempt.submit_at,
            "cause": "gpu_lost",
            "domain": records.Domain.HARDWARE,
            "confidence": records.Confidence.CERTAIN,
            "summary": "GPU 3 of n2 fell off the bus",
            "node": "n2",
            "rules_version": "1",
            "made_at": NOW,
        }
        return records.Verdict(**(values | fields))

    return make


@pytest.fixture
def full_record() -> Callable[[type[Any]], Any]:
    """Builds a record with every field set to something other than its default."""
    return built


def built(cls: type[Any]) -> Any:
    """A record with every field set to something other than its default."""
    hints = typing.get_type_hints(cls)
    return cls(
        **{f.name: _value(f.name, tables.split_optional(hints[f.name])[0]) for f in dataclasses.fields(cls)}
    )


@pytest.fixture
def bare_record() -> Callable[[type[Any]], Any]:
    """Builds a record with only its required fields."""

    def make(cls: type[Any]) -> Any:
        hints = typing.get_type_hints(cls)
        required = [
            f for f in dataclasses.fields(cls) if f.default is f.default_factory is dataclasses.MISSING
        ]
        return cls(**{f.name: _value(f.name, hints[f.name]) for f in required})

    return make


_SHAPED: dict[str, Any] = {
    "faults": {
        "xid:gpu3": {
            "severity": "high", "since": "2026-01-02T03:04:05.678901Z", "event_id": str(uuid.UUID(int=7)), "gpu_uuid": None,
            "message": "ключ \'b\\\\", "latched": True, "event_ids": [str(uuid.UUID(int=7))],
        }
    },
    "sources": {"ключ": {"state": "ok", "error": None, "n": [1, 2.5]}},
    "ranks": {"7:0": {"pid": 5, "window": {"a": 1.5}}},
}  # fmt: skip
"""What a heartbeat's fields hold; of any other shape the database refuses them."""


def _value(name: str, kind: Any) -> Any:
    origin = typing.get_origin(kind)
    if origin is Mapping and name in _SHAPED:
        return _SHAPED[name]
    if origin is tuple:
        return (_value(name, typing.get_args(kind)[0]),) * 2
    if origin is not None and typing.get_args(kind)[1] is not Any:
        return {"n1": _value(name, typing.get_args(kind)[1]), "n2": ()}
    if origin is Mapping or origin is not None:
        return {"ключ": [1, 2.5, None, {"a": 'b"\\'}], "true": True}
    if isinstance(kind, type) and issubclass(kind, StrEnum):
        return list(kind)[-1]
    values = {
        bool: True,
        int: 2**40 + len(name),
        float: 1.5,
        str: f"{name} é\t'quoted' \\ {{}} %s",
        datetime: NOW,
        uuid.UUID: uuid.UUID(int=len(name)),
    }
    return values[kind]


@dataclasses.dataclass(frozen=True)
class Server:
    """A running Postgres with our schema in database `probing`."""

    owner_url: str
    directory: Path
    port: int | None = None

    def url_as(self, role: str) -> str:
        """The same database over the socket, as another role."""
        return self.owner_url.replace("probing_owner@", f"{role}@")


DEBIAN_BIN = Path("/usr/lib/postgresql/15/bin")


@pytest.fixture(scope="session")
def debian_server() -> Iterator[Server]:
    """Debian's Postgres 15 with TLS on a port of its own, client certificates required there."""
    if not (DEBIAN_BIN / "postgres").exists() or os.geteuid() != 0 or shutil.which("openssl") is None:
        pytest.skip("needs root, openssl and Debian's postgresql-15")
    directory = Path(tempfile.mkdtemp(prefix="probing-pg15-"))
    directory.chmod(0o755)
    postgres = pwd.getpwnam("postgres")
    data = directory / "data"
    run = _as_postgres(postgres)
    try:
        os.chown(directory, postgres.pw_uid, postgres.pw_gid)
        run(
            DEBIAN_BIN / "initdb",
            "-D",
            data,
            "-U",
            "probing_owner",
            "-E",
            "UTF8",
            "--locale=C.UTF-8",
            "-A",
            "peer",
        )
        _certificates(directory, postgres)
        port = ports.choose(1)[0]
        _configure(data, directory, port)
        run(DEBIAN_BIN / "pg_ctl", "start", "-D", data, "-l", directory / "log", "-w")
        url = f"postgresql://probing_owner@/probing?host={directory}&port={port}"
        with psycopg.connect(url.replace("/probing?", "/postgres?"), autocommit=True) as connection:
            connection.execute("CREATE DATABASE probing")
        migrate.upgrade(url)
        yield Server(owner_url=url, directory=directory, port=port)
    finally:
        if (data / "postmaster.pid").exists():
            run(DEBIAN_BIN / "pg_ctl", "stop", "-D", data, "-m", "immediate")
        shutil.rmtree(directory, ignore_errors=True)


def _as_postgres(entry: pwd.struct_passwd) -> Callable[..., None]:
    def run(*command: Any) -> None:
        subprocess.run(
            [str(part) for part in command],
            check=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            user=entry.pw_uid,
            group=entry.pw_gid,
            extra_groups=[],
            cwd="/",
            timeout=120,
        )

    return run


def _configure(data: Path, directory: Path, port: int) -> None:
    with (data / "postgresql.conf").open("a") as conf:
        conf.write(
            f"listen_addresses='127.0.0.1'\nport={port}\nunix_socket_directories='{directory}'\nssl=on\n"
            f"ssl_cert_file='{directory}/server.crt'\nssl_key_file='{directory}/server.key'\n"
            f"ssl_ca_file='{directory}/ca.crt'\ntimezone='UTC'\nmax_connections=120\n"
        )
    # The certificates of m5 and m6 carry host names, which pg_ident maps.
    (data / "pg_hba.conf").write_text(
        "local all all trust\nhostssl all agent-c-m5,agent-c-m6 127.0.0.1/32 cert map=nodes\n"
        "hostssl all all 127.0.0.1/32 cert\nhostnossl all all 0.0.0.0/0 reject\n"
    )
    (data / "pg_ident.conf").write_text("nodes m5.example.org agent-c-m5\n")


_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")


def _openssl(*arguments: str) -> None:
    subprocess.run(["openssl", *arguments], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def _certificates(directory: Path, owner: pwd.struct_passwd) -> None:
    """A CA and the server's certificate; clients' are made by `client_certificate`."""
    to = ("-keyout", f"{directory}/ca.key", "-out", f"{directory}/ca.crt")
    _openssl("req", "-x509", *_KEY, *to, "-subj", "/CN=probing test CA", "-days", "2")
    _sign(directory, "server", "localhost")
    for name in ("server.key", "server.crt", "ca.crt"):
        os.chown(directory / name, owner.pw_uid, owner.pw_gid)
        (directory / name).chmod(0o600 if name.endswith("key") else 0o644)


def _sign(directory: Path, stem: str, common_name: str) -> None:
    """Make `stem`.key and `stem`.crt for a name, signed by the directory's CA."""
    at = f"{directory}/{stem}"
    _openssl("req", *_KEY, "-keyout", f"{at}.key", "-out", f"{at}.csr", "-subj", f"/CN={common_name}")
    ca = ("-CA", f"{directory}/ca.crt", "-CAkey", f"{directory}/ca.key", "-CAcreateserial", "-days", "2")
    _openssl("x509", "-req", "-in", f"{at}.csr", *ca, "-out", f"{at}.crt")


@pytest.fixture(scope="session")
def client_certificate(debian_server: Server) -> Callable[[str], tuple[Path, Path]]:
    """Makes a client certificate for a role name: (certificate, key)."""

    def make(role: str) -> tuple[Path, Path]:
        stem = f"client-{role}"
        _sign(debian_server.directory, stem, role)
        key = debian_server.directory / f"{stem}.key"
        key.chmod(0o600)
        return debian_server.directory / f"{stem}.crt", key

    return make


PGBOUNCER = "/usr/sbin/pgbouncer"


def _accepts(path: Path) -> bool:
    """Whether somebody listens there: the file is there a moment before."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
        try:
            sock.connect(str(path))
        except OSError:
            return False
    return True


@pytest.fixture
def pgbouncer() -> Iterator[Callable[..., str]]:
    """Starts a PgBouncer in transaction mode before a database's URL; gives the `host=…&port=…` to reach it by."""
    if not Path(PGBOUNCER).exists() or os.geteuid() != 0:
        pytest.skip("needs root and Debian's pgbouncer")
    directory = Path(tempfile.mkdtemp(prefix="probing-bouncer-"))
    directory.chmod(0o755)
    started: list[subprocess.Popen[bytes]] = []

    def start(url: str, users: str, **settings: Any) -> str:
        target = psycopg.conninfo.conninfo_to_dict(url)
        port = ports.choose(1)[0]
        values = {
            "listen_addr": "127.0.0.1",
            "listen_port": port,
            "unix_socket_dir": directory,
            "auth_file": directory / "users",
            "auth_type": "trust",
            "pool_mode": "transaction",
            "default_pool_size": 3,
            "max_client_conn": 3000,
        }
        lines = [f"{name} = {value}" for name, value in (values | settings).items()]
        database = f"{target['dbname']} = host={target['host']} port={target['port']}"
        (directory / "ini").write_text("\n".join(["[databases]", database, "[pgbouncer]", *lines, ""]))
        (directory / "users").write_text(users)
        account = pwd.getpwnam("postgres")
        os.chown(directory, account.pw_uid, account.pw_gid)
        log = (directory / "log").open("w")
        started.append(
            subprocess.Popen(
                [PGBOUNCER, directory / "ini"],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                user=account.pw_uid,
                group=account.pw_gid,
                extra_groups=[],
                cwd="/",
            )
        )
        log.close()
        deadline = time.monotonic() + 20
        while not _accepts(directory / f".s.PGSQL.{port}"):
            assert started[-1].poll() is None, (directory / "log").read_text()
            assert time.monotonic() < deadline
            time.sleep(0.02)
        return f"host={directory}&port={port}"

    yield start
    for process in started:
        process.terminate()
        process.wait(timeout=20)
    shutil.rmtree(directory)
