"""systemd's watchdog: a unit's process that has not reported for WatchdogSec is ended and started again."""

from __future__ import annotations

import contextlib
import faulthandler
import os
import socket
import threading
from collections.abc import Iterator

EVERY_S = 10.0
"""How often a process that works reports; the units wait for many times as long."""


def begin() -> None:
    """Report for the first time. From now on SIGABRT, by which systemd ends a process that froze, writes where each thread stands to stderr."""
    if _address() is not None:
        faulthandler.enable()
    report()


def report() -> None:
    """Say that the process works; nothing happens where systemd does not watch it. Never waits, never raises."""
    address = _address()
    if address is None:
        return
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notify:
        notify.setblocking(False)
        notify.sendto(b"WATCHDOG=1", address)


@contextlib.contextmanager
def reported() -> Iterator[None]:
    """Reports from a thread for as long as the block runs: for what may take long and shows no progress, as an upgrade of the database."""
    over = threading.Event()

    def run() -> None:
        report()
        while not over.wait(EVERY_S):
            report()

    thread = threading.Thread(target=run, name="watchdog", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _address() -> str | None:
    """Where to report; None where nobody watches this very process. Children inherit the variables."""
    address = os.environ.get("NOTIFY_SOCKET")
    if not address or os.environ.get("WATCHDOG_PID") != str(os.getpid()):
        return None
    return "\0" + address[1:] if address.startswith("@") else address
