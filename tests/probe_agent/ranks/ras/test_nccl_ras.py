"""The agent asks NCCL RAS as the job's user, of that user's own listener only, against a server that speaks its protocol."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import subprocess
import textwrap
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from probing_cluster.evidence import nccl_ras as status_text
from probing_cluster.probe_agent import children
from probing_cluster.probe_agent.jobs import jobs
from probing_cluster.probe_agent.ranks.ras import nccl_ras, ras_child

MALLORY = 61001
PYTHON = "/usr/bin/python3"
AS_ROOT = [
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become another user"),
    pytest.mark.skipif(not Path(PYTHON).exists(), reason="needs a Python that any user may run"),
]

DEAD = """NCCL version 2.28.7 compiled with CUDA 13.0

Job summary
===========

Communicators... (0.01s)
=============

Errors
======

DEAD
  1 job process is considered dead (unreachable via the RAS network)
  Process 3487984 on node 172.16.64.213 managing GPU 5

Warnings
========

"""
SERVER = """
import socket, sys
mode, body = sys.argv[1], sys.argv[2]
s = socket.socket(); s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
s.bind(("127.0.0.1", 0)); s.listen(4)
print(s.getsockname()[1], flush=True)
while True:
    c, _ = s.accept()
    with c:
        try:
            stream = c.makefile("rb")
            hello = stream.readline()
            if mode == "http":
                c.sendall(b"HTTP/1.1 400 Bad Request\\r\\n\\r\\n"); continue
            if mode == "silent":
                stream.readline(); import time; time.sleep(600)
            # client_support.cc: any command may follow, an unknown one is answered ERROR, STATUS ends the connection.
            if hello.lower().startswith(b"client protocol "):
                c.sendall(b"SERVER PROTOCOL 2\\n")
            for line in stream:
                if line.strip().lower() == b"status":
                    if mode == "flood":
                        while True: c.sendall(b"x" * 65536)
                    c.sendall(body.encode()); break
                c.sendall(b"ERROR: Unknown command " + line)
        except OSError:
            pass
"""


@contextlib.contextmanager
def server(mode: str = "ras", uid: int | None = None) -> Iterator[int]:
    """The port of a RAS server that runs as a user."""
    account = {} if uid is None else {"user": uid, "group": uid, "extra_groups": []}
    process = subprocess.Popen(
        [PYTHON, "-I", "-S", "-c", textwrap.dedent(SERVER), mode, DEAD],
        stdout=subprocess.PIPE, **account,  # type: ignore[call-overload]
    )  # fmt: skip
    try:
        yield int(process.stdout.readline())
    finally:
        process.kill()
        process.communicate()


def job(uid: int) -> jobs.NodeJob:
    """A job of a user."""
    return jobs.NodeJob(job_id=7, started_at=datetime.now(UTC), uid=uid, gid=uid)


def ask(uid: int, port: int) -> status_text.RasStatus | str | None:
    """What the agent learns."""
    return asyncio.run(nccl_ras.ask(children.Children(), job(uid), port))


@pytest.mark.parametrize("uid", [pytest.param(MALLORY, marks=AS_ROOT), os.getuid()])
def test_the_status_of_the_jobs_own_processes(uid: int) -> None:
    """Handshake, STATUS, text until the end: who is dead, in words and as data."""
    if uid == 0:
        pytest.skip("a job of root's is never read")
    with server(uid=uid if os.geteuid() == 0 else None) as port:
        reply = ask(uid, port)
    assert isinstance(reply, status_text.RasStatus)
    assert nccl_ras.words(reply) == (
        "NCCL RAS: 1 job process is considered dead (unreachable via the RAS network) "
        "(process 3487984 on 172.16.64.213)"
    )
    assert nccl_ras.detail(reply)["problems"][0]["processes"] == [{"node": "172.16.64.213", "pid": 3487984}]


@pytest.mark.parametrize("uid", [pytest.param(MALLORY, marks=AS_ROOT)])
def test_another_users_listener_is_not_asked(uid: int) -> None:
    """A service of root's on the same port gets no connection on behalf of a user."""
    with server() as port:
        assert ask(uid, port) is None


@pytest.mark.parametrize("uid", [pytest.param(MALLORY, marks=AS_ROOT)])
@pytest.mark.parametrize(("mode", "why"), [("http", "not NCCL RAS"), ("flood", "no status")])
def test_whatever_answers_is_bounded_and_told(mode: str, why: str, uid: int) -> None:
    """Another protocol, an endless answer: refused in words."""
    with server(mode, uid) as port:
        reply = ask(uid, port)
    assert isinstance(reply, str)
    assert why in reply


def test_a_listener_that_says_nothing_costs_its_deadline_only() -> None:
    """Half an answer is no answer; nobody waits longer than told."""
    with server("silent") as port, pytest.raises(ras_child.collect_child.Refused):
        ras_child.status("127.0.0.1", port, deadline_s=0.3)


def test_no_listener_is_no_nccl_job() -> None:
    """A CPU job, an older NCCL, RAS switched off: absent, and no error."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        assert ask(os.getuid() or MALLORY, free.getsockname()[1]) is None


def test_listeners_are_told_apart_by_address_and_owner(tmp_path: Path) -> None:
    """Loopback or any address, one owner, the listening state; IPv6 too."""
    head = (
        "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"
    )

    def row(address: str, uid: int, state: str = "0A") -> str:
        return (
            f"   0: {address}:6D7C 00000000:0000 {state} 00000000:00000000 00:00000000 00000000 {uid:5} 0 1\n"
        )

    def found(v4: str = "", v6: str = "") -> str | None:
        (tmp_path / "tcp").write_text(head + v4)
        (tmp_path / "tcp6").write_text(head + v6)
        return ras_child.listener(28028, 1000, tmp_path)

    assert found(row("0100007F", 1000)) == "127.0.0.1"
    assert found(row("00000000", 1000)) == "127.0.0.1"
    assert found(v6=row("00000000000000000000000001000000", 1000)) == "::1"
    assert found(row("0100007F", 1001)) is None
    assert found(row("0100007F", 1000) + row("0100007F", 1001)) is None
    assert found(row("0100007F", 1000, "01")) is None
    assert found(row("0A00A8C0", 1000)) is None
    assert found() is None
