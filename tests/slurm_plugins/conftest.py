"""Shared by the tests of slurm_plugins: the hooks as real processes, a fake agent."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from probing_cluster.core import settings
from probing_cluster.sandbox import cluster
from probing_cluster.sandbox.machine import requirements, scratch

REPOSITORY = Path(__file__).resolve().parents[2]
HOOKS = REPOSITORY / "slurm_plugins" / "hooks"
OWN_HOOKS = Path(tempfile.mkdtemp(prefix="probing-hooks-")) / "hooks"
"""A copy that belongs to this process: a hook runs nothing of another account's, and the checkout may be one's."""
shutil.copytree(HOOKS, OWN_HOOKS, ignore=shutil.ignore_patterns("__pycache__"))
for _path in (OWN_HOOKS, *OWN_HOOKS.iterdir()):
    _path.chmod(0o755)


def pytest_sessionfinish() -> None:
    """The copy goes with the session."""
    shutil.rmtree(OWN_HOOKS.parent, ignore_errors=True)


class FakeAgent:
    """A real Unix socket that answers one question the way the test says."""

    def __init__(self, path: Path, behave: Callable[[socket.socket, bytes], None]) -> None:
        self.path = path
        self.requests: list[dict[str, Any]] = []
        self._behave = behave
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(path))
        self._listener.listen(5)
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            with connection, connection.makefile("rb") as stream:
                line = stream.readline()
                self.requests.append(json.loads(line))
                try:
                    self._behave(connection, line)
                except OSError:
                    continue  # the hook hung up first, as it may

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join(5)


@pytest.fixture
def fake_agent(tmp_path: Path) -> Iterator[Callable[..., FakeAgent]]:
    """Starts fake agents: `fake_agent(reply=b"...")` or `fake_agent(behave=function)`."""
    started: list[FakeAgent] = []

    def start(reply: bytes = b"", behave: Callable[[socket.socket, bytes], None] | None = None) -> FakeAgent:
        agent = FakeAgent(tmp_path / f"a{len(started)}.sock", behave or (lambda c, _: c.sendall(reply)))
        started.append(agent)
        return agent

    yield start
    for agent in started:
        agent.close()


def hook_words(name: str, hooks: Path = OWN_HOOKS) -> list[str]:
    """The script of a hook, and its own word where one script serves three."""
    asks = name in {"prolog", "epilog", "healthcheck"}
    return [str(hooks / "agent_hook.py"), name] if asks else [str(hooks / f"{name}.py")]


def run_hook(
    name: str, *arguments: str, environment: dict[str, str] | None = None, python: str = "/usr/bin/python3"
) -> subprocess.CompletedProcess[str]:
    """One hook as Slurm starts it: isolated, with nothing but the given environment."""
    return subprocess.run(
        [python, "-I", "-S", *hook_words(name), *arguments],
        env=environment or {},
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )


@pytest.fixture
def hook() -> Callable[..., subprocess.CompletedProcess[str]]:
    """Runs one hook as a real process."""
    if not os.access("/usr/bin/python3", os.X_OK):
        pytest.skip("no system Python")
    return run_hook


@pytest.fixture(scope="session")
def box() -> Iterator[cluster.Sandbox]:
    """A running Slurm cluster of three nodes, with our SPANK plugin and nothing else of ours."""
    if why := requirements.missing():
        pytest.skip(why)
    with (
        scratch.directory("probing-slurm-") as directory,
        cluster.Sandbox.up(directory / "box", nodes=3, gpus=4, bare=True) as running,
    ):
        yield running


@pytest.fixture(scope="session")
def slurm(box: cluster.Sandbox) -> settings.SlurmSettings:
    """Settings that reach the running cluster."""
    return settings.SlurmSettings(conf=str(box.layout.slurm_conf), live="cli")
