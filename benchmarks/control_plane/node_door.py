"""What 2,000 nodes cost the database and the door, beside the same nodes that come to the database themselves.

    .venv/bin/python -m benchmarks.control_plane.node_door [--agents 125,250,500,1000,2000] [--seconds 15] [--direct-agents 400] [--beat 5]

Every agent delivers a heartbeat and one event per `--beat`, and how the cost grows with agents is fitted over the rounds. Processor time is read from /proc for every process of the
database and for the door, before and after; the agents' own is not in it. Both ways take turns on one server in one run:
the direct way through PgBouncer, as a site has it, with fewer agents, for it takes more than a machine of two cores has;
what is compared is the time per delivery.
"""

from __future__ import annotations

import argparse
import math
import multiprocessing
import os
import shutil
import socket
import ssl
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psutil
import psycopg
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from benchmarks.db import delivery
from probing_cluster.core import records
from probing_cluster.db import door_wire, migrate, partitions, roles
from probing_cluster.db.load import DatabaseLoad
from probing_cluster.db.server import embedded

DOOR = "bench_door"


def cpu_s(root: int) -> float:
    """Processor time of a process and all that come from it, the ended ones too, seconds."""
    total = 0.0
    processes = [psutil.Process(root)]
    processes += processes[0].children(recursive=True)
    for process in processes:
        try:
            times = process.cpu_times()
        except psutil.NoSuchProcess:
            continue
        total += times.user + times.system
        if process.pid == root:
            total += times.children_user + times.children_system
    return total


def certificates(directory: Path, names: Sequence[str]) -> None:
    """An authority, and NAME.crt for every name; all with one key, for making keys is not what is measured."""
    key = ec.generate_private_key(ec.SECP256R1())
    issuer = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "bench")])
    (directory / "shared.key").write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
    )
    (directory / "shared.key").chmod(0o600)
    for name in ("ca", *names):
        subject = issuer if name == "ca" else x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        made = x509.CertificateBuilder(issuer, subject, key.public_key(), x509.random_serial_number())
        now = datetime.now(UTC)
        made = made.not_valid_before(now - timedelta(hours=1)).not_valid_after(now + timedelta(days=2))
        made = made.add_extension(x509.BasicConstraints(ca=name == "ca", path_length=None), critical=True)
        made = made.add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        signed = made.sign(key, hashes.SHA256())
        (directory / f"{name}.crt").write_bytes(signed.public_bytes(serialization.Encoding.PEM))


def known_nodes(url: str, n_agents: int) -> None:
    """The rows by which the door's function knows the nodes; agents behind a door need no login of their own."""
    rows = [(roles.agent_role_name("bench", f"n{n}"), f"n{n}") for n in range(n_agents)]
    with psycopg.connect(url) as connection, connection.cursor() as cursor:
        cursor.executemany(
            "INSERT INTO probing.agent_role (role_name, cluster, node) VALUES (%s, 'bench', %s)", rows
        )


def start_door(
    directory: Path, url: str, connections: int, gather_s: float
) -> tuple[subprocess.Popen[bytes], int]:
    """The door as a site runs it, and its port."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    config = directory / "door.toml"
    config.write_text(
        f'[door]\nlisten = "127.0.0.1:{port}"\ntls_certificate = "{directory}/door.crt"\ntls_key = "{directory}/shared.key"\n'
        f'tls_ca = "{directory}/ca.crt"\ndatabase_url = "{url}"\nconnections = {connections}\ngather_s = {gather_s}\n'
    )
    argv = [
        sys.executable,
        "-m",
        "probing_cluster.control_plane.cli.main",
        "door",
        "serve",
        "--config",
        str(config),
    ]
    process = subprocess.Popen(argv, stderr=subprocess.DEVNULL)
    while True:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return process, port
        time.sleep(0.05)


def door_agents(
    directory: str, port: int, numbers: list[int], seconds: float, beat_s: float, begin: Any, results: Any
) -> None:
    """A process full of agents that keep their TLS connection and deliver a beat and an event every `beat_s`."""
    tls = {}
    for n in numbers:
        context = ssl.create_default_context(cafile=f"{directory}/ca.crt")
        role = roles.agent_role_name("bench", f"n{n}")
        context.load_cert_chain(f"{directory}/{role}.crt", f"{directory}/shared.key")
        tls[n] = context.wrap_socket(
            socket.create_connection(("localhost", port)), server_hostname="localhost"
        )
    results.put("ready")
    begin.wait()
    latencies: list[float] = []
    failures = [0]
    end = time.monotonic() + seconds

    def look_after(mine: list[int]) -> None:
        due = [(time.monotonic() + beat_s * i / len(mine), n) for i, n in enumerate(mine)]
        while due[0][0] < end:
            at, n = due.pop(0)
            time.sleep(max(0.0, at - time.monotonic()))
            now = datetime.now(UTC)
            load = DatabaseLoad(
                events=delivery.batch_of_events(f"n{n}", 1, now),
                heartbeat=records.AgentHeartbeat(cluster="bench", node=f"n{n}", at=now, beat_s=5.0),
            )
            began = time.monotonic()
            tls[n].sendall(door_wire.frame(door_wire.encoded(load)))
            (length,) = door_wire.HEADER.unpack(_exactly(tls[n], 4))
            answer = _exactly(tls[n], length)
            latencies.append(time.monotonic() - began)
            failures[0] += b'"accepted": 1' not in answer
            due.append((max(at + beat_s, time.monotonic()), n))

    threads = [threading.Thread(target=look_after, args=(numbers[t::25],)) for t in range(25)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    results.put((latencies, failures[0]))


def _exactly(tls: ssl.SSLSocket, n: int) -> bytes:
    got = b""
    while len(got) < n:
        part = tls.recv(n - len(got))
        if not part:
            raise SystemExit("the door closed the connection")
        got += part
    return got


def through_the_door(
    directory: Path, url: str, n_agents: int, seconds: float, beat_s: float, connections: int, gather_s: float
) -> dict[str, float]:
    """Processor time of database and door per delivery, milliseconds, and in cores."""
    process, port = start_door(directory, url.replace("probing_owner@", f"{DOOR}@"), connections, gather_s)
    context = multiprocessing.get_context("spawn")
    results, begin = context.Queue(), context.Event()
    crews = [
        context.Process(
            target=door_agents,
            args=(str(directory), port, list(range(k, n_agents, 2)), seconds, beat_s, begin, results),
        )
        for k in range(2)
    ]
    for crew in crews:
        crew.start()
    for _ in crews:
        assert results.get() == "ready"
    server = _postmaster(directory / "pg")
    before, door_before, began = cpu_s(server), cpu_s(process.pid), time.monotonic()
    begin.set()
    found = [results.get() for _ in crews]
    wall = time.monotonic() - began
    spent, door_spent = cpu_s(server) - before, cpu_s(process.pid) - door_before
    for crew in crews:
        crew.join()
    rss = psutil.Process(process.pid).memory_info().rss / 2**20
    process.terminate()
    process.wait()
    latencies = sorted(value for some, _ in found for value in some)
    n = len(latencies)
    return {
        "agents": n_agents,
        "deliveries_per_s": n / wall,
        "database_ms": 1000 * spent / n,
        "door_ms": 1000 * door_spent / n,
        "cores": (spent + door_spent) / wall,
        "load": os.getloadavg()[0],
        "p50_ms": 1000 * latencies[n // 2],
        "p99_ms": 1000 * latencies[int(n * 0.99)],
        "door_mib": rss,
        "failed": sum(f for _, f in found),
    }


def directly(directory: Path, url: str, n_agents: int, seconds: float) -> dict[str, float]:
    """The same of agents that come through PgBouncer themselves, each as its own role."""
    bouncer = directory / "bouncer"
    bouncer.mkdir(exist_ok=True)
    bouncer.chmod(0o755)
    process, pooled = delivery.start_pgbouncer(bouncer, url)
    context = multiprocessing.get_context("spawn")
    results = context.Queue()
    server = _postmaster(directory / "pg")
    before, pool_before, began = cpu_s(server), cpu_s(process.pid), time.monotonic()
    share = n_agents // 2
    crews = [
        context.Process(target=delivery.agents, args=(pooled, i * share, share, seconds, results))
        for i in range(2)
    ]
    for crew in crews:
        crew.start()
    found = [results.get() for _ in crews]
    wall = time.monotonic() - began
    spent = cpu_s(server) - before + cpu_s(process.pid) - pool_before
    for crew in crews:
        crew.join()
    process.terminate()
    process.wait()
    n = sum(len(some) for some, _ in found)
    return {"agents": n_agents, "deliveries_per_s": n / wall, "database_ms": 1000 * spent / n, "cores": spent / wall,
            "failed": sum(len(f) for _, f in found)}  # fmt: skip


def _postmaster(directory: Path) -> int:
    return int((directory / "data/postmaster.pid").read_text().split("\n")[0])


def exponent(rounds: Sequence[Mapping[str, float]]) -> float:
    """How cores grow with agents: the slope of their logarithms."""
    agents, cores = ([math.log(r[key]) for r in rounds] for key in ("agents", "cores"))
    return statistics.linear_regression(agents, cores).slope


def main() -> None:
    """Measure both and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--agents", default="125,250,500,1000,2000", help="how many, a round each")
    parser.add_argument("--direct-agents", type=int, default=400)
    parser.add_argument("--seconds", type=float, default=15.0, help="length of a round")
    parser.add_argument("--connections", type=int, default=2)
    parser.add_argument("--beat", type=float, default=5.0, help="seconds between an agent's deliveries")
    parser.add_argument("--gather", type=float, default=0.1, help="seconds deliveries are gathered")
    wanted = parser.parse_args()
    counts = sorted(int(n) for n in wanted.agents.split(","))
    directory = Path(tempfile.mkdtemp(prefix="probing-door-"))
    directory.chmod(0o755)
    (directory / "pg").mkdir(mode=0o755)
    try:
        url = embedded.ensure(directory / "pg")
        migrate.upgrade(url)
        partitions.maintain(url, retention_days=400)
        roles.add_login(url, DOOR, "probing_door")
        known_nodes(url, counts[-1])
        certificates(
            directory, ["door", *(roles.agent_role_name("bench", f"n{n}") for n in range(counts[-1]))]
        )
        rounds = []
        for n_agents in counts:
            given = (n_agents, wanted.seconds, wanted.beat, wanted.connections, wanted.gather)
            rounds.append(through_the_door(directory, url, *given))
            print("door", _words(rounds[-1]), flush=True)
        if len(rounds) > 1:
            print(f"cores grow with agents to the power of {exponent(rounds):.2f}", flush=True)
        if wanted.direct_agents and Path("/usr/sbin/pgbouncer").exists():
            for n in range(wanted.direct_agents):
                roles.add_agent(url, "bench", f"n{n}")
            direct = directly(directory, url, wanted.direct_agents, wanted.seconds)
            print("direct", _words(direct))
            through_door = rounds[-1]["database_ms"] + rounds[-1]["door_ms"]
            print(
                f"a direct delivery costs {direct['database_ms'] / through_door:.1f} times one through the door"
            )
    finally:
        embedded.stop(directory / "pg")
        shutil.rmtree(directory, ignore_errors=True)


def _words(found: dict[str, float]) -> str:
    return "  ".join(f"{name} {value:.4g}" for name, value in found.items())


if __name__ == "__main__":
    os.environ.setdefault("PYTHONUNBUFFERED", "1")
    main()
