"""Thousands of agents share a few backends through PgBouncer, and stay who they are."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any, cast

import psycopg
import pytest

from probing_cluster.attribution.history import source as sources
from probing_cluster.attribution.passes import attribute
from probing_cluster.control_plane import context
from probing_cluster.control_plane.service import turns
from probing_cluster.core import errors, records, settings
from probing_cluster.db import arrow, bulk, delivery, roles
from probing_cluster.db import store as store_module
from probing_cluster.db.server import embedded
from probing_cluster.lemon import gather
from tests import unjudged


def test_many_agents_share_three_backends(
    store: store_module.Store, pgbouncer: Callable[..., str], make_event: Callable[..., Any]
) -> None:
    """Forty agents with open clients deliver through three server connections, each row once, with nothing prepared."""
    place = pgbouncer(store.url, f'"{embedded.OWNER}" ""\n')
    url = re.sub(r"host=.*", place, store.url)
    doors = [delivery.Delivery(url, "c", f"n{i}", keep_open=True) for i in range(40)]
    failures: list[BaseException] = []

    def work(door: delivery.Delivery, node: str) -> None:
        try:
            for _ in range(3):
                event = make_event(node=node)
                beat = records.AgentHeartbeat(cluster="c", node=node, at=event.at)
                assert door.deliver(events=[event], heartbeat=beat).accepted == 1
                assert door.deliver(events=[event]).duplicates == 1
        except BaseException as exc:  # noqa: BLE001 - handed to the test's own thread
            failures.append(exc)

    threads = [threading.Thread(target=work, args=(door, f"n{i}")) for i, door in enumerate(doors)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with psycopg.connect(store.url) as connection:
        query = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'probing-agent'"
        backends = connection.execute(query).fetchone()
    for door in doors:
        door.close()
    assert failures == []
    assert len(store.events()) == 120
    assert len(store.heartbeats()) == 40
    assert backends is not None
    assert 1 <= backends[0] <= 3


def test_the_control_plane_works_through_it_too(
    store: store_module.Store, pgbouncer: Callable[..., str], make_attempt: Callable[..., Any]
) -> None:
    """The store keeps no state on a connection either."""
    place = pgbouncer(store.url, f'"{embedded.OWNER}" ""\n', default_pool_size=1)
    with store_module.Store.open(re.sub(r"host=.*", place, store.url)) as pooled:
        for n in range(1, 8):
            pooled.upsert_attempts([make_attempt(job_id=n)])
            assert len(pooled.attempts()) == len(unjudged.attempts(pooled)) == n


def test_arrow_reads_keep_to_one_server(store: store_module.Store, pgbouncer: Callable[..., str]) -> None:
    """ADBC prepares and runs a query in two steps; among others' queries on two servers each still gets its own answer."""
    url = re.sub(r"host=.*", pgbouncer(store.url, f'"{embedded.OWNER}" ""\n', default_pool_size=2), store.url)
    failures: list[BaseException] = []

    def work(mine: int) -> None:
        try:
            reader = arrow.ArrowReader(url)
            for n in range(40):
                query = f"SELECT g::bigint AS n, {mine} AS who FROM generate_series(1, $1::int) g"
                assert reader.table(query, (n,)).to_pylist() == [
                    {"n": g, "who": mine} for g in range(1, n + 1)
                ]
            with pytest.raises(Exception, match="nowhere"):
                reader.table("SELECT * FROM nowhere")
            assert reader.table("SELECT 1 AS one").to_pylist() == [{"one": 1}]
            reader.close()
        except BaseException as exc:  # noqa: BLE001 - handed to the test's own thread
            failures.append(exc)

    threads = [threading.Thread(target=work, args=(mine,)) for mine in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


def test_reads_of_the_figures_and_of_the_lemons_keep_to_one_server_and_leave_it(
    store: store_module.Store,
    pgbouncer: Callable[..., str],
    make_attempt: Callable[..., Any],
    make_event: Callable[..., Any],
) -> None:
    """Each reader's several queries, from many at once, each get their own answer; no server is lost to them."""
    url = re.sub(r"host=.*", pgbouncer(store.url, f'"{embedded.OWNER}" ""\n', default_pool_size=2), store.url)
    store.upsert_attempts([make_attempt(job_id=n) for n in range(1, 4)])
    bulk.load_events(url, [make_event(node=f"n{n}") for n in range(5)])
    end = make_attempt().end_at
    span = (end - timedelta(days=1), end + timedelta(days=1))
    failures: list[BaseException] = []
    servers: set[int] = set()

    def work() -> None:
        try:
            for _ in range(4):
                figures = sources.PostgresSource(url)
                assert (figures.attempts(*span).num_rows, figures.events(*span).num_rows) == (3, 5)
                facts = gather.read(url, "c", *span)
                assert (facts.attempts.num_rows, facts.notes.num_rows) == (3, 0)
                with arrow.reading(url, "SELECT pg_backend_pid() AS pid FROM generate_series(1, 3)") as rows:
                    servers.update(row["pid"] for row in rows.read_next_batch().to_pylist())
        except BaseException as exc:  # noqa: BLE001 - handed to the test's own thread
            failures.append(exc)

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert 1 <= len(servers) <= 2


def test_a_pass_over_many_attempts_goes_through_it(
    store: store_module.Store,
    pgbouncer: Callable[..., str],
    make_attempt: Callable[..., Any],
    make_event: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Loading in bulk and the pass that sorts attempts out over ADBC, through one server: as without PgBouncer."""
    place = pgbouncer(store.url, f'"{embedded.OWNER}" ""\n', default_pool_size=1)
    monkeypatch.setattr(attribute, "MANY", 2)
    with store_module.Store.open(re.sub(r"host=.*", place, store.url)) as pooled:
        attempts = [make_attempt(job_id=n, nodes=(f"n{n % 3}",)) for n in range(1, 9)]
        assert bulk.load_attempts(pooled.url, attempts) == 8
        assert bulk.load_events(pooled.url, [make_event(at=attempts[0].end_at, node="n1")]) == 1
        done = attribute.attribute(pooled)
        assert done.n_attempts == 8
        assert unjudged.attempts(pooled) == []
    assert {v.cause for v in store.verdicts()} >= {"gpu_lost"}
    again = attribute.attribute(store, since=attempts[0].submit_at)
    assert (again.n_attempts, again.changed) == (8, ())


def test_a_certificate_names_the_node_through_the_pool(
    debian_server: Any,
    client_certificate: Callable[[str], tuple[Path, Path]],
    pgbouncer: Callable[..., str],
    make_event: Callable[..., Any],
) -> None:
    """Behind `auth_type=cert` the role, hence the node, is the certificate's; another node's name changes nothing."""
    role, other = (roles.add_agent(debian_server.owner_url, "c", node) for node in ("n5", "n6"))
    directory = debian_server.directory
    try:
        place = pgbouncer(
            debian_server.owner_url,
            roles.pgbouncer_users(debian_server.owner_url),
            auth_type="cert",
            client_tls_sslmode="verify-full",
            client_tls_ca_file=directory / "ca.crt",
            client_tls_cert_file=directory / "server.crt",
            client_tls_key_file=directory / "server.key",
        )
        port = place.rpartition("=")[2]
        cert, key = client_certificate(role)
        tls = f"sslmode=verify-ca&sslrootcert={directory}/ca.crt&sslcert={cert}&sslkey={key}"
        mine = delivery.Delivery(f"postgresql://{role}@127.0.0.1:{port}/probing?{tls}", "c", "n6")
        ack = mine.deliver(events=[make_event(node="n5"), make_event(node="n6")])
        assert (ack.accepted, ack.rejected) == (1, 1)
        with pytest.raises(errors.DatabaseUnavailable):
            delivery.Delivery(f"postgresql://{other}@127.0.0.1:{port}/probing?{tls}", "c", "n6").deliver()
    finally:
        for name in (role, other):
            roles.remove(debian_server.owner_url, name)


def test_turns_hold_through_it(store: store_module.Store, pgbouncer: Callable[..., str]) -> None:
    """A turn is its transaction's, and a transaction keeps its server: of two services behind PgBouncer one acts, and then the other."""
    url = re.sub(r"host=.*", pgbouncer(store.url, f'"{embedded.OWNER}" ""\n', default_pool_size=2), store.url)
    acting = threading.Lock()
    failures: list[str] = []
    taken = {0: 0, 1: 0}

    def service(number: int) -> None:
        with store_module.Store.open(url) as mine:
            one_service = context.Context(
                config=settings.Settings(), store=mine, run_slurm=_no_slurm, slurm=cast("Any", None)
            )
            deadline = time.monotonic() + 240
            while min(taken.values()) < 10 and time.monotonic() < deadline:
                with turns.take(one_service, "actions") as held:
                    if not held:
                        continue
                    if not acting.acquire(blocking=False):
                        failures.append("two act at once")
                        return
                    mine.recall("something")  # the block's other work goes by another connection
                    taken[number] += 1
                    acting.release()
                time.sleep(0.005)

    threads = [threading.Thread(target=service, args=(n,)) for n in taken]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert min(taken.values()) >= 10


def _no_slurm(*_: str, **__: Any) -> bytes:
    raise errors.SlurmUnavailable("no Slurm here")
