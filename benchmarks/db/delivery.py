"""Events per second through the delivery function beside a bare COPY, and 2,000 agents through PgBouncer.

    .venv/bin/python -m benchmarks.db.delivery [--batches 60] [--agents 2000] [--seconds 20]

Both ways store the same rows at the same batch size, 1,000, a commit each, into the same partitioned table with
its indexes, taking turns batch by batch, so that whatever else the machine does hits both alike. The agents each
deliver a heartbeat and one event per beat of 5 s over a client connection they keep, each as its own role, as on a
site; the backends are PgBouncer's, at most 40 for all roles together.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import pwd
import shutil
import socket
import statistics
import subprocess
import tempfile
import threading
import time
import uuid
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg
from psycopg.types.json import Jsonb

from probing_cluster.core import errors, records
from probing_cluster.db import delivery, migrate, partitions, roles
from probing_cluster.db.server import embedded

BATCH = 1000
BEAT_S = 5.0
BACKENDS = 40
_COPY_TYPES = [("jsonb" if name == "detail" else kind) for name, kind in delivery.EVENT_FIELDS]


def batch_of_events(node: str, n_rows: int, start: datetime) -> list[records.HealthEvent]:
    """Events as a storm brings them: full messages, decoded detail, a few milliseconds apart."""
    return [
        records.HealthEvent(
            event_id=uuid.uuid4(),
            cluster="bench",
            node=node,
            at=start + timedelta(milliseconds=3 * i),
            observed_at=start,
            kind="xid",
            code="79",
            severity=records.Severity.HIGH if i % 50 == 0 else records.Severity.INFO,
            device=f"gpu{i % 8}",
            pci_bus_id="0000:5e:00",
            gpu_uuid="GPU-5f3c9e10-7d1c-4b9b-9a3e-0f6f1b0a4c11",
            pid=1000 + i,
            process="python3",
            source="kernel",
            message="NVRM: Xid (PCI:0000:5e:00): 79, pid=4242, name=python3, GPU has fallen off the bus.",
            detail={"sequence": i, "facility": 0, "recovery": "reset"},
        )
        for i in range(n_rows)
    ]


def copy_batch(connection: psycopg.Connection[Any], events: list[records.HealthEvent]) -> None:
    """The same rows by COPY BINARY: no key, no check, no second delivery."""
    names = ", ".join(name for name, _ in delivery.EVENT_FIELDS)
    with (
        connection.transaction(),
        connection.cursor() as cursor,
        cursor.copy(f"COPY probing.health_event ({names}) FROM STDIN (FORMAT BINARY)") as copy,
    ):
        copy.set_types(_COPY_TYPES)
        for event in events:
            values = [getattr(event, name) for name, _ in delivery.EVENT_FIELDS]
            values[-1] = Jsonb(event.detail)
            values[7] = str(event.severity)
            copy.write_row(values)


def side_by_side(url: str, n_batches: int) -> tuple[float, float, float]:
    """Rows per second delivered and copied, medians over batches, and the median of the ratios."""
    partitions.maintain(url, retention_days=400)
    start = datetime.now(UTC) - timedelta(seconds=30)
    delivered, copied = [], []
    with (
        delivery.Delivery(url, "bench", "n1", keep_open=True) as door,
        psycopg.connect(url, autocommit=True) as bare,
    ):
        for round_ in range(n_batches + 5):
            mine, theirs = (batch_of_events("n1", BATCH, start) for _ in range(2))
            began = time.perf_counter()
            assert door.deliver(events=mine).accepted == BATCH
            middle = time.perf_counter()
            copy_batch(bare, theirs)
            end = time.perf_counter()
            if round_ >= 5:
                delivered.append(BATCH / (middle - began))
                copied.append(BATCH / (end - middle))
    ratios = [d / c for d, c in zip(delivered, copied, strict=True)]
    return statistics.median(delivered), statistics.median(copied), statistics.median(ratios)


def start_pgbouncer(directory: Path, url: str) -> tuple[subprocess.Popen[bytes], str]:
    """PgBouncer in transaction mode before the database; the URL to reach it by."""
    target = psycopg.conninfo.conninfo_to_dict(url)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    (directory / "users").write_text(roles.pgbouncer_users(url))
    (directory / "ini").write_text(
        f"[databases]\n{target['dbname']} = host={target['host']} port={target['port']}\n[pgbouncer]\n"
        f"listen_addr = 127.0.0.1\nlisten_port = {port}\nunix_socket_dir = {directory}\n"
        f"auth_file = {directory}/users\nauth_type = trust\npool_mode = transaction\n"
        f"default_pool_size = 1\nmax_db_connections = {BACKENDS}\nserver_idle_timeout = 15\nmax_client_conn = 5000\n"
        "log_connections = 0\nlog_disconnections = 0\n"
    )
    options: dict[str, Any] = {}
    if os.geteuid() == 0:
        account = pwd.getpwnam("postgres")
        os.chown(directory, account.pw_uid, account.pw_gid)
        options = {"user": account.pw_uid, "group": account.pw_gid, "extra_groups": []}
    log = (directory / "log").open("w")
    process = subprocess.Popen(
        ["/usr/sbin/pgbouncer", directory / "ini"], stdout=log, stderr=log, cwd="/", **options
    )
    while not (directory / f".s.PGSQL.{port}").exists():
        if process.poll() is not None:
            raise SystemExit((directory / "log").read_text())
        time.sleep(0.05)
    return process, f"postgresql://ROLE@127.0.0.1:{port}/{target['dbname']}"


def agents(url: str, first: int, count: int, seconds: float, results: Any) -> None:
    """A process full of agents: threads that each look after some, one delivery per agent and beat."""
    latencies: list[float] = []
    failures: list[str] = []
    end = time.monotonic() + seconds

    def look_after(numbers: list[int]) -> None:
        doors = [
            delivery.Delivery(
                url.replace("ROLE", roles.agent_role_name("bench", f"n{n}")),
                "bench",
                f"n{n}",
                keep_open=True,
                connect_timeout_s=60,
            )
            for n in numbers
        ]
        due = [(time.monotonic() + BEAT_S * i / len(numbers), i) for i in range(len(numbers))]
        while due and due[0][0] < end:
            at, i = due.pop(0)
            time.sleep(max(0.0, at - time.monotonic()))
            now = datetime.now(UTC)
            beat = records.AgentHeartbeat(cluster="bench", node=f"n{numbers[i]}", at=now, beat_s=BEAT_S)
            began = time.monotonic()
            try:
                doors[i].deliver(events=batch_of_events(f"n{numbers[i]}", 1, now), heartbeat=beat)
                latencies.append(time.monotonic() - began)
            except errors.DatabaseUnavailable as exc:
                failures.append(str(exc))
            due.append((max(at + BEAT_S, time.monotonic()), i))
        for door in doors:
            door.close()

    n_threads = 10
    numbers = list(range(first, first + count))
    threads = [threading.Thread(target=look_after, args=(numbers[t::n_threads],)) for t in range(n_threads)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    results.put((latencies, failures))


def many_agents(url: str, n_agents: int, seconds: float) -> str:
    """Latency and rate of a fleet's deliveries through PgBouncer, in words."""
    directory = Path(tempfile.mkdtemp(prefix="probing-bouncer-"))
    directory.chmod(0o755)
    for number in range(n_agents):
        roles.add_agent(url, "bench", f"n{number}")
    process, pooled = start_pgbouncer(directory, url)
    context = multiprocessing.get_context("spawn")
    results = context.Queue()
    n_processes = 4
    share = n_agents // n_processes
    crews = [
        context.Process(target=agents, args=(pooled, i * share, share, seconds, results))
        for i in range(n_processes)
    ]
    for crew in crews:
        crew.start()
    backends = []
    with psycopg.connect(url, autocommit=True) as watching:
        for _ in range(int(seconds)):
            time.sleep(1)
            query = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'probing-agent'"
            backends.append(watching.execute(query).fetchone()[0])  # type: ignore[index]
    gathered = [results.get() for _ in crews]
    for crew in crews:
        crew.join()
    process.terminate()
    process.wait()
    shutil.rmtree(directory)
    latencies = sorted(value for found, _ in gathered for value in found)
    failures = [text for _, found in gathered for text in found]
    with psycopg.connect(url) as connection:
        beats = connection.execute("SELECT count(*) FROM probing.agent_heartbeat").fetchone()[0]  # type: ignore[index]
        stored = connection.execute(
            "SELECT count(*) FROM probing.health_event WHERE node <> 'n1'"
        ).fetchone()[0]  # type: ignore[index]
    if not latencies:
        raise SystemExit(f"no delivery arrived: {failures[:1]}")
    p50, p99 = (latencies[int(len(latencies) * q)] * 1000 for q in (0.5, 0.99))
    return (
        f"{n_agents} agents, {len(latencies)} deliveries in {seconds:.0f} s ({len(latencies) / seconds:.0f}/s), "
        f"p50 {p50:.1f} ms, p99 {p99:.0f} ms, at most {max(backends)} backends, {len(failures)} failed, "
        f"{beats} nodes heard, {stored} events stored"
    )


def main() -> None:
    """Measure both and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batches", type=int, default=60)
    parser.add_argument("--agents", type=int, default=2000)
    parser.add_argument("--seconds", type=float, default=20.0)
    wanted = parser.parse_args()
    directory = Path(tempfile.mkdtemp(prefix="probing-pg-"))
    directory.chmod(0o755)
    try:
        url = embedded.ensure(directory)
        migrate.upgrade(url)
        delivered, copied, ratio = side_by_side(url, wanted.batches)
        print(
            f"delivery {delivered:,.0f} rows/s   COPY BINARY {copied:,.0f} rows/s   ratio {ratio:.2f}   batch {BATCH}"
        )
        if wanted.agents and Path("/usr/sbin/pgbouncer").exists():
            try:
                print(many_agents(url, wanted.agents, wanted.seconds))
            finally:
                for number in range(wanted.agents):
                    roles.remove(url, roles.agent_role_name("bench", f"n{number}"))
    finally:
        embedded.stop(directory)
        shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    main()
