"""One agent's watcher over a job of real processes with pages, for the tests of the ranks' modules."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from probing_cluster.probe_agent import children, identity, inject, self_watch
from probing_cluster.probe_agent.faults.sighting import Sighting
from probing_cluster.probe_agent.jobs import jobs, page_directories
from probing_cluster.probe_agent.ranks import rank_watch, stall

TRAIN = """
import sys, time
from _probing_probe import page, layout
page.open_page()
page.write_identity(rank=int(sys.argv[1]), world=2, backend="gloo")
def train(steps):
    for _ in range(steps):
        time.sleep(0.005)
        page.step_done()
def dataloader():
    while True: time.sleep(0.05)
train(int(sys.argv[2]))
print("stopped", flush=True)
dataloader()
"""


class Rig:
    """One agent's watcher over one job of this user."""

    def __init__(self, tmp_path: Path, node_identity: identity.Identity, startup_s: float = 600) -> None:
        self.taken: list[Sighting] = []
        self.book = jobs.JobBook(node_identity.boot_id())
        uid, gid = os.getuid(), os.getgid()
        self.book.start(jobs.NodeJob(job_id=7, started_at=datetime.now(UTC), uid=uid, gid=gid))
        self.directories = page_directories.PageDirectories(tmp_path / "pages")
        self.directory = self.directories.make(7, uid, gid)
        self.self_watch = self_watch.SelfWatch()
        self._identity, self._startup_s = node_identity, startup_s
        self.begin_anew()
        self.started: list[subprocess.Popen[bytes]] = []

    def begin_anew(self) -> None:
        """A watcher that knows the book and nothing else, as after a restart of the agent."""
        self.watch = rank_watch.RankWatch(
            identity=self._identity,
            children=children.Children(),
            book=self.book,
            directories=self.directories,
            take=self.taken.extend,
            watch=self.self_watch,
            limits=stall.StallLimits(least_s=0.4, startup_s=self._startup_s),
        )

    def rank(self, number: int, steps: int = 20, within: Sequence[str] = ()) -> subprocess.Popen[bytes]:
        """A training process that has stopped after `steps` steps; `within` is a command that starts it."""
        process = self.start(TRAIN, str(number), str(steps), within=within)
        assert process.stdout is not None
        assert process.stdout.readline() == b"stopped\n"
        return process

    def start(self, code: str, *words: str, within: Sequence[str] = ()) -> subprocess.Popen[bytes]:
        """Python in a job step."""
        argv = [*within, sys.executable, "-S", "-c", code, *words]
        process = subprocess.Popen(argv, env=self._environment(), stdout=subprocess.PIPE)
        self.started.append(process)
        return process

    def _environment(self) -> dict[str, str]:
        slurm = {name: value for name, value in os.environ.items() if name.startswith("SLURM_")}
        return {"PROBING_PAGE_DIR": str(self.directory), "PYTHONPATH": str(inject.SITE_DIRECTORY), **slurm}

    def run(self, code: str) -> None:
        """Python in a job step, to its end."""
        subprocess.run([sys.executable, "-S", "-c", code], env=self._environment(), check=True)

    def beats_until(self, kind: str, more: int = 5) -> list[str]:
        """Watches until something of a kind is told, and some beats more; all kinds that were told."""

        async def live() -> None:
            end = time.monotonic() + 120
            while kind not in {s.kind for s in self.taken}:
                assert time.monotonic() < end, self.taken
                await self.watch.beat()
                await asyncio.sleep(0.1)
            for _ in range(more):
                await self.watch.beat()
                await asyncio.sleep(0.1)
            await self.watch.close()

        asyncio.run(live())
        return [s.kind for s in self.taken]
