"""The door lets in who has a node's certificate, loses nothing when it dies, and bears whatever comes in."""

from __future__ import annotations

import contextlib
import dataclasses
import random
import signal
import socket
import ssl
import struct
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable
from typing import Any

import pytest

from probing_cluster.control_plane.node_door import agents, serve
from probing_cluster.core import clock, errors, records, settings
from probing_cluster.db import door_delivery, door_wire, roles
from probing_cluster.db import store as db_store
from probing_cluster.sandbox.nodetree import build, kmsg

Make = Callable[..., records.HealthEvent]


def _beat(node: str) -> records.AgentHeartbeat:
    return records.AgentHeartbeat(cluster="c", node=node, at=clock.SYSTEM.now())


def test_agents_deliver_through_the_door_as_themselves(site: Any, make_event: Make) -> None:
    """Many at once, again, with rows that cannot be stored, with another's name; a bad row costs nobody else anything."""
    site.start()
    doors = {node: site.agent(node) for node in ("n1", "n2", "n3")}
    failures: list[BaseException] = []

    def work(node: str) -> None:
        try:
            for _ in range(10):
                event = make_event(node)
                ack = doors[node].deliver(events=[event, make_event("n9")], heartbeat=_beat(node))
                assert (ack.accepted, ack.rejected) == (1, 1)
                assert doors[node].deliver(events=[event]).duplicates == 1
        except BaseException as exc:  # noqa: BLE001 - handed to the test's own thread
            failures.append(exc)

    threads = [threading.Thread(target=work, args=(node,)) for node in doors]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    # What no column holds is mended or refused alone, as by the node's own way.
    ack = doors["n1"].deliver(
        events=[make_event("n1", message="a\0b"), make_event("n1", pid=2**80), make_event("n1")]
    )
    assert (ack.accepted, ack.rejected) == (2, 1)
    assert site.rows("SELECT node, count(*) FROM probing.health_event GROUP BY 1 ORDER BY 1") == [
        ("n1", 12), ("n2", 10), ("n3", 10),
    ]  # fmt: skip
    assert len(site.rows("SELECT 1 FROM probing.agent_heartbeat")) == 3
    roles.remove(site.url, roles.agent_role_name("c", "n2"))
    with pytest.raises(errors.DatabaseUnavailable, match="speaks for no node"):
        doors["n2"].deliver(heartbeat=_beat("n2"))
    roles.add_agent(site.url, "c", "n2")
    site.stop()
    for door in doors.values():
        door.close()


def test_a_stranger_gets_no_answer(site: Any) -> None:
    """Without a certificate, with another authority's, with one of ours that is no node's."""
    site.start()
    frame = door_wire.frame(b"{}")
    for made in (None, site.certificate(roles.agent_role_name("c", "n1"), "other")):
        context = ssl.create_default_context(cafile=site.directory / "ca.crt")
        if made is not None:
            context.load_cert_chain(*made)
        plain = socket.create_connection(("localhost", site.port), timeout=10)
        with pytest.raises(OSError, match=r"certificate|alert|reset|no answer|EOF|pipe"):
            _ask(context, plain, frame)
    stranger = site.agent("stranger")
    with pytest.raises(errors.DatabaseUnavailable, match="speaks for no node"):
        stranger.deliver(heartbeat=_beat("stranger"))
    stranger.close()


def _ask(context: ssl.SSLContext, plain: socket.socket, frame: bytes) -> None:
    with context.wrap_socket(plain, server_hostname="localhost") as tls:
        tls.sendall(frame)
        if not tls.recv(4):
            raise ConnectionResetError("no answer")


# CPython leaves the socket to the collector where the peer resets between connect and handshake (ssl.SSLSocket._create).
@pytest.mark.filterwarnings("ignore:.*unclosed <ssl.SSLSocket:pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("rounds", [2, pytest.param(60, marks=pytest.mark.soak)])
def test_a_door_that_is_killed_loses_nothing_and_doubles_nothing(
    site: Any, make_event: Make, rounds: int
) -> None:
    """SIGKILL at random moments under load: what was acknowledged is stored once, and what was not comes again."""
    site.start()
    enough = threading.Event()
    sent: dict[str, list[records.HealthEvent]] = {node: [] for node in ("n1", "n2", "n3")}
    repeated = dict.fromkeys(sent, 0)
    failures: list[BaseException] = []

    def work(node: str) -> None:
        door = site.agent(node, call_timeout_s=10)
        try:
            while not enough.is_set():
                batch = [make_event(node) for _ in range(5)]
                while True:
                    try:
                        ack = door.deliver(events=batch, heartbeat=_beat(node))
                    except errors.DatabaseUnavailable:
                        repeated[node] += 1
                        door._direct_until_s = door._failures = 0  # this one has no other way
                        time.sleep(0.02)
                        continue
                    assert ack.accepted + ack.duplicates == len(batch)
                    sent[node] += batch
                    break
        except BaseException as exc:  # noqa: BLE001 - handed to the test's own thread
            failures.append(exc)
        finally:
            door.close()

    threads = [threading.Thread(target=work, args=(node,)) for node in sent]
    for thread in threads:
        thread.start()
    rng = random.Random(7)
    for _ in range(rounds):
        time.sleep(rng.uniform(0.1, 0.5))
        site.stop(signal.SIGKILL)
        site.start()
    time.sleep(0.3)
    enough.set()
    for thread in threads:
        thread.join(timeout=60)
    assert failures == []
    assert sum(repeated.values()) > 0
    stored = [row[0] for row in site.rows("SELECT event_id FROM probing.health_event ORDER BY 1")]
    assert stored == sorted(e.event_id for events in sent.values() for e in events)
    print(f"{rounds} kills, {len(stored)} events, {sum(repeated.values())} deliveries repeated")


def test_where_no_door_answers_the_database_itself_is_the_way(site: Any, make_event: Make) -> None:
    """After three failures; what was delivered both ways is stored once; and the door is tried again later."""
    site.start()
    agent = site.agent("n1", direct=True)
    event = make_event("n1")
    assert agent.deliver(events=[event]).accepted == 1
    site.stop(signal.SIGKILL)
    for _ in range(door_delivery.FAILURES_BEFORE_DIRECT):
        with pytest.raises(errors.DatabaseUnavailable, match="no door answers"):
            agent.deliver(events=[event])
    ack = agent.deliver(events=[event, make_event("n1")])
    assert (ack.accepted, ack.duplicates) == (1, 1)
    site.start()
    agent._direct_until_s = 0.0
    assert agent.deliver(events=[make_event("n1")]).accepted == 1
    sessions = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'probing-agent'"
    assert site.rows(sessions) == [(0,)]
    agent.close()


def test_a_database_that_cannot_be_reached_sends_agents_back_to_the_door(
    site: Any, make_event: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where agents reach only the door, a short restart of it must not silence them for minutes; a row at fault sends nobody back."""
    site.start()
    agent = site.agent("n1", direct=True)
    assert agent.deliver(events=[make_event("n1")]).accepted == 1
    site.stop(signal.SIGKILL)
    for _ in range(door_delivery.FAILURES_BEFORE_DIRECT):
        with pytest.raises(errors.DatabaseUnavailable, match="no door answers"):
            agent.deliver(events=[make_event("n1")])
    impossible = dataclasses.replace(make_event("n1"), count=2**70)
    assert agent.deliver(events=[impossible]).rejected == 1
    assert agent._direct_until_s > time.monotonic()
    site.start()
    monkeypatch.setattr(agent, "_url", "postgresql://nobody@127.0.0.1:1/probing")
    event = make_event("n1")
    with pytest.raises(errors.DatabaseUnavailable, match="cannot be reached"):
        agent.deliver(events=[event])
    assert agent.deliver(events=[event]).accepted == 1
    agent.close()


def test_one_line_switches_an_agent_to_the_door(site: Any, tmp_path: Any) -> None:
    """A whole agent, whose database cannot be reached from its node: what it read arrives, by way of `[agent] door`."""
    build.build(tmp_path, "n1", gpus=0)
    site.start()
    role = roles.agent_role_name("c", "n1")
    crt, key = site.certificate(role)
    config = tmp_path / "agent.toml"
    config.write_text(
        f'[cluster]\nname = "c"\n[agent]\nroot = "{tmp_path}/root"\nnode = "n1"\nsocket = "{tmp_path}/s"\n'
        f'spool_directory = "{tmp_path}/spool"\njob_directory = "{tmp_path}/jobs"\nnvml_library = "{tmp_path}/none"\n'
        f'database_url = "postgresql://{role}@/none?host=/nowhere&sslcert={crt}&sslkey={key}&sslrootcert={tmp_path}/ca.crt"\n'
        f'door = "localhost:{site.port}"\n[checks]\nstate_file = "{tmp_path}/checks.json"\n'
    )
    argv = [sys.executable, "-m", "probing_cluster.probe_agent.cli", "--once", "--config", str(config)]
    kmsg.append(tmp_path / "root", "mlx5_core 0000:18:00.0 ib0: Link down")
    subprocess.run(argv, check=True, capture_output=True, timeout=60)
    assert site.rows("SELECT DISTINCT cluster, node FROM probing.health_event") == [("c", "n1")]
    assert site.rows("SELECT node FROM probing.agent_heartbeat") == [], "it promises no further beat"


def test_the_second_of_two_doors_serves_when_the_first_is_gone(site: Any, make_event: Make) -> None:
    """Without one failed delivery."""
    site.start()
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        nobody = probe.getsockname()[1]
    for _ in range(6):  # whichever of them is tried first
        agent = site.agent("n1", door=f"localhost:{nobody}, localhost:{site.port}")
        assert agent.deliver(events=[make_event("n1")]).accepted == 1
        agent.close()


def test_noise_on_the_port_ends_only_itself(site: Any, make_event: Make) -> None:
    """Plain bytes, half a handshake, frames that lie about their length, two frames at once: an agent beside them delivers on."""
    site.start()
    agent = site.agent("n1")
    rng = random.Random(11)
    held = []
    context = ssl.create_default_context(cafile=site.directory / "ca.crt")
    context.load_cert_chain(*site.certificate(roles.agent_role_name("c", "n2")))
    beat = door_wire.frame(b"{}")
    for n in range(20):
        plain = socket.create_connection(("localhost", site.port), timeout=10)
        if n % 4 == 0:
            with contextlib.suppress(OSError):
                plain.sendall(rng.randbytes(rng.randrange(1, 4000)))
            held.append(plain)
            continue
        tls = context.wrap_socket(plain, server_hostname="localhost")
        bad = [
            struct.pack("!I", 2**32 - 1) + b"x",
            beat + beat,
            beat[: rng.randrange(1, len(beat))],
            rng.randbytes(300),
        ]
        with contextlib.suppress(OSError):
            tls.sendall(rng.choice(bad))
        if rng.random() < 0.5:
            tls.close()
        else:
            held.append(tls)
        assert agent.deliver(events=[make_event("n1")]).accepted == 1
    for left in held:
        left.close()
    agent.close()
    assert site.process is not None
    assert site.process.poll() is None


def test_an_agent_that_sends_without_end_and_callers_that_reset_hold_up_nobody(
    site: Any, make_event: Make, store: db_store.Store
) -> None:
    """Frames answered at once, one after the other before any answer is read; more resets than one address may begin handshakes."""
    site.start()
    context = ssl.create_default_context(cafile=site.directory / "ca.crt")
    context.load_cert_chain(*site.certificate(roles.agent_role_name("c", "n2")))
    with context.wrap_socket(
        socket.create_connection(("localhost", site.port), timeout=20), server_hostname="localhost"
    ) as tls:
        for _ in range(600):
            tls.sendall(door_wire.frame(b"\0"))
        answer = door_wire.failure("22021", "a delivery is UTF-8 JSON")
        left = 600 * len(door_wire.frame(answer))
        while left:
            got = tls.recv(left)
            assert got
            left -= len(got)
    for _ in range(2 * serve.MOST_HANDSHAKES_OF_ONE):
        plain = socket.create_connection(("localhost", site.port), timeout=10)
        plain.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        plain.close()
    agent = site.agent("n1")
    assert agent.deliver(events=[make_event("n1")]).accepted == 1
    # Answers to questions come through, too.
    question = uuid.uuid4()
    detail = {"question": str(question), "by": "ada", "scans": [{"table": "cluster.ranks"}]}
    calls = store.request("n1", "ask", 7, 600, detail, "c")
    assert [r.request_id for r in agent.deliver().requests] == [calls]
    agent.deliver(answers=[(calls, b"F\0body")])
    assert [(n, b) for n, b, _ in store.answers(question, "ada", None, 1 << 20)] == [("n1", b"F\0body")]
    agent.close()


def test_a_node_has_one_connection(site: Any, make_event: Make) -> None:
    """It came again: the connection before is closed, and its next delivery opens another without failing."""
    site.start()
    first, again = site.agent("n1"), site.agent("n1")
    for agent in (first, again, first, again):
        assert agent.deliver(events=[make_event("n1")]).accepted == 1
    first.close()
    again.close()


def test_the_door_says_what_is_missing_before_it_opens(site: Any, tmp_path: Any) -> None:
    """No certificate set, a key that others read, a login that is not the door's."""
    with pytest.raises(errors.SettingsError, match="tls_certificate is not set"):
        serve.tls_context(settings.DoorSettings())
    crt, key = site.certificate("door")
    named = settings.DoorSettings(tls_certificate=str(crt), tls_key=str(key), tls_ca=str(tmp_path / "ca.crt"))
    key.chmod(0o644)
    with pytest.raises(errors.SettingsError, match="0600"):
        serve.tls_context(named)
    key.chmod(0o600)
    agent = site.url.replace("probing_owner@", f"{roles.agent_role_name('c', 'n1')}@")
    with pytest.raises(AssertionError, match="add-login NAME door"):
        site.start(database_url=agent)


@pytest.mark.parametrize(
    ("certificate", "name"),
    [
        ({"subject": ((("commonName", "agent-c-n1"),),)}, "agent-c-n1"),
        ({"subject": ((("commonName", "a"),), (("commonName", "b"),))}, None),
        ({"subject": ((("commonName", ""),),)}, None),
        ({"subject": ()}, None),
        ({}, None),
        (None, None),
    ],
)
def test_one_name_and_no_more(certificate: object, name: str | None) -> None:
    """A certificate of two names is nobody's."""
    assert agents.common_name(certificate) == name
