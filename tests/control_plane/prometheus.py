"""Prometheus's own programs (Debian: prometheus, prometheus-node-exporter); what needs them skips where they are not."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from probing_cluster.sandbox.machine import ports

DEADLINE_S = 120.0
"""Longest wait for something that comes in a second on a machine that is not busy."""


def program(name: str) -> str:
    """Its full path; skips without it."""
    found = shutil.which(name)
    if found is None:
        package = "prometheus" if name == "promtool" else name
        pytest.skip(f"{name} is not installed (apt-get install --no-install-recommends {package})")
    return found


@contextlib.contextmanager
def running(name: str, *arguments: str, log: Path) -> Iterator[int]:
    """One of the servers while the block runs: the port on 127.0.0.1 where it answers."""
    path = program(name)
    port = ports.choose(1)[0]
    with log.open("w") as out:
        process = subprocess.Popen(
            [path, f"--web.listen-address=127.0.0.1:{port}", *arguments],
            stdin=subprocess.DEVNULL, stdout=out, stderr=out,
        )  # fmt: skip
        try:
            deadline = time.monotonic() + DEADLINE_S
            while True:
                assert process.poll() is None, log.read_text()
                assert time.monotonic() < deadline, log.read_text()
                with contextlib.suppress(OSError):
                    get(f"http://127.0.0.1:{port}/")
                    break
                time.sleep(0.1)
            yield port
        finally:
            process.terminate()
            process.wait(timeout=60)


def get(url: str) -> str:
    """What a URL answers; raises OSError when it does not, or with a status that is no success."""
    with urllib.request.urlopen(url, timeout=30) as answer:
        return str(answer.read().decode())


def promtool(*arguments: str | Path, given: str | None = None) -> str:
    """What promtool says; AssertionError with it when it finds fault."""
    done = subprocess.run(
        [program("promtool"), *map(str, arguments)], input=given, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr
