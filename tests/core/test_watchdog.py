"""Reports to systemd's socket: by the watched process alone, and never in anybody's way."""

from __future__ import annotations

import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from probing_cluster.core.ending import watchdog


@pytest.fixture(params=["path", "abstract"])
def notify(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[socket.socket]:
    """systemd's end of the socket."""
    address = str(tmp_path / "notify") if request.param == "path" else f"@probing-{os.getpid()}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as made:
        made.bind(address.replace("@", "\0", 1) if address.startswith("@") else address)
        made.setblocking(False)
        monkeypatch.setenv("NOTIFY_SOCKET", address)
        monkeypatch.setenv("WATCHDOG_PID", str(os.getpid()))
        yield made


def received(notify: socket.socket, wait_s: float = 0.0) -> int:
    """How many reports wait."""
    n = 0
    while select.select([notify], [], [], wait_s)[0]:
        assert notify.recv(99) == b"WATCHDOG=1"
        n, wait_s = n + 1, 0.0
    return n


def test_the_watched_process_reports(notify: socket.socket) -> None:
    watchdog.report()
    assert received(notify) == 1


def test_a_child_does_not(notify: socket.socket, monkeypatch: pytest.MonkeyPatch) -> None:
    """It inherits the variables, and must not hide that its parent stands still."""
    monkeypatch.setenv("WATCHDOG_PID", str(os.getppid()))
    watchdog.report()
    assert received(notify) == 0


def test_a_full_or_lost_socket_holds_nobody_up(
    notify: socket.socket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(1000):
        watchdog.report()
    monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "gone"))
    watchdog.report()
    monkeypatch.delenv("NOTIFY_SOCKET")
    watchdog.report()


def test_long_work_is_reported_until_it_ends(notify: socket.socket, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watchdog, "EVERY_S", 0.01)
    with watchdog.reported():
        n = 0
        while n < 3:
            n += received(notify, 10.0)
    received(notify)
    assert received(notify, 0.1) == 0


def test_a_process_that_froze_tells_where(tmp_path: Path) -> None:
    """systemd ends it by SIGABRT."""
    code = (
        "import os, time\n"
        "os.environ |= {'NOTIFY_SOCKET': '/nowhere', 'WATCHDOG_PID': str(os.getpid())}\n"
        "from probing_cluster.core.ending import watchdog\n"
        "watchdog.begin(); print('ready', flush=True)\n"
        "def stands_still(): time.sleep(600)\n"
        "stands_still()\n"
    )
    frozen = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert frozen.stdout is not None
    assert frozen.stdout.readline() == b"ready\n"
    time.sleep(0.1)
    frozen.send_signal(signal.SIGABRT)
    _, stderr = frozen.communicate(timeout=60)
    assert b"stands_still" in stderr
