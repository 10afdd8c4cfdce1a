"""Fixtures of the agent's tests: a clock one can move, a directory that is a node, a spool."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from probing_cluster.core import records
from probing_cluster.probe_agent import identity
from probing_cluster.probe_agent.jobs import processes
from probing_cluster.probe_agent.spool import spool
from probing_cluster.sandbox.machine import scratch
from probing_cluster.sandbox.nodetree import build

sys.path.insert(0, str(Path(__file__).parent))  # for rank_rig and warm_children
import rank_rig
import warm_children


class MovableClock:
    """A clock that stands until it is moved; the wall clock can be made to jump on its own."""

    def __init__(self) -> None:
        self.at = datetime(2026, 1, 31, 14, 0, tzinfo=UTC)
        self.elapsed_s = 1000.0

    def now(self) -> datetime:
        return self.at

    def monotonic_s(self) -> float:
        return self.elapsed_s

    def move(self, seconds: float) -> None:
        self.at += timedelta(seconds=seconds)
        self.elapsed_s += seconds

    def jump(self, seconds: float) -> None:
        self.at += timedelta(seconds=seconds)


@pytest.fixture
def clock() -> MovableClock:
    return MovableClock()


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A healthy simulated node with eight GPUs: `root/` and `nvml.state`."""
    build.build(tmp_path / "node", "n1", gpus=8)
    return tmp_path / "node"


@pytest.fixture
def root(home: Path) -> Path:
    """The node's filesystem root."""
    return home / "root"


@pytest.fixture
def node_identity(root: Path) -> identity.Identity:
    return identity.Identity(cluster="c", node="n1", root=root)


@pytest.fixture
def queue(tmp_path: Path) -> Iterator[spool.Spool]:
    made = spool.Spool(tmp_path / "spool", max_bytes=10_000_000)
    yield made
    made.close()


MakeEvent = Callable[..., records.HealthEvent]


@pytest.fixture
def event() -> MakeEvent:
    """Makes an event; the position decides its identity, keywords override fields."""

    def make(position: str = "b:1", **fields: object) -> records.HealthEvent:
        at = fields.pop("at", datetime(2026, 1, 31, 14, 0, tzinfo=UTC))
        values: dict[str, object] = {
            "event_id": records.make_event_id("c", "n1", "kernel", position),
            "cluster": "c",
            "node": "n1",
            "at": at,
            "observed_at": at,
            "kind": "xid",
            "code": "79",
            "severity": records.Severity.HIGH,
            "source": "kernel",
            "message": "NVRM: Xid 79",
        }
        return records.HealthEvent(**(values | fields))  # type: ignore[arg-type]

    return make


@pytest.fixture(scope="session")
def warm_socket() -> Iterator[Path]:
    """The socket of a process that has imported what the collecting children read with (warm_children)."""
    with scratch.directory("probing-warm-") as directory, warm_children.running(directory / "s") as path:
        yield path


@pytest.fixture(scope="session")
def nvml_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The NVML stub, built; skips where there is no compiler."""
    if shutil.which("gcc") is None:
        pytest.skip("no C compiler")
    from probing_cluster.sandbox.c_libraries import nvml_build

    return nvml_build.build(tmp_path_factory.mktemp("nvml"))


@pytest.fixture
def rig(
    tmp_path: Path, node_identity: identity.Identity, request: pytest.FixtureRequest
) -> Iterator[rank_rig.Rig]:
    """A watcher of ranks over a job of this user, and no process left behind. Its parameter: `startup_s` of the limits."""
    made = rank_rig.Rig(tmp_path, node_identity, *([request.param] if hasattr(request, "param") else []))
    yield made
    for process in made.started:
        children = processes.children_of(process.pid)
        for child in children:  # a container outlives what started it, and that one tidies up after it
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
        if children:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(10)
        process.kill()
        process.communicate()
