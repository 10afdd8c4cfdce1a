"""A job of real processes with pages on this machine, and a session that asks it as its owner would on the node."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from probing_cluster.core import settings
from probing_cluster.live.node import agent_client
from probing_cluster.live.node import view as node_view
from probing_cluster.live.session import session
from probing_cluster.live.ways import choosing
from probing_cluster.probe_agent import inject

JOB = 7
STEPS = 70
TRAIN = """
import os, sys, time
from _probing_probe import collectives, layout, page
page.open_page()
rank, world = int(sys.argv[1]), int(sys.argv[2])
page.write_identity(rank=rank, world=world, backend="gloo")
def enter(seq, op, numel):
    words, at = page._words, page.counts[2]
    row = layout.bytes_of("0", 2) + layout.bytes_of(op, 2)
    meta = (world << 16) | collectives._code_of("torch.float32")
    now = time.monotonic_ns()
    page.pack_collective(page._map, at[0], now, seq, numel, meta.to_bytes(8, "little") + row, now)
    page.counts[2] = at[3]
    return at[2], now
for step in range(STEPS):
    leave, began = enter(step + 1, "all_reduce", 1024)
    page._words[leave] = began + 1_000_000
    page.step_done()
    time.sleep(0.001)
enter(STEPS + 1, "broadcast", 8)
def waits_here(secret=rank * 10):
    print("ready", flush=True)  # not before: a rank that is stopped at once would stand in <module>
    time.sleep(600)  # one long sleep: whoever wakes now and then is runnable for as long as a busy machine lets it wait
waits_here()
""".replace("STEPS", str(STEPS))


class Job:
    """Some ranks on this node, of one user's job."""

    def __init__(self, base: Path) -> None:
        self.directory = base / "jobs" / str(JOB)
        self.directory.mkdir(parents=True)
        self.directory.chmod(0o700)
        self.base = base
        self.ranks: list[subprocess.Popen[bytes]] = []
        self.config = settings.parse(
            f'[cluster]\nname = "c"\n[agent]\nnode = "n1"\njob_directory = "{base / "jobs"}"\n'
        )

    def start(self, n: int, *, world: int | None = None, code: str = TRAIN) -> None:
        """Starts ranks 0 to n-1; returns when each waits inside its last collective."""
        environment = {
            "PROBING_PAGE_DIR": str(self.directory),
            "PYTHONPATH": str(inject.SITE_DIRECTORY),
            "SLURM_JOB_ID": str(JOB),
            "OF_THE_JOB": "yes",
        }
        for rank in range(n):
            argv = [sys.executable, "-S", "-c", code, str(rank), str(world or n)]
            self.ranks.append(
                subprocess.Popen(argv, env={**environment, "SLURM_PROCID": str(rank)}, stdout=subprocess.PIPE)
            )
        for process in self.ranks:
            assert process.stdout is not None
            assert process.stdout.readline() == b"ready\n"
        if code == TRAIN:
            for rank in range(n):
                self.comes_to(rank, "S")

    def comes_to(self, rank: int, state: str) -> None:
        """Waits until a rank's process is in a state, by its letter."""
        deadline = time.monotonic() + 60
        stat = Path(f"/proc/{self.ranks[rank].pid}/stat")
        while stat.read_text().rpartition(") ")[2].split()[0] != state:
            assert time.monotonic() < deadline
            time.sleep(0.01)

    def view(self, *, seconds: float = 5.0) -> node_view.NodeView:
        """What a collector sees."""
        return node_view.NodeView(
            job_id=JOB,
            node="n1",
            uid=os.getuid(),
            directory=self.directory,
            agent=agent_client.AgentClient(path=self.directory.parent / agent_client.SOCKET, job_id=JOB),
            deadline_s=time.monotonic() + seconds,
            may_evaluate=True,
        )

    def end(self) -> None:
        """Ends every rank."""
        for process in self.ranks:
            process.kill()
            process.wait()
            if process.stdout is not None:
                process.stdout.close()


@pytest.fixture
def empty_job(tmp_path: Path) -> Iterator[Job]:
    """A job without a process."""
    job = Job(tmp_path)
    yield job
    job.end()


@pytest.fixture(scope="session")
def job(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Job]:
    """Four ranks that no test disturbs."""
    made = Job(tmp_path_factory.mktemp("live"))
    made.start(4)
    yield made
    made.end()


@pytest.fixture
def open_session() -> Iterator[Callable[..., session.Session]]:
    """Opens sessions on the node of a job, each with a real collector; closed afterwards."""
    opened = []

    def open_one(job: Job, timeout_s: float = 20.0) -> session.Session:
        nodes = choosing.open_nodes(job.config, str(JOB), "local")
        opened.append(nodes)
        return session.Session(nodes, timeout_s=timeout_s)

    yield open_one
    for nodes in opened:
        nodes.close()


@pytest.fixture(scope="module")
def asking(job: Job) -> Iterator[session.Session]:
    """One open session on the node of `job`."""
    nodes = choosing.open_nodes(job.config, str(JOB), "local")
    yield session.Session(nodes, timeout_s=20.0)
    nodes.close()


@pytest.fixture(scope="module")
def rows(asking: session.Session) -> Callable[[str], list[dict[str, Any]]]:
    """The rows of a statement that misses nothing."""

    def found(sql: str) -> list[dict[str, Any]]:
        result = asking.sql(sql)
        assert result.missing == (), result.missing
        return list(result.rows.to_pylist())

    return found
